"""What comes from the Hugging Face hub: whether it can be had, and files of its repositories."""

import functools
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import constants, get_session, hf_hub_download, set_client_factory
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]
from huggingface_hub.utils._http import default_client_factory

from simcse_pl.errors import UserError, one_line, origins
from simcse_pl.files import sha256_of

_SECONDS_TO_ANSWER = 5.0
_PATIENCE = 3  # requests that are not answered, or by a failure of the hub's own, before no more are made
_LOG_IN = "if the name is right, log in with an account that may read it (`hf auth login`, or HF_TOKEN)"


def unavailable(repository: str = "", repo_type: str = "model") -> str | None:
    """Why the hub does not give a repository; None where it does. A process asks once, and waits for seconds.

    Args:
        repository: its name; where empty, the hub itself is meant.
        repo_type: `model` or `dataset`.

    Returns:
        What an error ends with.
    """
    return _ask(repository, repo_type)


@functools.cache  # which would keep unavailable(x) and unavailable(x, "model") apart, and ask twice
def _ask(repository: str, repo_type: str) -> str | None:
    if constants.HF_HUB_OFFLINE:
        return "the hub is switched off (HF_HUB_OFFLINE)"
    address = f"{constants.ENDPOINT}/api/{repo_type}s/{repository}" if repository else constants.ENDPOINT
    try:
        if repository:
            validate_repo_id(repository)
        _lose_patience()
        answer = get_session().get(address, headers=build_hf_headers(), timeout=_SECONDS_TO_ANSWER)
    except HFValidationError:
        return "it is no name of a repository of the hub"
    except Exception:  # whichever HTTP library the session is of: no answer is no answer
        return "the hub cannot be reached"
    if not repository:
        return None
    if answer.status_code == 200 and "json" not in answer.headers.get("Content-Type", ""):
        return _no_hub()
    return _refusal(answer.status_code) if answer.status_code >= 400 else None


@functools.cache
def _lose_patience() -> None:
    """See to it that a hub which answers at first, and then no more, is not waited for, or asked, for minutes.

    The library waits up to 60 seconds for an answer and asks seven times, for some without any limit.
    """
    set_client_factory(_impatient_client)


def _impatient_client() -> Any:
    client = default_client_factory()
    client.timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    thread = threading.local()

    def ask(request: Any) -> None:
        thread.unanswered = getattr(thread, "unanswered", 0) + 1
        if thread.unanswered > _PATIENCE:
            raise UserError(f"the hub has failed {_PATIENCE} times, or not answered: try again later")
        given = request.extensions["timeout"]
        limits = {name: min(filter(None, (seconds, limit))) for name, seconds in given.items()}
        request.extensions["timeout"] = limits

    def answered(response: Any) -> None:
        if response.status_code < 500:
            thread.unanswered = 0

    limit = max(constants.HF_HUB_ETAG_TIMEOUT, constants.HF_HUB_DOWNLOAD_TIMEOUT)
    hooks = client.event_hooks
    client.event_hooks = {"request": [*hooks["request"], ask], "response": [*hooks["response"], answered]}
    return client


def _no_hub() -> str:
    return f"what answers at {constants.ENDPOINT} is not the hub (a page to log in to this network, perhaps)"


def _refusal(status: int) -> str:
    if status in (401, 403):
        return f"the hub does not give it to you ({status}): {_LOG_IN}"
    return (
        "the hub has no such repository or file"
        if status == 404
        else f"the hub fails (status {status}): try again later"
    )


def reason(error: BaseException) -> str:
    """What came from the hub in the place of a file, in one line, from what a library made of it."""
    for cause in origins(error):
        if isinstance(cause, HfHubHTTPError) and not isinstance(cause, EntryNotFoundError):
            return _refusal(cause.response.status_code)
        if isinstance(cause, FileMetadataError):
            return _no_hub()
        if isinstance(cause, UserError):
            return str(cause)
        if type(cause).__module__.partition(".")[0].startswith("httpx"):
            return f"the hub does not answer as it should ({type(cause).__name__})"
    return one_line(error)


def find(repository: str, file: str, repo_type: str = "model") -> Path | None:
    """A file of a hub repository, downloaded or from the local cache; None where there is no such file or repository.

    Where the hub does not give the repository, a file that is not in the cache counts as none.

    Raises:
        UserError: the hub does not give the file, or gives it damaged.
    """
    local = unavailable(repository, repo_type) is not None
    try:
        with quiet("huggingface_hub"):
            path = Path(hf_hub_download(repository, file, repo_type=repo_type, local_files_only=local))
    except HFValidationError:  # a path is no repository's name
        return None
    except Exception as error:  # its own, the HTTP library's, the system's
        if isinstance(error, EntryNotFoundError) and (local or not isinstance(error, LocalEntryNotFoundError)):
            return None
        raise UserError(f"{repository}/{file} could not be downloaded: {reason(error)}") from error
    if not _is_what_it_should_be(path):
        _remove(path)
        raise UserError(_damaged(f"{repository}/{file}"))
    return path


def download(repository: str, file: str, repo_type: str = "model") -> Path:
    """As `find`, for a file that must be there.

    Raises:
        UserError: it is not.
    """
    path = find(repository, file, repo_type)
    if path is None:
        why = unavailable(repository, repo_type)
        where = f" or in the local cache, and {why}" if why else ""
        raise UserError(f"no {file} in {repository} on the hub{where}: give the path of a local copy instead")
    return path


def remove_damaged(repository: str, repo_type: str = "model") -> str | None:
    """Remove from the cache what is not what the hub has, so that it is downloaded again; what to say of it, if any."""
    try:
        validate_repo_id(repository)
    except HFValidationError:  # a mistyped folder, which is in no cache
        return None
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type=repo_type) / "snapshots"
    damaged = [path for path in sorted(folder.glob("*/**/*")) if path.is_file() and not _is_what_it_should_be(path)]
    for path in damaged:
        _remove(path)
    return _damaged(damaged[0].name) if damaged else None


def _damaged(file: str) -> str:
    return f"{file} came damaged from the hub, and is not kept: try again"


def _is_what_it_should_be(path: Path) -> bool:
    """Whether a file has the checksum that the cache calls it by: SHA-256 of large files, git's of others, or SHA-1."""
    name = Path(os.readlink(path)).name if path.is_symlink() else ""
    if len(name) == 64:
        return sha256_of(path) == name
    if len(name) == 40:
        content = path.read_bytes()
        return name in (hashlib.sha1(start + content).hexdigest() for start in (b"blob %d\0" % len(content), b""))
    return True


def _remove(path: Path) -> None:
    (path.parent / os.readlink(path)).unlink(missing_ok=True)
    path.unlink()


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Only errors from these libraries' loggers, inside."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
