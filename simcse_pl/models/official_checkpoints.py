"""The checkpoints that were released with the paper: their pooling and head, of which their files say nothing."""

import re

from torch import Tensor

from simcse_pl.models.encoder_files import EncoderSettings, EncoderSpec, find_file, find_weights, load_weights
from simcse_pl.utils.errors import UserError

_NAME = re.compile(r"(?:.*/)?(unsup|sup)-simcse-(?:bert|roberta)-(?:base|large)(?:-uncased)?/?")
_POOLER = ("pooler.dense.weight", "pooler.dense.bias")


def read_official_checkpoint(source: str, pooler: str | None = None) -> EncoderSpec | None:
    """Return how a checkpoint of the released code encodes; None for another name, unless `pooler` is given.

    The unsupervised ones leave their projection head aside at test time; the supervised ones keep it, and have it where
    BERT has its pooler (section 6.3 and Table 6 of the paper).

    Args:
        source: a hub repository, such as `princeton-nlp/sup-simcse-roberta-large`, or a folder of that name.
        pooler: `cls` (with BERT's pooler) or `cls_before_pooler`, the released code's names; None to tell by the name.

    Raises:
        UserError: an unknown pooler, or the weights of the head are missing or damaged.
    """
    if pooler is None:
        released = _NAME.fullmatch(source)
        if released is None or find_file(source, "config.json") is None:
            return None
        pooler = "cls_before_pooler" if released[1] == "unsup" else "cls"
    if pooler not in ("cls", "cls_before_pooler"):
        raise UserError(f"pooler={pooler}: choose cls or cls_before_pooler")
    if pooler == "cls_before_pooler":
        return EncoderSpec(EncoderSettings("cls"))
    return EncoderSpec(EncoderSettings("cls", "mlp"), _head_weights(source))


def _head_weights(source: str) -> dict[str, Tensor]:
    path = find_weights(source)
    if path is None:
        raise UserError(f"{source}: its weights, model.safetensors or pytorch_model.bin, are missing")
    try:
        weights = load_weights(path)
        weight, bias = (next(w for name, w in weights.items() if name.endswith(own)) for own in _POOLER)
    except Exception as error:  # safetensors and torch each have their own; torch's say how to run a file's code
        raise UserError(f"{path} is damaged, or has no projection head ({_POOLER[0]})") from error
    return {"0.weight": weight, "0.bias": bias}
