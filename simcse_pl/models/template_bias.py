"""The bias of a template: the vector of the template without a sentence (PromptBERT's template denoising)."""

import torch
from torch import Tensor

from simcse_pl.models.backbone_type import Backbone
from simcse_pl.models.templates import SENTENCE_MASK, Templates
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.errors import UserError

TEMPLATE_BIASES = ("none", "train_only", "always", "padded_train_only")


def check_template_bias(bias: str, templates: Templates, backbone: Backbone, ignores_padding: bool) -> None:
    """Raise UserError unless `bias` is one of `TEMPLATE_BIASES`, and an encoder with these parts can compute it."""
    if bias not in TEMPLATE_BIASES:
        raise UserError(f"template_bias={bias}: choose one of {', '.join(TEMPLATE_BIASES)}")
    if bias != "none" and not templates.texts:
        raise UserError(f"template_bias={bias}: it needs a template, but template=null")
    if bias != "none" and templates.repeats > 1:
        raise UserError(f"template_bias={bias}: it needs a template that has the sentence once")
    if bias != "none" and not ignores_padding:
        model = type(backbone).__name__
        raise UserError(f"template_bias={bias}: {model} does not ignore tokens that are masked out; set it to none")


def bare_templates(inputs: Batch, padding: int, padded: bool) -> tuple[Batch, Batch, Tensor]:
    """Return a batch's templates without their sentences, one row per distinct template and length of a sentence.

    In plain terms: nothing attends to the sentence, and the template's tokens keep their positions. Their states are
    those of the template alone, with the position ids behind the sentence shifted by its length (PromptBERT, Jiang et
    al. 2022).

    Args:
        inputs: from `templates.batch`, tensors [batch, tokens], with a `sentence_mask`.
        padding: the id of the pad token.
        padded: whether pad tokens, which are attended to, take the sentence's place (CoT-BERT, Zhang et al. 2024).

    Returns:
        What the backbone reads, [rows, tokens]; what the pooling reads, where no token is a sentence's; and the row of
        each sentence's template, [batch].

    Raises:
        UserError: the inputs have no `sentence_mask`.
    """
    if SENTENCE_MASK not in inputs:
        raise UserError("template_bias: the inputs have no sentence_mask; make them with encoder.templates.batch")
    # RoBERTa's position ids count the tokens whose id is not that of padding, so use another id to keep the position
    # ids after the sentence unchanged.
    blank = padding if padded else int(padding == 0)
    ids = inputs["input_ids"].masked_fill(inputs[SENTENCE_MASK] == 1, blank)
    kinds = torch.stack([ids, inputs["attention_mask"], inputs[SENTENCE_MASK]], dim=1)
    distinct, rows = kinds.unique(dim=0, return_inverse=True)
    ids, mask, sentence = distinct.unbind(dim=1)
    tokens = {name: torch.zeros_like(ids) for name in inputs} | {"input_ids": ids, "attention_mask": mask - sentence}
    return tokens | ({"attention_mask": mask} if padded else {}), tokens, rows
