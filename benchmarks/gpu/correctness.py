"""The losses, gradients and vectors of a device, compared with those of the CPU in float32."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from hydra.core.hydra_config import HydraConfig
from lightning_fabric.utilities import move_data_to_device
from omegaconf import DictConfig
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks.gpu.models import make_tokenizer, mixed_texts, save_small_encoder, sentences
from benchmarks.methods import built, composed, with_local_networks
from simcse_pl.config import CONF
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import first_line
from simcse_pl.utils.types import Batch

Record = dict[str, Any]
PRECISIONS = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
TOLERANCES = {"float32": 1e-3, "bf16": 0.3, "fp16": 0.1}  # of the relative error of a loss and of a gradient
_SCALE = 1024.0  # of the loss, so that gradients in half precision are not 0
ROWS = 8  # of a batch
_SMALL = {  # what a method needs for a model of 3 layers and 64 dimensions
    "infocse": ["auxiliary.sentence_mlm.frozen_layers=2"],
    "whitenedcse": ["objective.groups=16"],
}
_SUPERVISED, _PAIRS = "method=sup_simcse", "method=simcse"
FURTHER = {  # losses that are no part of a method
    "objective=cosine_mse": ["data=nli_scored_sample"],
    "objective=distillation": [_PAIRS, "objective.teacher=any/network", "model.head=none"],
    "objective=gist": [_SUPERVISED, "objective.guide=any/network"],
    "objective=margin_mse": [_SUPERVISED, "objective.teacher=any/network", "model.head=none"],
    "objective=matryoshka": [_PAIRS, "model.head=mlp"],
    "objective=mlm": [_PAIRS],
    "objective=sbert": ["data=nli_labelled_sample"],
    "auxiliary=mlm": [_PAIRS],
    "auxiliary=inner_layer": [_PAIRS],
}


class DrawnOnCPU(TorchFunctionMode):
    """A context in which random numbers are drawn on the CPU, so that all devices compute with the same ones."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.rand, torch.randn, torch.randint):
            device = kwargs.pop("device", None)
            return func(*args, **kwargs, device="cpu").to(device or "cpu")
        if func in (torch.bernoulli, torch.randint_like):
            return func(args[0].cpu(), *args[1:], **kwargs).to(args[0].device)
        if func is Tensor.normal_:
            return args[0].copy_(torch.empty_like(args[0], device="cpu").normal_(*args[1:], **kwargs))
        return func(*args, **kwargs)


def cases() -> dict[str, list[str]]:
    """Return the options of each method, and of each loss that is no part of one, by name."""
    methods = sorted(file.stem for file in (CONF / "method").glob("*.yaml"))
    of_methods = {f"method={name}": [f"method={name}", *_SMALL.get(name, [])] for name in methods}
    return of_methods | {name: [*options, name] for name, options in FURTHER.items()}


def config_of(options: list[str], folder: Path) -> DictConfig:
    """Return the config of a case without dropout, with the small model and files of a folder (see `prepared`)."""
    small = ["model=bert", "size=mini", f"model.name={folder}", "model.dropout=0", "data.test=null"]
    small += [f"data.batch_size={ROWS}", "data.limit=64", f"data.validation={folder}/pairs.tsv", "trainer=cpu"]
    config = composed(*options, *small)
    if HydraConfig.get().runtime.choices.data in ("wiki", "wiki_sample"):
        config.data.train = f"{folder}/sentences.txt"
    for part in ("objective", "auxiliary"):
        with_local_networks(config.get(part) or {}, folder / "other")
    return config


def prepared(folder: Path) -> Path:
    """Write two small models, sentences to train on, and scored pairs to a folder, and return it."""
    torch.manual_seed(1)
    tokenizer = make_tokenizer()
    for place in (folder, folder / "other"):
        save_small_encoder(place, tokenizer)
    some = sentences()[:64]
    (folder / "sentences.txt").write_text("\n".join(some), encoding="utf-8")
    pairs = "".join(f"{text}\t{other}\t{i % 6}\n" for i, (text, other) in enumerate(zip(some, some[1:], strict=False)))
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    return folder


def module_of(config: DictConfig) -> tuple[SimCSEModule, Batch]:
    """Return the module of a config, ready to train, and its first batch."""
    module, data = built(config)
    data.setup()
    module.prepare(data.row_kinds)
    batch: Any = next(iter(data.train_dataloader()))
    if module.queue:
        module.queue.update(module.encoder, {name: batch[name] for name in module.encoder.tokenizer.model_input_names})
    return module, batch


def loss_and_gradient(
    module: SimCSEModule, rows: Batch, device: torch.device, dtype: torch.dtype | None = None, repeats: int = 1
) -> tuple[float, Tensor]:
    """Return the loss of a batch on a device, and its gradient as one vector on the CPU.

    Args:
        module: the module, which is moved.
        rows: the batch.
        device: the device.
        dtype: that of autocast; None computes in float32.
        repeats: how often to compute them; the last ones are returned. Compiled code is another one at first.
    """
    module.to(device)
    rows = move_data_to_device(rows, device)
    for _ in range(repeats):
        torch.manual_seed(5)
        module.zero_grad()
        queue = module.queue.negatives() if module.queue else None
        drawn = nullcontext() if module.compiled else DrawnOnCPU()
        with drawn, torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
            loss = module.loss(module.batch_of(rows, progress=0.5, queue=queue))
            (_SCALE * loss).backward()
    gradients = [weight.grad.flatten() for weight in module.parameters() if weight.grad is not None]
    return loss.item(), torch.cat(gradients).float().cpu() / _SCALE


def compared(
    expected: tuple[float, Tensor],
    module: SimCSEModule,
    rows: Batch,
    device: torch.device,
    precisions: tuple[str, ...] = tuple(PRECISIONS),
) -> Record:
    """Return the relative errors of the loss and the gradient of a device, by precision."""
    repeats = 4 if module.compiled else 1
    record: Record = {"errors": {}, "passed": True}
    for precision in precisions:
        loss, gradient = loss_and_gradient(module, rows, device, PRECISIONS[precision], repeats)
        errors = [
            abs(loss - expected[0]) / abs(expected[0]),
            float((gradient - expected[1]).norm() / expected[1].norm()),
        ]
        record["errors"][precision] = errors
        record["passed"] &= max(errors) <= TOLERANCES[precision]  # false for NaN
    return record


def checked(name: str, check: Callable[[], Record]) -> Record:
    """Return the record of a check, or why it did not run to its end."""
    try:
        return {"case": name, **check()}
    except ImportError as error:
        return {"case": name, "skipped": first_line(error)}
    except Exception as error:  # the other checks go on
        return {"case": name, "passed": False, "error": f"{type(error).__name__}: {first_line(error)}"}


def losses(device: str, tiny: bool) -> Iterator[Record]:
    """Compare the loss and the gradient of each method, and of each loss that is no part of one."""
    with TemporaryDirectory() as name:
        folder = prepared(Path(name))
        for case, options in cases().items():
            yield checked(case, lambda options=options: loss_of_case(options, folder, torch.device(device)))


def loss_of_case(options: list[str], folder: Path, device: torch.device) -> Record:
    """Compare the loss and the gradient of a case on a device with those on the CPU."""
    module, rows = module_of(config_of(options, folder))
    return compared(loss_and_gradient(module, rows, torch.device("cpu")), module, rows, device)


def kernels(device: str, tiny: bool) -> Iterator[Record]:
    """Compare implementations of attention, compiled code, and encoding; the CPU has transformers' plain attention."""
    with TemporaryDirectory() as name:
        folder = prepared(Path(name))
        reference = loss_and_gradient(
            *module_of(config_of([_PAIRS, "model.attn_implementation=eager"], folder)), torch.device("cpu")
        )

        def check(option: str, precisions: tuple[str, ...]) -> Callable[[], Record]:
            return lambda: compared(
                reference, *module_of(config_of([_PAIRS, option], folder)), torch.device(device), precisions
            )

        both = ("float32", "bf16")
        for attention in ("eager", "sdpa", "flex_attention", "flash_attention_2"):
            option = f"model.attn_implementation={attention}"
            yield checked(option, check(option, both[attention == "flash_attention_2" :]))
        yield checked("encode", lambda: encoding(folder, device))
        for mode in ("true", "reduce-overhead")[: 1 if device == "cpu" else 2]:  # a CPU has no CUDA graphs
            yield checked(f"module.compile={mode}", check(f"module.compile={mode}", both[: 1 if tiny else 2]))


def encoding(folder: Path, device: str) -> Record:
    """Compare the vectors of texts of mixed length."""
    encoder, texts = SentenceEncoder.from_pretrained(folder, pooling="mean"), mixed_texts(200)
    expected = encoder.encode(texts)
    encoder.to(device)
    worst = [1 - float(F.cosine_similarity(encoder.encode(texts, bf16=bf16), expected).min()) for bf16 in (False, True)]
    errors = {precision: [error] for precision, error in zip(("float32", "bf16"), worst, strict=True)}
    return {"errors": errors, "passed": worst[0] <= 1e-5 and worst[1] <= 1e-2}
