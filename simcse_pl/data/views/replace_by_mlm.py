"""The view in which a masked language model fills in some of the words."""

import itertools
import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.data import get_worker_info
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.views.replacing import bare, replace
from simcse_pl.data.views.view import Original, View
from simcse_pl.data.views.words import checked_share
from simcse_pl.models.backbone import load_masked_language_model, load_tokenizer, longest_input, match_inputs
from simcse_pl.utils.errors import UserError

_CLOSE = 0.05  # scores no further apart may change places with the batch, the device and its precision
_LONGEST = 512  # tokens, where neither the model nor its tokenizer has a limit


class MaskedLanguageModel(View):
    """The sentence with some of its words filled in by a masked language model (Table 1's MLM).

    Every chosen word, but for the punctuation around it, becomes one mask token, and gets the whole word that scores
    highest there, which may be the word it was. All masks of a sentence are filled at once. Words past the model's
    length stay as they are, and so do sentences that have the mask token written in them.

    It works on the GPU where there is one; in the worker processes of a DataLoader, on the CPU.

    Args:
        name: the model (see backbone.resolve), which must have its pretrained masked-language-modelling head.
        share: of the words that are filled in, k %, rounded to the nearest number of words.

    Raises:
        UserError: a share out of range, no such model, or one without that head, a mask token or whole words.
    """

    def __init__(self, name: str, share: float = 0.15) -> None:
        self.share = checked_share(share)
        model = load_masked_language_model(name)
        self.tokenizer = load_tokenizer(name)
        if self.tokenizer.mask_token is None:
            raise UserError(f"views.name={name}: its tokenizer has no mask token")
        match_inputs(self.tokenizer, model)
        self.max_length = min(self.tokenizer.model_max_length, longest_input(model) or _LONGEST)
        self._model: nn.Module = model
        self._vocabulary: nn.Linear = model.get_output_embeddings()
        self._no_word = ~whole_words(self.tokenizer, self._vocabulary.out_features)
        if self._no_word.all():
            raise UserError(f"views.name={name}: its tokenizer has no whole words")

    def __call__(self, originals: Sequence[Original]) -> list[str]:
        """The positives of a batch, one each, in order."""
        sentences = [original.sentence.split() for original in originals]
        chosen = [self._choose(original, words) for original, words in zip(originals, sentences, strict=True)]
        rows = [row for row, positions in enumerate(chosen) if positions]
        masked = [self._mask(sentences[row], chosen[row]) for row in rows]
        for row, fills in zip(rows, self._fill(masked) if masked else [], strict=True):
            words = sentences[row]
            for i, fill in zip(chosen[row], fills, strict=False):  # fewer fills where the end was cut off
                words[i] = replace(words[i], fill)
        return [" ".join(words) for words in sentences]

    def _choose(self, original: Original, words: list[str]) -> list[int]:
        """The positions of the words to fill in, in order."""
        if self.tokenizer.mask_token in original.sentence:
            return []
        candidates = [i for i, word in enumerate(words) if bare(word)]
        count = min(round(self.share * len(words)), len(candidates))
        return sorted(original.random.sample(candidates, count))

    def _mask(self, words: list[str], positions: list[int]) -> str:
        mask = self.tokenizer.mask_token
        return " ".join(replace(word, mask) if i in positions else word for i, word in enumerate(words))

    @torch.no_grad()
    def _fill(self, masked: list[str]) -> list[list[str]]:
        """The words for the masks of each sentence, in order."""
        device = torch.device("cuda" if torch.cuda.is_available() and get_worker_info() is None else "cpu")
        self._model.to(device)
        inputs = self.tokenizer(
            masked, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
        ).to(device)
        is_mask = inputs["input_ids"] == self.tokenizer.mask_token_id
        best = self._best(dict(inputs), is_mask)
        counts = is_mask.sum(dim=1).tolist()
        words = [text.strip() for text in self.tokenizer.batch_decode(best.unsqueeze(-1))]
        ends = itertools.accumulate(counts)
        return [words[end - count : end] for count, end in zip(counts, ends, strict=True)]

    def _best(self, inputs: dict[str, Tensor], is_mask: Tensor) -> Tensor:
        """The ids that score highest at the masks, [masks], whatever else is in the batch.

        Sentences with a close call are scored again in float64, where the order of additions does not decide it.
        """
        scores = self._scores(inputs, is_mask)
        best = scores.argmax(dim=-1)
        first, second = scores.topk(2).values.unbind(dim=-1)
        row_of_mask = is_mask.nonzero()[:, 0]
        rows = row_of_mask[first - second < _CLOSE].unique()
        if len(rows):
            self._model.double()
            again = self._scores({name: tensor[rows] for name, tensor in inputs.items()}, is_mask[rows])
            best[torch.isin(row_of_mask, rows)] = again.argmax(dim=-1)
            self._model.float()  # to the very weights that were loaded
        return best

    def _scores(self, inputs: dict[str, Tensor], is_mask: Tensor) -> Tensor:
        """The scores of the vocabulary at the masks alone, [masks, vocabulary]; what is no whole word has none."""
        with self._vocabulary.register_forward_pre_hook(lambda _, states: (states[0][is_mask],)):
            scores: Tensor = self._model(**inputs).logits
        return scores.masked_fill(self._no_word.to(scores.device), -torch.inf)


def whole_words(tokenizer: PreTrainedTokenizerBase, size: int) -> Tensor:
    """Which ids stand for a whole word: read again after a space, its text gives just that id.

    Args:
        tokenizer: of any kind.
        size: of the vocabulary that the model scores, which may have more ids than the tokenizer.

    Returns:
        [size], boolean.
    """
    texts = [text.strip() for text in tokenizer.batch_decode([[i] for i in range(len(tokenizer))])]
    candidates = [i for i, text in enumerate(texts) if re.fullmatch(r"\w+", text)]
    ids = tokenizer([f"a {texts[i]}" for i in candidates], add_special_tokens=False)["input_ids"]
    before = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = torch.zeros(size, dtype=torch.bool)
    whole[[i for i, read in zip(candidates, ids, strict=True) if read == [*before, i]]] = True
    return whole
