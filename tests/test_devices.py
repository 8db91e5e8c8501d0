"""Training and evaluation on a pretend accelerator: no mix of devices, and few synchronizations."""

import re

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from lightning_fabric.utilities import move_data_to_device

from simcse_pl.data.collator import ViewCollator
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.evaluation.suite import load_suite, measure_tasks
from simcse_pl.fit import train_and_test
from simcse_pl.loggers import CurvesLogger
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.methods.momentum_queue import MomentumQueue
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.run_metadata import RunMetadata
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, quiet_trainer
from tests.losses.cases import CASES, attached, batch_of, load
from tests.support.helpers import composed
from tests.support.pretend_device import DEVICE, Pretend, PretendStrategy
from tests.support.senteval_bundle import write_bundle


@pytest.mark.parametrize(("bad", "every"), [(2, 10), (3, 3)], ids=["before the next step", "before a checkpoint"])
def test_a_loss_that_is_not_finite_ends_the_run_one_step_later_and_saves_nothing(
    make_model, sentences, pairs, bad, every
):
    class Bad(ContrastiveLoss):
        steps = -1  # the first call is before training

        def forward(self, batch):
            self.steps += 1
            return super().forward(batch) * (torch.nan if self.steps == bad else 1)

    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", num_layers=1)
    scored = {"evaluators": {"sts": ScoredPairs}, "validation": str(pairs)}
    data = SentenceDataModule(encoder.tokenizer, sentences, batch_size=4, max_length=8, **scored)
    module = SimCSEModule(encoder, Bad(), adamw())
    saved, started = [], []
    options = {"accelerator": "auto", "strategy": PretendStrategy(), "inference_mode": False, "max_epochs": -1}
    options |= {"max_steps": 9, "check_val_every_n_epoch": None, "val_check_interval": 10}

    class Save(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step % every == 0:
                trainer.save_checkpoint(sentences.parent / "last.ckpt")
                saved.append(trainer.global_step)

        def on_train_batch_start(self, trainer, *_):
            started.append(trainer.global_step + 1)

    said = rf"^step {bad}: the loss is nan and its gradient's norm nan, in rows (\d), (\d), (\d), (\d) of {sentences}: "
    with Pretend(), pytest.raises(UserError, match=said) as error:
        quiet_trainer(callbacks=[Save()], **options).fit(module, data)
    rows = {*re.match(said, str(error.value)).groups()}
    assert len(rows) == 4 and rows <= {*map(str, range(1, len(SENTENCES) + 1))}
    assert not saved and started[-1] == (bad if every == bad else bad + 1)


def test_encoding_waits_once_for_64_batches(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    sentences = [f"{text} {i}" for i in range(18) for text in SENTENCES]
    expected = encoder.encode(sentences)
    with Pretend() as device:
        encoder.to(DEVICE)
        encoder.encode(sentences[:1])  # fills caches
        device.synchronizations.clear()
        vectors = encoder.encode(sentences, batch_size=2)
        assert len(sentences) == 144 and device.synchronizations.total() == 2, device.synchronizations
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:The number of training batches", "ignore:Found .* module")
def test_a_step_waits_for_no_device(make_model, tmp_path, sentences, pairs):
    """With the default callbacks and a queue. The first steps fill caches, and the last one is logged."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", num_layers=1)
    scored = {"evaluators": {"sts": ScoredPairs}, "validation": str(pairs), "test": str(pairs)}
    data = SentenceDataModule(encoder.tokenizer, sentences, batch_size=4, max_length=8, **scored)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), queue=MomentumQueue(size=6))
    suite = load_suite(["MR", "STS-B", "geometry"], write_bundle(tmp_path / "bundle"))
    record, callbacks = RunMetadata(), instantiate(composed(f"run_dir={tmp_path}").callbacks)
    with Pretend() as device:
        waits = []
        steps = pl.callbacks.LambdaCallback(
            on_train_batch_start=lambda *_: waits.append(device.synchronizations.total())
        )
        trainer = pl.Trainer(
            strategy=PretendStrategy(),
            inference_mode=False,
            callbacks=[steps, *callbacks.values(), record],
            logger=CurvesLogger(tmp_path, name="", version=""),
            default_root_dir=tmp_path,
            **{"precision": "32-true", "max_steps": 9, "max_epochs": -1, "check_val_every_n_epoch": None},
            **{"val_check_interval": 10, "log_every_n_steps": 10},
            **{"num_sanity_val_steps": 0, "enable_model_summary": False},
        )
        train_and_test(trainer, module, data, record)
        assert np.diff(waits[4:]).tolist() == [0] * 4
        assert encoder.device == DEVICE
        measured = measure_tasks(encoder.encode, suite, DEVICE)
    assert not measured.failed
    cpu = measure_tasks(encoder.to("cpu").encode, suite, "cpu")
    assert measured.sts[0].all.spearman == pytest.approx(cpu.sts[0].all.spearman, abs=1e-5)
    assert measured.transfer[0].accuracy == pytest.approx(cpu.transfer[0].accuracy, abs=0.02)


def on_cpu_and_device(module, step, batch):
    """Return two losses on the CPU, two on the device, and what the second on the device waited for."""

    def losses(batch):
        for _ in range(2):  # the first on a device fills caches
            torch.manual_seed(0)
            yield step(batch)

    expected = [float(loss) for loss in losses(batch)]
    with Pretend() as device:
        module.to(DEVICE)
        steps = losses(move_data_to_device(batch, DEVICE))
        found = [next(steps)]
        device.synchronizations.clear()
        found.append(next(steps))
        waits = dict(device.synchronizations)
        return expected, [float(loss) for loss in found], waits


DRAWN_ON_DEVICE = ("mlm", "declutr", "diffcse", "infocse", "whitenedcse")


@pytest.mark.parametrize("name", CASES)
def test_every_loss_stays_on_the_device_and_has_the_value_of_the_cpu(name, make_masked_language_model, teacher):
    case = CASES[name]
    encoder = load(make_masked_language_model("bert"))
    loss = attached(case.make(teacher), encoder)
    batch = batch_of(encoder, case.roles, case.labels)

    def step(moved):
        inputs, labels, queue = moved
        value = loss(batch.replaced(inputs=inputs, labels=labels, queue=queue))
        value.backward()
        return value.detach()

    queue = torch.randn(case.queue, encoder.dim) if case.queue else None
    both = torch.nn.ModuleList([encoder, loss])
    expected, found, waits = on_cpu_and_device(both, step, (batch.inputs, batch.labels, queue))
    assert not waits, waits
    assert name in DRAWN_ON_DEVICE or found == pytest.approx(expected, rel=1e-4, abs=1e-6)


TWO_TEMPLATES = ["A {sentence}", "the {sentence} !"]
VARIANTS = {  # options of the encoder and the module
    "first_last": {"pooling": "first_last"},
    "max": {"pooling": "max"},
    "last_token": {"pooling": "last_token"},
    "weighted_mean": {"pooling": "weighted_mean"},
    "mask": {"pooling": "mask_2", "template": "A [MASK] {sentence} [MASK]"},
    "span": {"pooling": "span", "template": TWO_TEMPLATES},
    "template bias": {"pooling": "mask", "template": ["{sentence} [MASK]"] * 2, "template_bias": "train_only"},
    "head": {"head": "mlp_train_only"},
    "batch norm head": {"head": "batch_norm_train_only"},
    "queue": {"queue": 5},
    "two encoders": {"two": True},
    "shared dropout": {"shared_dropout_mask": True},  # saves the random state
    "chunks": {"chunk_size": 3},
    "recomputed": {"gradient_checkpointing": True},
    "frozen": {"freeze_layers": 1},
    "modernbert": {"architecture": "modernbert"},
    "roberta": {"architecture": "roberta"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_encoder_stays_on_the_device(variant, make_model):
    """Without dropout the loss equals the CPU's."""
    options = dict(VARIANTS[variant])
    of_encoder = {"pooling": "cls", "head": "none", "template": None, "template_bias": "none"}
    given = {name: options.pop(name, default) for name, default in of_encoder.items()}
    folder = make_model(options.pop("architecture", "bert"))
    queue = MomentumQueue(size=options.pop("queue")) if "queue" in options else None
    first, second = (load(folder, num_layers=2, **given) for _ in range(2))
    positive = second if options.pop("two", False) else None
    module = SimCSEModule(first, ContrastiveLoss(), adamw(), positive_encoder=positive, queue=queue, **options)
    views = ViewCollator(first.tokenizer, 16, first.templates)([(text, text[::-1]) for text in SENTENCES[:5]])

    def step(batch):
        _, loss = module.batch_and_loss(batch, 1.0)
        loss.backward()
        return loss.detach()

    expected, found, waits = on_cpu_and_device(module, step, views)
    assert variant == "shared dropout" or not waits, waits
    # The queue is full at both steps on the device; on the CPU it is empty at the first.
    assert found[queue is not None :] == pytest.approx(expected[queue is not None :], rel=1e-4)
