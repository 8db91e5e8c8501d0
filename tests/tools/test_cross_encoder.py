"""Scores of a cross-encoder against transformers' pipeline, and negatives against a loop."""

import pytest
from transformers import pipeline

from simcse_pl.tools.cross_encoder import CrossEncoder, rescore
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES


def test_scores_are_the_logits_of_the_pairs(cross_encoder):
    pairs = [(first, second) for first in SENTENCES[:3] for second in SENTENCES[3:]]
    scores = CrossEncoder(str(cross_encoder), batch_size=4).score(pairs)
    classify = pipeline("text-classification", str(cross_encoder), function_to_apply="none", device="cpu")
    expected = [classify({"text": first, "text_pair": second})["score"] for first, second in pairs]
    assert scores == pytest.approx(expected, abs=1e-5) and max(scores) - min(scores) > 0.1


def test_a_model_without_a_score_is_an_error(make_model):
    with pytest.raises(UserError, match="has 2 logits"):
        CrossEncoder(str(make_model("bert")))


def test_negatives_score_below_the_positive_by_the_margin():
    values = {"p": 5.0, "a": 4.9, "b": 4.0, "c": 3.0, "d": 4.6, "e": 9.0}
    rows = [("x", "p", "a", "b", "c", "d"), ("y", "p", "e", "a", "b"), ("z", "b", "a", "c")]
    score = lambda pairs: [values[other] for _, other in pairs]  # noqa: E731
    kept, left_out = rescore(score, rows, negatives=2, margin=0.5)
    assert kept == [("x", "p", "b", "c", "5", "4", "3")] and left_out == 5
    assert [row[2:4] for row in rescore(score, rows, 2, -10)[0]] == [("a", "b"), ("e", "a"), ("a", "c")]
