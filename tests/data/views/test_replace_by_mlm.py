"""The view of a masked language model: only chosen words change, and the batch plays no part in it."""

import random
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import decoders
from torch.utils.data import DataLoader
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from simcse_pl.data.views import replace_by_mlm as masked_language_model
from simcse_pl.data.views.replace_by_mlm import MaskedLanguageModel, whole_words
from simcse_pl.data.views.replacing import bare, replace
from simcse_pl.data.views.view import Original
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

ARCHITECTURES = ["bert", "roberta", "distilbert", "modernbert", "electra", "mpnet"]


@pytest.fixture(scope="session")
def make_masked_model(make_model, tmp_path_factory):
    """Make a folder with a masked language model of an architecture, random weights and a trained tokenizer."""
    made: dict[str, Path] = {}

    def make(architecture: str) -> Path:
        if architecture not in made:
            folder = tmp_path_factory.mktemp(f"masked-{architecture}")
            backbone = make_model(architecture, initializer_range=0.5)
            with torch.random.fork_rng():
                torch.manual_seed(0)
                AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(backbone)).save_pretrained(folder)
            tokenizer = AutoTokenizer.from_pretrained(backbone)
            if tokenizer.mask_token == "<mask>":  # bytes into text, as in real RoBERTas
                tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
            tokenizer.save_pretrained(folder)
            made[architecture] = folder
        return made[architecture]

    return make


def originals(sentences: list[str], epoch: int = 0) -> list[Original]:
    return [Original(sentence, (), random.Random(f"0, {epoch}, {row}")) for row, sentence in enumerate(sentences)]


def filled_by_hand(model, tokenizer, sentence: str, positions: list[int]) -> str:
    """The greedy fill of one sentence alone: all scores of all tokens, in float64."""
    words = sentence.split()
    for i in positions:
        words[i] = words[i].replace(bare(words[i]), tokenizer.mask_token)
    inputs = tokenizer(" ".join(words), return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        scores = model(**inputs).logits[0]
    wordpiece = tokenizer.mask_token == "[MASK]"
    tokens = {token.removeprefix("Ġ"): i for token, i in tokenizer.get_vocab().items() if wordpiece or token[0] == "Ġ"}
    whole = {i: token for token, i in tokens.items() if token.isalnum()}
    masks = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    for i, place in zip(positions, masks, strict=True):
        best = max(whole, key=lambda token: scores[place, token])
        words[i] = replace(sentence.split()[i], whole[best])
    return " ".join(words)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_mask_gets_the_whole_word_that_scores_highest(architecture, make_masked_model):
    folder = make_masked_model(architecture)
    positives = MaskedLanguageModel(str(folder), share=0.4)(originals(SENTENCES))
    model, tokenizer = (
        AutoModelForMaskedLM.from_pretrained(folder).double().eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    for row, (sentence, positive) in enumerate(zip(SENTENCES, positives, strict=True)):
        count = round(0.4 * len(sentence.split()))
        chosen = sorted(random.Random(f"0, 0, {row}").sample(range(len(sentence.split())), count))
        assert positive == filled_by_hand(model, tokenizer, sentence, chosen)


@pytest.mark.parametrize("share", [0.15, 0.5])
def test_only_the_chosen_number_of_words_changes(share, make_masked_model):
    sentences = [*SENTENCES, "... - !", "One - two ... three"] * 5
    positives = MaskedLanguageModel(str(make_masked_model("bert")), share)(originals(sentences))
    for sentence, positive in zip(sentences, positives, strict=True):
        words, others = sentence.split(), positive.split()
        assert len(words) == len(others)
        changed = [(a, b) for a, b in zip(words, others, strict=True) if a != b]
        assert len(changed) <= round(share * len(words))
        for word, other in changed:
            assert bare(word) and bare(other).isalnum()
            assert word.replace(bare(word), "") == other.replace(bare(other), "")
    assert sum(a != b for a, b in zip(sentences, positives, strict=True)) > 0.5 * len(sentences)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_a_positive_is_the_same_whatever_it_is_batched_with(architecture, make_masked_model, monkeypatch):
    view = MaskedLanguageModel(str(make_masked_model(architecture)), 0.3)
    rows = [*SENTENCES, " ".join(SENTENCES), *SENTENCES]
    alone = [view([original])[0] for original in originals(rows)]
    order = random.Random(0).sample(range(len(rows)), len(rows))
    for close in (0.0, 0.05, 1e9):  # no, some and all sentences are scored again in float64
        monkeypatch.setattr(masked_language_model, "_CLOSE", close)
        assert view(originals(rows)) == alone
        shuffled = originals(rows)
        assert view([shuffled[i] for i in order]) == [alone[i] for i in order]


def test_a_close_call_is_told_in_float64(make_masked_model, monkeypatch):
    """Two words whose scores are one and the same in float32 but for noise, and 1e-9 apart in float64."""
    view = MaskedLanguageModel(str(make_masked_model("bert")), 0.3)
    vocabulary = view.tokenizer.get_vocab()
    low, high = vocabulary["a"], vocabulary["the"]
    float64_scores = {low: 7.0, high: 7.0 + 1e-9}

    def scores(inputs: dict[str, torch.Tensor], is_mask: torch.Tensor) -> torch.Tensor:
        precision = next(view._model.parameters()).dtype
        found = torch.zeros(int(is_mask.sum()), len(vocabulary), dtype=precision)
        for token, score in float64_scores.items():
            found[:, token] = score
        if precision == torch.float32:  # the wrong one is ahead
            found[:, low] += 1e-3
        return found

    monkeypatch.setattr(view, "_scores", scores)
    (positive,) = view(originals(["Two dogs run through snow."]))
    kept = {"Two", "dogs", "run", "through", "snow."}
    changed = [bare(word).lower() for word in positive.split() if word not in kept]
    assert changed == ["the", "the"]


def test_seed_epoch_and_row_say_it_all(make_masked_model, monkeypatch):
    monkeypatch.setattr(masked_language_model, "_CLOSE", 1e9)  # with the way to float64 and back
    view = MaskedLanguageModel(str(make_masked_model("bert")), 0.3)
    weights = {name: tensor.clone() for name, tensor in view._model.state_dict().items()}
    torch_state = torch.get_rng_state()
    once = view(originals(SENTENCES))
    assert view(originals(SENTENCES)) == once
    assert view(originals(SENTENCES, epoch=1)) != once
    assert torch.equal(torch.get_rng_state(), torch_state)
    for name, tensor in view._model.state_dict().items():
        assert tensor.dtype == weights[name].dtype and torch.equal(tensor, weights[name])


def test_worker_processes_give_what_this_one_gives(make_masked_model):
    view = MaskedLanguageModel(str(make_masked_model("bert")), 0.3)
    rows = list(enumerate(SENTENCES))

    def stream(num_workers: int) -> list[str]:
        def collate(batch: list[tuple[int, str]]) -> list[str]:
            return view([Original(sentence, (), random.Random(row)) for row, sentence in batch])

        return [x for batch in DataLoader(rows, 3, collate_fn=collate, num_workers=num_workers) for x in batch]

    assert stream(2) == stream(0)


def test_what_is_past_the_models_length_stays(make_masked_model):
    words = [f"word{i}" for i in range(300)]
    view = MaskedLanguageModel(str(make_masked_model("bert")), 0.9)
    (positive,) = view(originals([" ".join(words)]))
    others = positive.split()
    assert others[:10] != words[:10]
    assert others[64:] == words[64:]


def test_a_mask_token_in_the_text_is_left_alone(make_masked_model):
    sentences = ["BERT reads [MASK] as a gap in the text.", "Two dogs run through the snow and [MASK]."]
    assert MaskedLanguageModel(str(make_masked_model("bert")), 0.9)(originals(sentences)) == sentences


def test_nothing_to_fill_in(make_masked_model):
    view = MaskedLanguageModel(str(make_masked_model("bert")))
    assert view([]) == []
    assert view(originals(["Alone!", "Two words.", "-"])) == ["Alone!", "Two words.", "-"]


def test_whole_words_are_neither_pieces_nor_signs_nor_special_tokens(make_model):
    tokenizer = AutoTokenizer.from_pretrained(make_model("bert"))
    vocabulary = tokenizer.get_vocab()
    whole = whole_words(tokenizer, len(tokenizer) + 8)
    assert whole.shape == (len(tokenizer) + 8,) and not whole[len(tokenizer) :].any()
    assert {token for token, i in vocabulary.items() if whole[i]} == {t for t in vocabulary if t.isalnum()}


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert"])
def test_a_checkpoint_without_the_head_is_told(architecture, make_model):
    folder = make_model(architecture)
    with pytest.raises(UserError, match=f"^{folder} has no masked-language-model head") as error:
        MaskedLanguageModel(str(folder))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/such-model", "^model no/such-model: no such folder"),
        ("package:no_such_package", "^package:no_such_package: no package"),
    ],
)
def test_a_model_that_is_not_there_is_told(name, message):
    with pytest.raises(UserError, match=message) as error:
        MaskedLanguageModel(name)
    assert "\n" not in str(error.value)


def test_an_architecture_without_masked_language_models_is_told(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(UserError, match=f"^cannot load the model in {tmp_path}: .*GPT2Config.*MaskedLM") as error:
        MaskedLanguageModel(str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_damaged_model_is_told(make_masked_model, tmp_path):
    folder = shutil.copytree(make_masked_model("bert"), tmp_path / "damaged")
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(UserError, match=f"^cannot load the model in {folder}") as error:
        MaskedLanguageModel(str(folder))
    assert "\n" not in str(error.value)


def test_a_model_without_a_mask_token_is_told(make_masked_model, tmp_path):
    folder = shutil.copytree(make_masked_model("bert"), tmp_path / "maskless")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)
    with pytest.raises(UserError, match=f"^views.name={folder}: its tokenizer has no mask token$"):
        MaskedLanguageModel(str(folder))


def test_a_tokenizer_without_whole_words_is_told(make_masked_model, make_model, tmp_path):
    folder = shutil.copytree(make_masked_model("roberta"), tmp_path / "wordless")
    AutoTokenizer.from_pretrained(make_model("roberta")).save_pretrained(folder)  # its bytes do not become text
    with pytest.raises(UserError, match=f"^views.name={folder}: its tokenizer has no whole words$"):
        MaskedLanguageModel(str(folder))


def test_a_share_out_of_range_is_told_before_the_model_is_loaded():
    with pytest.raises(UserError, match="^views.share=15: it must be above 0 and below 1$"):
        MaskedLanguageModel("no/such-model", share=15)
