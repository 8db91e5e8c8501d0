"""Masked language modelling: added to the objective (SimCSE's Appendix A and Table D.2), or in its place."""

import copy
import logging
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.models.backbone import has_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.models.length_groups import LengthGroups
from simcse_pl.models.masked_lm import begins_word, load_masked_language_model
from simcse_pl.models.tokenization import BEGINS_WORD, INSIDE_WORD
from simcse_pl.utils.distributed import sum_over_ranks, world_size
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.tensors import at_least_float32
from simcse_pl.utils.types import Batch, RowKind

log = logging.getLogger(__name__)

Probability = Annotated[float, Field(gt=0, le=1)]

_FEWEST_WORDS = 2  # in a sentence; a sentence of Chinese has one, unless it has spaces or foreign words
_MOST_WORDS = 0.95  # of the tokens: 0.92 in English Wikipedia, 0.99 to 1 if each Chinese character is a word
NOT_CHOSEN = -100  # the label of a token that is not predicted; cross_entropy ignores it


class TokenMaskingLoss(Loss):
    """A loss that masks tokens as BERT's pretraining does (Devlin et al. 2019).

    Args:
        probability: probability of choosing a token. Of the chosen tokens, 80 % are replaced by the
            mask token, 10 % by a random token, and 10 % stay. Special tokens are never chosen.
        whole_words: choose whole words with this probability in place of single tokens. Words are those of the batch's
            `begins_word`, which the data module's `segment` makes, or else of the tokenizer.
    """

    runs_networks = True
    mask_token: str | None = None  # for a tokenizer without one
    masked = 0.8  # share of the chosen tokens that are masked; of the others, a half is random
    special_ids: Tensor
    begins_word: Tensor  # of the tokenizer, [vocabulary]

    def __init__(self, weight: NonNegativeFloat, probability: Probability, whole_words: bool = False) -> None:
        super().__init__(weight)
        self.probability, self.whole_words = probability, whole_words

    def attach(self, encoder: SentenceEncoder) -> None:
        tokenizer = encoder.tokenizer
        mask = tokenizer.get_vocab().get(tokenizer.mask_token or self.mask_token or "")
        if mask is None:
            choice = "choose an encoder like BERT, or objective=mntp for a decoder"
            raise UserError(f"the tokenizer of {tokenizer.name_or_path} has no mask token: {choice}")
        self._mask_token, self._vocabulary = mask, len(tokenizer)
        self.register_buffer("special_ids", torch.tensor([*tokenizer.all_special_ids, mask]), persistent=False)
        if self.whole_words:
            with reraise_as("whole_words=true", users_too=True):
                self.register_buffer("begins_word", begins_word(tokenizer), persistent=False)

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError if whole sentences are words; warn if single tokens are."""
        super().check_rows(rows)
        if not self.whole_words or not rows.examples:
            return
        marked = torch.from_numpy(np.concatenate(rows.examples)).to(self.special_ids)
        ids, begins = marked % INSIDE_WORD, marked < INSIDE_WORD
        if begins.all():  # no segmenter has marked them
            begins = self.begins_word[ids]
        special = torch.isin(ids, self.special_ids)
        words, tokens = int(((begins | special.roll(1)) & ~special).sum()), int((~special).sum())
        remedy = "text without spaces between words needs segmenter=icu"
        if words < _FEWEST_WORDS * len(rows.examples):
            raise UserError(f"whole_words=true: {len(rows.examples)} sentences are {words} words: {remedy}")
        if words > _MOST_WORDS * tokens:
            log.warning("whole_words=true has little effect: %d tokens are %d words; %s", tokens, words, remedy)

    def mask(self, input_ids: Tensor, begins_word: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return masked ids and labels for ids [..., tokens]; tokens that were not chosen have the label NOT_CHOSEN.

        `begins_word`, [..., tokens], says which tokens begin a word; if it is None, the tokenizer does.
        """
        excluded, shape = torch.isin(input_ids, self.special_ids), input_ids.shape
        probability = self.probability
        with input_ids.device:  # draws there, in the order of transformers' collator
            if self.whole_words:
                begins = self.begins_word[input_ids] if begins_word is None else begins_word
                begins = begins | excluded.roll(1, dims=-1)  # a word begins after a special token, too
                word = begins.cumsum(dim=-1).clamp(max=shape[-1] - 1)
                excluded |= (torch.rand(shape) >= probability).gather(-1, word)
                probability = 1.0
            chosen = torch.bernoulli(torch.full(shape, probability).masked_fill_(excluded, 0)).bool()
            replaced = torch.bernoulli(torch.full(shape, self.masked)).bool()
            random = torch.bernoulli(torch.full(shape, 0.5)).bool()
            new = torch.randint(self._vocabulary, shape).where(random, input_ids)
            new = new.masked_fill_(replaced, self._mask_token)
        return new.where(chosen, input_ids), input_ids.masked_fill(~chosen, NOT_CHOSEN)


class MLMHead(nn.Module):
    """The part of an architecture's masked language model that follows its backbone.

    The module holds the complete language model, with its backbone replaced by a stub that returns
    the given hidden states. It therefore works for every architecture, and scores only the chosen
    positions.

    Args:
        backbone: the trained backbone.
        pretrained: load the head from the backbone's checkpoint, or else initialize it from torch's
            global random state.
        tied: whether the weights that the architecture ties, usually those of the decoder, are the
            backbone's own. If not, they start as copies of them, and are trained with the head.
        auto: transformers' class of the language model.
    """

    def __init__(
        self, backbone: PreTrainedModel, pretrained: bool = True, tied: bool = True, auto: Any = AutoModelForMaskedLM
    ) -> None:
        super().__init__()
        if has_adapter(backbone) and not isinstance(backbone.get_input_embeddings(), nn.Embedding):
            raise UserError("the adapter changes the word embeddings, which the head shares: leave them out of it")
        config = copy.deepcopy(backbone.config)
        try:
            model = (
                load_masked_language_model(str(config.name_or_path), config, auto)
                if pretrained
                else auto.from_config(config, dtype=torch.float32)
            )
        except UserError as error:
            raise UserError(f"{error}; its option head=new initializes a new one") from error
        setattr(model, model.base_model_prefix, backbone)
        model.tie_weights()
        setattr(model, model.base_model_prefix, _GivenHiddenStates())
        if not tied or backbone.dtype == torch.bfloat16:  # small updates of such weights would be lost
            for name in model.all_tied_weights_keys:
                owner, _, attribute = name.rpartition(".")
                part, weight = model.get_submodule(owner), model.get_parameter(name)
                setattr(part, attribute, nn.Parameter(weight.detach().clone(), not tied or weight.requires_grad))
        if not tied:
            model.config.tie_word_embeddings = False  # a saved model is loaded with its own decoder
        self.model = nn.Module.to(model, torch.promote_types(backbone.dtype, torch.float32)).train()

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return logits: [positions, dim] in, [positions, vocabulary] out."""
        scores: Tensor = self.model(inputs_embeds=at_least_float32(hidden_states).unsqueeze(0)).logits
        return scores.squeeze(0)


class _GivenHiddenStates(nn.Module):
    """A backbone that returns its input embeddings as the last hidden states."""

    decoder = property(lambda self: self)  # which OPT's language model calls

    def forward(self, *_: Tensor | None, inputs_embeds: Tensor, **__: Tensor | None) -> BaseModelOutput:
        return _LastHiddenState(last_hidden_state=inputs_embeds)


@dataclass
class _LastHiddenState(BaseModelOutput):
    """The output of a backbone, in which all other attributes, such as LUKE's entity states, are None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class MaskedLanguageModeling(TokenMaskingLoss):
    """The loss of predicting masked tokens, as in BERT's pretraining (Devlin et al. 2019).

    As in the released code, all views of a batch are masked independently, and pass through the
    backbone once more. The masks are drawn from torch's global random state, on the device of the
    batch.

    The head is trained with the encoder. Training checkpoints contain it. If this loss is the objective, the saved
    encoder contains it too, so that AutoModelForMaskedLM loads it, and the perplexity of held-out rows is measured.

    Args:
        weight: lambda.
        probability, whole_words: see TokenMaskingLoss.
        head: `pretrained` for the checkpoint's own head, or `new` for one with random weights.
        anchors_only: mask the anchors alone, for continued pretraining before SimCSE.
        tied: whether the head's decoder is the encoder's word embeddings, as in BERT's pretraining, or
            starts as a copy of them, as in SimCSE's released code.
    """

    embeds = False
    mean_of_rows = False  # but of tokens
    language_model: ClassVar[Any] = AutoModelForMaskedLM

    def __init__(
        self,
        weight: NonNegativeFloat = 1.0,
        probability: Probability = 0.15,
        head: Literal["pretrained", "new"] = "pretrained",
        whole_words: bool = False,
        anchors_only: bool = False,
        tied: bool = True,
    ) -> None:
        super().__init__(weight, probability, whole_words)
        self.head_is_new, self.anchors_only, self.tied = head == "new", anchors_only, tied

    def attach(self, encoder: SentenceEncoder) -> None:
        super().attach(encoder)
        self.head = MLMHead(encoder.backbone, not self.head_is_new, self.tied, self.language_model)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        inputs = {name: x[:, :1] if self.anchors_only else x for name, x in batch.inputs.items()}
        return self.mean_over_chosen(batch, batch.encoder.backbone, inputs)

    def mean_over_chosen(
        self, batch: EmbeddedBatch, backbone: PreTrainedModel, inputs: Batch, **conditions: Tensor
    ) -> Tensor:
        """Return the mean cross-entropy over the tokens chosen on all devices, 0 if there are none.

        Args:
            backbone, conditions: for `self.states`, `conditions` as more inputs, each [batch * views, 1, ...].
            inputs: tensors [batch, views, tokens]; with `labels`, the ids are masked already.
        """
        views = inputs["input_ids"].shape[1]
        sequences = {name: inputs[name].flatten(0, 1) for name in batch.encoder.tokenizer.model_input_names}
        if "labels" in inputs:
            sequences["labels"] = inputs["labels"].flatten(0, 1)
        else:
            begins = inputs[BEGINS_WORD].flatten(0, 1) if BEGINS_WORD in inputs else None
            sequences["input_ids"], sequences["labels"] = self.mask(sequences["input_ids"], begins)
        sum_of_chunk = partial(self._sum, backbone, batch.encoder.groups)
        total = apply_in_chunks(sum_of_chunk, sequences | conditions, batch.chunk_size and batch.chunk_size * views)
        chosen = sum_over_ranks((sequences["labels"] != NOT_CHOSEN).sum())
        return total.sum() * world_size() / chosen.clamp(min=1)

    def _sum(self, backbone: PreTrainedModel, groups: LengthGroups, sequences: Batch) -> Tensor:
        """Return the sum of the cross-entropy over the chosen tokens of some sequences, [1]."""
        states, labels = [], []
        for _, group in groups.split(backbone, sequences):
            wanted = group.pop("labels").flatten()
            chosen = wanted != NOT_CHOSEN
            if chosen.is_cpu:
                positions = chosen.nonzero().squeeze(1)
            else:  # their number is known without a GPU; cross_entropy ignores those that were not chosen
                positions = chosen.byte().argsort(descending=True, stable=True)[: self._most_chosen(len(chosen))]
            states.append(self.states(backbone, group).flatten(0, 1)[positions])
            labels.append(wanted[positions])
        kept, count = torch.cat(labels), (sequences["labels"] != NOT_CHOSEN).sum()
        scores = self.head(torch.cat(states))  # at the chosen positions only: the vocabulary is large
        total = F.cross_entropy(scores, kept, reduction="sum")
        return total.where((kept != NOT_CHOSEN).sum() == count, torch.nan).view(1)

    def _most_chosen(self, tokens: int) -> int:
        """Return the most of some tokens that `mask` chooses.

        Without whole words, more are chosen once in 1e21 draws (Bernstein's inequality); the loss is then NaN.
        """
        mean = self.probability * tokens
        most = mean + 17 + math.sqrt(17**2 + 100 * mean)
        return tokens if self.whole_words else min(tokens, math.ceil(most))

    def states(self, backbone: PreTrainedModel, inputs: Batch) -> Tensor:
        """Return the hidden states of masked sequences, [sequences, tokens, dim]."""
        states: Tensor = backbone(**inputs).last_hidden_state
        return states

    def held_out_metrics(self, loss: Tensor) -> dict[str, Tensor]:
        return {"loss": loss, "perplexity": loss.exp()}

    def save(self, encoder: SentenceEncoder, folder: Path) -> None:
        """Save the encoder with the head; of an adapter, only its weights."""
        if has_adapter(encoder.backbone):
            super().save(encoder, folder)
            return
        model = self.head.model
        stub = getattr(model, model.base_model_prefix)
        setattr(model, model.base_model_prefix, encoder.backbone)
        try:
            encoder.save_pretrained(folder, model)
        finally:
            setattr(model, model.base_model_prefix, stub)
