"""Freezing parameters of any architecture: a backward pass shows which ones an output needs."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import Parameter

from simcse_pl.data.collators import ViewCollator
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.length_bucketing import EXAMPLE
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.errors import UserError


def freeze_first_layers(encoder: SentenceEncoder, layers: int) -> None:
    """Freeze the word embeddings and the first layers.

    Raises:
        UserError: if no layer would be left to train, or the layers share their weights.
    """
    backbone = encoder.backbone
    available = backbone.config.num_hidden_layers
    if not 0 <= layers < available:
        raise UserError(f"module.freeze_layers={layers}: the model has {available} layers; choose 0 to {available - 1}")
    inputs = {name: x[:, 0] for name, x in example_batch(encoder).items()}
    was_training = backbone.training
    backbone.eval()
    output = encoder.hidden_states(inputs)[layers]
    backbone.train(was_training)
    _, used = _split_by_use(backbone.parameters(), output)
    for parameter in used:
        parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in backbone.parameters()):
        raise UserError(
            f"module.freeze_layers={layers}: the layers of {type(backbone).__name__} share all their weights"
        )


def freeze_unused(parameters: Iterable[Parameter], loss: Tensor) -> None:
    """Freeze the parameters that a loss does not depend on: DDP waits for all gradients."""
    for parameter in _split_by_use(parameters, loss)[0]:
        parameter.requires_grad_(False)


def example_batch(encoder: SentenceEncoder) -> Batch:
    """Return two rows of two equal views, tensors [2, 2, tokens] on the encoder's device."""
    batch = ViewCollator(encoder.tokenizer, min(encoder.max_length, 64))([(EXAMPLE,), (EXAMPLE,)])
    return {name: x.to(encoder.device) for name, x in batch.items()}


def _split_by_use(parameters: Iterable[Parameter], output: Tensor) -> tuple[list[Parameter], list[Parameter]]:
    """Return the trainable parameters that `output` does not depend on, and the other ones."""
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if not output.requires_grad:
        return trainable, []
    gradients = torch.autograd.grad(output.sum(), trainable, allow_unused=True)
    found = list(zip(trainable, gradients, strict=True))
    return [p for p, gradient in found if gradient is None], [p for p, gradient in found if gradient is not None]
