"""Training and evaluation on a pretend accelerator: no mix of devices, and few synchronizations."""

from unittest.mock import ANY

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from hydra.utils import instantiate
from lightning_fabric.utilities import move_data_to_device
from omegaconf import OmegaConf

from simcse_pl.config import CONF
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.training_set import ViewCollator
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.evaluation.suite import load_suite
from simcse_pl.losses.combined import LossPerDataset
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.losses.scored_pairs import CosineMSELoss
from simcse_pl.losses.softmax import SoftmaxLoss
from simcse_pl.methods.angle import AngleLoss
from simcse_pl.methods.arccse import AngularMarginLoss, TripletMargin
from simcse_pl.methods.cosent import CoSENTLoss
from simcse_pl.methods.cot_bert import ContrastedPositives
from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.methods.gs_infonce import GaussianNegatives
from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.methods.mixcse import MixedNegatives
from simcse_pl.methods.rankcse import RankingConsistency, RankingDistillation
from simcse_pl.methods.simcse_pp import DimensionContrast, NegativesWithoutDropout
from simcse_pl.methods.whitenedcse import WhitenedContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.tracking.csv_logger import CurvesLogger
from simcse_pl.training.checkpoints import RunMetadata
from simcse_pl.training.fit import measure_tasks, train_and_test
from simcse_pl.training.module import SimCSEModule
from tests.conftest import SENTENCES, adamw
from tests.pretend_device import DEVICE, Pretend, PretendStrategy
from tests.senteval_bundle import write_bundle


def test_the_pretend_device_rejects_mixed_devices_and_counts_synchronizations():
    with Pretend() as device:
        there = torch.arange(3.0).to(DEVICE)
        assert device.synchronizations.total() == 1, "a copy"
        assert (there + 1).sum().mul(2).device == DEVICE
        with pytest.raises(RuntimeError, match="all tensors must be on one device"):
            there + torch.ones(3)
        assert device.synchronizations.total() == 1
        assert there.sum().item() == 3.0 and there[there > 1].cpu().tolist() == [2.0]
        assert device.synchronizations.total() == 4


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


def default_callbacks(folder):
    callbacks = yaml.safe_load((CONF / "callbacks" / "default.yaml").read_text())
    options = {"run_dir": str(folder), "seed": 3, "monitor": "val/spearman", "speed": None}
    config = OmegaConf.create(options | {"callbacks": callbacks})
    return list(instantiate(config.callbacks).values())


@pytest.mark.filterwarnings("ignore:The number of training batches", "ignore:Found .* module")
def test_a_run_synchronizes_once_per_step(make_model, tmp_path, sentences, pairs):
    """With the default callbacks and a queue. The first steps fill caches and do not count."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", num_layers=1)
    scored = {"evaluators": {"sts": ScoredPairs}, "validation": str(pairs), "test": str(pairs)}
    data = SentenceDataModule(encoder.tokenizer, sentences, batch_size=4, max_length=8, **scored)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), queue=MomentumQueue(size=6))
    suite = load_suite(["MR", "STS-B", "geometry"], write_bundle(tmp_path / "bundle"))
    record = RunMetadata()
    with Pretend() as device:
        waits = []
        steps = pl.callbacks.LambdaCallback(
            on_train_batch_start=lambda *_: waits.append(device.synchronizations.total())
        )
        trainer = pl.Trainer(
            strategy=PretendStrategy(),
            inference_mode=False,
            callbacks=[steps, *default_callbacks(tmp_path), record],
            logger=CurvesLogger(tmp_path, name="", version=""),
            default_root_dir=tmp_path,
            **{"precision": "32-true", "max_steps": 9, "max_epochs": -1, "check_val_every_n_epoch": None},
            **{"val_check_interval": 10, "log_every_n_steps": 10},
            **{"num_sanity_val_steps": 0, "enable_model_summary": False},
        )
        train_and_test(trainer, module, data, record)
        assert np.diff(waits[4:]).tolist() == [1] * 4
        assert encoder.device == DEVICE
        measured = measure_tasks(encoder, suite)
    assert not measured.failed
    cpu = measure_tasks(encoder.to("cpu"), suite)
    assert measured.sts[0].all.spearman == pytest.approx(cpu.sts[0].all.spearman, abs=1e-5)
    assert measured.transfer[0].accuracy == pytest.approx(cpu.transfer[0].accuracy, abs=0.02)


def batch_of(encoder, views=1, **more):
    """Return a batch of 5 rows, with labels or roles if given."""
    rows = [tuple(SENTENCES[i : i + views]) for i in range(5)]
    return ViewCollator(encoder.tokenizer, 16, encoder.templates)(rows) | more


TRIPLES = {"views": 3}
POSITIVES = {"views": 3, "roles": (Role.ANCHOR, Role.POSITIVE, Role.POSITIVE)}
OTHERS = {"views": 4, "roles": (Role.ANCHOR, Role.POSITIVE, Role.OTHER, Role.OTHER)}
LABELLED = {"views": 2, "labels": torch.arange(5) % 3}
SCORED = {"views": 2, "labels": torch.arange(5) / 8, "dataset": "scored"}
MASKED = ContrastiveLoss(mask_duplicates=True)
PER_DATASET = LossPerDataset(ContrastiveLoss(), {"scored": CosineMSELoss()})
VARIANTS = {
    "simcse": {},
    "hard negatives": {"objective": ContrastiveLoss(hard_negative_weight=2.0), "batch": TRIPLES},
    "masked": {"objective": MASKED},
    "several positives": {"batch": POSITIVES},
    "dot": {"objective": ContrastiveLoss(similarity="dot")},
    "hardness": {"objective": ContrastiveLoss(hardness=1.0, hard_negative_weight=2.0), "batch": TRIPLES},
    "symmetric": {"objective": ContrastiveLoss(symmetric=True, mask_duplicates=True)},
    "noise": {"objective": GaussianNegatives(8), "queue": lambda: MomentumQueue(size=5)},
    "mixtures": {"objective": MixedNegatives(), "batch": TRIPLES},
    "without dropout": {"objective": NegativesWithoutDropout(), "auxiliary": lambda: [DimensionContrast()]},
    "margins": {"objective": AngularMarginLoss(), "auxiliary": lambda: [TripletMargin()], "batch": OTHERS},
    "sbert": {"objective": SoftmaxLoss(3), "batch": LABELLED, "waits": ANY},  # checks the range of labels
    "data sets": {
        "objective": LossPerDataset(ContrastiveLoss(), {"scored": CosineMSELoss()}),
        "batch": SCORED,
        "waits": ANY,
    },
    "cosent": {"objective": CoSENTLoss(), "batch": SCORED},
    "angle": {"objective": AngleLoss(cosine_weight=1.0), "batch": SCORED},
    "first_last": {"pooling": "first_last"},
    "max": {"pooling": "max"},
    "layers": {"pooling": "layers_1_2"},
    "last_token": {"pooling": "last_token"},
    "weighted_mean": {"pooling": "weighted_mean"},
    "mask": {"pooling": "mask_2", "template": "A [MASK] {sentence} [MASK]"},
    "span": {"pooling": "span", "template": ["A {sentence}", "the {sentence} !"], "batch": TRIPLES},
    "templates": {"template": ["A {sentence}", "the {sentence} !"], "objective": MASKED, "batch": TRIPLES},
    "template bias": {  # selects the distinct templates
        "pooling": "mask",
        "template": ["{sentence} [MASK]", "a {sentence} [MASK]"],
        "template_bias": "train_only",
        "waits": 1,
    },
    "contrasted positives": {"objective": ContrastedPositives(), "batch": TRIPLES},
    "head": {"head": "mlp_train_only"},
    "mlm": {"auxiliary": lambda: [MaskedLanguageModeling(head="new")], "waits": ANY},  # selects masked positions
    "batch norm head": {"head": "batch_norm_train_only"},
    "whitened": {"objective": WhitenedContrastiveLoss(groups=8), "batch": POSITIVES},
    "replaced tokens": {"auxiliary": lambda: [ReplacedTokenDetection()], "waits": ANY},
    "sentence mlm": {"auxiliary": lambda: [SentenceMaskedLanguageModeling(head="new", frozen_layers=1)], "waits": ANY},
    "ranking": {"teacher": True},
    "queue": {"queue": lambda: MomentumQueue(size=5)},
    "two encoders": {"two": True},
    "shared dropout": {"shared_dropout_mask": True, "waits": ANY},  # saves the random state
    "chunks": {"chunk_size": 3},
    "recomputed": {"gradient_checkpointing": True},
    "frozen": {"freeze_layers": 1},
    "modernbert": {"architecture": "modernbert"},
    "roberta": {"architecture": "roberta"},
}

DRAWN_ON_DEVICE = ("mlm", "sentence mlm", "replaced tokens", "whitened")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_a_loss_stays_on_the_device(variant, make_model, tmp_path):
    """Without dropout the loss equals the CPU's. Only variants that say so synchronize."""
    options = dict(VARIANTS[variant])
    batch, waits = options.pop("batch", {}), options.pop("waits", 0)
    defaults = {"pooling": "cls", "head": "none", "template": None, "template_bias": "none"}
    given = {name: options.pop(name, own) for name, own in defaults.items()}
    folder, two = make_model(options.pop("architecture", "bert")), options.pop("two", False)
    made = {name: options.pop(name)() for name in ("auxiliary", "queue") if name in options}

    def encoder():
        return SentenceEncoder.from_pretrained(folder, num_layers=2, dropout=0.0, attention_dropout=0.0, **given)

    objective = options.pop("objective", ContrastiveLoss())
    if options.pop("teacher", False):
        encoder().save_pretrained(tmp_path)
        made["auxiliary"] = [RankingConsistency()]
        made["auxiliary"] += [RankingDistillation([tmp_path] * 2, loss="list_net", alpha=0.5)]
    positive = encoder() if two else None
    made["auxiliary"] = {str(number): term for number, term in enumerate(made.get("auxiliary", ()))}
    module = SimCSEModule(encoder(), objective, adamw(), positive_encoder=positive, **made, **options)
    views = batch_of(module.encoder, **batch)

    def step(batch):
        torch.manual_seed(0)
        rows = module.batch_of(batch, queue=module.queue.negatives() if module.queue else None)
        loss = module.loss(rows)
        loss.backward()
        if module.queue:
            module.queue.update(module.encoder, rows.inputs, module.chunk_size)
        return loss.detach()

    expected = [float(step(views)) for _ in range(2)]  # the queue is empty at the first
    if module.queue:
        module.queue.set_extra_state(0)
    with Pretend() as device:
        module.to(DEVICE)
        on_device = move_data_to_device(views, DEVICE)
        found = [step(on_device)]  # fills caches
        device.synchronizations.clear()
        found.append(step(on_device))
        assert device.synchronizations.total() == waits, device.synchronizations
        found = [float(loss) for loss in found]
    if variant not in DRAWN_ON_DEVICE:
        assert found == pytest.approx(expected, rel=1e-4)
