"""A fixed encoder beside the trained one: a guide for false negatives, or a teacher."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from simcse_pl.losses.embedded_batch import embed_views
from simcse_pl.losses.frozen import Frozen
from simcse_pl.losses.gradient_cache import apply_in_chunks
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.templates import SENTENCE_MASK
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.errors import UserError


class FrozenEncoder(Frozen):
    """An encoder that is not trained.

    Args:
        name: a folder, a hub name or package:NAME (see SentenceEncoder.from_pretrained).
        pooling: needed for a plain checkpoint.
        template: replaces the saved one. It must be that of the trained encoder, whose batches are read.

    Attributes:
        network: the encoder, in evaluation mode.
        chunk_size: see SimCSEModule, which sets it.

    Raises:
        UserError: if it cannot be loaded, or has a post-processing.
    """

    chunk_size: int | None = None
    network: SentenceEncoder

    def __init__(
        self, name: str | Path, pooling: str | None = None, template: str | Sequence[str] | None = None
    ) -> None:
        encoder = SentenceEncoder.from_pretrained(name, pooling, template=template)
        if encoder.postprocess:
            raise UserError(f"{name}: this encoder has a post-processing: choose the encoder that it was fitted to")
        super().__init__(encoder)

    def check_vocabulary(self, encoder: SentenceEncoder, option: str) -> None:
        """Check that this encoder reads the token ids of another one's batches.

        Args:
            encoder: the trained encoder.
            option: the option that names this encoder, for the error message.

        Raises:
            UserError: if the vocabularies or templates differ, or the batches lack what its pooling reads.
        """
        if self.network.tokenizer.get_vocab() != encoder.tokenizer.get_vocab():
            raise UserError(f"{option}: its vocabulary must be that of the trained encoder")
        own, trained = self.network.templates, encoder.templates
        if own.texts != trained.texts:
            raise UserError(f"{option}: its template must be that of the trained encoder")
        if own.with_sentence_mask and not trained.with_sentence_mask:
            raise UserError(f"{option}: its pooling={self.network.pooling} must be that of the trained encoder")

    @torch.no_grad()
    def embed(self, batch: Batch) -> Tensor:
        """Embed all views of a batch: tensors [batch, views, tokens] in, [batch, views, dim] out."""
        names = (*self.network.tokenizer.model_input_names, SENTENCE_MASK)
        inputs = {name: batch[name] for name in names if name in batch}
        return apply_in_chunks(partial(embed_views, self.network), inputs, self.chunk_size)[
            ..., : self.network.truncate_dim
        ]
