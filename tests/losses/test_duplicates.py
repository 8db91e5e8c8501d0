import pytest
import torch

from simcse_pl.data.collators import ViewCollator
from simcse_pl.losses.duplicates import duplicate_negatives, hash_token_ids
from simcse_pl.losses.functional import contrastive_loss
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.load import load_encoder


@pytest.fixture
def keys_of(make_model):
    tokenizer = load_encoder(str(make_model("bert")), "cls").tokenizer

    def keys(*rows, longest=32):
        return hash_token_ids(ViewCollator(tokenizer, longest)(rows))

    return keys


def test_keys_are_equal_for_equal_sentences_alone(keys_of):
    keys = keys_of(("a b c", "a c b"), ("b", "a b c"), ("a", "b b b"))
    assert keys.shape == (3, 2) and keys[0, 0] == keys[1, 1]
    assert len(set(keys.flatten().tolist())) == 5


def test_keys_do_not_depend_on_padding(keys_of):
    short, padded = keys_of(("a b", "c")), keys_of(("a b", "c"), ("a b c a b c a b c a b c a", "c"))
    assert short.tolist() == padded[:1].tolist()


def by_hand(rows, others, label_offset):
    """The docstring's words, row by row."""
    found = []
    for i, row in enumerate(rows):
        own = row[:2]
        positives = [j != label_offset + i and bool({*other[:2]} & {*own}) for j, other in enumerate(others)]
        found.append(positives + [negative in own for other in others for negative in other[2:]])
    return found


@pytest.mark.parametrize("views", [2, 3, 4])
def test_duplicates_are_those_of_the_definition(views):
    others = torch.randint(0, 9, (12, views))
    for label_offset, n in ((0, 12), (3, 5), (11, 1)):
        rows = others[label_offset : label_offset + n]
        expected = by_hand(rows.tolist(), others.tolist(), label_offset)
        found = duplicate_negatives(rows, others, label_offset)
        assert found.tolist() == expected and found.any() and not found.all()


def test_what_is_left_out_is_no_term_of_the_sum():
    anchors, positives = torch.randn(2, 4, 6, dtype=torch.float64)
    hard = torch.randn(4, 1, 6, dtype=torch.float64)
    negative_mask = torch.zeros(4, 8, dtype=torch.bool)
    negative_mask[1, 3] = negative_mask[1, 6] = True
    loss = contrastive_loss(anchors, positives, hard, negative_mask=negative_mask)
    candidates = torch.nn.functional.normalize(torch.cat([positives, hard[:, 0]]), dim=-1)
    cosines = torch.nn.functional.normalize(anchors, dim=-1) @ candidates.T / 0.05
    expected = []
    for i, row in enumerate(cosines.exp()):
        kept = sum(term for j, term in enumerate(row) if (i, j) not in ((1, 3), (1, 6)))
        expected.append(-torch.log(row[i] / kept))
    torch.testing.assert_close(loss, torch.stack(expected).mean())


def test_the_objective_masks_them_where_it_is_asked_to(keys_of):
    """Rows 0 and 2 are the same sentence: without it, each has row 1 alone as a negative."""
    embeddings = torch.randn(3, 2, 6, requires_grad=True)
    keys = keys_of(("a b", "a b"), ("c", "c"), ("a b", "a b"))
    masked = ContrastiveObjective(mask_duplicates=True)(embeddings, keys=keys)
    anchors, positives = embeddings.unbind(dim=1)
    of_row_1 = contrastive_loss(anchors[1:2], positives, label_offset=1)
    alone = [contrastive_loss(anchors[i : i + 1], positives[[i, 1]]) for i in (0, 2)]
    torch.testing.assert_close(masked, (alone[0] + alone[1] + of_row_1) / 3)
    assert ContrastiveObjective()(embeddings, keys=keys) == ContrastiveObjective()(embeddings) != masked


def test_a_batch_of_one_sentence_has_no_loss_and_no_gradient(keys_of):
    embeddings = torch.randn(3, 2, 6, requires_grad=True)
    loss = ContrastiveObjective(mask_duplicates=True)(embeddings, keys=keys_of(*[("a", "a")] * 3))
    loss.backward()
    assert loss == 0 and embeddings.grad.abs().max() == 0
