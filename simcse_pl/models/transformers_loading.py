"""Shared parts of loading models and tokenizers with transformers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from transformers import AutoConfig, PreTrainedConfig
from transformers.utils import logging as transformers_logging

from simcse_pl.models.encoder_files import check_config, find_file
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError, first_line, is_failure


def load_config(source: str, subfolder: str = "") -> PreTrainedConfig:
    """Load the config of a model. Code in its folder or repository is never run."""
    if (path := find_file(source, str(PurePosixPath(subfolder, "config.json")))) is not None:
        check_config(path)
    config: PreTrainedConfig = AutoConfig.from_pretrained(source, subfolder=subfolder, **loading_options(source))
    return config


def loading_options(source: str) -> dict[str, Any]:
    """Return the options that every `from_pretrained` gets: run no code of the model, and ask no absent hub."""
    local = Path(source).is_dir() or hub.unavailable(source) is not None
    return {"local_files_only": local, "trust_remote_code": False}


@contextmanager
def one_line_errors(name: str, source: str) -> Iterator[None]:
    """Raise UserError with one line in place of the errors of transformers.

    Args:
        name: the model's name, for the message.
        source: its folder or hub name.
    """
    try:
        yield
    except BaseException as error:  # tokenizers panics on some damaged files
        if isinstance(error, UserError) or not is_failure(error):
            raise
        if Path(source).exists():
            message = f"cannot load the model in {name}: {first_line(error)}"
        elif why := hub.unavailable(source):
            message = f"model {name}: no such folder, no copy in the local cache, and {why}"
            message += "; give the folder of a checkpoint"
        else:
            message = (
                f"cannot load model {name}: not a local folder, and from the Hugging Face Hub: {hub.reason(error)}"
            )
        raise UserError(message) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bars and reports of transformers."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with hub.quiet("huggingface_hub"):
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
