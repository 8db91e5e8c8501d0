"""The loss that also compares positives with hard negatives, against a sum in plain Python, and its errors."""

import math

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from simcse_pl.data.collators import ViewCollator
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.losses.contrasted_positives import ContrastedPositivesObjective
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role, default_roles
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT, SENTENCES, adamw, embedded, tiny


def cosine(first, second):
    dot = sum(a * b for a, b in zip(first, second, strict=True))
    return dot / math.sqrt(sum(a * a for a in first) * sum(b * b for b in second))


def loss_of(anchors, positives, negatives, temperature, queue=()):
    """Return equation 3 of CoT-BERT in plain Python; `negatives` are those of each row."""
    losses = []
    for i, anchor in enumerate(anchors):
        total = sum(math.exp(cosine(anchor, other) / temperature) for other in [*positives, *queue])
        for other in [other for own in negatives for other in own]:
            total += math.exp(cosine(anchor, other) / temperature)
            total += math.exp(cosine(positives[i], other) / temperature)
        losses.append(math.log(total) - cosine(anchor, positives[i]) / temperature)
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


def test_half_precision_is_that_of_float32():
    rows = torch.randn(4, 3, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = ContrastedPositivesObjective()(embedded(rows))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, ContrastedPositivesObjective()(embedded(rows.float())))


@pytest.mark.parametrize(
    ("roles", "labels", "message"),
    [
        (
            default_roles(2),
            None,
            "^objective=contrasted_positives needs one positive and hard .*, but rows have 1 and 0$",
        ),
        (("anchor", "positive", "positive", "negative"), None, "but rows have 2 and 1$"),
        (("positive", "negative"), None, "^data.roles=.*: a row needs one anchor, not 0$"),
        (default_roles(3), "classes", "^objective=contrasted_positives takes no labels: set data.label_column=null$"),
        (default_roles(3), "scores", "^objective=contrasted_positives takes no labels: set data.score_column=null$"),
    ],
)
def test_rows_that_do_not_fit_are_one_line(roles, labels, message):
    with pytest.raises(UserError, match=message):
        ContrastedPositivesObjective().check_rows(tuple(map(Role, roles)), labels)


def test_a_temperature_that_is_not_positive_is_an_error():
    with pytest.raises(UserError, match="^objective.temperature=0.0: it must be above 0, and finite$"):
        ContrastedPositivesObjective(0.0)


def test_the_config_has_the_defaults_of_the_class():
    config = OmegaConf.load(ROOT / "conf/objective/contrasted_positives.yaml")
    assert vars(instantiate(config))["temperature"] == ContrastedPositivesObjective().temperature == 0.05


@pytest.mark.parametrize(("templates", "duplicates"), [(3, 0.0), (2, 1.0)])
def test_a_sentence_in_another_template_is_no_duplicate(templates, duplicates, make_model):
    texts = ['"{sentence}" means [MASK] .', 'the "{sentence}" is [MASK] .', 'no "{sentence}" means [MASK] .']
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mask", template=texts[:templates])
    module = SimCSEModule(encoder, ContrastedPositivesObjective(), adamw())
    batch = ViewCollator(encoder.tokenizer, 16, encoder.templates)([(text,) * 3 for text in SENTENCES])
    assert module.loss(batch)[1]["duplicates"] == duplicates


def test_cot_bert_reads_each_sentence_in_three_templates(composed, make_model, sentences):
    config = composed("method=cot_bert", *tiny(make_model("bert")))
    encoder, objective = instantiate(config.model), instantiate(config.objective)
    rows = TrainingSet(sentences, views=instantiate(config.views))
    rows.read(encoder.tokenizer, config.data.max_length, templates=encoder.templates)
    assert rows.view_roles == default_roles(3)
    objective.check_rows(rows.view_roles, rows.labels)
    ids = rows.batch([(0, row) for row in range(8)])["input_ids"]
    for own, sentence in zip(ids, SENTENCES, strict=True):
        for view, template in enumerate(config.model.template):
            expected = encoder.tokenizer(template.replace("{sentence}", sentence))["input_ids"]
            assert own[view][own[view] != encoder.tokenizer.pad_token_id].tolist() == expected
    assert (encoder.pooling, encoder.template_bias, encoder.final_period) == ("mask_2", "padded_train_only", True)
    assert (config.optimizer.lr, config.data.batch_size, config.objective.temperature) == (1e-5, 256, 0.05)
