"""The views of Tables 1 and 2: a crop, deleted words, synonyms, and words of a masked language model.

By default, words are separated by white space, as in the paper; see data/words.py. A number of words is rounded to the
nearest integer. A sentence of one word, or of none, stays as it is.
"""

import copy
import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch import Tensor
from torch.utils.data import get_worker_info
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.view import Rate, Segmenter, SentenceView, View, ViewInput, spaces
from simcse_pl.data.words import MARKS, check_english, replace_word, strip_punctuation
from simcse_pl.models.backbone import longest_input
from simcse_pl.models.masked_lm import load_masked_language_model
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.models.tokenization import match_inputs
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Role

_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_ADJECTIVE_POSITION = re.compile(r"\((a|p|ip)\)$")
_LONGEST = 512  # tokens, if neither the model nor its tokenizer has a limit


class Synonym(SentenceView):
    """The sentence with one random word replaced by one of its synonyms (Table 1).

    The synonyms of a word are the other members of all its synsets. An inflected form has only those of its own entry,
    because others would not agree with it. Stop words have none: in WordNet, `in` is the inch and `as` is arsenic. A
    sentence without a word that has synonyms stays as it is.

    Args:
        wordnet: the folder with WordNet's database files (see `read_thesaurus`).
    """

    def __init__(self, wordnet: str | Path = "/usr/share/wordnet", role: Role = Role.POSITIVE) -> None:
        super().__init__(role)
        self.thesaurus = read_thesaurus(wordnet)

    def check_text(self, sentences: Sequence[str]) -> None:
        """Raise UserError unless the sentences look like English: `die` and `war` are words of WordNet, too."""
        check_english(sentences)

    def make(self, source: ViewInput) -> str:
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


class MaskedLanguageModel(View):
    """The sentence with some of its words replaced by predictions of a masked language model (Table 1).

    A mask token replaces each chosen word, within its punctuation. The model then replaces the mask by the whole word
    with the highest score, which may be the same word. All masks of a sentence are filled in one pass. Words beyond the
    model's maximum length, and sentences that contain the mask token, stay as they are.

    The model runs on the GPU if there is one; in the worker processes of a DataLoader, on the CPU.

    Args:
        name: the model (see sources.resolve), with its pretrained masked-language-modelling head.
        rate: the fraction of words to replace, k %, rounded to the nearest number of words.
        segment: splits a sentence into words.
    """

    def __init__(self, name: str, rate: Rate = 0.15, role: Role = Role.POSITIVE, segment: Segmenter = spaces) -> None:
        super().__init__(role)
        self.rate, self.segment = rate, segment
        model = load_masked_language_model(name)
        self.tokenizer = load_tokenizer(name)
        match_inputs(self.tokenizer, model)
        self.max_length = min(self.tokenizer.model_max_length, longest_input(model) or _LONGEST)
        self._model: Any = model
        self._no_word = ~whole_words(self.tokenizer, model.get_output_embeddings().out_features)

    def __call__(self, inputs: Sequence[ViewInput]) -> list[str]:
        sentences, mask = [self.segment(source.sentence) for source in inputs], self.tokenizer.mask_token
        chosen, masked = [], []  # the words to replace of some sentences
        for source, words in zip(inputs, sentences, strict=True):
            candidates = [i for i, word in enumerate(words) if strip_punctuation(word)]
            count = min(round(self.rate * len(words)), len(candidates))
            if count and mask not in source.sentence:
                positions = sorted(source.random.sample(candidates, count))
                chosen.append((words, positions))
                marked = (replace_word(word, mask) if i in positions else word for i, word in enumerate(words))
                masked.append("".join(marked).strip())
        for (words, positions), fills in zip(chosen, self._fill(masked) if masked else [], strict=True):
            for i, fill in zip(positions, fills, strict=False):  # fewer fills if truncated
                words[i] = replace_word(words[i], fill)
        return ["".join(words).strip() for words in sentences]

    @cached_property
    def _on_gpu(self) -> Any:
        return copy.deepcopy(self._model).to("cuda")  # forked workers cannot use a model that is on the GPU

    @torch.no_grad()
    def _fill(self, masked: list[str]) -> list[list[str]]:
        """Return the words for the masks of each sentence, in order."""
        model = self._on_gpu if torch.cuda.is_available() and get_worker_info() is None else self._model
        inputs = self.tokenizer(
            masked, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
        ).to(model.device)
        is_mask = inputs["input_ids"] == self.tokenizer.mask_token_id
        with model.get_output_embeddings().register_forward_pre_hook(lambda _, states: (states[0][is_mask],)):
            scores: Tensor = model(**inputs).logits  # [masks, vocabulary]
        best = scores.masked_fill(self._no_word.to(scores.device), -torch.inf).argmax(dim=-1)
        counts = is_mask.sum(dim=1).tolist()
        words = [text.strip() for text in self.tokenizer.batch_decode(best.unsqueeze(-1))]
        ends = itertools.accumulate(counts)
        return [words[end - count : end] for count, end in zip(counts, ends, strict=True)]


def whole_words(tokenizer: PreTrainedTokenizerBase, size: int) -> Tensor:
    """Return which ids are whole words, [size]: after a space, the id's text is tokenized to that id alone.

    `size` is that of the model's vocabulary, which may be larger than the tokenizer's.
    """
    texts = [text.strip() for text in tokenizer.batch_decode([[i] for i in range(len(tokenizer))])]
    candidates = [i for i, text in enumerate(texts) if re.fullmatch(rf"(\w[{MARKS}]*)+", text)]
    ids = tokenizer([f"a {texts[i]}" for i in candidates], add_special_tokens=False)["input_ids"]
    before = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = torch.zeros(size, dtype=torch.bool)
    whole[[i for i, read in zip(candidates, ids, strict=True) if read == [*before, i]]] = True
    return whole


class _RatedView(SentenceView):
    """A view that changes a fraction of a sentence's words.

    Args:
        rate: the fraction of words to remove, k %; at least one word is kept.
        segment: splits the sentence into words.
    """

    def __init__(self, rate: Rate = 0.1, role: Role = Role.POSITIVE, segment: Segmenter = spaces) -> None:
        super().__init__(role)
        self.rate, self.segment = rate, segment


class Crop(_RatedView):
    """A contiguous span of the sentence's words, at a random position (Table 1)."""

    def make(self, source: ViewInput) -> str:
        words = self.segment(source.sentence)
        length = max(min(1, len(words)), len(words) - round(self.rate * len(words)))
        start = source.random.randint(0, len(words) - length)
        return "".join(words[start : start + length]).strip()


class WordDeletion(_RatedView):
    """The sentence without some of its words, chosen at random (Table 1)."""

    def make(self, source: ViewInput) -> str:
        words = self.segment(source.sentence)
        return _delete(source, words, round(self.rate * len(words)))


class DeleteOneWord(SentenceView):
    """The sentence without one of its words, chosen at random (Tables 1 and 2).

    Args:
        segment: splits the sentence into words.
    """

    def __init__(self, role: Role = Role.POSITIVE, segment: Segmenter = spaces) -> None:
        super().__init__(role)
        self.segment = segment

    def make(self, source: ViewInput) -> str:
        return _delete(source, self.segment(source.sentence), 1)


def _delete(source: ViewInput, words: list[str], count: int) -> str:
    kept = source.random.sample(range(len(words)), max(min(1, len(words)), len(words) - count))
    return "".join(words[i] for i in sorted(kept)).strip()
