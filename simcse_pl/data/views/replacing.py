"""Putting another word in a word's place: punctuation and capitals stay."""

import re

_BARE = re.compile(r"\w(?:.*\w)?", re.DOTALL)  # greedy: a lazy one takes the square of a long word's length


def bare(word: str) -> str:
    """A word without the punctuation around it; nothing where there is nothing else.

    Examples:
        >>> bare('("Yes!")')
        'Yes'
    """
    return _parts(word)[1]


def replace(word: str, new: str) -> str:
    """`new` within the punctuation of `word`, and with a capital where `word` has one.

    Examples:
        >>> replace("(Dogs,", "hounds")
        '(Hounds,'
    """
    before, old, after = _parts(word)
    return before + (new[:1].upper() + new[1:] if old[:1].isupper() else new) + after


def _parts(word: str) -> tuple[str, str, str]:
    match = _BARE.search(word)
    return (word[: match.start()], match[0], word[match.end() :]) if match else (word, "", "")
