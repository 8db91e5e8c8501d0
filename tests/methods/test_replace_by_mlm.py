"""The view of a masked language model, against its scores for one sentence alone."""

import random

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from simcse_pl.data.view import ViewInput
from simcse_pl.data.words import replace_word, strip_punctuation
from simcse_pl.methods.augmentations import MaskedLanguageModel
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
