"""Latent attention against loops over tokens and heads in float64."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F

from simcse_pl.methods.latent_attention import LatentAttention, LatentAttentionPooling


def test_values_are_those_of_a_loop_and_padding_has_no_effect():
    dim, heads = 4, 2
    pooling = LatentAttentionPooling(SimpleNamespace(hidden_size=dim), latents=3, heads=heads, factor=2).double()
    layer: LatentAttention = pooling.attention
    for weight in pooling.parameters():
        torch.nn.init.normal_(weight)
    states, lengths = torch.randn(2, 5, dim, dtype=torch.float64), [5, 2]
    mask = (torch.arange(5) < torch.tensor(lengths)[:, None]).long()

    with torch.no_grad():
        vectors = pooling([states], {"attention_mask": mask})
        latents = layer.norm_of_latents(layer.latents)
        keys, values = (latents @ weight.T for weight in layer.key_and_value.weight.chunk(2))
        for row, length in enumerate(lengths):
            total = torch.zeros(dim, dtype=torch.float64)
            for token in states[row, :length]:
                query, attended = layer.query(layer.norm(token)), []
                for part in (slice(head * dim, (head + 1) * dim) for head in range(heads)):
                    weights = (keys[:, part] @ query[part] / dim**0.5).softmax(dim=0)
                    attended.append(weights @ values[:, part])
                state = token + layer.output(torch.cat(attended))
                inner, gate = layer.inner(layer.norm_of_output(state)).split(8)
                total += state + layer.outer(inner * F.gelu(gate))
            torch.testing.assert_close(vectors[row], total / length, atol=1e-10, rtol=1e-10)
