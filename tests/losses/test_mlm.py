"""Masked language modelling: which tokens are masked, the loss against transformers' models, and the saved model."""

import contextlib
from types import SimpleNamespace

import jieba
import numpy as np
import peft
import pytest
import torch
from icu4py.breakers import WordBreaker
from scipy.sparse.csgraph import connected_components
from transformers import AutoModelForMaskedLM

from simcse_pl.data import words as segmenters
from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.mlm import NOT_CHOSEN, MaskedLanguageModeling, TokenMaskingLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import BEGINS_WORD
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import RowKind
from tests.conftest import SENTENCES
from tests.losses.cases import attached, batch_of, load
from tests.support.tiny_models import ARCHITECTURES, train_tokenizers


@pytest.fixture
def encoder(make_masked_language_model):
    return load(make_masked_language_model("bert"), head="none").eval()


def test_15_percent_are_chosen_of_which_80_are_masked_10_random_and_10_kept(encoder):
    masked, labels = attached(MaskedLanguageModeling(), encoder).mask(torch.full((2000, 100), 50))
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
    loss = attached(MaskedLanguageModeling(probability=0.3, whole_words=True, head="new"), encoder)
    chosen = (loss.mask(inputs["input_ids"])[1] != NOT_CHOSEN).double()
    assert chosen.mean(dim=0).tolist() == pytest.approx([0, 0.3, 0.3, 0.3, 0.3, 0], abs=0.03)
    assert chosen[:, 3].equal(chosen[:, 4])
    torch.testing.assert_close(torch.corrcoef(chosen[:, 1:4].T), torch.eye(3).double(), atol=0.07, rtol=0)


LANGUAGES = {
    "Chinese": "“一个男人”在网上弹吉他。他来到了iPhone 商店！",
    "Japanese": "男性がギターを弾いています。",
    "Thai": "ชายคนหนึ่งกำลังเล่นกีตาร์ 3 ตัว",
    "German": "Ein Mann, der tanzt, geht's langsam an ...",
}


@pytest.fixture(scope="module")
def tokenizers():
    return train_tokenizers([*LANGUAGES.values(), *["x个男"] * 20], 130)  # 个男 has parts of two words


def together(tokenizer, text, pieces):
    """Return which tokens share a piece of the text, directly or by other tokens, [tokens, tokens]."""
    piece = [number for number, text in enumerate(pieces) for _ in text]
    piece = [number + text[place].isspace() for place, number in enumerate(piece)]  # a space is of the next word
    covers = np.zeros((len(tokenizer(text)["input_ids"]), len(pieces) + 1))
    for token, span in enumerate(tokenizer(text, return_offsets_mapping=True)["offset_mapping"]):
        covers[token, piece[slice(*span)]] = 1
    words = connected_components(covers @ covers.T)[1]
    return words[:, None] == words


@pytest.mark.parametrize(
    ("segment", "split", "language"),
    [(segmenters.icu, lambda text: [*map(str, WordBreaker(text, "root"))], language) for language in LANGUAGES]
    + [(segmenters.jieba, lambda text: [*jieba.cut(text)], "Chinese")],
)
@pytest.mark.parametrize("kind", ["WordPiece", "Unigram", "byte-level BPE", "BPE with byte fallback"])
def test_the_words_of_a_segmenter_are_chosen_whole_with_the_probability(kind, segment, split, language, tokenizers):
    tokenizer, text = tokenizers[kind], LANGUAGES[language]
    expected = together(tokenizer, text, split(text))
    assert 3 < len(np.unique(expected, axis=0)) < len(expected)  # words, and some have several tokens
    batch = ViewCollator(tokenizer, 200, segment=segment)([(text,)])
    ids, begins = (batch[name][0, 0].expand(3000, -1) for name in ("input_ids", BEGINS_WORD))
    assert ids[0].tolist() == tokenizer(text)["input_ids"]
    loss = MaskedLanguageModeling(probability=0.3, whole_words=True)
    TokenMaskingLoss.attach(loss, SimpleNamespace(tokenizer=tokenizer))
    chosen = loss.mask(ids, begins)[1] != NOT_CHOSEN
    np.testing.assert_array_equal((chosen[:, :, None] == chosen[:, None]).all(dim=0), expected)
    assert chosen.double().mean(dim=0).tolist() == pytest.approx([0.3] * len(expected), abs=0.04)


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("一个戴着安全帽的男人在跳舞。", "3 sentences are 3 words: text without spaces .* needs segmenter=icu"),
        ("Nobody answered", "6 tokens are 6 words"),
        ("her her", ""),
    ],
)
def test_whole_words_that_are_sentences_are_an_error_and_single_tokens_a_warning(sentence, said, make_model, caplog):
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean")
    loss = attached(MaskedLanguageModeling(whole_words=True, head="new"), encoder)
    tokens = [np.array(encoder.tokenizer(sentence)["input_ids"])] * 3
    with pytest.raises(UserError, match=said) if "sentences" in said else contextlib.nullcontext():
        loss.check_rows(RowKind(examples=tokens))
    assert said in caplog.text if "tokens" in said else not caplog.text


def test_the_words_of_a_batch_are_masked_whole(encoder, monkeypatch):
    loss, batch = attached(MaskedLanguageModeling(whole_words=True), encoder), batch_of(encoder)
    begins, mask, words = torch.rand(batch.inputs["input_ids"].shape) < 0.5, loss.mask, []
    monkeypatch.setattr(loss, "mask", lambda ids, begins: words.append(begins) or mask(ids, begins))
    loss(batch.replaced(inputs=batch.inputs | {BEGINS_WORD: begins}))
    assert len(words) == 1 and words[0].equal(begins.flatten(0, 1))


def test_special_tokens_are_not_masked_and_the_ids_stay_as_they_are(encoder):
    ids = batch_of(encoder).inputs["input_ids"]
    before = ids.clone()
    masked, labels = attached(MaskedLanguageModeling(probability=1.0), encoder).mask(ids)
    special = torch.isin(ids, torch.tensor(encoder.tokenizer.all_special_ids))
    assert (labels == NOT_CHOSEN).equal(special) and masked[special].equal(ids[special])
    assert ids.equal(before)  # the contrastive loss needs them


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
@pytest.mark.parametrize("decoder", ["tied", "copied", "of the checkpoint"])
def test_the_loss_and_its_gradient_are_those_of_transformers(decoder, architecture, make_masked_language_model):
    settings = {"tie_word_embeddings": False} if decoder == "of the checkpoint" else {}
    folder = make_masked_language_model(architecture, **settings)
    encoder = SentenceEncoder.from_pretrained(folder, pooling="mean")
    whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    if decoder == "copied":
        words = whole.get_input_embeddings()
        words.weight = torch.nn.Parameter(words.weight.detach().clone())
    loss, batch = attached(MaskedLanguageModeling(tied=decoder == "tied"), encoder), batch_of(encoder)
    inputs = {name: tensor.flatten(0, 1) for name, tensor in batch.inputs.items()}
    torch.manual_seed(5)
    masked, labels = loss.mask(inputs["input_ids"])
    expected = whole(**inputs | {"input_ids": masked}, labels=labels).loss
    torch.manual_seed(5)
    value = loss(batch)
    assert value.shape == () and value.item() == pytest.approx(expected.item(), abs=1e-5)
    value.backward()
    expected.backward()
    own = encoder.backbone.get_input_embeddings().weight, loss.head.model.get_output_embeddings().weight
    theirs = whole.get_input_embeddings().weight, whole.get_output_embeddings().weight
    assert (own[0] is own[1]) == (theirs[0] is theirs[1]) == (decoder == "tied")
    for here, there in zip(own, theirs, strict=True):
        torch.testing.assert_close(here.grad, there.grad, atol=1e-5, rtol=0)
    if decoder == "tied":  # DDP would wait for a gradient of every weight
        assert all(weight.grad is not None for weight in loss.parameters())


def test_a_copied_decoder_is_trained_beside_frozen_embeddings(encoder):
    encoder.requires_grad_(False)
    loss = attached(MaskedLanguageModeling(tied=False), encoder)
    loss(batch_of(encoder)).backward()
    assert all(weight.grad.any() for weight in loss.head.model.get_output_embeddings().parameters())


def test_without_chosen_tokens_the_loss_is_0_and_every_weight_has_a_gradient(encoder):
    loss, batch = attached(MaskedLanguageModeling(), encoder), batch_of(encoder)
    batch.inputs = {name: x[..., :1] for name, x in batch.inputs.items()}  # [CLS]
    value = loss(batch)
    assert value.item() == 0
    value.backward()
    both = torch.nn.ModuleList([encoder.backbone, loss])
    assert all(weight.grad is not None and not weight.grad.any() for weight in both.parameters())


def test_more_tokens_than_a_gpu_has_places_for_make_the_loss_nan(encoder, monkeypatch):
    """It takes a number of places that holds all that are chosen, and the loss is that of the CPU."""
    loss, batch = attached(MaskedLanguageModeling(probability=0.9), encoder), batch_of(encoder)
    losses = []
    for places in (None, 1000, 8):
        if places:
            monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda _: False), raising=False)
            monkeypatch.setattr(loss, "_most_chosen", lambda _, places=places: places)
        torch.manual_seed(5)
        losses.append(loss(batch).item())
    assert losses[1] == pytest.approx(losses[0], abs=1e-5) and np.isnan(losses[2])
    monkeypatch.undo()
    assert 0.15 * 10**4 < MaskedLanguageModeling()._most_chosen(10**4) < 0.2 * 10**4
    assert MaskedLanguageModeling(whole_words=True)._most_chosen(10**4) == 10**4


def test_a_checkpoint_without_a_head_can_get_a_new_one(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean")
    with pytest.raises(UserError, match="has no language-model head .*head=new initializes"):
        attached(MaskedLanguageModeling(), encoder)
    value = attached(MaskedLanguageModeling(head="new"), encoder)(batch_of(encoder))
    assert 0 < value.item() < 20 and value.requires_grad


def test_of_an_adapter_its_weights_are_saved_without_the_head(make_masked_language_model, tmp_path):
    adapter = peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False)
    encoder = load(make_masked_language_model("bert"), head="none", adapter=adapter).eval()
    attached(MaskedLanguageModeling(), encoder).save(encoder, tmp_path)
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(SENTENCES), encoder.encode(SENTENCES))
    assert (tmp_path / "adapter_model.safetensors").is_file() and not (tmp_path / "model.safetensors").exists()


def test_an_adapter_of_the_word_embeddings_is_an_error(make_masked_language_model):
    adapter = peft.LoraConfig(r=2, target_modules=["word_embeddings"])
    with pytest.raises(UserError, match="the adapter changes the word embeddings, which the head shares"):
        attached(MaskedLanguageModeling(), load(make_masked_language_model("bert"), head="none", adapter=adapter))


@pytest.mark.parametrize("tied", [True, False])
def test_the_saved_model_has_the_trained_backbone_and_head(tied, encoder, tmp_path):
    objective = attached(MaskedLanguageModeling(head="new", tied=tied), encoder)
    with torch.no_grad():
        for weight in [*encoder.backbone.parameters(), *objective.parameters()]:
            weight.add_(0.1 * torch.randn_like(weight))
    objective.save(encoder, tmp_path)
    inputs = encoder.tokenizer(SENTENCES[:2], return_tensors="pt", padding=True)
    whole, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    states = encoder.eval().backbone(**inputs).last_hidden_state
    torch.testing.assert_close(whole.eval()(**inputs).logits[0], objective.head(states[0]), atol=1e-5, rtol=0)
    loaded = SentenceEncoder.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    again = attached(MaskedLanguageModeling(), loaded)  # with the head of the folder
    torch.testing.assert_close(again.head(states[0]), objective.head(states[0]))
