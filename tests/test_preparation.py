"""Frozen parameters, optimizers and schedules, and runs of unsupervised SimCSE whose two views would be equal."""

import contextlib
import math
import re
from functools import partial

import peft
import pytest
import torch
import transformers
from hydra.utils import instantiate
from torch import nn

from simcse_pl.data.collator import ViewCollator
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.methods.matryoshka import InnerLayer
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.postprocessing.linear import Whitening
from simcse_pl.preparation import build_optimizer, build_schedule, check_views_differ, example_batch, prepare_backbone
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import RowKind, default_roles
from tests.conftest import SENTENCES, adamw, linear, quiet_trainer
from tests.data.conftest import SAMPLE
from tests.support.helpers import composed

EQUAL = "^model.dropout: the two views of a sentence of .* have equal vectors without dropout"
COSINE = torch.optim.lr_scheduler.CosineAnnealingLR


def load(folder, dropout, lora_dropout=None):
    adapter = None
    if lora_dropout is not None:
        adapter = peft.LoraConfig(r=2, target_modules=["query", "value"], lora_dropout=lora_dropout)
    return SentenceEncoder.from_pretrained(
        folder, "mean", dropout=dropout, attention_dropout=dropout, adapter=adapter, num_layers=2
    )


@pytest.mark.parametrize(
    ("dropout", "lora_dropout", "equal"), [(0.1, None, False), (0.0, None, True), (0.0, 0.1, False), (0.0, 0.0, True)]
)
def test_dropout_of_the_model_or_of_an_adapter_makes_views_differ(make_model, sentences, dropout, lora_dropout, equal):
    """A new adapter adds 0 to each layer, so its dropout has no effect before the first step."""
    encoder = load(make_model("bert"), dropout, lora_dropout)
    if lora_dropout is None:
        encoder.backbone.not_used = nn.Dropout(0.1)
    rows = TrainingSet(str(sentences)).read(encoder.tokenizer, 16)
    with pytest.raises(UserError, match=EQUAL) if equal else contextlib.nullcontext():
        check_views_differ(encoder.train(), [rows])


def test_training_from_python_warns_of_views_without_dropout(make_model, sentences, caplog):
    for dropout, expected in ((0.1, 0), (0.0, 1)):
        encoder = load(make_model("bert"), dropout)
        data = SentenceDataModule(encoder.tokenizer, str(sentences), max_length=16, **SAMPLE)
        module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
        quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, data)
        assert sum(bool(re.match(EQUAL, message)) for message in caplog.messages) == expected


def test_an_encoder_without_dropout_may_have_different_views(make_model, pairs):
    encoder = load(make_model("bert"), 0.0)
    rows = TrainingSet(str(pairs), header=False, columns=[0, 1]).read(encoder.tokenizer, 16)
    check_views_differ(encoder.train(), [rows])


def test_a_tokenizer_with_more_entries_than_the_model_has_embeddings_is_an_error(make_model):
    encoder = load(make_model("bert"), 0.0)
    words = encoder.backbone.get_input_embeddings().num_embeddings
    encoder.tokenizer.add_tokens([f"new{number}" for number in range(words - len(encoder.tokenizer))])
    SimCSEModule(encoder, ContrastiveLoss(), adamw())
    encoder.tokenizer.add_tokens(["onemore"])
    with pytest.raises(UserError, match=f"tokenizer has {words + 1} entries, the model {words} embeddings"):
        SimCSEModule(encoder, ContrastiveLoss(), adamw())


@pytest.mark.parametrize(
    ("change", "option"),
    [
        (lambda encoder: setattr(encoder, "postprocess", Whitening()), "this encoder has a post-processing"),
        (lambda encoder: setattr(encoder.backbone, "is_quantized", True), "quantization: "),
        (lambda encoder: setattr(encoder.backbone, "supports_gradient_checkpointing", False), "gradient_checkpointing"),
        (lambda encoder: encoder.backbone.bfloat16(), "model.dtype=bfloat16: "),
        (lambda encoder: None, "module.freeze_layers=2: no weights"),
    ],
)
def test_training_that_would_lose_updates_is_an_error(change, option, make_model):
    encoder = load(make_model("bert"), 0.0)
    change(encoder)
    with pytest.raises(UserError, match=f"^{option}"):
        prepare_backbone(encoder, gradient_checkpointing=True, freeze_layers=2)


@pytest.mark.parametrize("kind", ["adapter", "float64"])
def test_an_inner_layer_is_trained_with_an_adapter_and_in_float64(make_model, kind):
    encoder = load(make_model("bert"), 0.0, 0.1 if kind == "adapter" else None)
    if kind == "float64":
        encoder.double()
    trained = {name for name, p in encoder.named_parameters() if p.requires_grad}
    frozen = 0 if kind == "adapter" else None  # it has no effect on an adapter
    inner = {"inner": InnerLayer(ContrastiveLoss())}
    SimCSEModule(encoder, ContrastiveLoss(), adamw(), auxiliary=inner, freeze_layers=frozen)
    assert {name for name, p in encoder.named_parameters() if p.requires_grad} == trained
    with torch.no_grad():
        for name, weight in encoder.named_parameters():  # an adapter that has been trained adds something
            weight.add_(0.1 * torch.randn_like(weight) * ("lora" in name))
    SimCSEModule(encoder, ContrastiveLoss(), adamw(), auxiliary={"inner": InnerLayer(ContrastiveLoss())})


@pytest.mark.parametrize(
    ("architecture", "pooling", "unused"),
    [
        ("bert", "layers_0", r"\.layer\."),
        ("bert", "layers_1", r"\.layer\.[12]\."),
        *(("bert", pooling, "nothing") for pooling in ("layers_3", "first_last", "cls")),
        ("modernbert", "layers_1_2", r"\.layers\.2\.|\.final_norm\."),
    ],
)
def test_every_trainable_parameter_gets_a_gradient(make_model, architecture, pooling, unused):
    """DDP waits forever for missing gradients. Two encoders are both trained."""
    first, second = (SentenceEncoder.from_pretrained(make_model(architecture), pooling=pooling) for _ in range(2))
    module = SimCSEModule(first, ContrastiveLoss(), adamw(), positive_encoder=second)
    module.prepare()
    assert all(part.training for part in module.modules()), "an encoder is loaded in evaluation mode"
    views = ViewCollator(first.tokenizer, 16)([(sentence,) for sentence in SENTENCES])
    module.loss(module.batch_of(views)).backward()
    for name, weight in module.named_parameters():
        assert (weight.grad is not None) == weight.requires_grad == (not re.search(unused, name)), name


def test_a_part_whose_dropout_is_off_keeps_its_mode(make_model):
    encoder = load(make_model("bert"), 0.1)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    encoder.backbone.embeddings.eval()
    module.prepare()
    encoder.encode(SENTENCES)
    assert encoder.training and encoder.backbone.encoder.training
    assert not any(part.training for part in encoder.backbone.embeddings.modules())


@pytest.mark.parametrize(
    ("labels", "shape", "dtype"),
    [("classes", [2], torch.int64), ("scores", [2], torch.float32), ("score_lists", [2, 3], torch.float32)],
)
def test_an_example_has_labels_like_those_of_a_batch(labels, shape, dtype, make_model):
    example = example_batch(load(make_model("bert"), 0.0), RowKind(default_roles(4), labels))
    assert [*example["labels"].shape] == shape and example["labels"].dtype == dtype


def test_layers_that_training_skips_at_random_are_not_frozen(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("opt", layerdrop=0.9), pooling="mean")
    SimCSEModule(encoder, ContrastiveLoss(), adamw()).prepare()
    assert all(weight.requires_grad for weight in encoder.parameters())


def one_weight():
    return [nn.Parameter(torch.ones(1))]


def rates(scheduler, steps):
    """Return the learning rate, which begins with 1, of each step."""
    optimizer = torch.optim.SGD(one_weight(), lr=1.0)
    schedule = build_schedule(scheduler, optimizer, steps)
    for _ in range(steps):
        yield optimizer.param_groups[0]["lr"]
        optimizer.step()
        if schedule:
            schedule.step()


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        (linear(), [1.0, 0.75, 0.5, 0.25]),
        (partial(transformers.get_cosine_schedule_with_warmup, num_warmup_steps=0), [1.0, 0.75, 0.25]),
        (COSINE, [0.5 + 0.5 * math.cos(math.pi * step / 5) for step in range(5)]),
        (partial(COSINE, T_max=2), [1.0, 0.5, 0.0]),
        (None, [1.0, 1.0]),
    ],
)
def test_schedules_get_the_number_of_steps_unless_they_have_one(scheduler, expected):
    assert [*rates(scheduler, len(expected))] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("warmup", [0.1, -3])
def test_a_share_of_the_steps_is_no_warm_up(warmup):
    with pytest.raises(UserError, match=f"^scheduler.num_warmup_steps={warmup}: "):
        next(rates(linear(warmup), 4))


@pytest.mark.parametrize(
    ("optimizer", "fused", "scaled"),
    [
        (adamw(), True, False),
        (adamw(fused=False), False, False),
        (torch.optim.SGD, None, None),
        (partial(torch.optim.SGD, fused=True), True, False),
    ],
)
def test_adam_is_fused_without_a_gradient_scaler(optimizer, fused, scaled):
    assert build_optimizer(optimizer, one_weight()).defaults["fused"] is fused
    assert build_optimizer(optimizer, one_weight(), gradient_scaler=True).defaults["fused"] is scaled


@pytest.mark.parametrize(("choice", "last"), [("linear", 0.2), ("cosine", 0.0955), ("constant", 1.0)])
def test_every_schedule_warms_up_and_ends_as_its_name_says(choice, last):
    make = instantiate(composed(f"scheduler={choice}", "scheduler.num_warmup_steps=2").scheduler)
    first, second, third, *_, seventh = rates(make, 7)
    assert (first, second, third) == (0.0, 0.5, 1.0) and seventh == pytest.approx(last, abs=1e-4)
