"""Which negatives of a batch are duplicates, and the hashes that tell."""

import pytest
import torch

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.duplicates import duplicate_negatives, hash_token_ids
from simcse_pl.models.load import load_encoder


@pytest.fixture
def hashes_of(make_model):
    tokenizer = load_encoder(str(make_model("bert")), "cls").tokenizer

    def hashes(*rows):
        return hash_token_ids(ViewCollator(tokenizer, 32)(rows))

    return hashes


def test_only_equal_sentences_have_equal_hashes_whatever_their_padding(hashes_of):
    hashes = hashes_of(("a b c", "a c b"), ("b", "a b c"), ("a", "b b b"))
    assert hashes.shape == (3, 2) and hashes[0, 0] == hashes[1, 1]
    assert len(set(hashes.flatten().tolist())) == 5
    padded = hashes_of(("a b c", "a c b"), ("a b c a b c a b c a b c a", "c"))
    assert padded[0].tolist() == hashes[0].tolist()


def by_loops(rows, others, label_offset, positives):
    """The definition in the docstring of duplicate_negatives."""
    found = []
    for i, row in enumerate(rows):
        own = row[: 1 + positives]
        repeats = [j != label_offset + i and bool({*other[: 1 + positives]} & {*own}) for j, other in enumerate(others)]
        first, rest = repeats, []
        for repeat, other in zip(repeats, others, strict=True):
            rest += [repeat] * (positives - 1) + [negative in own for negative in other[1 + positives :]]
        found.append(first + rest)
    return found


@pytest.mark.parametrize(("views", "positives"), [(2, 1), (3, 1), (4, 1), (3, 2), (5, 2), (4, 3)])
def test_duplicates_are_those_of_the_definition(views, positives):
    others = torch.randint(0, 9 * positives, (12, views))
    for label_offset, n in ((0, 12), (3, 5), (11, 1)):
        rows = others[label_offset : label_offset + n]
        found = duplicate_negatives(rows, others, label_offset, positives)
        assert found.tolist() == by_loops(rows.tolist(), others.tolist(), label_offset, positives)
        assert found.shape == (n, 12 * (views - 1)) and not found.all()


def test_without_positives_only_hard_negatives_are_duplicates():
    hashes = torch.tensor([[1, 2], [2, 2]])
    assert duplicate_negatives(hashes, hashes, positives=0).tolist() == [[False, False], [True, True]]
