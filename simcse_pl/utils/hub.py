"""The Hugging Face Hub: whether a repository is available, and its files."""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import constants, get_session, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]

from simcse_pl.utils.errors import UserError, exception_chain, first_line

_SECONDS_TO_ANSWER = 5.0
_LOG_IN = "if the name is right, log in with an account that may read it (`hf auth login`, or HF_TOKEN)"


def unavailable(repository: str = "", repo_type: str = "model") -> str | None:
    """Return why the hub does not give a repository, or None if it does. A process asks once, for 5 seconds at most.

    Args:
        repository: its name; the hub itself if empty.
        repo_type: `model` or `dataset`.

    Returns:
        The end of an error message.
    """
    return _ask(repository, repo_type)


@functools.cache  # of a function without defaults: unavailable(x) and unavailable(x, "model") are one question
def _ask(repository: str, repo_type: str) -> str | None:
    if constants.HF_HUB_OFFLINE:
        return "the hub is switched off (HF_HUB_OFFLINE)"
    address = f"{constants.ENDPOINT}/api/{repo_type}s/{repository}" if repository else constants.ENDPOINT
    try:
        if repository:
            validate_repo_id(repository)
        answer = get_session().get(address, headers=build_hf_headers(), timeout=_SECONDS_TO_ANSWER)
    except HFValidationError:
        return "it is no name of a repository of the hub"
    except Exception:  # the errors of whichever HTTP library the session uses
        return "the hub cannot be reached"
    if not repository:
        return None
    if answer.status_code == 200 and "json" not in answer.headers.get("Content-Type", ""):
        return _no_hub()
    return _refusal(answer.status_code) if answer.status_code >= 400 else None


def _no_hub() -> str:
    return f"what answers at {constants.ENDPOINT} is not the hub (a page to log in to this network, perhaps)"


def _refusal(status: int) -> str:
    if status in (401, 403):
        return f"the hub does not give it to you ({status}): {_LOG_IN}"
    if status == 404:
        return "the hub has no such repository or file"
    return f"the hub fails (status {status}): try again later"


def reason(error: BaseException) -> str:
    """Return in one line why a download failed, from the exception that a library raised."""
    for cause in exception_chain(error):
        if isinstance(cause, HfHubHTTPError) and not isinstance(cause, EntryNotFoundError):
            return _refusal(cause.response.status_code)
        if isinstance(cause, FileMetadataError):
            return _no_hub()
        if type(cause).__module__.partition(".")[0].startswith("httpx"):
            return f"the hub does not answer as it should ({type(cause).__name__})"
    return first_line(error)


def find(repository: str, file: str, repo_type: str = "model") -> Path | None:
    """Return a file of a hub repository, downloaded or from the local cache; None if it does not exist.

    Where the hub does not give the repository, only the cache is searched.

    Raises:
        UserError: the download fails.
    """
    local = unavailable(repository, repo_type) is not None
    try:
        with quiet("huggingface_hub"):
            return Path(hf_hub_download(repository, file, repo_type=repo_type, local_files_only=local))
    except HFValidationError:  # a path is no repository's name
        return None
    except Exception as error:  # the library's own, the HTTP library's, the system's
        if isinstance(error, EntryNotFoundError) and (local or not isinstance(error, LocalEntryNotFoundError)):
            return None
        raise UserError(f"{repository}/{file} could not be downloaded: {reason(error)}") from error


def download(repository: str, file: str, repo_type: str = "model") -> Path:
    """Return a file as `find` does.

    Raises:
        UserError: it does not exist.
    """
    path = find(repository, file, repo_type)
    if path is None:
        why = unavailable(repository, repo_type)
        where = f" or in the local cache, and {why}" if why else ""
        raise UserError(f"no {file} in {repository} on the hub{where}: give the path of a local copy instead")
    return path


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Silence the loggers of these libraries below errors."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
