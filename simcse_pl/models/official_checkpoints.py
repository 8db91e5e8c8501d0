"""The checkpoints released with the paper. Their files do not state the pooling and the head; their names do."""

import re

from simcse_pl.models.encoder_files import EncoderSettings, EncoderSpec, find_file, find_weights, read_weights
from simcse_pl.utils.errors import UserError, reraise_as

_NAME = re.compile(r"(?:.*/)?(unsup|sup)-simcse-(?:bert|roberta)-(?:base|large)(?:-uncased)?/?")


def read_official_checkpoint(source: str, pooler: str | None = None) -> EncoderSpec | None:
    """Read a checkpoint of the official code; return None for any other name, unless `pooler` is given.

    Unsupervised models drop the projection head at test time. Supervised models keep it, and store
    it as BERT's pooler (section 6.3 and Table 6 of the paper).

    Args:
        source: a hub repository, such as `princeton-nlp/sup-simcse-roberta-large`, or a folder of that name.
        pooler: the official code's option: `cls` (with BERT's pooler) or `cls_before_pooler`. If None, the
            name decides.

    Raises:
        UserError: an unknown pooler, or the weights of the head are missing or damaged.
    """
    if pooler is None:
        released = _NAME.fullmatch(source)
        if released is None or find_file(source, "config.json") is None:
            return None
        pooler = "cls_before_pooler" if released[1] == "unsup" else "cls"
    if pooler == "cls_before_pooler":
        return EncoderSpec(EncoderSettings("cls"))
    if pooler != "cls":
        raise UserError(f"pooler={pooler}: choose cls or cls_before_pooler")
    path = find_weights(source)
    with reraise_as(f"{path} has no projection head"):
        weights = {name.rpartition("pooler.")[2]: weight for name, weight in read_weights(path).items()}
        head = {"0.weight": weights["dense.weight"], "0.bias": weights["dense.bias"]}
    return EncoderSpec(EncoderSettings("cls", "mlp"), head)
