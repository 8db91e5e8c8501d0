"""The view that negates a sentence by rules (SNCSE, Wang et al. 2022)."""

import string
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from simcse_pl.data.views.view import View, ViewInput
from simcse_pl.data.views.words import replace_word, strip_punctuation
from simcse_pl.utils.errors import UserError

_BE = {"am", "is", "was", "are", "were"}
_AUXILIARIES = _BE | {"can", "could", "will", "would", "shall", "should", "may", "must", "might"}
_MORE_AUXILIARIES = _AUXILIARIES | {"do", "does", "did", "have", "has", "had"}
_DO = {"VBP": "do not", "VBZ": "does not", "VBD": "did not"}  # by the tag of the verb


class Parsed(Protocol):
    """A token of spaCy: its text, dependency, tag and lemma."""

    text: str
    dep_: str
    tag_: str
    lemma_: str


def negate(sentence: str) -> str:
    """Return the negation of a sentence by the rules that need no parser.

    The first `not` is removed. Else `not` follows the first auxiliary, a word such as `was` or `can`. Else `Not` is
    put before the sentence.
    """
    words = sentence.split()
    bare = [strip_punctuation(word) for word in words]
    if "not" in bare:
        first = bare.index("not")
        words[first] = replace_word(words[first], "")
        return " ".join(filter(None, words))
    for i, word in enumerate(bare):
        if word.lower() in _MORE_AUXILIARIES:
            words[i] = replace_word(words[i], f"{word} not")
            return " ".join(words)
    return f"Not {sentence}"


def negate_parsed(tokens: Iterable[Parsed]) -> str:
    """Return the negation of a parsed sentence, its tokens separated by spaces.

    The first `not` is removed. Else `not` follows the first auxiliary if it is before the root. Else it follows the
    root if that is a form of `be` or a modal verb, and a root in the present or past tense becomes do, does or did
    `not` with its lemma. Else `Not` is put before the sentence.
    """
    tokens = list(tokens)
    words = [token.text for token in tokens]
    if "not" in words:
        words.remove("not")
        return " ".join(words)
    for i, token in enumerate(tokens):
        if token.dep_ in ("aux", "auxpass") or (token.dep_ == "ROOT" and token.text.lower() in _AUXILIARIES):
            words[i] += " not"
            return " ".join(words)
        if token.dep_ == "ROOT":
            if token.tag_ not in _DO:
                break
            words[i] = f"{_DO[token.tag_]} {token.lemma_}"
            return " ".join(words)
    return " ".join(["Not", *words])


class Negation(View):
    """The negation of the sentence, which shares almost all of its words (SNCSE, Wang et al. 2022, 3.2).

    With a model of spaCy, `negate_parsed` makes it, else `negate`. As in the released code, a sentence that does not
    end in punctuation becomes `Not` and the sentence. The view depends on the sentence alone.

    Args:
        spacy_model: a pipeline of spaCy with tagger, parser and lemmatizer, such as en_core_web_sm; None for none.
        role: see View.

    Raises:
        UserError: spaCy or the model is not installed.
    """

    def __init__(self, spacy_model: str | None = None, role: str = "other") -> None:
        super().__init__(role)
        self.parser = None if spacy_model is None else _load(spacy_model)

    def __call__(self, inputs: Sequence[ViewInput]) -> list[str]:
        """Return the views of a batch, in order."""
        return self.negations([own.sentence for own in inputs])

    def negations(self, sentences: Sequence[str]) -> list[str]:
        """Return the negations of sentences, in order."""
        ended = [sentence for sentence in sentences if sentence.rstrip().endswith(tuple(string.punctuation))]
        made = map(negate, ended) if self.parser is None else map(negate_parsed, self.parser.pipe(ended))
        negated = dict(zip(ended, made, strict=True))
        return [negated.get(sentence, f"Not {sentence}") for sentence in sentences]


def _load(name: str) -> Any:
    option = f"spacy_model={name}"
    try:
        import spacy
    except ImportError as error:
        raise UserError(f"{option}: spaCy is not installed: pip install spacy; or set it to null") from error
    try:
        return spacy.load(name, exclude=["ner"])
    except OSError as error:
        how = f"python -m spacy download {name}"
        raise UserError(f"{option}: spaCy has no such model here: {how}; or set it to null") from error
