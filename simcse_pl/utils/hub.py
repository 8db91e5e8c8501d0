"""Files of the Hugging Face Hub, from the network or from the local cache."""

import functools
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from json import JSONDecodeError
from pathlib import Path

from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)

from simcse_pl.utils.errors import UserError, exception_chain, first_line


def unavailable(repository: str, repo_type: str = "model") -> str | None:
    """Return why a repository on the Hub is not available; None if it is. A process asks once in ten minutes."""
    return _unavailable(repository, repo_type, int(time.monotonic() // 600))


@functools.cache
def _unavailable(repository: str, repo_type: str, _: int) -> str | None:
    try:
        HfApi().repo_info(repository, repo_type=repo_type, timeout=5)
    except Exception as error:  # also those of the HTTP library
        return reason(error)
    return None


def reason(error: BaseException) -> str:
    """Return in one line why a request to the Hub failed."""
    for cause in exception_chain(error):
        if isinstance(cause, HfHubHTTPError | HFValidationError | OfflineModeIsEnabled):
            return " ".join(str(cause).split()).rstrip(".")
        if type(cause).__module__.startswith("httpx") or isinstance(cause, ConnectionError | JSONDecodeError):
            return f"no valid answer from {constants.ENDPOINT} ({type(cause).__name__}: {first_line(cause)})"
    return first_line(error)


def find(repository: str, file: str, repo_type: str = "model") -> Path | None:
    """Return a file of a repository, downloaded or from the local cache; None if it does not exist.

    If the Hub is not available, only the cache is searched. A download that fails raises UserError.
    """
    local = unavailable(repository, repo_type) is not None
    try:
        with quiet("huggingface_hub"):
            return Path(hf_hub_download(repository, file, repo_type=repo_type, local_files_only=local))
    except HFValidationError:  # a path, not a repository
        return None
    except Exception as error:  # also those of the HTTP library
        if isinstance(error, EntryNotFoundError) and (local or not isinstance(error, LocalEntryNotFoundError)):
            return None
        raise UserError(f"cannot download {repository}/{file}: {reason(error)}") from error


def download(repository: str, file: str, repo_type: str = "model") -> Path:
    """Return a file as `find` does; raise UserError if it does not exist."""
    path = find(repository, file, repo_type)
    if path is None:
        why = unavailable(repository, repo_type)
        where = f"in the local cache, and the Hub returned: {why}" if why else "on the Hub"
        raise UserError(f"no {file} in {repository} {where}: give the path of a local copy instead")
    return path


@contextmanager
def quiet(*names: str, level: int = logging.ERROR) -> Iterator[None]:
    """Silence the loggers of these libraries below a level."""
    with ExitStack() as stack:
        for logger in map(logging.getLogger, names):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        yield
