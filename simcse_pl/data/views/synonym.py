"""The view that replaces a word with a synonym, and the reader of WordNet's database files."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from simcse_pl.data.views.view import SentenceView, ViewInput
from simcse_pl.data.views.words import check_english, replace_word, strip_punctuation
from simcse_pl.models.roles import Role
from simcse_pl.utils.errors import UserError

_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_ADJECTIVE_POSITION = re.compile(r"\((a|p|ip)\)$")


class Synonym(SentenceView):
    """The sentence with one random word replaced by one of its synonyms (Table 1).

    The synonyms of a word are the other members of all its synsets. An inflected form has only those of its own entry,
    because others would not agree with it. Stop words have none: in WordNet, `in` is the inch and `as` is arsenic. A
    sentence without a word that has synonyms stays as it is.

    Args:
        wordnet: the folder with WordNet's database files (see `read_thesaurus`).
        role: see View.
    """

    def __init__(self, wordnet: str | Path = "/usr/share/wordnet", role: Role = Role.POSITIVE) -> None:
        super().__init__(role)
        self.thesaurus = read_thesaurus(wordnet)

    def check_text(self, sentences: Sequence[str]) -> None:
        """Raise UserError unless the sentences look like English: `die` and `war` are words of WordNet, too."""
        check_english(sentences)

    def make(self, source: ViewInput) -> str:
        """Return the sentence with one word replaced."""
        words = source.sentence.split()
        replaceable = [i for i, word in enumerate(words) if strip_punctuation(word).lower() in self.thesaurus]
        if replaceable:
            i = source.random.choice(replaceable)
            synonyms = self.thesaurus[strip_punctuation(words[i]).lower()]
            words[i] = replace_word(words[i], source.random.choice(synonyms))
        return " ".join(words)


def read_thesaurus(folder: str | Path) -> dict[str, list[str]]:
    """Read the synonyms of every single word that has any and is not a stop word.

    NLTK's reader needs files that Debian's WordNet does not have, and keeps files open, whose positions the worker
    processes of a DataLoader would share.

    Args:
        folder: contains data.noun, data.verb, data.adj and data.adv of any WordNet, in the format of its manual page
            wndb(5WN).

    Returns:
        The sorted synonyms of each lower-case word.
    """
    synonyms: defaultdict[str, set[str]] = defaultdict(set)
    for path in (Path(folder) / name for name in _FILES):
        if not path.is_file():
            raise UserError(f"wordnet={folder}: no {path.name} there; `apt install wordnet-base` installs WordNet")
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            if line and not line.startswith("  "):  # the license
                cells = line.split(" ")  # field 4 is the number of words in hexadecimal; each has an id after it
                words = [cells[4 + 2 * i] for i in range(int(cells[3], 16))]
                words = [_ADJECTIVE_POSITION.sub("", word).replace("_", " ") for word in words]
                for word in words:
                    synonyms[word.lower()].update(words)
    others = {
        word: sorted(other for other in members if other.lower() != word)
        for word, members in synonyms.items()
        if " " not in word and word not in ENGLISH_STOP_WORDS
    }
    return {word: members for word, members in others.items() if members}
