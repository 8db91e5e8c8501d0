"""Templates without their sentences, whose vectors are subtracted as a bias (PromptBERT, Jiang et al. 2022)."""

import torch
from torch import Tensor

from simcse_pl.models.templates import TemplateBias
from simcse_pl.models.tokenization import SENTENCE_MASK, hash_token_ids
from simcse_pl.utils.types import Batch


def bare_templates(
    inputs: Batch, padding: int, bias: TemplateBias, most: int | None = None
) -> tuple[Batch, Batch, Tensor]:
    """Return a batch's templates without their sentences, one row per distinct template and length of a sentence.

    In plain terms: nothing attends to the sentence, and the template's tokens keep their positions. Their states are
    those of the template alone, with the position ids after the sentence shifted by its length (as in PromptBERT).

    Args:
        inputs: from `templates.batch`, tensors [batch, tokens], with a `sentence_mask`.
        padding: the id of the pad token.
        bias: with `padded_train_only`, pad tokens, which are attended to, take the sentence's place (CoT-BERT, Zhang et
            al. 2024).
        most: the number of rows to return, which is at least that of the distinct ones, so that a GPU does not wait for
            their number; None for the distinct ones.

    Returns:
        What the backbone reads, [rows, tokens]; what the pooling reads, where no token is a sentence's; and the row of
        each sentence's template, [batch].
    """
    padded = bias == "padded_train_only"
    blank = padding if padded else int(padding == 0)  # RoBERTa's position ids do not count the pad token
    ids = inputs["input_ids"].masked_fill(inputs[SENTENCE_MASK] == 1, blank)
    kinds = torch.stack([ids, inputs["attention_mask"], inputs[SENTENCE_MASK]], dim=1)
    if most is None:
        distinct, rows = kinds.unique(dim=0, return_inverse=True)
    else:
        keys = hash_token_ids({"input_ids": kinds.flatten(1), "attention_mask": torch.ones_like(kinds.flatten(1))})
        first = (keys == keys.unsqueeze(1)).byte().argmax(dim=1)  # the first row of the same kind
        is_first = first == torch.arange(len(first), device=first.device)
        distinct = kinds[is_first.byte().argsort(descending=True, stable=True)[:most]]
        rows = (is_first.cumsum(dim=0) - 1)[first]
    ids, mask, sentence = distinct.unbind(dim=1)
    tokens = {name: torch.zeros_like(ids) for name in inputs} | {"input_ids": ids, "attention_mask": mask - sentence}
    return tokens | ({"attention_mask": mask} if padded else {}), tokens, rows
