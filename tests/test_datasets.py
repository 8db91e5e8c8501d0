"""Training on several data sets, each with a loss of its own."""

import itertools

import pytest
import torch

from simcse_pl.callbacks import BatchCurves
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.labelled_pairs import CosineMSELoss, SoftmaxLoss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.methods.esimcse import WordRepetition
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import RowKind
from tests.conftest import SENTENCES, adamw, linear, quiet_trainer

CLASSES = ("entailment", "neutral", "contradiction")


def make_module(folder, pooling="mean", **objectives):
    torch.manual_seed(0)
    encoder = SentenceEncoder.from_pretrained(folder, pooling=pooling, num_layers=2)
    return SimCSEModule(encoder, ContrastiveLoss(), adamw(lr=1e-3), linear(), objectives=objectives)


@pytest.fixture
def module(make_model):
    return make_module(make_model("bert"), nli=SoftmaxLoss(), train=CosineMSELoss(5.0))


@pytest.fixture
def data(module, sentences, pairs, tmp_path):
    labeled = enumerate(itertools.pairwise(SENTENCES))
    (tmp_path / "nli.tsv").write_text("".join(f"{one}\t{two}\t{CLASSES[n % 3]}\n" for n, (one, two) in labeled))
    sets = {
        "plain": {"train": sentences, "views": {"a": WordRepetition(), "b": WordRepetition(role="negative")}},
        "nli": {"train": tmp_path / "nli.tsv", "header": False, "label_column": 2},
        "train": {"train": pairs, "header": False, "score_column": 2, "limit": 9},
    }
    options = {"batch_size": 3, "max_length": 16, "validation": str(pairs), "evaluators": {"sts": ScoredPairs}}
    return SentenceDataModule(module.encoder.tokenizer, sets=sets, **options)


def test_every_parameter_has_a_gradient_and_every_set_its_curve(module, data):
    gradients, curves = {}, []

    class Recorder(BatchCurves):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            assert all(p.grad is not None for p in module.parameters() if p.requires_grad), "DDP waits for them"
            classifier = module.objective_of("nli").classifier.weight.grad
            gradients.setdefault(module.step.batch.dataset, set()).add(bool(classifier.any()))

        def on_train_batch_end(self, trainer, *arguments):
            super().on_train_batch_end(trainer, *arguments)
            batch = trainer.lightning_module.step.batch
            curves.append((batch.dataset, {name for name, value in batch.curves.items() if not value.isnan()}))

    quiet_trainer(max_epochs=1, callbacks=[Recorder()], log_every_n_steps=1, limit_val_batches=0).fit(module, data)
    assert gradients == {"plain": {False}, "nli": {True}, "train": {False}}
    for dataset, metrics in curves:
        assert {name for name in metrics if name.startswith("train/loss/")} == {f"train/loss/{dataset}"}
        assert ("train/duplicates" in metrics) == (dataset == "plain")


def test_the_loss_of_a_batch_is_that_of_its_set_times_its_weight(make_model):
    module = make_module(make_model("bert"), **{"a.b": ContrastiveLoss(0.3, weight=0.5)})
    vectors = torch.randn(2, 4, 8)
    for dataset, expected in {"a.b": 0.5 * ContrastiveLoss(0.3)(*vectors), None: ContrastiveLoss()(*vectors)}.items():
        assert module.loss(EmbeddedBatch.of(*vectors).replaced(dataset=dataset)) == expected


def test_layers_that_the_loss_of_one_set_does_not_reach_are_known(make_model):
    """The first layer's vector depends on one layer; the masked tokens of the other set on both."""
    module = make_module(make_model("bert"), pooling="layers_1", text=MaskedLanguageModeling(head="new"))
    module.prepare({"plain": RowKind(), "text": RowKind()})
    parts = {name for name, p in module.named_parameters() if any(p is other for other in module.not_in_every_loss)}
    second = [p for name, p in module.named_parameters() if ".layer.1." in name]
    assert second and all(any(p is other for other in module.not_in_every_loss) for p in second)
    assert not any(".layer.0." in name for name in parts) and all(p.requires_grad for p in module.parameters())


@pytest.mark.parametrize(
    ("objectives", "rows", "said"),
    [
        ({"nli": SoftmaxLoss()}, {"nli": RowKind()}, "^data.sets.nli: objectives.nli: .* and a label in each row"),
        ({}, {"other": RowKind(labels="scores")}, "^data.sets.other: objective: .* takes no labels"),
        ({"scores": ContrastiveLoss()}, {"scored": RowKind()}, "^objectives.scores: data.sets .* did you mean scored"),
        ({"scored": None}, {}, r"^objectives.scored=None: choose a loss by \+objective@"),
        ({"scored": "cosent"}, {}, r"^objectives.scored=cosent: choose a loss by \+objective@"),
    ],
)
def test_what_is_no_loss_of_a_set_or_does_not_fit_its_rows_is_an_error(objectives, rows, said, make_model):
    with pytest.raises(UserError, match=said):
        make_module(make_model("bert"), **objectives).prepare(rows)


def test_a_second_training_is_prepared_for_its_own_rows(module, data, sentences, make_model):
    """They are checked, and train parameters that the first ones did not use."""
    once = {"max_steps": 1, "limit_val_batches": 0, "num_sanity_val_steps": 0}
    quiet_trainer(**once).fit(module, data)
    other = SentenceDataModule(data.tokenizer, sets={"nli": {"train": sentences}, "train": {"train": sentences}})
    other.evaluators = data.evaluators
    with pytest.raises(UserError, match="^data.sets.nli: objectives.nli: .* and a label in each row"):
        quiet_trainer(**once).fit(module, other)
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    second = SimCSEModule(encoder, SoftmaxLoss(), adamw(), objectives={"plain": ContrastiveLoss()})
    for rows, trained in (({}, False), ({"nli": RowKind(labels="classes")}, True)):
        second.prepare({"plain": RowKind()} | rows)
        assert second.objective.classifier.weight.requires_grad == trained
