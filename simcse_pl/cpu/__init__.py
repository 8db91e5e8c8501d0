"""What makes a CPU fast: groups of similar length, dropout, linear layers, and the measurement that chooses among them.

The encoder calls `accelerate` once and `LengthGroups.apply` in each pass. Training applies a `Speed`.
"""

from torch import Tensor

from simcse_pl.cpu.layers import use_masks_without_synchronization, use_onednn_linear
from simcse_pl.cpu.length_groups import LengthGroups, ignores_padding
from simcse_pl.utils.types import Backbone


def accelerate(backbone: Backbone, examples: dict[str, Tensor]) -> LengthGroups:
    """Let a backbone use the linear layers and masks that are fastest, and return the groups for its batches.

    Args:
        backbone: a model of transformers.
        examples: two sentences of different length, the shorter one first, tensors [2, tokens].

    Raises:
        UserError: the backbone does not return a state for every token.
    """
    use_masks_without_synchronization()
    use_onednn_linear(backbone)
    return LengthGroups(ignores_padding(backbone, examples))
