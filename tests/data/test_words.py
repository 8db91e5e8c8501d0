"""Segmenters, and views of words in languages without spaces."""

import random

import pytest

from simcse_pl.data import words as segmenters
from simcse_pl.data.view import ViewInput, spaces
from simcse_pl.methods.augmentations import Crop, DeleteOneWord, WordDeletion
from simcse_pl.methods.esimcse import WordRepetition

CHINESE, JAPANESE, THAI = "“一个男人”在弹吉他。", "男性がギターを弾いています。", "ชายคนหนึ่งกำลังเล่นกีตาร์"
KHMER, GERMAN, KOREAN = "បុរសម្នាក់កំពុងលេងហ្គីតា", "Ein Mann, der tanzt, lacht.", "한 남자가 기타를 치고 있다."


@pytest.mark.parametrize("segment", [spaces, segmenters.icu, segmenters.jieba])
@pytest.mark.parametrize("text", [CHINESE, JAPANESE, THAI, KHMER, GERMAN, KOREAN, "", "。。", "one"])
def test_joined_words_are_the_sentence(segment, text):
    words = segment(text)
    assert "".join(words).strip() == text
    assert len(words) <= 1 or all(any(map(str.isalnum, word)) for word in words)


@pytest.mark.parametrize(
    ("segment", "text", "words"),
    [
        (spaces, GERMAN, ["Ein ", "Mann, ", "der ", "tanzt, ", "lacht. "]),
        (segmenters.icu, GERMAN, ["Ein ", "Mann, ", "der ", "tanzt, ", "lacht."]),
        (segmenters.icu, CHINESE, ["“一个", "男人”", "在", "弹", "吉他。"]),
        (segmenters.jieba, "他来到了网易。", ["他", "来到", "了", "网易。"]),
        (segmenters.icu, "他来到了网易。", ["他", "来到", "了", "网", "易。"]),
    ],
)
def test_words_of_languages(segment, text, words):
    assert segment(text) == words


@pytest.mark.parametrize(
    ("view", "left"),
    [
        (Crop(0.4, segment=segmenters.icu), 3),
        (WordDeletion(0.4, segment=segmenters.icu), 3),
        (DeleteOneWord(segment=segmenters.icu), 4),
        (WordRepetition(0.4, segment=segmenters.icu), None),
    ],
)
def test_views_of_words_change_text_without_spaces(view, left):
    made = view([ViewInput(CHINESE, (), random.Random(i), ()) for i in range(20)])
    assert len(set(made)) > 2 and all(set(text) <= set(CHINESE) for text in made)
    assert left is None or all(len(segmenters.icu(text)) == left for text in made)
