"""What tests of losses with networks share: pairs, encoders without dropout, and the layers of BERT."""

import torch

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES

PAIRS = list(zip(SENTENCES[::2], SENTENCES[1::2], strict=True))


def load(folder, **options):
    return SentenceEncoder.from_pretrained(folder, pooling="cls", dropout=0.0, attention_dropout=0.0, **options)


def attached(part, encoder):
    """Return a loss, an objective or a queue that has the encoder's settings and weights."""
    part.attach(encoder)
    return part


def tokens_and_vectors(encoder):
    """Return the token ids of PAIRS, and random vectors that need a gradient."""
    inputs = ViewCollator(encoder.tokenizer, 32)(PAIRS)
    shape = *inputs["input_ids"].shape[:2], encoder.dim
    return inputs, torch.randn(shape, dtype=encoder.backbone.dtype, requires_grad=True)


def states_after(model, sentence, tokens, mask):
    """Return the last states of one sequence whose first state is a sentence vector, through the layers of BERT."""
    states = torch.stack([sentence, *tokens[1:]])[None]
    hidden = states.new_zeros(len(mask)).masked_fill(mask == 0, -1e9).expand(1, 1, len(mask), -1)
    for layer in model.encoder.layer:
        output = layer(states, attention_mask=hidden)
        states = output if isinstance(output, torch.Tensor) else output[0]
    return states[0]
