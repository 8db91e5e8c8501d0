"""The masks of auxiliary losses: their distribution, special tokens, and randomness."""

import pytest
import torch

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.losses.token_masking import NOT_CHOSEN
from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.losses.cases import attached


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")


def test_15_percent_are_chosen_of_which_80_are_masked_10_random_and_10_kept(encoder):
    masked, labels = attached(MaskedLanguageModeling(head="new"), encoder).mask(torch.full((2000, 100), 50))
    chosen = labels == 50
    assert ((labels == NOT_CHOSEN) | chosen).all() and (masked[~chosen] == 50).all()
    became = masked[chosen]
    shares = [chosen, became == encoder.tokenizer.mask_token_id, became == 50]
    assert [share.float().mean().item() for share in shares] == pytest.approx([0.15, 0.8, 0.1], abs=0.01)


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_whole_words_are_chosen_with_the_probability(make_model, architecture):
    """BERT's tokens mark the inside of a word, RoBERTa's its start."""
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean")
    inputs = encoder.tokenizer(["Nobody answered her"] * 4000, return_tensors="pt")
    assert [token.strip("#Ġ") for token in inputs.tokens(0)][1:-1] == ["Nobody", "answered", "h", "er"]
    term = attached(MaskedLanguageModeling(probability=0.3, whole_words=True, head="new"), encoder)
    masked, labels = term.mask(inputs["input_ids"])
    chosen = (labels != NOT_CHOSEN).double()
    assert chosen.mean(dim=0).tolist() == pytest.approx([0, 0.3, 0.3, 0.3, 0.3, 0], abs=0.03)
    assert chosen[:, 3].equal(chosen[:, 4])
    torch.testing.assert_close(torch.corrcoef(chosen[:, 1:4].T), torch.eye(3).double(), atol=0.07, rtol=0)
    share = (masked == encoder.tokenizer.mask_token_id)[chosen.bool()].double().mean()
    assert share == pytest.approx(0.8, abs=0.03)


def test_special_tokens_and_padding_are_not_chosen(encoder):
    ids = ViewCollator(encoder.tokenizer, 32)([(s,) for s in SENTENCES])["input_ids"]
    before = ids.clone()
    masked, labels = attached(MaskedLanguageModeling(probability=1.0, head="new"), encoder).mask(ids)
    special = torch.isin(ids, torch.tensor(encoder.tokenizer.all_special_ids))
    assert (ids == encoder.tokenizer.pad_token_id).any() and special.any() and not special.all()
    assert (labels[special] == NOT_CHOSEN).all() and torch.equal(masked[special], ids[special])
    assert torch.equal(labels[~special], ids[~special])
    assert torch.equal(ids, before)  # the contrastive loss needs them


def test_masks_are_drawn_from_torchs_random_state_for_each_view(encoder):
    term = attached(MaskedLanguageModeling(head="new"), encoder)
    ids = torch.full((8, 2, 50), 50)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(term.mask(ids)[0])
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0][:, 0], masks[0][:, 1])


def test_tokenizers_that_cannot_mask_are_errors(encoder):
    encoder.tokenizer.get_vocab = lambda: {"a": 0, "b": 1}
    with pytest.raises(UserError, match="^whole_words=true: the tokenizer of .* does not mark where words begin$"):
        MaskedLanguageModeling(whole_words=True).attach(encoder)
    encoder.tokenizer.mask_token = None
    for loss in (MaskedLanguageModeling, ReplacedTokenDetection, SentenceMaskedLanguageModeling):
        with pytest.raises(UserError, match="^the tokenizer of .* has no mask token$"):
            loss().attach(encoder)
