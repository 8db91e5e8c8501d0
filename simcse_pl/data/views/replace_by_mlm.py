"""The view that replaces words with the predictions of a masked language model."""

import copy
import itertools
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.views.segmenters import Segmenter, spaces
from simcse_pl.data.views.view import Rate, View, ViewInput
from simcse_pl.data.views.words import MARKS, replace_word, strip_punctuation
from simcse_pl.models.backbone import load_masked_language_model, longest_input
from simcse_pl.models.roles import Role
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.models.tokenization import match_inputs

_LONGEST = 512  # tokens, if neither the model nor its tokenizer has a limit


class MaskedLanguageModel(View):
    """The sentence with some of its words replaced by predictions of a masked language model (Table 1).

    A mask token replaces each chosen word, within its punctuation. The model then replaces the mask by the whole word
    with the highest score, which may be the same word. All masks of a sentence are filled in one pass. Words beyond the
    model's maximum length, and sentences that contain the mask token, stay as they are.

    The model runs on the GPU if there is one; in the worker processes of a DataLoader, on the CPU.

    Args:
        name: the model (see backbone.resolve), with its pretrained masked-language-modelling head.
        rate: the fraction of words to replace, k %, rounded to the nearest number of words.
        role: see View.
        segment: splits a sentence into words.

    Raises:
        UserError: the model does not exist or lacks a head.
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
        """Return the views of a batch, in order."""
        sentences, mask = [self.segment(source.sentence) for source in inputs], self.tokenizer.mask_token
        chosen, masked = [], []  # the words to replace of some sentences
        for source, words in zip(inputs, sentences, strict=True):
            candidates = [i for i, word in enumerate(words) if strip_punctuation(word)]
            count = min(round(self.rate * len(words)), len(candidates))
            if count and mask not in source.sentence:
                places = sorted(source.random.sample(candidates, count))
                chosen.append((words, places))
                marked = (replace_word(word, mask) if i in places else word for i, word in enumerate(words))
                masked.append("".join(marked).strip())
        for (words, places), fills in zip(chosen, self._fill(masked) if masked else [], strict=True):
            for i, fill in zip(places, fills, strict=False):  # fewer fills if truncated
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
