"""Fully sharded training (FSDP2): each rank holds a part of the weights, the gradients and the optimizer's state.

The ranks put the weights of a layer together when a pass needs them, and drop them afterwards. They do so at the same
time, so each rank must run as many passes as the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from lightning_utilities import apply_to_collection
from pytorch_lightning import Trainer
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.strategies import ModelParallelStrategy, ParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from simcse_pl.losses.frozen_encoder import Frozen
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.length_groups import LengthGroups
from simcse_pl.utils.distributed import from_first_rank, rank
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.private import own_tensors, undo_fully_shard
from simcse_pl.utils.processes import is_first_process
from simcse_pl.utils.types import Backbone, Batch

if TYPE_CHECKING:
    from simcse_pl.module import SimCSEModule

_STEPS = ("training_step", "validation_step", "test_step", "held_out_loss")  # what reads the weights


class FullyShardedStrategy(ModelParallelStrategy):
    """Lightning's strategy of FSDP2 for a SimCSEModule.

    Each layer of an encoder is a group of weights, which is put together as a whole; the embeddings, the heads and the
    losses are another one. With bf16-mixed, layers compute with weights in bfloat16. The weights that the optimizer
    changes, and the sums of gradients, stay in float32.

    Checkpoints have the whole weights, and are those of a run on one device.

    Args:
        timeout: how long a rank waits for the others until the run ends.
    """

    shards_weights = True  # for the core, which imports no file of speed/

    def __init__(self, timeout: timedelta = timedelta(minutes=30)) -> None:
        super().__init__(save_distributed_checkpoint=False, timeout=timeout)

    @staticmethod
    def loading_weights() -> AbstractContextManager[Any]:
        """Return a context in which only the first rank loads the weights of encoders.

        The other ranks have weights without memory until they get their parts: a machine then holds one copy of them.
        """
        return nullcontext() if is_first_process() else torch.device("meta")

    def setup_environment(self) -> None:
        self._setup_distributed()

    def setup(self, trainer: Trainer) -> None:
        ParallelStrategy.setup(self, trainer)  # Lightning's own wants the module to shard itself

    def model_to_device(self) -> None:
        """Share out the weights over the ranks, once, and move everything else to the device."""
        module: Any = self.lightning_module
        if self._device_mesh is None:
            self._device_mesh = init_device_mesh(
                self.root_device.type, (self.world_size,), mesh_dim_names=("data_parallel",)
            )
            half = self.precision_plugin.precision == "bf16-mixed"
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if half else MixedPrecisionPolicy()
            _shard(module, self, policy)
        module.to(self.root_device)

    @torch.no_grad()
    def load_from_first_rank(self, weights: Mapping[str, Tensor], strict: bool = False) -> None:
        """Give each rank its part of whole weights; only those of the first rank are read."""
        parameters = dict(self.lightning_module.named_parameters(remove_duplicate=False))  # type: ignore[union-attr]
        names = self.broadcast([name for name in weights if name in parameters])
        if strict and (missing := parameters.keys() - names):
            raise UserError(f"the checkpoint lacks the weights of {min(missing)}")
        for name in names:
            like: Any = parameters[name]
            like.copy_(_part_of(like if rank() else weights[name].to(like.dtype), like))

    def gather(self) -> None:
        """Make the module an ordinary one with whole weights again, on the first rank.

        On other ranks, nothing changes.
        """
        module: Any = self.lightning_module
        whole: dict[Tensor, Any] = {parameter: _gathered(parameter.detach()) for parameter in module.parameters()}
        if rank():
            return
        replaced = {parameter: nn.Parameter(values, parameter.requires_grad) for parameter, values in whole.items()}
        for part in list(module.modules()):
            if isinstance(part, FSDPModule):
                undo_fully_shard(part)
            parameters, _ = own_tensors(part)
            parameters.update({name: replaced[x] for name, x in parameters.items() if x is not None})
        module.sharded = False

    def lightning_module_state_dict(self) -> dict[str, Any]:
        module: Any = self.lightning_module
        state = module.state_dict()
        module.leave_out_bases(state)
        return _whole(state)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return _whole((optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer).state_dict())

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        # the tensors stay on the disk until they are used
        content: dict[str, Any] = torch.load(checkpoint_path, "cpu", weights_only=True, mmap=True)
        return content

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        self.load_from_first_rank(checkpoint["state_dict"], strict)

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, whole in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for number, values in whole["state"].items():
                like = parameters[number]
                for name, value in values.items():
                    if isinstance(value, Tensor) and value.shape == like.shape:
                        values[name] = _part_of(value, like)
            optimizer.load_state_dict(whole)


class OnePass(LengthGroups):
    """Passes each batch through a backbone at once."""

    def split(self, backbone: Backbone, inputs: Batch) -> Iterator[tuple[Tensor, Batch]]:
        ids = inputs["attention_mask"]
        yield torch.arange(len(ids), device=ids.device), dict(inputs)


@torch.no_grad()
def _shard(module: "SimCSEModule", strategy: FullyShardedStrategy, policy: MixedPrecisionPolicy) -> None:
    """Share out the first rank's weights, and tell all ranks what is trained and which encoders ignore padding."""
    encoders = [part for part in module.modules() if isinstance(part, SentenceEncoder)]
    names = {parameter: name for name, parameter in module.named_parameters()}
    trained = [parameter.requires_grad for parameter in names]
    in_some = [names[parameter] for parameter in module.not_in_every_loss]
    groups = [encoder.groups.ignores_padding for encoder in encoders]
    trained, in_some, groups = strategy.broadcast((trained, in_some, groups))
    _check(module, groups)
    for encoder in encoders:
        encoder.groups = OnePass(ignores_padding=True)
    for parameter, is_trained in zip(names, trained, strict=True):
        parameter.requires_grad_(is_trained)
    whole = {} if rank() else {name: parameter.detach() for parameter, name in names.items()}
    frozen = [part.network for part in module.modules() if isinstance(part, Frozen)]
    _make_groups(module, encoders, frozen, strategy, policy)
    strategy.load_from_first_rank(whole)
    module.to(strategy.root_device)
    for tensor in [*module.buffers(), *(x for network in frozen for x in (*network.parameters(), *network.buffers()))]:
        tensor.copy_(from_first_rank(tensor))
    sharded = dict(module.named_parameters())
    module.not_in_every_loss, module.sharded = [sharded[name] for name in in_some], True


def _make_groups(
    module: "SimCSEModule",
    encoders: Sequence[SentenceEncoder],
    frozen: Sequence[nn.Module],
    strategy: FullyShardedStrategy,
    policy: MixedPrecisionPolicy,
) -> None:
    """Make each layer of an encoder a group of weights, and everything else another one."""
    with_memory: dict[Tensor, Any] = {}
    for encoder in encoders:
        lists = (part for part in encoder.backbone.modules() if isinstance(part, nn.ModuleList))
        for layer in next(lists, ()):
            _give_memory(layer, strategy.root_device, with_memory)
            fully_shard(layer, mesh=strategy.device_mesh, reshard_after_forward=True, mp_policy=policy)
    for rest in (module, *frozen):
        _give_memory(rest, strategy.root_device, with_memory)
    fully_shard(module, mesh=strategy.device_mesh, reshard_after_forward=True)
    for name in _STEPS:
        register_fsdp_forward_method(module, name)


def _check(module: "SimCSEModule", ignores_padding: Sequence[bool]) -> None:
    """Raise UserError if a module needs whole weights, or another number of passes on each rank."""
    if module.queue:
        raise UserError("queue: its copy of the encoder needs whole weights: set queue=null, or trainer=ddp")
    if any(getattr(encoder.backbone, "is_quantized", False) for encoder in module.encoders):
        raise UserError("quantization: quantized weights cannot be sharded: use model.dtype=bfloat16, or trainer=ddp")
    if not all(ignores_padding):
        raise UserError("model: padding changes its vectors, so ranks differ in their passes: set trainer=ddp")


def _give_memory(module: nn.Module, device: torch.device, replaced: dict[Tensor, Any]) -> None:
    """Replace the weights without memory by uninitialized ones. Shared weights stay shared."""
    for part in module.modules():
        for tensors in own_tensors(part):
            for name, tensor in tensors.items():
                if tensor is not None and tensor.is_meta:
                    if tensor not in replaced:
                        empty = torch.empty_like(tensor, device=device)
                        replaced[tensor] = (
                            nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
                        )
                    tensors[name] = replaced[tensor]


def _part_of(whole: Tensor, like: DTensor) -> DTensor:
    """Return this rank's part of a tensor that the first rank has, sharded as `like`."""
    empty = partial(torch.empty, like.shape, dtype=whole.dtype, device=like.device)
    return distribute_tensor(empty() if rank() else whole.to(like.device), like.device_mesh, like.placements)


def _gathered(part: Any) -> Tensor | None:
    """Return the whole of a sharded tensor on the CPU of the first rank, None on other ranks."""
    whole: Tensor = part.full_tensor()
    return None if rank() else whole.cpu()


def _whole(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict with whole tensors on the first rank, an empty one on other ranks."""
    gathered: dict[str, Any] = apply_to_collection(state, DTensor, _gathered)
    return {} if rank() else gathered
