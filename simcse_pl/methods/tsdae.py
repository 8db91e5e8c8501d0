"""TSDAE (Wang, Reimers and Gurevych 2021): the encoder, as a decoder, rebuilds a sentence from its damaged copy."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.losses.reconstruction import SentenceReconstruction
from simcse_pl.methods.layers import new_layers
from simcse_pl.models.backbone import is_decoder, with_padding
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.private import uses_flash_attention
from simcse_pl.utils.types import Backbone, Batch, Role


class DenoisingAutoEncoder(SentenceReconstruction):
    """The loss of rebuilding a sentence from the vector of its damaged copy (TSDAE, Wang et al. 2021).

    In plain terms: most words are deleted, and a decoder must write the whole sentence from one vector, so the vector
    must contain what the sentence is about. For the anchor x = x_1 ... x_n and the vector h of the positive, which is
    the damaged copy, the loss is the mean over all tokens of

        -log p(x_{i+1} | x_1, ..., x_i; h)

    The decoder is the encoder's own backbone with a causal mask and, in each layer, a new cross-attention to h, the
    only state that it attends to. Only the damaged copies are embedded.

    Args:
        weight, head: see SentenceReconstruction.
    """

    embeds = False
    predicts_next = True

    def attach(self, encoder: SentenceEncoder) -> None:
        """Add the cross-attention; raise UserError if the architecture has none, or if it does not fit."""
        backbone = encoder.backbone
        if uses_flash_attention(backbone.config):  # its kernels would ignore the causal mask
            raise UserError("attn_implementation: FlashAttention cannot be the decoder's: choose null")
        if backbone.dtype == torch.bfloat16:
            raise UserError("model.dtype=bfloat16: small updates of the new cross-attention are lost: set it to null")
        layers = {} if is_decoder(backbone.config) else _cross_attention(backbone)
        if not layers:
            raise UserError(f"{type(backbone).__name__} has no cross-attention: choose BERT, RoBERTa or ELECTRA")
        super().attach(encoder)
        self.cross_attention = nn.ModuleList(layers.values()).to(backbone.dtype)
        for name, attention in layers.items():
            layer = backbone.get_submodule(name)
            # transformers' layers use it if they get the vector; no submodule of the encoder, which is saved without it
            vars(layer).update(crossattention=attention, is_decoder=True)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        anchor, damaged = batch.views(Role.ANCHOR, Role.POSITIVE)
        views = {name: x[:, damaged : damaged + 1] for name, x in batch.inputs.items()}
        return self.mean_over_tokens(batch, anchor, batch.encoder.embed(views, batch.chunk_size))

    def states(self, backbone: PreTrainedModel, inputs: Batch, sentence: Tensor) -> Tensor:
        """Return the states of the tokens, each of which attends to the tokens up to itself and to the vector."""
        shape = (1, 1, *2 * inputs["input_ids"].shape[1:])
        causal = torch.full(shape, -torch.inf, dtype=backbone.dtype, device=sentence.device).triu(1)
        with with_padding(backbone):  # the causal mask also hides padding, which is at the end
            output = backbone(**inputs | {"attention_mask": causal}, encoder_hidden_states=sentence)
        states: Tensor = output.last_hidden_state
        return states


def _cross_attention(backbone: Backbone) -> dict[str, nn.Module]:
    """Return a new cross-attention for each layer of a backbone, by the name of the layer."""
    model = new_layers(backbone, backbone.config.num_hidden_layers, is_decoder=True, add_cross_attention=True)
    suffix, modules = ".crossattention", model.named_modules()  # the rest of the new model is not used
    return {name.removesuffix(suffix): module for name, module in modules if name.endswith(suffix)}
