"""The loss that also compares positives with hard negatives, against a sum in plain Python."""

import pytest
import torch
from simcse_pl.losses.contrasted_positives import ContrastedPositivesObjective

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.training.module import SimCSEModule
from tests.conftest import SENTENCES, adamw, embedded
from tests.losses.loops import log_sum_exp, similarity


def loss_of(anchors, positives, negatives, temperature, queue=()):
    """Return equation 3 of CoT-BERT in plain Python; `negatives` are those of each row."""
    hard, losses = [other for own in negatives for other in own], []
    for anchor, positive in zip(anchors, positives, strict=True):
        scores = [similarity(anchor, other) / temperature for other in [*positives, *queue, *hard]]
        scores += [similarity(positive, other) / temperature for other in hard]
        losses.append(log_sum_exp(scores) - similarity(anchor, positive) / temperature)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.05, 0.7])
@pytest.mark.parametrize("negatives", [1, 2])
@pytest.mark.parametrize("queued", [0, 3])
def test_it_is_equation_3(temperature, negatives, queued):
    rows = torch.randn(4, 2 + negatives, 5, dtype=torch.float64)
    queue = torch.randn(queued, 5, dtype=torch.float64) if queued else None
    objective = ContrastedPositivesObjective(temperature)
    given = rows[:, 0].tolist(), rows[:, 1].tolist(), rows[:, 2:].tolist()
    expected = loss_of(*given, temperature, queue.tolist() if queued else ())
    assert objective(embedded(rows, queue=queue)).item() == pytest.approx(expected, rel=1e-12)
    rows.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: objective(embedded(x, queue=queue)), rows)


def test_views_have_their_roles_in_any_order():
    rows = torch.randn(4, 4, 5)
    roles = (Role.NEGATIVE, Role.ANCHOR, Role.OTHER, Role.POSITIVE)
    found = ContrastedPositivesObjective()(EmbeddedBatch(rows, roles, {}))
    torch.testing.assert_close(found, ContrastedPositivesObjective()(embedded(rows[:, [1, 3, 0]])))


@pytest.mark.parametrize(("templates", "duplicates"), [(3, 0.0), (2, 1.0)])
def test_a_sentence_in_another_template_is_no_duplicate(templates, duplicates, make_model):
    texts = ['"{sentence}" means [MASK] .', 'the "{sentence}" is [MASK] .', 'no "{sentence}" means [MASK] .']
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mask", template=texts[:templates])
    module = SimCSEModule(encoder, ContrastedPositivesObjective(), adamw())
    batch = ViewCollator(encoder.tokenizer, 16, encoder.templates)([(text,) * 3 for text in SENTENCES])
    assert module.loss(batch)[1]["duplicates"] == duplicates
