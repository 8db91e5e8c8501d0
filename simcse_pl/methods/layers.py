"""Run the layers of a backbone on other states than those of its embedding layer."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from simcse_pl.models.adapters import merge_adapter
from simcse_pl.models.backbone import draw_model, has_adapter, with_padding, without_pooler
from simcse_pl.models.changes import keep_layers
from simcse_pl.models.sources import quiet_transformers
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Backbone


def new_layers(backbone: Backbone, number: int, **options: bool) -> Backbone:
    """Return the first layers of a backbone with random weights, for `run_layers`; `options` are of their config.

    It is a backbone whose vocabulary has two words only, to save memory.
    """
    config = copy.deepcopy(backbone.config)
    keep_layers(config, number)
    config.update({"vocab_size": 2, "pad_token_id": 0, **options})  # MPNet always pads with 1
    with quiet_transformers():  # special tokens are not in the vocabulary
        return without_pooler(draw_model(config))


def first_layers(backbone: Backbone, number: int) -> Backbone:
    """Return a copy of a backbone's embeddings and first layers, without draws from the global random state."""
    config = copy.deepcopy(backbone.config)
    keep_layers(config, number)
    with torch.random.fork_rng(devices=[]), backbone.device if backbone.device.type == "meta" else nullcontext():
        model = without_pooler(draw_model(config))
    if has_adapter(backbone):  # it may have been trained
        backbone = copy.deepcopy(backbone)
        merge_adapter(backbone)
    weights, names = backbone.state_dict(), model.state_dict().keys()
    model.load_state_dict({name: weights[name] for name in names & weights.keys()})
    return model


def run_layers(layers: Backbone, states: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the output of layers [sequences, tokens, dim] for input states of that shape."""
    with changed_layer_input(layers, lambda _: states):
        output: Tensor = layers(input_ids=torch.zeros_like(attention_mask), attention_mask=attention_mask)[0]
        return output


def embedding_module(backbone: Backbone) -> nn.Module:
    """Return the module whose output is the input of the first layer; raise UserError if there is no such module."""
    config = backbone.config
    same_size = getattr(config, "embedding_size", config.hidden_size) == config.hidden_size
    # The embeddings of ELECTRA and ALBERT can be smaller than the hidden states. ELECTRA maps them to the size of the
    # hidden states in `embeddings_project`. ALBERT does so inside its layers, so ALBERT is rejected.
    module = getattr(backbone, "embeddings_project", getattr(backbone, "embeddings", None) if same_size else None)
    if not isinstance(module, nn.Module):
        raise UserError(f"{type(backbone).__name__} has no embedding layer whose output can be replaced: choose BERT")
    return module


def embed_tokens(backbone: Backbone, input_ids: Tensor) -> Tensor:
    """Return the input of the first layer, [sequences, tokens, dim]; the backbone must have an `embedding_module`."""
    embeddings, last = backbone.get_submodule("embeddings"), embedding_module(backbone)
    embedded = embeddings(input_ids=input_ids)
    states: Tensor = embedded if last is embeddings else last(embedded)
    return states


@contextmanager
def changed_layer_input(backbone: Backbone, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Apply a function to the input of the first layer, [sequences, tokens, dim], in every pass of the context."""
    embeddings = embedding_module(backbone)
    with embeddings.register_forward_hook(lambda _module, _inputs, states: change(states)), with_padding(backbone):
        yield
