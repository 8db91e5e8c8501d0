"""Properties of each view's positives for any sentence that a reader can give."""

import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from simcse_pl.data.views.replace_by_mlm import MaskedLanguageModel
from simcse_pl.data.views.sentences import Dropout, OneOfNextSentences
from simcse_pl.data.views.synonym import Synonym
from simcse_pl.data.views.view import ViewInput
from simcse_pl.data.views.words import (
    Crop,
    DeleteOneWord,
    WordDeletion,
    WordRepetition,
    replace_word,
    strip_punctuation,
)
from tests.properties.strategies import MILLIONS, sentences, texts

RATES = st.floats(0, 1, exclude_min=True)
SEEDS = st.integers(0, 2**31)


def positive(view, sentence, seed=0, following=()):
    (made,) = view([ViewInput(sentence, tuple(following), random.Random(seed))])
    return made


def is_in_order(part, whole):
    rest = iter(whole)
    return all(word in rest for word in part)


@given(sentence=sentences(), rate=RATES, seed=SEEDS)
def test_a_crop_is_a_contiguous_part_and_never_empty(sentence, rate, seed):
    words, kept = sentence.split(), positive(Crop(rate), sentence, seed).split()
    assert kept in [words[start : start + len(kept)] for start in range(len(words))]
    assert len(kept) == max(1, len(words) - round(rate * len(words)))


@given(sentence=sentences(), rate=RATES, seed=SEEDS)
def test_deletion_keeps_the_order_and_at_least_one_word(sentence, rate, seed):
    words = sentence.split()
    for view, deleted in ((WordDeletion(rate), round(rate * len(words))), (DeleteOneWord(), 1)):
        kept = positive(view, sentence, seed).split()
        assert is_in_order(kept, words) and len(kept) == max(1, len(words) - deleted)


@given(sentence=sentences(), rate=RATES, seed=SEEDS)
def test_repetition_only_doubles_words(sentence, rate, seed):
    words, said = sentence.split(), positive(WordRepetition(rate), sentence, seed).split()
    ends = {0}  # where the words so far may end
    for word in words:
        ends = {end + n for end in ends for n in (1, 2) if said[end : end + n] == [word] * n}
    assert len(said) in ends
    assert len(said) <= len(words) + min(max(2, int(rate * len(words))), len(words) - 1)


@given(sentence=sentences(), following=st.lists(sentences(), min_size=1, max_size=3), seed=SEEDS)
def test_sentences_are_not_changed(sentence, following, seed):
    assert positive(Dropout(), sentence, seed, following) == sentence
    assert positive(OneOfNextSentences(3), sentence, seed, following) in following


@given(word=texts(), new=texts())
def test_a_word_is_replaced_within_its_punctuation(word, new):
    assert word.count(strip_punctuation(word)) and replace_word(word, strip_punctuation(word)) == word
    before, after = re.match(r"\W*", word)[0], re.match(r"\W*", word[::-1])[0][::-1]
    if strip_punctuation(word):
        assert word == before + strip_punctuation(word) + after
        assert replace_word(word, new).lower().startswith(before.lower())
        assert replace_word(word, new).endswith(after) and len(replace_word(word, new)) >= len(before + after)
    else:
        assert before == word


@pytest.fixture(scope="module")
def synonym(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wordnet")
    for name in ("noun", "verb", "adj", "adv"):
        (folder / f"data.{name}").write_text("")
    (folder / "data.noun").write_text("1 05 n 03 a 0 0 0 半年 0 000 | x\n2 05 n 02 ab 0 cd 0 000 | x\n")
    return Synonym(folder)


@given(sentence=sentences(), seed=SEEDS)
def test_a_synonym_takes_the_place_of_one_word(synonym, sentence, seed):
    words, made = sentence.split(), positive(synonym, sentence, seed).split()
    changed = [i for i, (old, new) in enumerate(zip(words, made, strict=True)) if old != new]
    known = [i for i, word in enumerate(words) if strip_punctuation(word).lower() in synonym.thesaurus]
    assert len(changed) == bool(known) and set(changed) <= set(known)


@pytest.fixture(scope="module")
def masked_language_model(make_model, tmp_path_factory):
    backbone, folder = make_model("bert", initializer_range=0.5), tmp_path_factory.mktemp("masked")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(backbone)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(backbone).save_pretrained(folder)
    return MaskedLanguageModel(str(folder), rate=0.4)


@given(batch=st.lists(sentences(), min_size=1, max_size=5), seed=SEEDS)
def test_a_masked_language_model_replaces_only_chosen_words(masked_language_model, batch, seed):
    made = masked_language_model([ViewInput(sentence, (), random.Random(seed + i)) for i, sentence in enumerate(batch)])
    for i, (sentence, filled) in enumerate(zip(batch, made, strict=True)):
        words, new = sentence.split(), filled.split()
        changed = [i for i, (old, other) in enumerate(zip(words, new, strict=True)) if old != other]
        candidates = [i for i, word in enumerate(words) if strip_punctuation(word)]
        assert set(changed) <= set(candidates)
        assert len(changed) <= min(round(0.4 * len(words)), len(candidates)) * ("[MASK]" not in sentence)
        for i in changed:
            assert new[i] == replace_word(words[i], strip_punctuation(new[i]))
    alone = positive(masked_language_model, batch[-1], seed + len(batch) - 1)
    assert alone == made[-1]


@pytest.mark.parametrize("sentence", MILLIONS[:4], ids=lambda sentence: repr(sentence[:2]))
def test_a_million_characters_take_linear_time(synonym, sentence):
    words = sentence.split()
    assert is_in_order(positive(WordDeletion(0.5), sentence).split(), words)
    assert set(positive(WordRepetition(), sentence).split()) == set(words)
    assert len(positive(synonym, sentence).split()) == len(words)
    assert strip_punctuation(f"a{sentence}b") == f"a{sentence}b"
