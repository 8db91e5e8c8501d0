"""Sentences get the token ids that official code gives them, in training, in validation and at test time."""

import random

import numpy as np
import pytest
from hydra.utils import instantiate

from benchmarks.fidelity.compare import FOLDER, TOKENS, composed, token_ids
from simcse_pl.data.view import ViewInput
from simcse_pl.models.sources import load_tokenizer

# What differs by decision: tokens of the official code, and those here.
SPACE_AT_THE_END = {" Ġ </s>": " </s>"}  # of the templates
NO_PERIOD_IN_TRAINING, SPACE_TOKEN = {"w Ġ . ": "w "}, {': Ġ " Ġ ': ': Ġ " ', 'f Ġ " Ġ ': 'f Ġ " '}
PERIOD_AS_IN_PROMPTBERT = {"w Ġ . ": "w . ", ' ! Ġ "': ' ! . Ġ "'}  # no space before it; also after "!"
DECODED_WITH_SPACES = {'Ġdog !"': 'Ġdog Ġ !"'}  # their decoding drops spaces before punctuation
KEPT = {"' n ##o '": '" n ##o "', "red .": "red ?"}, {"Ġ ' no ' \"": 'Ġ" no ""', 'Ġre d ."': 'Ġre d ?"'}  # quotes and ?
DIFFERENT = {
    ("cot_bert", "roberta", "training"): SPACE_AT_THE_END,
    ("cot_bert", "roberta", "validation"): SPACE_AT_THE_END,
    ("sncse", "bert", "training"): {"w . ": "w "},
    ("sncse", "bert", "test"): {' ! "': ' ! . "'},
    ("sncse", "roberta", "training"): NO_PERIOD_IN_TRAINING | SPACE_TOKEN,
    ("sncse", "roberta", "test"): PERIOD_AS_IN_PROMPTBERT,
    ("prompteol", "bert", "test"): KEPT[0],
    ("prompteol", "bpe", "training"): DECODED_WITH_SPACES,
    ("prompteol", "bpe", "test"): KEPT[1],
    ("cards", "roberta", "training"): {"o g !": "o g Ġ !"},
}


@pytest.mark.parametrize("record", TOKENS, ids=lambda record: f"{record['method']}-{record['tokenizer']}")
def test_token_ids_are_the_official_ones(record):
    tokenizer, here = token_ids(record)
    for part in {"training", "validation", "test"} & {*record}:
        if (record["method"], part) == ("esimcse", "training"):
            continue
        official = [" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in record[part]]
        replaced = DIFFERENT.get((record["method"], record["tokenizer"], part), {})
        for theirs, ours in replaced.items():
            assert any(theirs in text for text in official), f"not different: {theirs}"
            official = [text.replace(theirs, ours) for text in official]
        assert [" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in here[part]] == official


@pytest.mark.parametrize("record", [record for record in TOKENS if record["method"] == "esimcse"], ids=["bert", "bpe"])
def test_esimcse_repeats_the_subwords_of_the_same_random_numbers(record):
    tokenizer, state = load_tokenizer(str(FOLDER / record["tokenizer"])), random.Random(3)
    repeat = instantiate(composed("method=esimcse").views.token_repetition)
    ids = [np.array(tokenizer(sentence)["input_ids"]) for sentence in record["sentences"]]
    made = [repeat.make(ViewInput("", (), state, tokens)).tolist() for tokens in ids]
    assert made == record["training"][1::2]
