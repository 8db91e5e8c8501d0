"""What every view promises of its positives, of any sentence that a reader can give."""

import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from simcse_pl.data.views.replace_by_mlm import MaskedLanguageModel
from simcse_pl.data.views.replacing import bare, replace
from simcse_pl.data.views.sentences import Dropout, Next3Sentences, NextSentence
from simcse_pl.data.views.synonym import Synonym
from simcse_pl.data.views.view import Original
from simcse_pl.data.views.words import Crop, DeleteOneWord, WordDeletion, WordRepetition
from tests.properties.strategies import MILLIONS, sentences, texts

SHARES = st.floats(0, 1, exclude_min=True, exclude_max=True)
SEEDS = st.integers(0, 2**31)


def positive(view, sentence, seed=0, following=()):
    (made,) = view([Original(sentence, tuple(following), random.Random(seed))])
    return made


def is_in_order(part, whole):
    rest = iter(whole)
    return all(word in rest for word in part)


@given(sentence=sentences(), share=SHARES, seed=SEEDS)
def test_a_crop_is_a_contiguous_part_and_never_empty(sentence, share, seed):
    words, kept = sentence.split(), positive(Crop(share), sentence, seed).split()
    assert kept in [words[start : start + len(kept)] for start in range(len(words))]
    assert len(kept) == max(1, len(words) - round(share * len(words)))


@given(sentence=sentences(), share=SHARES, seed=SEEDS)
def test_words_that_deletion_leaves_are_in_order_and_never_none(sentence, share, seed):
    words = sentence.split()
    for view, deleted in ((WordDeletion(share), round(share * len(words))), (DeleteOneWord(), 1)):
        kept = positive(view, sentence, seed).split()
        assert is_in_order(kept, words) and len(kept) == max(1, len(words) - deleted)


@given(sentence=sentences(), rate=st.floats(0, 1, exclude_min=True), seed=SEEDS)
def test_repetition_says_words_twice_and_leaves_the_rest(sentence, rate, seed):
    words, said = sentence.split(), positive(WordRepetition(rate), sentence, seed).split()
    ends = {0}  # where in what is said the words so far may end
    for word in words:
        ends = {end + n for end in ends for n in (1, 2) if said[end : end + n] == [word] * n}
    assert len(said) in ends
    assert len(said) <= len(words) + min(max(2, int(rate * len(words))), len(words) - 1)


@given(sentence=sentences(), following=st.lists(sentences(), min_size=1, max_size=3), seed=SEEDS)
def test_sentences_are_given_as_they_are(sentence, following, seed):
    assert positive(Dropout(), sentence, seed, following) == sentence
    assert positive(NextSentence(), sentence, seed, following) == following[0]
    assert positive(Next3Sentences(), sentence, seed, following) in following


@given(word=texts(), new=texts())
def test_a_word_is_its_bare_self_within_its_punctuation(word, new):
    assert word.count(bare(word)) and replace(word, bare(word)) == word
    before, after = re.match(r"\W*", word)[0], re.match(r"\W*", word[::-1])[0][::-1]
    if bare(word):
        assert word == before + bare(word) + after
        assert replace(word, new).lower().startswith(before.lower())
        assert replace(word, new).endswith(after) and len(replace(word, new)) >= len(before + after)
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
    known = [i for i, word in enumerate(words) if bare(word).lower() in synonym.thesaurus]
    assert len(changed) == bool(known) and set(changed) <= set(known)


@pytest.fixture(scope="module")
def masked_language_model(make_model, tmp_path_factory):
    backbone, folder = make_model("bert", initializer_range=0.5), tmp_path_factory.mktemp("masked")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(backbone)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(backbone).save_pretrained(folder)
    return MaskedLanguageModel(str(folder), share=0.4)


@given(batch=st.lists(sentences(), min_size=1, max_size=5), seed=SEEDS)
def test_a_masked_language_model_fills_in_chosen_words_and_nothing_else(masked_language_model, batch, seed):
    made = masked_language_model([Original(sentence, (), random.Random(seed + i)) for i, sentence in enumerate(batch)])
    for i, (sentence, filled) in enumerate(zip(batch, made, strict=True)):
        words, new = sentence.split(), filled.split()
        changed = [i for i, (old, other) in enumerate(zip(words, new, strict=True)) if old != other]
        candidates = [i for i, word in enumerate(words) if bare(word)]
        assert set(changed) <= set(candidates)
        assert len(changed) <= min(round(0.4 * len(words)), len(candidates)) * ("[MASK]" not in sentence)
        for i in changed:
            assert new[i] == replace(words[i], bare(new[i]))
    alone = positive(masked_language_model, batch[-1], seed + len(batch) - 1)
    assert alone == made[-1]


@pytest.mark.parametrize("sentence", [*MILLIONS[:1], *MILLIONS[2:-1]], ids=lambda sentence: repr(sentence[:2]))
def test_a_million_characters_are_taken_in_their_stride(synonym, sentence):
    words = sentence.split()
    assert (
        positive(Crop(0.5), sentence).split() == words[: max(1, len(words) - round(len(words) / 2))] or len(words) > 1
    )
    assert is_in_order(positive(WordDeletion(0.5), sentence).split(), words)
    assert set(positive(WordRepetition(), sentence).split()) == set(words)
    assert len(positive(synonym, sentence).split()) == len(words)
    assert bare(f"a{sentence}b") == f"a{sentence}b"
