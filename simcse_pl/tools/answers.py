"""Read the sentence in the answer of a language model, without labels, marks and thoughts. In doubt, there is none."""

import re

from simcse_pl.data.labels import label_number

_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W\d_\u4e00-\u9fff]+")  # or a Chinese character
_LABEL_WORDS = _WORD.findall(  # a text of these alone is no sentence, but says what follows
    """a an answer certainly contradiction course entailment example final go hard here hypothesis in is it my negative
    new of option other output paraphrase paraphrased positive possible rephrased response result revised rewrite
    rewritten reworded s sentence shorter sure the this version words you your
    antwort das der die ein eine gegenteil gern hier ist lautet neue neuer satz umformulierte umformulierung widerspruch
    bien l la le nouvelle phrase reformulation reformulée réponse sûr un une voici
    以下面这是的为改写后重新句子答案回输出结果正例负反义矛盾蕴含好当然可一个"""
)
_LABEL = re.compile(r"([^:：]*)[:：](?!\d)\s*")
_ITEM = re.compile(r"(?:[-–—•*>→]\s+|\(?\d{1,2}(?:[.)]\s+|、)|\(?[a-zA-Z]\)\s+)+")  # how an item of a list begins
_NO_SENTENCE = re.compile(r"#+\s.*|.*[:：]|\(.*\)|（.*）|-+")  # a heading, what announces the next line, a note
_QUOTED = re.compile(r"""^["“”„«»‘'「『]\s*([^"“”„«»「」『』]*?)\s*["”“«»’'」』]$""")
_DOUBTFUL = (r"[:：](?!\d)", r"[{}<>|\\#*_~`(（]|\[/?\w+\]", r"[\"“”„«»「」『』]")  # unless the given sentence has such
_AROUND = {  # and what stays of it
    r"(?:<\|\w+\|>|</s>|<eos>|<end_of_turn>)+$": "",
    r".*```\w*\n(.*?)```.*": r"\1",
    r'[{\[]\s*(?:"\w+"\s*:\s*)?"([^"\\]*)"\s*[}\]]': r"\1",  # JSON of one text
    r"(\*\*|__|~~)(.*?)\1": r"\2",
}
_THOUGHTS = r"(?i)([<\[◁]/?(?:think(?:ing)?|thoughts?|reasoning)[>\]▷]|<\|channel\|>(?:final<\|message\|>)?)"


def without_thoughts(answer: str) -> str:
    """Return an answer without the block of thoughts before it; empty if the thoughts have no end."""
    *_, mark, rest = ["", *re.split(_THOUGHTS, answer)]
    return "" if mark and not re.search("/|final", mark) else rest.strip()


def sentence_of(answer: str, given: str) -> str:
    """Return the sentence of an answer about a given one; empty if there is none, or if it is in doubt.

    Several lines are in doubt, unless they are a list, whose first item is taken. So are labels and marks that stay.
    """
    text = without_thoughts(answer)
    for pattern, content in _AROUND.items():
        text = re.sub(pattern, content, text, flags=re.DOTALL)
    stripped = map(str.strip, text.splitlines())
    lines = [line for line in stripped if not (_is_label(line) or _NO_SENTENCE.fullmatch(line))]
    if not lines or (len(lines) > 1 and not all(map(_ITEM.match, lines))):
        return ""
    item, sentence = _ITEM.match(lines[0]), lines[0]
    if item and item[0].strip() not in given:
        sentence = sentence[item.end() :]
    label, own = _LABEL.match(sentence), _LABEL.match(given)
    if label and _is_label(label[1]) and not (own and _is_label(own[1])):
        sentence = sentence[label.end() :]
    sentence = _QUOTED.sub(r"\1", sentence.strip(" *_`"))
    return "" if any(re.search(mark, sentence) and not re.search(mark, given) for mark in _DOUBTFUL) else sentence


def verdict(answer: str) -> float | None:
    """Return the score that the first word of an answer says, after labels; None if it says none."""
    words = re.findall(r"\w+", _ITEM.sub("", without_thoughts(answer), count=1))
    return next((label_number(word) for word in words if not _is_label(word) or label_number(word) is not None), None)


def _is_label(text: str) -> bool:
    """Return whether all words of a text are words of labels."""
    return {word.casefold() for word in _WORD.findall(text)} <= {*_LABEL_WORDS}
