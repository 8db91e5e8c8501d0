"""The view of a masked language model against its scores for one sentence, and synonyms of a small WordNet."""

import random

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from simcse_pl.data.view import ViewInput
from simcse_pl.data.words import replace_word, strip_punctuation
from simcse_pl.methods.augmentations import MaskedLanguageModel, Synonym
from tests.conftest import SENTENCES


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


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_each_mask_gets_the_whole_word_that_scores_highest(architecture, make_masked_language_model):
    folder = make_masked_language_model(architecture, initializer_range=0.5)  # each word has its own prediction
    inputs = [ViewInput(sentence, (), random.Random(row), ()) for row, sentence in enumerate(SENTENCES)]
    positives = MaskedLanguageModel(str(folder), rate=0.4)(inputs)
    model = AutoModelForMaskedLM.from_pretrained(folder).double().eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row, (sentence, positive) in enumerate(zip(SENTENCES, positives, strict=True)):
        count = round(0.4 * len(sentence.split()))
        chosen = sorted(random.Random(row).sample(range(len(sentence.split())), count))
        assert positive == filled_by_hand(model, tokenizer, sentence, chosen)


LEXICON = {
    "data.noun": "00000050 05 n 03 dog 0 hound 0 house_dog 0 001 @ 00000099 n 0000 | a pet\n"
    "00000099 05 n 01 animal 0 000 | no synonym\n"
    "00000120 05 n 02 inch 0 in 0 000 | a length\n"
    "00000160 15 n 02 Lagos 0 Eko 0 000 | a city\n",
    "data.verb": "00000050 38 v 02 run 0 dog 1 000 01 + 01 00 | follow\n",
    "data.adj": "00000050 00 s 02 galore(ip) 0 abundant 0 000 | in numbers\n",
    "data.adv": "00000050 02 r 01 fast 0 000 | quickly\n",
}


def test_one_word_is_replaced_by_any_of_its_synonyms(tmp_path):
    """A stop word, such as `in`, has none."""
    for name, text in LEXICON.items():
        (tmp_path / name).write_text(f"  1 A small lexicon, in the format of wndb(5WN).  \n{text}")
    view = Synonym(tmp_path)
    assert view.thesaurus["galore"] == ["abundant"] and "in" not in view.thesaurus
    inputs = [ViewInput("(Dog, and animal in Lagos!", (), random.Random(i), ()) for i in range(200)]
    assert set(view(inputs)) == {
        "(Hound, and animal in Lagos!",
        "(House dog, and animal in Lagos!",
        "(Run, and animal in Lagos!",
        "(Dog, and animal in Eko!",
    }
