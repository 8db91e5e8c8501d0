"""Networks that are neither trained nor saved, such as a guide for false negatives or a teacher."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import SENTENCE_MASK
from simcse_pl.utils.errors import UserError


class Frozen(nn.Module):
    """A network that is not trained.

    It moves to the device of the module that it belongs to. It registers no parameters with that module,
    so that no optimizer, checkpoint or gradient reduction contains them. It keeps its own mode, training
    or evaluation.

    Attributes:
        network: the network.
    """

    network: nn.Module

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.__dict__["network"] = network.requires_grad_(False)  # not a submodule, whose weights would be saved

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.network._apply(fn, recurse)  # what .to() and .cuda() of the module call
        super()._apply(fn, recurse)
        return self


class FrozenEncoder(Frozen):
    """An encoder that is not trained.

    Args:
        name: a folder, a hub name or package:NAME (see SentenceEncoder.from_pretrained).
        pooling: needed for a plain checkpoint.
        template: replaces the saved one. It must be that of the trained encoder, whose batches are read.

    Attributes:
        network: the encoder, in evaluation mode.

    Raises:
        UserError: if it cannot be loaded, or has a post-processing.
    """

    network: SentenceEncoder

    def __init__(
        self, name: str | Path, pooling: str | None = None, template: str | Sequence[str] | None = None
    ) -> None:
        encoder = SentenceEncoder.from_pretrained(name, pooling, template=template)
        if encoder.postprocess:
            raise UserError(f"{name}: this encoder has a post-processing: choose the encoder that it was fitted to")
        super().__init__(encoder)

    def check_vocabulary(self, encoder: SentenceEncoder, option: str) -> None:
        """Raise UserError, which names the option of this encoder, unless it reads the trained encoder's token ids."""
        if self.network.tokenizer.get_vocab() != encoder.tokenizer.get_vocab():
            raise UserError(f"{option}: its vocabulary must be that of the trained encoder")
        if self.network.templates.texts != encoder.templates.texts:
            raise UserError(f"{option}: its template must be that of the trained encoder")

    @torch.no_grad()
    def embed(self, batch: EmbeddedBatch) -> Tensor:
        """Return the embeddings of all views of a batch, [batch, views, dim]."""
        names = (*self.network.tokenizer.model_input_names, SENTENCE_MASK)
        inputs = {name: batch.inputs[name] for name in names if name in batch.inputs}
        return self.network.embed(inputs, batch.chunk_size)[..., : self.network.truncate_dim]
