"""Training on several data sets, each with its own objective."""

import itertools

import pytest
import torch

from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.views.words import WordRepetition
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.losses.objectives import ContrastiveObjective, SoftmaxObjective
from simcse_pl.losses.scored_pairs import CosineMSEObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import RowKind
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, linear

CLASSES = ("entailment", "neutral", "contradiction")


def make_module(folder, **options):
    torch.manual_seed(0)
    encoder = SentenceEncoder.from_pretrained(folder, pooling="mean", num_layers=1)
    own = {"nli": SoftmaxObjective(), "train": CosineMSEObjective(5.0)}  # torch's ModuleDict rejects this name
    return SimCSEModule(encoder, ContrastiveObjective(), adamw(lr=1e-3), linear(), objectives=own, **options)


@pytest.fixture
def make_data(sentences, pairs, tmp_path):
    labeled = enumerate(itertools.pairwise(SENTENCES))
    (tmp_path / "nli.tsv").write_text("".join(f"{one}\t{two}\t{CLASSES[n % 3]}\n" for n, (one, two) in labeled))
    sets = {
        "plain": {"train": sentences, "views": {"a": WordRepetition(), "b": WordRepetition(role="negative")}},
        "nli": {"train": tmp_path / "nli.tsv", "header": False, "label_column": 2},
        "train": {"train": pairs, "header": False, "score_column": 2, "limit": 9},
    }

    def make(encoder):
        options = {"batch_size": 3, "max_length": 16, "validation": str(pairs), "evaluators": {"sts": ScoredPairs}}
        return SentenceDataModule(encoder.tokenizer, sets=sets, **options)

    return make


def test_each_batch_takes_the_objective_of_its_set_and_every_parameter_has_a_gradient(make_model, make_data):
    module = make_module(make_model("bert"))
    data = make_data(module.encoder)
    data.setup()
    module.prepare({name: RowKind(own.view_roles, own.labels) for name, own in data.sets.items()})
    keys = [(0, row) for row in range(4)]
    for name, own in data.sets.items():
        batch = own.batch(keys)
        module.eval()
        embedded = module.embed(batch)
        loss, curves = module.loss(batch)
        expected = module.objective_of(name)(embedded)
        torch.testing.assert_close(loss, expected)
        assert curves[f"loss/{name}"] is loss and ("duplicates" in curves) == (name == "plain")
        module.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in module.parameters() if p.requires_grad)
        classifier = module.objective_of("nli").classifier.weight.grad
        assert classifier.any() == (name == "nli")


def test_rows_of_a_set_that_do_not_fit_its_objective_are_an_error(make_model):
    module = make_module(make_model("bert"))
    with pytest.raises(UserError, match="^data.sets.nli: objective=sbert needs a label"):
        module.prepare({"nli": RowKind()})
    with pytest.raises(UserError, match="^data.sets.another: a contrastive objective takes no labels: set data.score"):
        module.prepare({"another": RowKind(labels="scores")})
