"""The view of a masked language model: only chosen words change, independent of the batch."""

import random
import shutil
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForMaskedLM, AutoTokenizer

from simcse_pl.data.views import replace_by_mlm
from simcse_pl.data.views.replace_by_mlm import MaskedLanguageModel, whole_words
from simcse_pl.data.views.view import ViewInput
from simcse_pl.data.views.words import replace_word, strip_punctuation
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

ARCHITECTURES = ["bert", "roberta", "distilbert", "modernbert", "electra", "mpnet"]


@pytest.fixture
def make_masked_model(make_masked_language_model):
    """Make models with weights so large that each word gets its own prediction."""
    return partial(make_masked_language_model, initializer_range=0.5)


def inputs(sentences: list[str], epoch: int = 0) -> list[ViewInput]:
    return [ViewInput(sentence, (), random.Random(f"0, {epoch}, {row}"), ()) for row, sentence in enumerate(sentences)]


def filled_by_hand(model, tokenizer, sentence: str, positions: list[int]) -> str:
    """The greedy fill of one sentence alone: all scores of all tokens, in float64."""
    words = sentence.split()
    for i in positions:
        words[i] = words[i].replace(strip_punctuation(words[i]), tokenizer.mask_token)
    inputs = tokenizer(" ".join(words), return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        scores = model(**inputs).logits[0]
    wordpiece = tokenizer.mask_token == "[MASK]"
    tokens = {token.removeprefix("Ġ"): i for token, i in tokenizer.get_vocab().items() if wordpiece or token[0] == "Ġ"}
    whole = {i: token for token, i in tokens.items() if token.isalnum()}
    masks = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    for i, place in zip(positions, masks, strict=True):
        best = max(whole, key=lambda token: scores[place, token])
        words[i] = replace_word(sentence.split()[i], whole[best])
    return " ".join(words)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_mask_gets_the_whole_word_that_scores_highest(architecture, make_masked_model):
    folder = make_masked_model(architecture)
    positives = MaskedLanguageModel(str(folder), rate=0.4)(inputs(SENTENCES))
    model, tokenizer = (
        AutoModelForMaskedLM.from_pretrained(folder).double().eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    for row, (sentence, positive) in enumerate(zip(SENTENCES, positives, strict=True)):
        count = round(0.4 * len(sentence.split()))
        chosen = sorted(random.Random(f"0, 0, {row}").sample(range(len(sentence.split())), count))
        assert positive == filled_by_hand(model, tokenizer, sentence, chosen)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_a_positive_is_the_same_in_any_batch(architecture, make_masked_model, monkeypatch):
    view = MaskedLanguageModel(str(make_masked_model(architecture)), 0.3)
    rows = [*SENTENCES, " ".join(SENTENCES), *SENTENCES]
    alone = [view([own])[0] for own in inputs(rows)]
    order = random.Random(0).sample(range(len(rows)), len(rows))
    for close in (0.0, 0.05, 1e9):  # none, some or all sentences are scored again in float64
        monkeypatch.setattr(replace_by_mlm, "_CLOSE", close)
        assert view(inputs(rows)) == alone
        shuffled = inputs(rows)
        assert view([shuffled[i] for i in order]) == [alone[i] for i in order]


def test_close_scores_are_compared_in_float64(make_masked_model, monkeypatch):
    view = MaskedLanguageModel(str(make_masked_model("bert")), 0.3)
    vocabulary = view.tokenizer.get_vocab()
    low, high = vocabulary["a"], vocabulary["the"]
    float64_scores = {low: 7.0, high: 7.0 + 1e-9}

    def scores(inputs: dict[str, torch.Tensor], is_mask: torch.Tensor) -> torch.Tensor:
        precision = next(view._model.parameters()).dtype
        found = torch.zeros(int(is_mask.sum()), len(vocabulary), dtype=precision)
        for token, score in float64_scores.items():
            found[:, token] = score
        if precision == torch.float32:  # rounding puts the wrong one first
            found[:, low] += 1e-3
        return found

    monkeypatch.setattr(view, "_scores", scores)
    (positive,) = view(inputs(["Two dogs run through snow."]))
    kept = {"Two", "dogs", "run", "through", "snow."}
    changed = [strip_punctuation(word).lower() for word in positive.split() if word not in kept]
    assert changed == ["the", "the"]


def test_a_positive_depends_on_the_seed_the_epoch_and_the_row_only(make_masked_model, monkeypatch):
    monkeypatch.setattr(replace_by_mlm, "_CLOSE", 1e9)  # converts to float64 and back
    view = MaskedLanguageModel(str(make_masked_model("bert")), 0.3)
    weights = {name: tensor.clone() for name, tensor in view._model.state_dict().items()}
    torch_state = torch.get_rng_state()
    once = view(inputs(SENTENCES))
    assert view(inputs(SENTENCES)) == once
    assert view(inputs(SENTENCES, epoch=1)) != once
    assert torch.equal(torch.get_rng_state(), torch_state)
    for name, tensor in view._model.state_dict().items():
        assert tensor.dtype == weights[name].dtype and torch.equal(tensor, weights[name])


def test_worker_processes_give_the_same(make_masked_model):
    view = MaskedLanguageModel(str(make_masked_model("bert")), 0.3)
    rows = list(enumerate(SENTENCES))

    def stream(num_workers: int) -> list[str]:
        def collate(batch: list[tuple[int, str]]) -> list[str]:
            return view([ViewInput(sentence, (), random.Random(row), ()) for row, sentence in batch])

        return [x for batch in DataLoader(rows, 3, collate_fn=collate, num_workers=num_workers) for x in batch]

    assert stream(2) == stream(0)


def test_words_beyond_the_maximum_length_and_sentences_with_a_mask_token_stay(make_masked_model):
    view, words = MaskedLanguageModel(str(make_masked_model("bert")), 0.9), [f"word{i}" for i in range(300)]
    masked = ["BERT reads [MASK] as a gap in the text.", "Two dogs run through the snow and [MASK]."]
    positive, *others = view(inputs([" ".join(words), *masked]))
    assert positive.split()[:10] != words[:10] and positive.split()[64:] == words[64:]
    assert others == masked


def test_short_sentences_stay(make_masked_model):
    view = MaskedLanguageModel(str(make_masked_model("bert")))
    assert view([]) == []
    assert view(inputs(["Alone!", "Two words.", "-"])) == ["Alone!", "Two words.", "-"]


def test_whole_words_are_not_pieces_signs_or_special_tokens(make_model):
    tokenizer = AutoTokenizer.from_pretrained(make_model("bert"))
    vocabulary = tokenizer.get_vocab()
    whole = whole_words(tokenizer, len(tokenizer) + 8)
    assert whole.shape == (len(tokenizer) + 8,) and not whole[len(tokenizer) :].any()
    assert {token for token, i in vocabulary.items() if whole[i]} == {t for t in vocabulary if t.isalnum()}


def spoil(what, folder, masked, backbone):
    """Write a model that cannot fill in words."""
    shutil.copytree(backbone if what == "no head" else masked, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if what == "another architecture":
        (folder / "config.json").write_text('{"model_type": "gpt2"}')
    elif what == "no mask token":
        tokenizer.mask_token = None
        tokenizer.save_pretrained(folder)
    elif what == "no whole words":
        tokenizer.backend_tokenizer.decoder = None  # its bytes do not become text
        tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    ("what", "architecture", "message"),
    [
        ("no head", "bert", "^{} has no masked-language-model head"),
        ("another architecture", "bert", "^cannot load the model in {}: .*GPT2Config.*MaskedLM"),
        ("no mask token", "bert", "^name={}: its tokenizer has no mask token$"),
        ("no whole words", "roberta", "^name={}: its tokenizer has no whole words$"),
    ],
)
def test_a_model_that_cannot_fill_in_words_is_an_error(
    what, architecture, message, make_masked_model, make_model, tmp_path
):
    spoil(what, tmp_path / "model", make_masked_model(architecture), make_model(architecture))
    with pytest.raises(UserError, match=message.format(tmp_path / "model")):
        MaskedLanguageModel(str(tmp_path / "model"))
