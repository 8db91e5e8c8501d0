"""The contrastive loss at its limits, and which negatives are duplicates; test_all_losses.py has its formula."""

import pytest
import torch

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss, contrastive_loss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.methods.dclr import DebiasedLoss
from simcse_pl.methods.whitenedcse import WhitenedContrastiveLoss
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import hash_token_ids
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load


def test_hardness_of_distant_embeddings_is_finite():
    anchors = torch.eye(4, requires_grad=True)
    loss = ContrastiveLoss(temperature=0.001, hardness=50.0)(anchors, -torch.eye(4).roll(1, 0))
    loss.backward()
    assert loss.isfinite() and anchors.grad.isfinite().all()


@pytest.mark.parametrize("hardness", [0.0, 1.0])
def test_an_anchor_whose_negatives_are_all_masked_has_loss_0_and_no_gradient(hardness):
    class Masked(ContrastiveLoss):
        def false_negatives(self, batch, comparisons):
            return [{view: torch.ones(4, 4, dtype=torch.bool) for view in views[1:]} for views in comparisons]

    anchors, positives = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    loss = Masked(hardness=hardness)(anchors, positives)
    loss.backward()
    assert loss.item() == 0 and not anchors.grad.any()


def test_the_loss_of_each_anchor_has_the_loss_as_its_mean():
    anchors, positives = torch.randn(4, 3), torch.randn(6, 3)
    each = contrastive_loss(anchors, positives, label_offset=1, reduction="none")
    alone = [contrastive_loss(anchors[i : i + 1], positives, label_offset=1 + i) for i in range(4)]
    assert torch.allclose(each, torch.stack(alone))
    assert torch.allclose(each.mean(), contrastive_loss(anchors, positives, label_offset=1))


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_a_temperature_is_above_0(wrong):
    with pytest.raises(UserError, match=f"temperature={wrong}: it should be above 0"):
        contrastive_loss(torch.eye(4), torch.eye(4), temperature=wrong)


def test_a_trained_temperature_is_at_least_a_hundredth_and_rises_from_it():
    loss, vectors = ContrastiveLoss(trainable_temperature=True), torch.eye(4)
    torch.nn.init.constant_(loss.log_scale, 5.0)
    batch = EmbeddedBatch.of(vectors, vectors.flip(0))
    loss(batch).backward()
    assert batch.curves["train/temperature"].item() == pytest.approx(0.01)
    torch.optim.SGD(loss.parameters(), lr=0.01).step()
    assert loss.temperature > 0.011, "others are nearer than the positives, so cosines should count less"
    assert ContrastiveLoss(0.3).state_dict() == {}


@pytest.mark.parametrize("make", [DebiasedLoss, lambda _: WhitenedContrastiveLoss(groups=2)])
def test_a_queue_that_would_be_ignored_is_an_error(make, teacher, make_model):
    encoder = load(make_model("bert"))
    with pytest.raises(UserError, match="queue=null"):
        attached(make(teacher), encoder)(batch_of(encoder, queue=torch.randn(3, encoder.dim)))


@pytest.mark.parametrize("template", [None, ["a {sentence} b", "{sentence} c"]])
def test_only_equal_sentences_have_equal_hashes_whatever_their_padding_and_their_template(template, make_model):
    tokenizer = load(make_model("bert")).tokenizer
    collate = ViewCollator(tokenizer, 32, Templates(tokenizer, template))
    hashes = hash_token_ids(collate([("a b c", "a c b"), ("b", "a b c"), ("a", "b b b")]))
    assert hashes.shape == (3, 2) and hashes[0, 0] == hashes[1, 1]
    assert len(set(hashes.flatten().tolist())) == 5
    padded = hash_token_ids(collate([("a b c", "a c b"), ("a b c a b c a b c a b c a", "c")]))
    assert padded[0].tolist() == hashes[0].tolist()
