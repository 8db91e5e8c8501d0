"""The losses, gradients and vectors of a device, compared with those of the CPU in float32."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
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

from benchmarks.common import mixed_texts, sample_sentences
from benchmarks.methods import built, composed, with_local_networks
from benchmarks.models import save_small_encoders
from simcse_pl.config import CONF
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.utils.errors import first_line
from simcse_pl.utils.types import Batch

Record = dict[str, Any]
PRECISIONS = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
TOLERANCES = {"float32": 1e-3, "bf16": 0.3, "fp16": 0.05}  # of relative errors; on a CPU, bf16 has 0.14, fp16 0.02
ROWS = 16  # of a batch
_SCALE = 1024.0  # of the loss, so that gradients in half precision are not 0
_OPTIONS = {  # what a method needs for such small encoders, and for all of its parts to be seen in the gradient
    "dclr": ["objective.threshold=0.99"],
    "declutr": ["data.max_length=32"],
    "denosent": [*(f"auxiliary.noisy_reconstruction.{option}" for option in ("layers=2", "noise=0", "dropout=0"))],
    "diffcse": ["auxiliary.replaced_token_detection.weight=1"],
    "infocse": ["auxiliary.sentence_mlm.weight=1", "auxiliary.sentence_mlm.frozen_layers=2"],
    "sncse": ["auxiliary.bidirectional_margin.weight=1"],
    "whitenedcse": ["objective.groups=32"],
}
_PAIRS, _TRIPLETS = "method=simcse", "method=sup_simcse"
FURTHER = {  # losses that are no part of a method
    "objective=cosine_mse": ["data=nli_scored_sample"],
    "objective=distillation": [_PAIRS, "objective.teacher=any/network", "model.head=none"],
    "objective=gist": [_TRIPLETS, "objective.guide=any/network"],
    "objective=in_batch_tension": ["method=contrastive_tension"],
    "objective=listwise": [_TRIPLETS, "objective.teacher=any/network", "model.head=none"],
    "objective=margin_mse": [_TRIPLETS, "objective.teacher=any/network", "model.head=none"],
    "objective=matryoshka": [_PAIRS, "model.head=mlp"],
    "objective=mlm": [_PAIRS],
    "objective=mntp": [_PAIRS],
    "objective=sbert": ["data=nli_labelled_sample"],
    "auxiliary=mlm": [_PAIRS],
    "auxiliary=energy_hinge": [_TRIPLETS],
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
    of_methods = {f"method={name}": [f"method={name}", *_OPTIONS.get(name, [])] for name in methods}
    return of_methods | {name: [*options, name] for name, options in FURTHER.items()}


def prepare(folder: Path) -> None:
    """Write small encoders, sentences to train on, and scored pairs to a folder."""
    save_small_encoders(folder, folder / "other")
    some = sample_sentences()[:64]
    (folder / "sentences.txt").write_text("\n".join(some), encoding="utf-8")
    pairs = "".join(f"{text}\t{some[-i]}\t{i % 6}\n" for i, text in enumerate(some))
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")


def config_of(options: list[str], folder: Path) -> DictConfig:
    """Return the config of a case without dropout, with the encoders and files of a folder (see `prepare`)."""
    small = ["model=bert", "size=mini", f"model.name={folder}", "model.dropout=0", "data.test=null", "trainer=cpu"]
    small += [f"data.batch_size={ROWS}", "data.limit=64", f"data.validation={folder}/pairs.tsv"]
    config = composed(*options, *small)
    if HydraConfig.get().runtime.choices.data in ("wiki", "wiki_sample"):
        config.data.train = f"{folder}/sentences.txt"
    for part in ("objective", "auxiliary"):
        with_local_networks(config.get(part) or {}, folder / "other")
    return config


def loss_and_gradient(
    module: SimCSEModule, rows: Batch, device: str, dtype: torch.dtype | None = None
) -> tuple[float, Tensor]:
    """Return the loss of a batch and its gradient as one vector, computed on a device; by autocast with a dtype."""
    module.to(device)
    rows = move_data_to_device(rows, torch.device(device))
    for _ in range(4 if module.compiled else 1):  # CUDA graphs are recorded in the first passes
        torch.manual_seed(5)
        module.zero_grad()
        queue = module.queue.negatives() if module.queue else None
        half = nullcontext() if dtype is None else torch.autocast(torch.device(device).type, dtype)
        with nullcontext() if module.compiled else DrawnOnCPU(), half:
            loss = module.loss(module.batch_of(rows, progress=0.5, queue=queue))
            (_SCALE * loss).backward()
    gradients = [weight.grad.flatten() for weight in module.parameters() if weight.grad is not None]
    return loss.item(), torch.cat(gradients).float().cpu() / _SCALE


def case_of(options: list[str], folder: Path) -> tuple[SimCSEModule, Batch]:
    """Return the module of a case, ready to train, and its first batch."""
    module, data = built(config_of(options, folder))
    data.setup()
    module.prepare(data.rows)
    rows: Any = next(iter(data.train_dataloader()))
    if module.queue:
        module.queue.update(module.encoder, {name: rows[name] for name in module.encoder.tokenizer.model_input_names})
    return module, rows


def compared(
    options: list[str],
    folder: Path,
    device: str,
    precisions: tuple[str, ...] = tuple(PRECISIONS),
    reference: list[str] | None = None,
) -> Record:
    """Return the relative errors of the loss and the gradient of a case on a device, by precision.

    They are compared with those on the CPU, of the same case or of a reference.
    """
    module, rows = case_of(options, folder)
    expected = loss_and_gradient(*(case_of(reference, folder) if reference else (module, rows)), "cpu")
    errors = {}
    for precision in precisions:
        loss, gradient = loss_and_gradient(module, rows, device, PRECISIONS[precision])
        of_gradient = (gradient - expected[1]).norm() / expected[1].norm()
        errors[precision] = [abs(loss / expected[0] - 1), float(of_gradient)]
    return {"errors": errors, "passed": all(max(own) <= TOLERANCES[name] for name, own in errors.items())}


def checked(name: str, check: Callable[..., Record], *arguments: Any) -> Record:
    """Return the record of a check, or why it did not run to its end."""
    try:
        return {"case": name, **check(*arguments)}
    except Exception as error:  # the other checks go on
        first: BaseException = error
        while first.__cause__:
            first = first.__cause__
        return {"case": name, "passed": False, "error": f"{type(first).__name__}: {first_line(first)}"}


def losses(device: str, tiny: bool) -> Iterator[Record]:
    """Compare the loss and the gradient of each method, and of each loss that is no part of one; of a few if tiny."""
    with TemporaryDirectory() as name:
        prepare(Path(name))
        for case, options in list(cases().items())[:: 6 if tiny else 1]:
            yield checked(case, compared, options, Path(name), device)


def kernels(device: str, tiny: bool) -> Iterator[Record]:
    """Compare encoding, implementations of attention, and compiled code, with transformers' plain attention on the CPU.

    On a CPU, there are no CUDA graphs, and compiling takes minutes.
    """
    both = ("float32", "bf16")
    variants = {"model.attn_implementation=sdpa": both}
    if device != "cpu":
        if find_spec("flash_attn"):
            variants |= {"model.attn_implementation=flash_attention_2": ("bf16",)}
        variants |= {"module.compile=true": both, "module.compile=true module.chunk_size=4": both}
        variants |= {"module.compile=reduce-overhead": ("bf16",)}
    with TemporaryDirectory() as name:
        folder, plain = Path(name), [_PAIRS, "model.attn_implementation=eager"]
        prepare(folder)
        yield checked("encode", encoded, folder, device)
        yield checked(plain[1], compared, plain, folder, device, both)
        for variant, precisions in variants.items():
            yield checked(variant, compared, [_PAIRS, *variant.split()], folder, device, precisions, plain)


def encoded(folder: Path, device: str) -> Record:
    """Compare the vectors of texts of mixed length: one minus the lowest cosine."""
    encoder, texts = SentenceEncoder.from_pretrained(folder, pooling="mean"), mixed_texts(200)
    expected = encoder.encode(texts)
    encoder.to(device)
    vectors = {"float32": encoder.encode(texts), "bf16": encoder.encode(texts, bf16=True)}
    errors = {name: [1 - float(F.cosine_similarity(own, expected).min())] for name, own in vectors.items()}
    return {"errors": errors, "passed": errors["float32"][0] <= 1e-5 and errors["bf16"][0] <= 1e-2}
