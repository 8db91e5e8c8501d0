"""Segmenters: functions that split a sentence into words, for views of words and for masking whole words.

A word has the punctuation and the white space that follow it, so that joined words are the sentence again.
"""

import logging
from collections.abc import Callable, Iterable

Segmenter = Callable[[str], list[str]]


def spaces(text: str) -> list[str]:
    """Return the words between white space, which is normalized to single spaces.

    The paper's words (princeton-nlp/SimCSE, issue 231).

    Examples:
        >>> spaces("A dog runs, fast.")
        ['A ', 'dog ', 'runs, ', 'fast. ']
    """
    return [f"{word} " for word in text.split()]


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
