"""Segmenters, and views of words in languages without spaces."""

import random

import numpy as np
import pytest

from simcse_pl.data.views import segmenters
from simcse_pl.data.views.replace_by_mlm import MaskedLanguageModel
from simcse_pl.data.views.view import ViewInput
from simcse_pl.data.views.words import Crop, DeleteOneWord, WordDeletion
from simcse_pl.methods.esimcse import WordRepetition

CHINESE, JAPANESE, THAI = "“一个男人”在弹吉他。", "男性がギターを弾いています。", "ชายคนหนึ่งกำลังเล่นกีตาร์"
KHMER, GERMAN, KOREAN = "បុរសម្នាក់កំពុងលេងហ្គីតា", "Ein Mann, der tanzt, lacht.", "한 남자가 기타를 치고 있다."


@pytest.mark.parametrize("segment", [segmenters.spaces, segmenters.icu, segmenters.jieba])
@pytest.mark.parametrize("text", [CHINESE, JAPANESE, THAI, KHMER, GERMAN, KOREAN, "", "。。", "one"])
def test_joined_words_are_the_sentence(segment, text):
    words = segment(text)
    assert "".join(words).strip() == text
    assert len(words) <= 1 or all(any(map(str.isalnum, word)) for word in words)


@pytest.mark.parametrize(
    ("segment", "text", "words"),
    [
        (segmenters.spaces, GERMAN, ["Ein ", "Mann, ", "der ", "tanzt, ", "lacht. "]),
        (segmenters.icu, GERMAN, ["Ein ", "Mann, ", "der ", "tanzt, ", "lacht."]),
        (segmenters.icu, CHINESE, ["“一个", "男人”", "在", "弹", "吉他。"]),
        (segmenters.jieba, "他来到了网易。", ["他", "来到", "了", "网易。"]),
        (segmenters.icu, "他来到了网易。", ["他", "来到", "了", "网", "易。"]),
    ],
)
def test_words_of_languages(segment, text, words):
    assert segment(text) == words


@pytest.mark.parametrize("make", [Crop, WordDeletion, DeleteOneWord, WordRepetition, MaskedLanguageModel])
def test_views_of_words_change_text_without_spaces(make, make_masked_language_model):
    options = {} if make is DeleteOneWord else {"rate": 0.4}
    if make is MaskedLanguageModel:
        options["name"] = str(make_masked_language_model("bert", initializer_range=0.5))
    rows = [ViewInput(CHINESE, (), random.Random(i), np.arange(12)) for i in range(20)]
    made = make(**options, segment=segmenters.icu)(rows)
    assert (len(set(made)) > 2 and all(" " not in view for view in made)) or make is MaskedLanguageModel
    if make is WordRepetition:
        assert all(set(view) == set(CHINESE) for view in made)
    elif make is not MaskedLanguageModel:
        assert all(len(segmenters.icu(view)) == (4 if make is DeleteOneWord else 3) for view in made)
    assert make(**options)(rows) == [CHINESE] * 20 or make is MaskedLanguageModel
