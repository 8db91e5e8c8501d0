"""What comes from the Hugging Face hub: whether it can be reached, and files of its repositories."""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import constants, get_session, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

from simcse_pl.errors import UserError, one_line

_SECONDS_TO_ANSWER = 5.0


@functools.cache
def reachable() -> bool:
    """Whether the hub answers, asked once a process: a few seconds instead of a row of retries per file."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_ANSWER)
    except Exception:  # whichever HTTP library the session is of: no answer is no answer
        return False
    return True


def unreachable_hint() -> str:
    """Why the hub is not asked, for an error's end."""
    return "the hub is switched off (HF_HUB_OFFLINE)" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"


def find(repository: str, file: str, repo_type: str = "model") -> Path | None:
    """A file of a hub repository, downloaded or from the local cache; None where there is no such file or repository.

    Where the hub cannot be reached, a file that is not in the cache counts as none.

    Raises:
        UserError: the hub does not give the file.
    """
    try:
        with quiet("huggingface_hub"):
            return Path(hf_hub_download(repository, file, repo_type=repo_type, local_files_only=not reachable()))
    except (EntryNotFoundError, RepositoryNotFoundError, HFValidationError):  # the last: a path is no repository's name
        return None
    except (HfHubHTTPError, OSError) as error:
        raise UserError(f"{repository}/{file} could not be downloaded from the hub: {one_line(error)}") from error


def download(repository: str, file: str, repo_type: str = "model") -> Path:
    """As `find`, for a file that must be there.

    Raises:
        UserError: it is not.
    """
    path = find(repository, file, repo_type)
    if path is None:
        why = "" if reachable() else f" or in the local cache, and {unreachable_hint()}"
        raise UserError(f"no {file} in {repository} on the hub{why}: give the path of a local copy instead")
    return path


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
