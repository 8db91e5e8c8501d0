"""EncoderModule: what training an encoder needs apart from the loss, as a LightningModule."""

from contextlib import nullcontext
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor

from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import measure
from simcse_pl.models.backbone import has_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.saved_encoder import checkpoint_entry
from simcse_pl.models.settings import CHECKPOINT_KEY
from simcse_pl.results import STAGES, TEST, VALIDATION, logged
from simcse_pl.utils.distributed import all_gather_with_grad
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.private import HOOK_NAME
from simcse_pl.utils.types import Batch


class EncoderModule(LightningModule):
    """The part of SimCSEModule that measures the encoder, and completes checkpoints.

    Validation and test embed the sentences of the datamodule's evaluators, and log their metrics as val/NAME and
    test/NAME. They compute in the precision of the weights, as `SentenceEncoder.encode` does. Checkpoints get what
    `SentenceEncoder.from_pretrained` needs.

    Args:
        encoder: the encoder to train.

    Attributes:
        sharded: whether each process holds a part of the weights (see speed/fsdp.py).
    """

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.strict_loading = not has_adapter(encoder.backbone)  # checkpoints lack the base model of an adapter
        self.sharded = False
        self._batches: list[Tensor] = []
        self._vectors: Tensor | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Lightning sets one around each hook, which torch's search for parameters would slow."""
        if name == HOOK_NAME:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def sentence_data(self) -> SentenceDataModule | None:
        """The trainer's datamodule; None if the trainer has loaders, or a datamodule that only makes loaders."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        return data if isinstance(data, SentenceDataModule) else None

    def setup(self, stage: str) -> None:
        """Raise UserError if the data has other tokens, templates or prompts than the encoder, and so wrong scores."""
        data, encoder = self.sentence_data, self.encoder
        if data is None:
            return
        for part in ("texts", "prompts", "with_sentence_mask", "final_period"):
            if getattr(data.templates, part) != getattr(encoder.templates, part):
                raise UserError("the data does not have the encoder's template: give it templates=encoder.templates")
        given, own = data.tokenizer, encoder.tokenizer
        same = given is own or given.get_vocab() == own.get_vocab()
        if not same or data.templates.tokenizer.model_max_length != encoder.max_length:
            raise UserError("the data does not have the encoder's tokenizer and max_length: give it encoder.tokenizer")

    def on_validation_epoch_start(self) -> None:
        self._batches, self._vectors = [], None

    on_test_epoch_start = on_validation_epoch_start

    def validation_step(self, inputs: Batch, batch_idx: int) -> None:
        # Lightning turns on autocast. Sharded layers compute in bfloat16, and what follows them needs it.
        with nullcontext() if self.sharded else torch.autocast(self.device.type, enabled=False):
            vectors = self.encoder(inputs, in_groups=True)[:, : self.encoder.truncate_dim]
        self._batches.append(vectors.float())

    test_step = validation_step

    def vectors(self) -> Tensor:
        """Return the embeddings of a validation or test that is about to end, of all devices: [n, dim] on the CPU."""
        if self._vectors is None:
            self._vectors = all_gather_with_grad(torch.cat(self._batches))[0].cpu()
            self._batches = []
            if not self._vectors.isfinite().all():
                raise UserError(f"step {self.global_step}: embeddings are no longer finite: lower optimizer.lr")
        return self._vectors

    def on_validation_epoch_end(self) -> None:
        self._evaluate(VALIDATION)

    def on_test_epoch_end(self) -> None:
        self._evaluate(TEST)

    def _evaluate(self, split: str) -> None:
        if self.trainer.sanity_checking:  # a few batches, but metrics need all sentences
            return
        if (data := self.sentence_data) is None:
            raise UserError(f"{split}: its evaluators are those of a SentenceDataModule: give one to the trainer")
        vectors, sentences = self.vectors(), data.sentences[split]
        if len(vectors) < len(sentences):
            raise UserError(f"trainer.limit_{STAGES[split]}_batches: the evaluators need all sentences of the file")
        metrics = measure(data.evaluators, sentences.encode(vectors), split) if self.trainer.is_global_zero else {}
        for name, value in self.trainer.strategy.broadcast(metrics).items():
            metric = logged(name, split)
            shown = metric == getattr(self.trainer.checkpoint_callback, "monitor", None)
            self.log(metric, torch.tensor(value, device=self.device), prog_bar=shown, sync_dist=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        encoder = self.encoder
        checkpoint[CHECKPOINT_KEY] = checkpoint_entry(encoder.backbone, encoder.tokenizer, encoder.settings)
        self.leave_out_bases(checkpoint["state_dict"])

    def leave_out_bases(self, state: dict[str, Any]) -> None:
        """Remove the weights of the base models of adapters from a state dict of this module."""
        for module_name, part in self.named_modules():
            if isinstance(part, SentenceEncoder) and has_adapter(part.backbone):
                from simcse_pl.models.adapters import adapter_parameters  # few runs have one

                prefix = f"{module_name}.backbone."
                kept = {prefix + name for name in adapter_parameters(part.backbone)}
                for name in [name for name in state if name.startswith(prefix) and name not in kept]:
                    del state[name]
