"""DeCLUTR: the spans of a document; tests/fidelity has its loss."""

import random

import pytest

from simcse_pl.data.training_set import TrainingSet
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.methods.declutr import DeCLUTRLoss, Spans
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Role, RowKind

ANCHOR, POSITIVE, _, OTHER = Role
# The spans that declutr/common/contrastive_utils.py of JohnGiorgi/DeCLUTR at b78ac57 returns for words, anchors,
# positives, l_min and l_max, when numpy's functions draw as `Draws` does.
RELEASED = {
    (64, 2, 2, 4, 16): [(49, 63), (50, 57), (53, 61), (5, 12), (6, 20), (9, 16)],
    (230, 1, 3, 10, 50): [(177, 192), (174, 194), (178, 205), (141, 182)],
    (400, 3, 2, 8, 64): [
        *((320, 381), (369, 381), (325, 374), (152, 177), (122, 162), (142, 174), (16, 64), (28, 66), (2, 25))
    ],
    (415, 4, 1, 50, 50): [(350, 400), (341, 391), (0, 50), (11, 61), (150, 200), (164, 214), (250, 300), (274, 324)],
}


class Draws(random.Random):
    """Draw from the same numbers in [0, 1) for any distribution."""

    def betavariate(self, alpha, beta):
        return self.random()

    def choice(self, values):
        return values[int(self.random() * len(values))]


@pytest.mark.parametrize(("seed", "given"), list(enumerate(RELEASED)))
def test_the_spans_are_those_of_the_released_code(seed, given):
    words, *options = given
    assert Spans(*options).draw(words, Draws(seed)) == RELEASED[given]


def test_lengths_have_beta_distributions_and_positives_touch_their_anchor():
    lengths = {"anchor": [], "positive": []}
    for seed in range(2000):
        (start, end), (first, last) = Spans(1, 1, 1, 1001).draw(4004, random.Random(seed))
        assert 0 <= start < end <= 4004 and 0 <= first < last <= 4004 and first <= end and start <= last
        lengths["anchor"].append((end - start - 1) / 1000)
        lengths["positive"].append((last - first - 1) / 1000)
    for kind, (a, b) in {"anchor": (4, 2), "positive": (2, 4)}.items():
        mean = sum(lengths[kind]) / 2000
        assert mean == pytest.approx(a / (a + b), abs=0.015)
        variance = sum((x - mean) ** 2 for x in lengths[kind]) / 2000
        assert variance == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), rel=0.12)


@pytest.mark.parametrize("words", [1, 2, 3, 5, 40])
def test_a_short_document_has_shorter_spans(words):
    for seed in range(50):
        drawn = Spans().draw(words, random.Random(seed))
        assert len(drawn) == 6
        assert all(0 <= start < end <= words and end - start == max(1, words // 4) for start, end in drawn)


def test_a_document_without_words_has_empty_spans():
    assert Spans().draw(0, random.Random(0)) == [(0, 0)] * 6


def test_the_spans_of_a_row_are_its_own_words(tmp_path, tokenizer):
    (tmp_path / "documents.txt").write_text("\n".join(" ".join(f"{row}{i}" for i in range(60)) for row in "ab"))
    rows = TrainingSet(tmp_path / "documents.txt", views={"spans": Spans(2, 1, 3, 6)}).read(tokenizer, 64)
    assert rows.roles == (ANCHOR, POSITIVE, OTHER, OTHER)
    for row, views in zip("ab", rows.with_views([(0, 0), (0, 1)]), strict=True):
        assert all(3 <= len(view.split()) <= 6 and {word[0] for word in view.split()} == {row} for view in views)


def test_views_that_are_no_groups_of_an_anchor_and_its_positives_are_an_error():
    loss = DeCLUTRLoss(MaskedLanguageModeling())
    loss.check_rows(RowKind((ANCHOR, POSITIVE)))
    for roles in [(ANCHOR, POSITIVE, OTHER), (ANCHOR, OTHER, OTHER, POSITIVE)]:
        with pytest.raises(UserError, match="equally many positives"):
            loss.check_rows(RowKind(roles))
