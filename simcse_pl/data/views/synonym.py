"""The view that replaces a word by a synonym, and the thesaurus of WordNet's database files."""

import re
from collections import defaultdict
from pathlib import Path

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from simcse_pl.data.views.replacing import bare, replace
from simcse_pl.data.views.view import Original, SentenceView
from simcse_pl.utils.errors import UserError

_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_ADJECTIVE_POSITION = re.compile(r"\((a|p|ip)\)$")

Thesaurus = dict[str, list[str]]


class Synonym(SentenceView):
    """The sentence with one random word replaced by one of its synonyms (Table 1's synonym replacement).

    A word's synonyms are the other members of all synsets that it is in, as it stands: an inflected form, which they
    would not agree with, has those of its own entry only. Stop words have none: what WordNet knows as `in` and `as` is
    the inch and arsenic. A sentence without a word that has synonyms stays as it is.

    Args:
        wordnet: the folder with WordNet's database files (see `read_thesaurus`).

    Raises:
        UserError: the files are not there, or are damaged.
    """

    def __init__(self, wordnet: str | Path = "/usr/share/wordnet") -> None:
        self.thesaurus = read_thesaurus(wordnet)

    def positive(self, original: Original) -> str:
        """The sentence, one word of it replaced."""
        words = original.sentence.split()
        replaceable = [i for i, word in enumerate(words) if bare(word).lower() in self.thesaurus]
        if replaceable:
            i = original.random.choice(replaceable)
            words[i] = replace(words[i], original.random.choice(self.thesaurus[bare(words[i]).lower()]))
        return " ".join(words)


def read_thesaurus(folder: str | Path) -> Thesaurus:
    """The synonyms of every single word that has any and is no stop word.

    NLTK's reader cannot stand in for this: it wants files that Debian's WordNet lacks, and reads through open files,
    whose positions the worker processes of a DataLoader would share.

    Args:
        folder: holds data.noun, data.verb, data.adj and data.adv of any WordNet, in the format of its manual page
            wndb(5WN).

    Returns:
        From a word in small letters to its synonyms, sorted.

    Raises:
        UserError: a file is missing or damaged.
    """
    synonyms: defaultdict[str, set[str]] = defaultdict(set)
    for path in (Path(folder) / name for name in _FILES):
        if not path.is_file():
            raise UserError(
                f"views.wordnet={folder}: no {path.name} there; `apt install wordnet-base` puts WordNet into "
                "/usr/share/wordnet, and `python -m nltk.downloader wordnet` a zip of it into nltk_data/corpora"
            )
        for words in _synsets(path):
            for word in words:
                synonyms[word.lower()].update(words)
    others = {
        word: sorted(other for other in found if other.lower() != word)
        for word, found in synonyms.items()
        if " " not in word and word not in ENGLISH_STOP_WORDS
    }
    return {word: found for word, found in others.items() if found}


def _synsets(path: Path) -> list[list[str]]:
    """The words of every synset: a line has offset, file number, kind, their number in hexadecimal, each with an id."""
    synsets = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("  "):  # the licence
                continue
            fields = line.split(" ")
            try:
                count = int(fields[3], 16)
                words = [_ADJECTIVE_POSITION.sub("", fields[4 + 2 * i]).replace("_", " ") for i in range(count)]
            except (ValueError, IndexError) as error:
                raise UserError(f"{path}, line {number}: no synset of WordNet; fetch the file anew") from error
            synsets.append(words)
    return synsets
