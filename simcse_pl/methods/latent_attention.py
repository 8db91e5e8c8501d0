"""Latent attention (NV-Embed, Lee et al. 2024): a trained layer between the last hidden states and their mean."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig

from simcse_pl.models.pooling import Inputs, Pooling, mean_over_tokens
from simcse_pl.utils.tensors import at_least_float32


class LatentAttention(nn.Module):
    """Tokens attend to a trained array of latent vectors; a feed-forward layer with a gate follows.

    It is the layer of the released code of NV-Embed. Unlike equation 2 of the paper, that layer projects queries, keys
    and values, has residual connections after layer normalization, and multiplies the activation by a gate (GEGLU).

    Args:
        dim: the width of the hidden states.
        latents: the number of latent vectors.
        heads: the number of heads of the attention, each as wide as the hidden states.
        factor: the width of the feed-forward layer, as a multiple of `dim`.
    """

    def __init__(self, dim: int, latents: int = 512, heads: int = 8, factor: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.latents = nn.Parameter(torch.randn(latents, dim))
        self.norm, self.norm_of_latents, self.norm_of_output = (nn.LayerNorm(dim) for _ in range(3))
        self.query = nn.Linear(dim, heads * dim, bias=False)
        self.key_and_value = nn.Linear(dim, 2 * heads * dim, bias=False)
        self.output = nn.Linear(heads * dim, dim, bias=False)
        self.inner, self.outer = nn.Linear(dim, 2 * factor * dim), nn.Linear(factor * dim, dim)

    def forward(self, states: Tensor) -> Tensor:
        """Return the states [batch, tokens, dim] after attention and feed-forward layer."""
        query = self.query(self.norm(states)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        memory = self.key_and_value(self.norm_of_latents(self.latents)).unflatten(-1, (2, self.heads, -1))
        key, value = memory.permute(1, 2, 0, 3).unsqueeze(1)  # one batch of latents for all sentences
        attended = F.scaled_dot_product_attention(query, key.expand_as(key), value)
        states = states + self.output(attended.transpose(1, 2).flatten(2))
        inner, gate = self.inner(self.norm_of_output(states)).chunk(2, dim=-1)
        refined: Tensor = states + self.outer(inner * F.gelu(gate))
        return refined


class LatentAttentionPooling(Pooling):
    """The mean over tokens after a trained layer of attention; `options` are those of LatentAttention."""

    def __init__(self, config: PreTrainedConfig, **options: int) -> None:
        super().__init__(mean_over_tokens)
        self.attention = LatentAttention(config.hidden_size, **options)

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        return super().forward([self.attention(at_least_float32(hidden_states[-1]))], inputs)


def make_pooling(config: PreTrainedConfig, _: int | None, latents: str | None) -> LatentAttentionPooling:
    """Return the pooling of the name `latent_attention` or `latent_attention_64`, with 512 or 64 latents."""
    return LatentAttentionPooling(config, latents=int(latents or 512))
