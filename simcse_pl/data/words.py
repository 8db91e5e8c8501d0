"""Words: segmenters split a sentence into words, for views of words and for masking whole words.

A word has the punctuation and the white space that follow it, so that joined words are the sentence again.
"""

import logging
import re
import unicodedata
from collections.abc import Iterable, Sequence

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.view import Segmenter
from simcse_pl.models.tokenization import INSIDE_WORD
from simcse_pl.utils.errors import UserError, reraise_as

_ENGLISH = {"the", "and", "with", "from", "this", "that", "are"}  # no common words of other languages
_RAREST = 1 / 32  # share of the sentences with such a word: German and French have 0.4 %, English headlines 12 %
# accents, and the vowel signs of Hindi and Thai, which \w does not match
MARKS = "".join(c for c in map(chr, range(0x1F000)) if unicodedata.category(c).startswith("M"))
_WITHOUT_PUNCTUATION = re.compile(rf"\w(?:.*\w)?[{MARKS}]*", re.DOTALL)  # greedy: a lazy one takes quadratic time


def icu(text: str) -> list[str]:
    """Return the words by Unicode's rules and ICU's dictionaries: of Chinese, Japanese, Thai, Khmer, Lao and Burmese.

    Examples:
        >>> icu("一个男人在弹吉他。")
        ['一个', '男人', '在', '弹', '吉他。']
    """
    from icu4py.breakers import WordBreaker  # an extra

    return _with_what_follows(map(str, WordBreaker(text, "root")))


def jieba(text: str) -> list[str]:
    """Return the words of Chinese text by jieba, with its own dictionary.

    Examples:
        >>> jieba("他来到了网易。")
        ['他', '来到', '了', '网易。']
    """
    import jieba  # an extra

    jieba.setLogLevel(logging.WARNING)
    return _with_what_follows(jieba.cut(text))


def _with_what_follows(pieces: Iterable[str]) -> list[str]:
    """Append pieces without letters and digits to the word before them, or to the first word."""
    words = [""]
    for piece in pieces:
        if any(map(str.isalnum, piece)) and any(map(str.isalnum, words[-1])):
            words.append(piece)
        else:
            words[-1] += piece
    return words if words[0].strip() else []


def strip_punctuation(word: str) -> str:
    """Return a word without the punctuation around it.

    Examples:
        >>> strip_punctuation('("Yes!")')
        'Yes'
    """
    return _parts(word)[1]


def replace_word(word: str, new: str) -> str:
    """Return `new` with the punctuation around `word`, capitalized if `word` is.

    Examples:
        >>> replace_word("(Dogs,", "hounds")
        '(Hounds,'
    """
    before, old, after = _parts(word)
    return before + (new[:1].upper() + new[1:] if old[:1].isupper() else new) + after


def check_english(sentences: Sequence[str]) -> None:
    """Raise UserError unless sentences look like English; a view of English rules or words calls it."""
    english = sum(any(strip_punctuation(word).lower() in _ENGLISH for word in text.split()) for text in sentences)
    if english <= _RAREST * len(sentences):
        has = f"{english} of {len(sentences)} sentences have a word such as `the`"
        raise UserError(f"it is made for English, but {has}: use another view, or rules of negation for it")


def tokenize_words(
    tokenizer: PreTrainedTokenizerBase, sentences: list[str], max_length: int, segment: Segmenter
) -> list[list[int]]:
    """Return token ids as `tokenize` does, plus INSIDE_WORD for a token that continues a word of the segmenter.

    As in BERT, each mark of punctuation around a word is a word. Words that share a token are one word.
    """
    with reraise_as("whole_words=true"):
        encoded = tokenizer(sentences, truncation=True, max_length=max_length, return_offsets_mapping=True)
    marked = []
    for sentence, ids, spans in zip(sentences, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        words = _words_of_characters(sentence, segment)
        before = [None, *(words[end - 1] if end else None for _, end in spans)]  # special tokens have the span (0, 0)
        inside = [start < end and words[start] == word for (start, end), word in zip(spans, before, strict=False)]
        marked.append([number + INSIDE_WORD * is_inside for number, is_inside in zip(ids, inside, strict=True)])
    return marked


def _words_of_characters(sentence: str, segment: Segmenter) -> list[int]:
    """Return where the word of each character begins; white space, which tokens may include, is of the next word."""
    begins, end = [*range(len(sentence))], 0
    for word in map(strip_punctuation, segment(sentence)):
        start = sentence.find(word, end)
        if start < 0:
            raise UserError(f"segmenter: it must split {sentence!r} without changing it, but returns {word!r}")
        end = start + len(word)
        begins[start:end] = [start] * len(word)
    for i in reversed(range(len(sentence) - 1)):
        begins[i] = begins[i + 1] if sentence[i].isspace() else begins[i]
    return begins


def _parts(word: str) -> tuple[str, str, str]:
    match = _WITHOUT_PUNCTUATION.search(word)
    return (word[: match.start()], match[0], word[match.end() :]) if match else (word, "", "")
