"""Latent attention against loops over tokens, heads and latents in float64."""

from types import SimpleNamespace

import torch
from torch import Tensor

from simcse_pl.models.latent_attention import LatentAttention
from simcse_pl.models.pooling import LatentAttentionPooling


def test_values_are_those_of_a_loop_and_padding_has_no_effect():
    dim, heads = 4, 2
    pooling = LatentAttentionPooling(SimpleNamespace(hidden_size=dim), latents=3, heads=heads, factor=2).double()
    layer: LatentAttention = pooling.attention
    for weight in pooling.parameters():
        torch.nn.init.normal_(weight)
    states, lengths = torch.randn(2, 5, dim, dtype=torch.float64), [5, 2]
    mask = (torch.arange(5) < torch.tensor(lengths)[:, None]).long()

    def normalized(x: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
        centred = x - x.mean()
        return centred / (centred.square().mean() + 1e-5).sqrt() * norm.weight + norm.bias

    with torch.no_grad():
        vectors = pooling([states], {"attention_mask": mask})
        latents = [normalized(latent, layer.norm_of_latents) for latent in layer.latents]
        keys, values = layer.key_and_value.weight.chunk(2)
        for row, length in enumerate(lengths):
            total = torch.zeros(dim, dtype=torch.float64)
            for token in states[row, :length]:
                attended = []
                for head in range(heads):
                    part = slice(head * dim, (head + 1) * dim)
                    query = layer.query.weight[part] @ normalized(token, layer.norm)
                    scores = torch.stack([query @ (keys[part] @ latent) / dim**0.5 for latent in latents]).exp()
                    attended.append(
                        sum(score / scores.sum() * (values[part] @ x) for score, x in zip(scores, latents, strict=True))
                    )
                state = token + layer.output.weight @ torch.cat(attended)
                inner = layer.inner.weight @ normalized(state, layer.norm_of_output) + layer.inner.bias
                gate = inner[8:] * (1 + torch.erf(inner[8:] / 2**0.5)) / 2
                total += state + layer.outer.weight @ (inner[:8] * gate) + layer.outer.bias
            torch.testing.assert_close(vectors[row], total / length, atol=1e-10, rtol=1e-10)
