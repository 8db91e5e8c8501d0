"""Sharing an exported folder on the Hugging Face hub."""

from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError, first_line


def check_can_push(repository: str) -> None:
    """See to it that a repository can be pushed to, before anything slow begins.

    Raises:
        UserError: the name is none that the hub takes, nobody is logged in, or the hub cannot be reached.
    """
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UserError(f"--push-to-hub {repository}: {first_line(error)}") from error
    if get_token() is None:
        raise UserError("--push-to-hub: nobody is logged in to the hub; run `hf auth login`, or set HF_TOKEN")
    if why := hub.unavailable():
        raise UserError(f"--push-to-hub {repository}: {why}")


def push(folder: Path, repository: str, private: bool = False) -> str:
    """Upload a folder as a model repository, which is made if it is not there.

    Args:
        folder: that is uploaded whole.
        repository: NAME, or OWNER/NAME.
        private: make the repository one that others do not see.

    Returns:
        Its address.

    Raises:
        UserError: the hub does not take it; the folder stays.
    """
    api = HfApi()
    try:
        place = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=place.repo_id, folder_path=folder, commit_message="A sentence encoder of simcse_pl")
    except Exception as error:  # its own, the HTTP library's, the system's
        raise UserError(f"{folder} is written, but the hub did not take it: {hub.reason(error)}") from error
    return str(place)
