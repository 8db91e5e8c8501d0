"""DenoSent (Wang et al. 2024): a decoder repairs the noisy tokens of a sentence with the help of its embedding."""

from typing import Literal

from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor, nn
from transformers import PreTrainedModel

from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.losses.reconstruction import SentenceReconstruction
from simcse_pl.methods.layers import embed_tokens, embedding_module
from simcse_pl.models.backbone import DropoutRate
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import reraise_as
from simcse_pl.utils.types import Batch, Role


class NoisyReconstruction(SentenceReconstruction):
    """The loss of rebuilding a sentence from its noisy tokens and an embedding (DenoSent, Wang et al. 2024).

    In plain terms: dropout erases most of the numbers of each token, and a decoder, which sees all tokens, says what
    they were. It needs the embedding for what is lost. For the embedding h of the anchor and the tokens x of the
    positive, the loss is the mean over all tokens of

        -log p(x_i | dropout(E(x)); h)

    E is the output of the encoder's embedding layer, without its gradient. The decoder is a new Transformer decoder
    without a causal mask, whose cross-attention has the single state h. Discrete noise is in the data: the positive is
    another wording of the anchor, such as a translation there and back. Without it, both are the same sentence.

    Args:
        weight, head: see SentenceReconstruction.
        noise: the dropout rate of E(x).
        layers, heads, dropout: the numbers of layers and attention heads of the decoder, and its dropout rate.
    """

    def __init__(
        self,
        weight: NonNegativeFloat = 1.0,
        noise: DropoutRate = 0.825,
        layers: PositiveInt = 16,
        heads: PositiveInt = 1,
        dropout: DropoutRate = 0.1,
        head: Literal["pretrained", "new"] = "pretrained",
    ) -> None:
        super().__init__(weight, head)
        self.noise, self.layers, self.heads, self.dropout = nn.Dropout(noise), layers, heads, dropout

    def attach(self, encoder: SentenceEncoder) -> None:
        """Initialize the decoder, with linear layers as the encoder's own are; raise UserError if it does not fit."""
        embedding_module(encoder.backbone)  # called for its error only
        super().attach(encoder)
        with reraise_as(f"heads={self.heads}"):
            layer = nn.TransformerDecoderLayer(encoder.pooled_dim, self.heads, dropout=self.dropout, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, self.layers)
        for part in self.decoder.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=getattr(encoder.backbone.config, "initializer_range", 0.02))
                nn.init.zeros_(part.bias)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        anchor, positive = batch.views(Role.ANCHOR, Role.POSITIVE)
        return self.mean_over_tokens(batch, positive, batch.embeddings[:, anchor : anchor + 1])

    def states(self, backbone: PreTrainedModel, inputs: Batch, sentence: Tensor) -> Tensor:
        """Return the decoder's states of the noisy tokens, each of which attends to all of them and to the vector."""
        noisy = self.noise(embed_tokens(backbone, inputs["input_ids"]).detach())
        states: Tensor = self.decoder(noisy, sentence, tgt_key_padding_mask=inputs["attention_mask"] == 0)
        return states
