"""SNCSE (Wang et al. 2022): the negation of a sentence is a soft negative, by a loss between two margins."""

import re
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from simcse_pl.data.view import View, ViewInput
from simcse_pl.data.words import check_english
from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_lines
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.types import Role, RowKind


class BidirectionalMargin(Loss):
    """The bidirectional margin loss of soft negatives (SNCSE, Wang et al. 2022, 3.4).

    In plain terms: the negation of a sentence has almost the same words and another meaning. It should be less similar
    to the anchor than the positive is, but only by alpha to beta. For the anchor h, the positive h+ and the soft
    negative h-, the loss is the mean over rows of

        max(0, D + alpha) + max(0, -D - beta),    D = cos(h, h-) - cos(h, h+)

    The soft negative is the view with the role `other`, so that no contrastive objective compares it.

    Args:
        weight: lambda.
        alpha, beta: the loss of a row is 0 if cos(h, h+) - cos(h, h-) is in [alpha, beta].
    """

    def __init__(self, weight: NonNegativeFloat = 1e-3, alpha: float = 0.1, beta: float = 0.3) -> None:
        super().__init__(weight)
        self.alpha, self.beta = alpha, beta

    def check_rows(self, rows: RowKind) -> None:
        if sorted(role for role in rows.roles if role != Role.NEGATIVE) != [Role.ANCHOR, Role.OTHER, Role.POSITIVE]:
            raise UserError(
                "rows need one positive and one other view, the soft negative, but they have "
                f"{', '.join(rows.roles)}: set views=[dropout,negation]"
            )

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        anchor, positive, other = batch.views(Role.ANCHOR, Role.POSITIVE, Role.OTHER)
        unit = unit_vectors(batch.embeddings)
        difference = (unit[:, anchor] * (unit[:, other] - unit[:, positive])).sum(dim=-1)
        return (torch.relu(difference + self.alpha) + torch.relu(-difference - self.beta)).mean()


_BE = {"am", "is", "was", "are", "were"}
_AUXILIARIES = _BE | {"can", "could", "will", "would", "shall", "should", "may", "must", "might"}
_DO = {"VBP": "do not", "VBZ": "does not", "VBD": "did not"}  # by the tag of the verb


def negate_parsed(tokens: Iterable[Any]) -> str:
    """Return the negation of a sentence of spaCy's tokens, separated by spaces.

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


Rules = Sequence[tuple[re.Pattern[str], str]]
_PART = re.compile(r"@\w+")  # the name of a part of patterns


def read_rules(name: str) -> Rules:
    r"""Read rules of negation: regular expressions and their replacements, in order.

    A line is `PATTERN => REPLACEMENT`, as of `re.sub`. If the pattern is a name such as @verb, later patterns may have
    this name in place of the replacement. Lines that begin with # are comments.

    Args:
        name: a language with a file in the folder negation_rules, such as `zh`, or a file of the user's.
    """
    files = {path.stem: path for path in sorted(Path(__file__).with_name("negation_rules").glob("*.txt"))}
    if not (path := files.get(name, Path(name))).is_file():
        raise UserError(f"rules={name}: no such file; there are rules for {', '.join(files)}")
    parts: dict[str, str] = {}
    rules = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        with reraise_as(f"{path}, line {number}: it should be PATTERN => REPLACEMENT"):
            pattern, new = f"{line} ".split(" => ", 1)
            whole, new = (_PART.sub(lambda name: parts.get(name[0], name[0]), text) for text in (pattern, new.strip()))
            if _PART.fullmatch(pattern):
                parts[pattern] = f"(?:{new})"
            else:
                rules.append((re.compile(whole), new))
    return rules


def negate_by_rules(sentence: str, rules: Rules) -> str:
    """Return a sentence with the first match of the first rule that matches replaced, or the sentence itself."""
    for pattern, replacement in rules:
        negated, count = pattern.subn(replacement, sentence, count=1)
        if count:
            return negated
    return sentence


def negate(sentence: str, rules: Rules) -> str:
    """Return the negation of an English sentence, with `Not` before it if no rule matches."""
    words = " ".join(sentence.split())
    negated = negate_by_rules(words, rules)
    return f"Not {sentence}" if negated == words else " ".join(negated.split())


class Negation(View):
    """The negation of the sentence, which shares almost all of its words (SNCSE, Wang et al. 2022, 3.2).

    With a model of spaCy, `negate_parsed` makes it, else `negate`. As in the released code, a sentence that does not
    end in punctuation becomes `Not` and the sentence. The view depends on the sentence alone. Text of another language
    is an error, unless there are rules for it.

    Args:
        spacy_model: a pipeline of spaCy with tagger, parser and lemmatizer, such as en_core_web_sm; None for none.
        rules: in place of the English rules, which need no parser, those of another language (see `read_rules`). A
            sentence without a match stays as it is.
    """

    def __init__(self, spacy_model: str | None = None, role: Role = Role.OTHER, rules: str | None = None) -> None:
        super().__init__(role)
        self.is_english = rules is None
        self.rules = read_rules(rules or "en")
        self.parser: Any = None
        if spacy_model is not None:
            import spacy

            self.parser = spacy.load(spacy_model, exclude=["ner"])

    def check_text(self, sentences: Sequence[str]) -> None:
        """Raise UserError unless the sentences look like English: the rules put `Not` before all others."""
        if self.is_english:
            check_english(sentences)

    def __call__(self, inputs: Sequence[ViewInput]) -> list[str]:
        sentences = [source.sentence for source in inputs]
        if not self.is_english:
            return [negate_by_rules(sentence, self.rules) for sentence in sentences]
        ended = [sentence for sentence in sentences if sentence.rstrip().endswith(tuple(string.punctuation))]
        if self.parser is None:
            made = [negate(sentence, self.rules) for sentence in ended]
        else:
            made = [negate_parsed(tokens) for tokens in self.parser.pipe(ended)]
        negated = dict(zip(ended, made, strict=True))
        return [negated.get(sentence, f"Not {sentence}") for sentence in sentences]
