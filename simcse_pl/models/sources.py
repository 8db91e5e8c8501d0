"""Find a model by its name, read its files, and load its config and its tokenizer."""

import importlib.util
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError, first_line, is_failure
from simcse_pl.utils.files import finish_write, read_json, similar_name

log = logging.getLogger(__name__)

PACKAGE = "package:"
ADAPTER_FILE, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Where one of these files is, `base_of` ignores an adapter.
WHOLE = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
_TEXT = "Été 你好, nobody's told  the Sailor why 1998 ﬁsh had jumped."  # shows how a tokenizer splits
# "owner/name" as an implementation, or a dict of them by sub-config, as json.dumps writes them
_HUB_KERNEL = re.compile(r'"(\w*_implementation)": (?:"[^"]*/|\{[^}]*/)')


def resolve(name: str) -> str:
    """Return the folder or hub name of a model, given as such or as `package:NAME`.

    `package:NAME` is the folder `model` of a Python package. Raise UserError if it does not exist, or if a folder does
    not whose name no repository of the Hub can have.
    """
    if not name.startswith(PACKAGE):
        finish_write(name)
        path = Path(name)
        if not path.exists() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):  # no name of the Hub
            lacking = next(part for part in (*reversed(path.parents), path) if not part.exists())
            raise UserError(f"cannot load model {name}: {lacking} does not exist{similar_name(lacking)}")
        return name
    package = name.removeprefix(PACKAGE)
    spec = importlib.util.find_spec(package) if package.isidentifier() else None  # find_spec("a.b") would import a
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        hint = f"pip install {package.replace('_', '-')}"
        raise UserError(f"{name}: no package {package} with a folder `model` is installed: {hint}")
    return str(folder)


def find_file(source: str, file: str, subfolder: str = "") -> Path | None:
    """Return a file of a model folder or hub repository; None if it does not exist."""
    if ".." in PurePosixPath(subfolder).parts or subfolder.startswith("/"):  # as the folder of a module
        raise UserError(f"{source} names a folder outside of it, {subfolder}, which is not read")
    file = str(PurePosixPath(subfolder, file))
    if Path(source).is_dir():
        return path if (path := Path(source) / file).is_file() else None
    return hub.find(source, file)


def find_weights(source: str, folder: str = "") -> Path:
    """Return the file of weights in a folder of a model folder or hub repository; raise UserError if there is none."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if path := find_file(source, name, folder):
            return path
    raise UserError(f"{source}: the weights {PurePosixPath(folder, 'model.safetensors')} are missing")


def base_of(source: str) -> str | None:
    """Return the name of the base model of an adapter's folder or repository; None if it has no adapter."""
    path = find_file(source, ADAPTER_FILE)
    if path is None or any(find_file(source, name) for name in WHOLE):
        return None
    config = read_json(path)
    if config.get("megatron_config"):
        raise UserError(f"{path}: megatron_config makes PEFT import the code it names: remove this entry")
    base: str | None = config.get("base_model_name_or_path")
    if base and (beside := path.parent / base).is_dir():  # else it may be one of the current folder, as PEFT has it
        base = str(beside)
    return base


def load_tokenizer(name: str, subfolder: str = "") -> PreTrainedTokenizerBase:
    """Load a checkpoint's tokenizer, with padding on the right; `name` is one for `resolve`."""
    if (base := base_of(resolve(name))) is not None and not find_file(resolve(name), "tokenizer_config.json"):
        name = base
    with loading(name) as source:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source, subfolder=subfolder, **loading_options(source)
        )
        if (file := find_file(source, "tokenizer.json", subfolder)) and tokenizer.is_fast:
            both = (tokenizer, PreTrainedTokenizerFast(tokenizer_file=str(file)))
            made, saved = (x.tokenize(_TEXT, add_special_tokens=True) for x in both)
            if made != saved:
                at = next(number for number, (a, b) in enumerate(zip_longest(made, saved)) if a != b)
                made, saved = made[at : at + 9], saved[at : at + 9]
                found = f"{type(tokenizer).__name__} makes {made}, but tokenizer.json makes {saved}"
                log.warning("%s: its %s: if these are right, set tokenizer_class=PreTrainedTokenizerFast", name, found)
    tokenizer.padding_side = "right"  # [CLS] must be at position 0
    if tokenizer.pad_token is None:  # GPT-2's; padding is masked, so any token can be used
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.sep_token or tokenizer.unk_token
    return tokenizer


def load_config(source: str, subfolder: str = "") -> PreTrainedConfig:
    """Load the config of a model. Code in its folder or repository is never run."""
    path = find_file(source, "config.json", subfolder)
    if path and (kernel := _HUB_KERNEL.search(json.dumps(read_json(path)))):
        raise UserError(f"{path}: {kernel[1]} names code in a hub repository, which is never run: remove this entry")
    config: PreTrainedConfig = AutoConfig.from_pretrained(source, subfolder=subfolder, **loading_options(source))
    if (layers := getattr(config, "num_hidden_layers", None) or 0) > 1000:
        raise UserError(f"{path or source}: num_hidden_layers={layers}, so many take too long to make; is it damaged?")
    return config


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bars and reports of transformers."""
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with hub.quiet("huggingface_hub", "transformers"):
            yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()


@contextmanager
def loading(name: str) -> Iterator[str]:
    """Yield the folder or hub name of a model. Raise UserError with one line in place of errors of transformers."""
    source = resolve(name)
    try:
        with quiet_transformers():
            yield source
    except BaseException as error:  # tokenizers panics on some damaged files
        if isinstance(error, UserError) or not is_failure(error):
            raise
        if (Path(source) / "encoder").is_dir():
            message = f"{name} is the folder of a run, not a model: give {Path(name) / 'encoder'}"
        elif Path(source).exists():
            small = (path for path in Path(source).glob("*.*") if path.is_file() and path.stat().st_size < 200)
            pointers = [path.name for path in small if path.read_bytes().startswith(b"version https://git-lfs")]
            why = f"{pointers[0]} is a pointer of Git LFS: run `git lfs pull` in it" if pointers else first_line(error)
            message = f"cannot load the model in {name}: {why}"
        else:
            if near := similar_name(Path(name)):
                why = f"no such folder{near}"
            else:
                why = f"not a local folder, and {hub.unavailable(source) or hub.reason(error)}"
            message = f"cannot load model {name}: {why}"
        raise UserError(message) from error


def loading_options(source: str) -> dict[str, Any]:
    """Return options for every `from_pretrained`: do not run code, and do not ask a hub that is unavailable."""
    local = Path(source).is_dir() or hub.unavailable(source) is not None
    return {"local_files_only": local, "trust_remote_code": False}
