"""The losses on rankings: their formulas in plain loops, gradients, and teachers."""

import math
from dataclasses import replace

import pytest
import torch
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.losses.ranking import RankingConsistency, RankingDistillation, list_mle, list_net

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.training.module import SimCSEModule
from tests.conftest import SENTENCES, adamw, embedded
from tests.losses.loops import similarity, softmax
from tests.losses.networks import attached


def cosines(first, second):
    return [[similarity(a, b) for b in second.tolist()] for a in first.tolist()]


def list_net_in_loops(scores, teacher_scores, labels):
    total = 0.0
    for s, t, label in zip(scores, teacher_scores, labels, strict=True):
        others = [j for j in range(len(s)) if j != label]
        p, q = softmax([s[j] for j in others]), softmax([t[j] for j in others])
        total -= sum(b * math.log(a) for a, b in zip(p, q, strict=True))
    return total / len(scores)


def list_mle_in_loops(scores, teacher_scores, labels):
    total = 0.0
    for s, t in zip(scores, teacher_scores, strict=True):
        left = sorted(range(len(s)), key=lambda j: -t[j])
        while left:  # the place of the best of those that are left
            total -= math.log(math.exp(s[left[0]]) / sum(math.exp(s[j]) for j in left))
            left = left[1:]
    return total / len(scores)


@pytest.mark.parametrize("loss", [list_net, list_mle])
def test_one_row_has_the_loss_0_and_large_scores_are_finite(loss):
    one = torch.zeros(1, 1, requires_grad=True)
    value = loss(one, torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
    value.backward()
    assert value.item() == 0 and one.grad.item() == 0
    scores = torch.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    value = loss(scores, -scores.detach(), torch.tensor([1]))
    value.backward()
    assert value.isfinite() and scores.grad.isfinite().all()


def test_consistency_is_the_jensen_shannon_divergence():
    pairs = torch.randn(4, 2, 5, dtype=torch.float64)
    forward, backward = cosines(pairs[:, 0], pairs[:, 1]), cosines(pairs[:, 1], pairs[:, 0])
    expected = 0.0
    for first, second in zip(forward, backward, strict=True):
        p, q = (softmax([s / 0.2 for s in similarities]) for similarities in (first, second))
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        for own in (p, q):
            expected += sum(a * math.log(a / m) for a, m in zip(own, middle, strict=True)) / 2 / 4
    term = RankingConsistency(temperature=0.2)
    assert term(None, embedded(pairs)).item() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(lambda x: term(None, embedded(x)), pairs.requires_grad_())
    same = pairs[:, :1].expand(-1, 2, -1)
    assert term(None, embedded(same)).item() == pytest.approx(0, abs=1e-12)


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")


@pytest.fixture
def teachers(make_model, tmp_path):
    """Two saved encoders with the vocabulary of `encoder`, other weights and other depths."""
    for number in range(2):
        teacher = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", num_layers=number + 1)
        torch.nn.init.normal_(teacher.backbone.embeddings.word_embeddings.weight)
        teacher.save_pretrained(tmp_path / str(number))
    return [str(tmp_path / "0"), str(tmp_path / "1")]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("loss", "loops"), [("list_net", list_net_in_loops), ("list_mle", list_mle_in_loops)])
def test_distillation_mixes_the_teachers_cosines(encoder, teachers, loss, loops, count):
    options = {"loss": loss, "alpha": 0.25, "temperature": 0.2, "teacher_temperature": 0.1}
    term = attached(RankingDistillation(teachers[:count], **options).double(), encoder)
    inputs = ViewCollator(encoder.tokenizer, 16)([(s, s.upper()) for s in SENTENCES[:5]])
    batch = EmbeddedBatch(torch.randn(5, 2, 7, dtype=torch.float64), (Role.POSITIVE, Role.ANCHOR), inputs)
    teacher_scores = [[0.0] * 5 for _ in range(5)]
    for share, name in zip([1.0] if count == 1 else [0.25, 0.75], teachers, strict=False):
        teacher = SentenceEncoder.from_pretrained(name).double()
        first, second = (teacher({key: x[:, view] for key, x in batch.inputs.items()}) for view in (1, 0))
        for i, row in enumerate(cosines(first, second)):
            teacher_scores[i] = [old + share * new / 0.1 for old, new in zip(teacher_scores[i], row, strict=True)]
    scores = [[s / 0.2 for s in row] for row in cosines(batch.embeddings[:, 1], batch.embeddings[:, 0])]
    expected = loops(scores, teacher_scores, list(range(5)))
    assert term(encoder, batch).item() == pytest.approx(expected, rel=1e-9)
    vectors = batch.embeddings.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: term(encoder, replace(batch, embeddings=x)), vectors, fast_mode=True)


def test_teachers_are_neither_trained_nor_saved_and_get_chunks(encoder, teachers):
    term = RankingDistillation(teachers)
    terms = [term, RankingConsistency()]
    module = SimCSEModule(encoder, ContrastiveObjective(), adamw(), auxiliary=terms, chunk_size=3)
    assert [own.chunk_size for own in (term, *term.teachers)] == [3, 3, 3]
    assert not [name for name in module.state_dict() if name.startswith("auxiliary")]
    loss, curves = module.loss(ViewCollator(encoder.tokenizer, 16)([(s,) for s in SENTENCES]))
    loss.backward()
    assert curves["ranking_distillation"] > 0 and curves["ranking_consistency"] >= 0
