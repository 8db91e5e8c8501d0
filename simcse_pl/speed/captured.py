"""A training step as one CUDA graph: all views, the losses, the backward pass, clipping and the optimizer's step.

A GPU then waits for no kernel to be launched: on an H200 it was idle for 76 % of an eager step of 64 rows.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.models.backbone import packs_sequences, recomputes_layers
from simcse_pl.module import SimCSEModule
from simcse_pl.speed.compile import pad_to_multiples
from simcse_pl.step import TrainingStep
from simcse_pl.utils.errors import UserError, first_line

log = logging.getLogger(__name__)

_READ_GRADIENTS = ("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad")
_OF_STEP = (*_READ_GRADIENTS, "training_step", "backward", "configure_gradient_clipping", "optimizer_step")


class CudaGraph:
    """The kernels of a function, which run at each `replay`, on the same memory.

    Attributes:
        results: what the function returned; its tensors hold the values of the last replay.
    """

    def __init__(self, function: Callable[[], Any], pool: Any) -> None:
        self._graph = torch.cuda.CUDAGraph()
        # The thread of a DataLoader that pins memory may call CUDA meanwhile.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self.results = function()
        self.replay = self._graph.replay


def captured_steps(module: SimCSEModule, trainer: Trainer) -> "CapturedSteps | None":
    """Return the captured steps of a module, or None if `module.cuda_graph` is auto and something excludes them.

    Raises:
        UserError: `module.cuda_graph` is true, and something excludes them.
    """
    reason = next(_obstacles(module, trainer), None)
    if reason and module.cuda_graph is True:
        raise UserError(f"module.cuda_graph=true: no CUDA graph is possible with {reason}: set it to false")
    if reason:
        log.info("%-13s no CUDA graph, because of %s", "step", reason)
        return None
    for encoder in module.encoders:
        pad_to_multiples(encoder)  # there is a graph for each padded length
    return CapturedSteps(module, CudaGraph)


def _obstacles(module: SimCSEModule, trainer: Trainer) -> Iterator[str]:
    """Yield what excludes a CUDA graph."""
    if trainer.strategy.root_device.type != "cuda":
        yield f"the device {trainer.strategy.root_device.type}"
    if trainer.world_size > 1 or module.sharded:
        yield "several devices"
    if trainer.precision == "16-mixed":
        yield "trainer.precision=16-mixed, whose scaler reads each step"
    for option in ("chunk_size", "shared_dropout_mask", "positive_encoder"):
        if getattr(module, option):
            yield f"module.{option}" if option != "positive_encoder" else "encoders=two"
    if module.compiled == "reduce-overhead":
        yield "module.compile=reduce-overhead, which has graphs of its own"
    for encoder in module.encoders:
        if packs_sequences(encoder.backbone):
            yield "unpadded sequences, whose number of tokens changes"
        if recomputes_layers(encoder.backbone):
            yield "module.gradient_checkpointing, which reads the state of random numbers"
    for part in module.modules():
        is_ours = type(part).__module__.startswith("simcse_pl.") or "capturable" in vars(type(part))
        if not getattr(part, "capturable", True) or (isinstance(part, Loss) and not is_ours):
            yield f"{type(part).__name__}, which is not declared capturable"
    if any(getattr(type(module), hook) is not getattr(SimCSEModule, hook) for hook in _OF_STEP):
        yield f"{type(module).__name__}, which has a step of its own"
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if any(getattr(type(callback), hook) is not getattr(Callback, hook) for hook in _READ_GRADIENTS):
            yield f"the callback {type(callback).__name__}, which reads gradients"


class CapturedSteps:
    """Runs training steps by CUDA graphs: one for each data set, shape of a batch, and draw of the host.

    The first step of a kind is eager, which also makes the optimizer's state. The second one is captured. Graphs share
    their memory: only one runs at a time, and each begins with its inputs.

    Args:
        module: the module that trains.
        graph: makes a graph of a function, in a pool of memory.
    """

    def __init__(self, module: SimCSEModule, graph: Callable[[Callable[[], Any], Any], Any]) -> None:
        self.module, self._graph = module, graph
        self._graphs: dict[Any, tuple[dict[str, Any], Any] | None] = {}
        self._losses = [part for part in module.modules() if isinstance(part, Loss)]
        self._pool: Any = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None
        self._scalars: list[Tensor] = []  # progress, and the learning rate of each group of parameters

    def draw(self) -> dict[Loss, int]:
        """Return what losses draw on the host for a step."""
        return {loss: value for loss in self._losses if (value := loss.draw(self.module.encoder)) is not None}

    def step(self, rows: Mapping[str, Any], progress: float, drawn: Mapping[Loss, int]) -> TrainingStep | None:
        """Train on a batch and return the step; do nothing and return None if the step has to be eager."""
        module, optimizer = self.module, self.module.trainer.optimizers[0]
        tensors = {name: x for name, x in rows.items() if isinstance(x, Tensor)}
        shapes = tuple((name, x.shape) for name, x in tensors.items())
        queued = len(module.queue.negatives()) if module.queue else 0
        kind = rows.get("dataset"), rows.get("roles"), shapes, queued, tuple(drawn.values())
        rates = [group["lr"] for group in optimizer.param_groups]
        if not self._scalars:
            self._scalars = [torch.zeros((), device=module.device) for _ in range(1 + len(rates))]
        for scalar, value in zip(self._scalars, [progress, *rates], strict=True):
            scalar.fill_(value)
        if kind not in self._graphs:
            self._graphs[kind] = None
            return None
        try:
            static, graph = self._graphs[kind] = self._graphs[kind] or self._captured(rows, optimizer, drawn)
        except RuntimeError as error:  # nothing has run
            reason = f"no CUDA graph of this step is possible: {first_line(error)}"
            if module.cuda_graph is True:
                raise UserError(f"module.cuda_graph=true: {reason}: set it to false") from error
            log.warning("%s", reason)
            module.captured = None
            return None
        for name, x in tensors.items():
            static[name].copy_(x)
        graph.replay()
        batch, loss, norm = graph.results
        batch = batch.replaced(rows=rows.get("rows"), curves=dict(batch.curves))
        return TrainingStep(module.global_step + 1, batch, loss.detach(), None, rates[0], norm)

    def _captured(
        self, rows: Mapping[str, Any], optimizer: Any, drawn: Mapping[Loss, int]
    ) -> tuple[dict[str, Any], Any]:
        """Return the inputs of a graph, in memory of their own, and the graph."""
        if not all(group.get("fused") for group in optimizer.param_groups):
            raise RuntimeError(f"{type(optimizer).__name__} is not fused")
        module, trainer = self.module, self.module.trainer
        static = {name: x.clone() if isinstance(x, Tensor) else x for name, x in rows.items() if name != "rows"}

        def whole_step() -> tuple[EmbeddedBatch, Tensor, Tensor]:
            batch, loss = module.batch_and_loss(static, self._scalars[0], drawn=drawn)
            with torch.autocast(module.device.type, enabled=False):
                loss.backward()  # type: ignore[no-untyped-call]
                norm = module.clip(optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm)
                optimizer.step()
            return batch, loss, norm

        module.step = None  # its graph of autograd belongs to another stream
        optimizer.zero_grad()
        with self.tensor_rates():
            return static, self._graph(whole_step, self._pool)

    @contextmanager
    def tensor_rates(self) -> Iterator[None]:
        """Let the optimizer read its learning rates from tensors, as a replay does; eager steps then round alike."""
        groups = self.module.trainer.optimizers[0].param_groups
        before: list[dict[str, Any]] = [
            {name: group[name] for name in ("lr", "capturable") if name in group} for group in groups
        ]
        try:
            for group, rate in zip(groups, self._scalars[1:], strict=True):
                if group.get("fused"):
                    group.update(lr=rate, capturable=True)
            yield
        finally:
            for group, saved in zip(groups, before, strict=True):
                group.update(saved)
