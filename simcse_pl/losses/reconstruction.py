"""What TSDAE and DenoSent share: a decoder rebuilds a sentence of a row from the vector of another one."""

from abc import abstractmethod
from functools import partial
from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor
from transformers import PreTrainedModel

from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs, check_width_is_kept
from simcse_pl.losses.mlm import NOT_CHOSEN, MLMHead
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.utils.distributed import sum_over_ranks, world_size
from simcse_pl.utils.types import Batch


class SentenceReconstruction(Loss):
    """A loss of rebuilding a sentence from a vector. A subclass writes `forward` and `states`.

    Args:
        weight: lambda.
        head: the head that scores the vocabulary: `pretrained` for the checkpoint's own head of masked language
            modelling, or `new` for random weights.

    Attributes:
        predicts_next: whether the state of a token predicts the next one, and not the token itself.
    """

    mean_of_rows = False  # but of tokens
    runs_networks = True
    needs = Needs(positives=1)
    predicts_next: ClassVar[bool] = False

    def __init__(self, weight: NonNegativeFloat = 1.0, head: Literal["pretrained", "new"] = "pretrained") -> None:
        super().__init__(weight)
        self.head_is_new = head == "new"

    def attach(self, encoder: SentenceEncoder) -> None:
        """Load or initialize the head; raise UserError if there is none, or if the vectors have another width."""
        check_width_is_kept(encoder)
        self.head = MLMHead(encoder.backbone, not self.head_is_new)

    def mean_over_tokens(self, batch: EmbeddedBatch, view: int, sentence: Tensor) -> Tensor:
        """Return the mean cross-entropy over the tokens of a view on all devices.

        Args:
            view: the position of the view to rebuild.
            sentence: the vectors to rebuild it from, [batch, 1, dim].
        """
        sequences = {name: batch.inputs[name][:, view] for name in batch.encoder.tokenizer.model_input_names}
        labels = sequences["input_ids"].masked_fill(sequences["attention_mask"] == 0, NOT_CHOSEN)
        if self.predicts_next:
            labels = F.pad(labels[:, 1:], (0, 1), value=NOT_CHOSEN)
        sequences |= {"labels": labels, "sentence": sentence}
        total = apply_in_chunks(partial(self._sum, batch.encoder.backbone), sequences, batch.chunk_size).sum()
        return total * world_size() / sum_over_ranks((labels != NOT_CHOSEN).sum()).clamp(min=1)

    def _sum(self, backbone: PreTrainedModel, sequences: Batch) -> Tensor:
        """Return the sum of the cross-entropy over the tokens of some sequences, [1]."""
        inputs = dict(sequences)
        labels, sentence = inputs.pop("labels"), inputs.pop("sentence")
        scores = self.head(self.states(backbone, inputs, sentence).flatten(0, 1))
        return F.cross_entropy(scores, labels.flatten(), reduction="sum").view(1)

    @abstractmethod
    def states(self, backbone: PreTrainedModel, inputs: Batch, sentence: Tensor) -> Tensor:
        """Return the decoder's states [sequences, tokens, dim] of sequences, given vectors [sequences, 1, dim]."""
