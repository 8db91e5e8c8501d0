"""Masked language modelling: as an auxiliary loss (SimCSE's Appendix A and Table D.2), and as the objective itself."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from simcse_pl.cpu.length_groups import LengthGroups
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.mlm_head import MLMHead
from simcse_pl.losses.objectives import Objective
from simcse_pl.losses.token_masking import NOT_CHOSEN, TokenMaskingLoss
from simcse_pl.models.adapters import has_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.distributed import sum_over_ranks, world_size
from simcse_pl.utils.errors import UserError

HEADS = ("pretrained", "new")


class MaskedLanguageModeling(TokenMaskingLoss):
    """The loss of predicting masked tokens, as in BERT's pretraining (Devlin et al. 2019).

    As in the released code, all views of a batch are masked independently, and pass through the
    backbone once more. The released code's decoder is a copy of BERT's. This one is tied to the
    encoder's word embeddings, as in BERT. The masks are drawn from torch's global random state, on
    the device of the batch.

    The head is trained with the encoder. Training checkpoints contain it; saved encoders do not.

    Args:
        weight: lambda, 0 or more.
        probability: see TokenMaskingLoss.
        head: `pretrained` for the checkpoint's own head, or `new` for one with random weights.
        whole_words: see TokenMaskingLoss.
    """

    name = "mlm"
    head: MLMHead

    def __init__(
        self, weight: float = 0.1, probability: float = 0.15, head: str = "pretrained", whole_words: bool = False
    ) -> None:
        super().__init__(weight, probability, whole_words)
        if head not in HEADS:
            raise UserError(f"{self.option}.head={head}: choose one of {', '.join(HEADS)}")
        self.head_is_new = head == "new"

    def attach(self, encoder: SentenceEncoder) -> None:
        """Load or initialize the head, or raise UserError if there is no mask token or no pretrained head."""
        super().attach(encoder)
        self.head = MLMHead(encoder.backbone, not self.head_is_new, self.option)

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the mean cross-entropy over the tokens chosen on all devices, 0 if there are none."""
        return self.mean_over_chosen(encoder, encoder.backbone, batch.inputs)

    def mean_over_chosen(
        self, encoder: SentenceEncoder, backbone: PreTrainedModel, inputs: Batch, **further: Tensor
    ) -> Tensor:
        """Return the mean cross-entropy over the tokens chosen on all devices, 0 if there are none.

        Args:
            encoder: the trained encoder.
            backbone: passed to `self.states`.
            inputs: tensors [batch, views, tokens].
            further: more inputs for `self.states`, each [batch * views, 1, ...].
        """
        views = inputs["input_ids"].shape[1]
        sequences = {name: inputs[name].flatten(0, 1) for name in encoder.tokenizer.model_input_names}
        sequences["input_ids"], sequences["labels"] = self.mask(sequences["input_ids"])
        of_chunk = partial(self._sum, backbone, encoder.groups)
        total = apply_in_chunks(of_chunk, sequences | further, self.chunk_size and self.chunk_size * views)
        chosen = sum_over_ranks((sequences["labels"] != NOT_CHOSEN).sum())
        return total.sum() * world_size() / chosen.clamp(min=1)

    def _sum(self, backbone: PreTrainedModel, groups: LengthGroups, sequences: Batch) -> Tensor:
        """Return the sum of the cross-entropy over the chosen tokens of some sequences, [1]."""
        states, labels = [], []
        for _, group in groups.split(backbone, sequences):
            wanted = group.pop("labels")
            chosen = wanted != NOT_CHOSEN
            states.append(self.states(backbone, group)[chosen])
            labels.append(wanted[chosen])
        scores = self.head(torch.cat(states))  # at the chosen positions only: the vocabulary is large
        return F.cross_entropy(scores, torch.cat(labels), reduction="sum").view(1)

    def states(self, backbone: PreTrainedModel, inputs: Batch) -> Tensor:
        """Return the hidden states of masked sequences, [sequences, tokens, dim]."""
        states: Tensor = backbone(**inputs).last_hidden_state
        return states


class _Loss(MaskedLanguageModeling):
    @property
    def option(self) -> str:
        return "objective"


class MaskedLanguageModelingObjective(Objective):
    """Masked language modelling instead of a contrastive loss: continued pretraining before SimCSE.

    Only the anchors are read. After training, the saved encoder contains the head, so that AutoModelForMaskedLM
    loads it too. The perplexity is exp of the mean loss of the held-out rows (data.hold_out).

    Args:
        probability, head, whole_words: see MaskedLanguageModeling.
    """

    contrasts = False
    truncatable = False
    reads_embeddings = False
    encoder: SentenceEncoder

    def __init__(self, probability: float = 0.15, head: str = "pretrained", whole_words: bool = False) -> None:
        super().__init__()
        self.term = _Loss(1.0, probability, head, whole_words)

    def attach(self, encoder: SentenceEncoder) -> None:
        """Load or initialize the head, or raise UserError if there is no mask token or no pretrained head."""
        self.term.attach(encoder)
        self.__dict__["encoder"] = encoder  # not a submodule, whose weights would be saved twice

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Accept all rows."""

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the mean cross-entropy over the tokens chosen on all devices, 0 if there are none."""
        anchors = {name: tensor[:, :1] for name, tensor in batch.inputs.items()}
        return self.term.mean_over_chosen(self.encoder, self.encoder.backbone, anchors)

    def held_out_metrics(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the loss and the perplexity."""
        return {"loss": loss, "perplexity": loss.exp()}

    def save(self, encoder: SentenceEncoder, folder: Path) -> None:
        """Save the encoder with the head; of an adapter, only its weights."""
        if has_adapter(encoder.backbone):
            super().save(encoder, folder)
            return
        with self.term.head.around(encoder.backbone) as model:
            encoder.save_pretrained(folder, model)
