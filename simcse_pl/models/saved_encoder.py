"""The folder of an encoder: a Hugging Face folder with `simcse.json`, the weights of the head and a post-processing."""

import json
import logging
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save_file
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.encoder_files import SETTINGS_FILE, EncoderSpec, find_file, parse_settings, read_weights
from simcse_pl.models.official_checkpoints import read_official_checkpoint
from simcse_pl.models.sentence_transformers_format import (
    MODULES_FILE,
    check_pooling,
    read_sentence_transformers,
    write_modules,
)
from simcse_pl.models.transformers_loading import quiet_transformers
from simcse_pl.postprocessing import saved as saved_postprocess
from simcse_pl.postprocessing.post_process import SETTINGS_FILE as POSTPROCESS_FILE
from simcse_pl.postprocessing.post_process import TENSORS_FILE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write, read_json

log = logging.getLogger(__name__)

HEAD_FILE = "head.safetensors"


def write_saved(
    folder: str | Path, backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, spec: EncoderSpec
) -> None:
    """Write what `SentenceEncoder.save_pretrained` says.

    Raises:
        UserError: a post-processing that is not linear.
    """
    assert spec.settings.pooling is not None
    with atomic_write(folder, last=SETTINGS_FILE) as new, quiet_transformers():
        backbone.save_pretrained(new)
        tokenizer.save_pretrained(new)
        if spec.head_weights:
            save_file(dict(spec.head_weights), new / HEAD_FILE)
        if spec.postprocess is not None:
            spec.postprocess.save(new)
        try:
            check_pooling(spec.settings.pooling, backbone.config.num_hidden_layers)
        except UserError as error:  # must not cost the results of training
            log.warning("%s", error)
        else:
            write_modules(spec, backbone.config, new)
        (new / SETTINGS_FILE).write_text(json.dumps(asdict(spec.settings), indent=2) + "\n", encoding="utf-8")
        written = {path.name for path in new.iterdir()}
    for file in (HEAD_FILE, MODULES_FILE, POSTPROCESS_FILE, TENSORS_FILE):
        if file not in written:  # but by an encoder that was saved here before
            (Path(folder) / file).unlink(missing_ok=True)


def read_spec(source: str, pooling: str | None = None, pooler: str | None = None) -> EncoderSpec:
    """Read the settings of an encoder in any of the formats: ours, sentence-transformers', the official code's.

    Args:
        source: a folder or a hub repository.
        pooling: if given, only our own format counts.
        pooler: if given, the source is a checkpoint of the official code.

    Returns:
        The parts of the encoder; none for a plain checkpoint.

    Raises:
        UserError: a file is damaged or missing.
    """
    if pooler:
        return read_official_checkpoint(source, pooler) or EncoderSpec()
    spec = _read_saved(source)
    if spec is None and pooling is None:
        spec = read_sentence_transformers(source) or read_official_checkpoint(source)
    return spec or EncoderSpec()


def _read_saved(source: str) -> EncoderSpec | None:
    path = find_file(source, SETTINGS_FILE)
    if path is None:
        return None
    settings = parse_settings(read_json(path), str(path))
    weights, postprocess = {}, None
    if settings.head != "none":
        head = find_file(source, HEAD_FILE)
        if head is None:
            raise UserError(f"{path} names a projection head, but {HEAD_FILE} is missing")
        weights = read_weights(head)
    if fitted := find_file(source, POSTPROCESS_FILE):
        find_file(source, TENSORS_FILE)  # a hub repository's files are downloaded into one folder
        postprocess = saved_postprocess.load(fitted.parent)
    return EncoderSpec(settings, weights, postprocess)
