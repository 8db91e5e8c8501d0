"""Pushing to the hub: what is missing is told at once, and the whole folder goes up."""

import pytest
from huggingface_hub import RepoUrl

from simcse_pl.export import push_to_hub as hub
from simcse_pl.utils.errors import UserError


class Api:
    """Stands for the hub, which no test asks."""

    def __init__(self):
        self.calls = []

    def create_repo(self, name, **options):
        self.calls.append((name, options))
        return RepoUrl(f"https://huggingface.co/me/{name}")

    def upload_folder(self, repo_id, folder_path, commit_message):
        if not list(folder_path.iterdir()):
            raise OSError("no space\nanywhere")
        self.calls.append((repo_id, sorted(path.name for path in folder_path.iterdir())))


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        ("me/my encoder", "hf_x", "--push-to-hub me/my encoder: "),
        ("me/encoder", None, "nobody is logged in to the hub; run `hf auth login`, or set HF_TOKEN"),
        ("me/encoder", "hf_x", r"offline mode is enabled"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_written(name, token, message, monkeypatch):
    monkeypatch.setattr(hub, "get_token", lambda: token)
    with pytest.raises(UserError, match=message) as raised:
        hub.check_can_push(name)
    assert "\n" not in str(raised.value)


def test_the_folder_is_uploaded_whole(tmp_path, monkeypatch):
    api = Api()
    monkeypatch.setattr(hub, "HfApi", lambda: api)
    (tmp_path / "README.md").write_text("card")
    assert hub.push(tmp_path, "encoder", private=True) == "https://huggingface.co/me/encoder"
    assert api.calls == [("encoder", {"private": True, "exist_ok": True}), ("me/encoder", ["README.md"])]
    (tmp_path / "README.md").unlink()
    with pytest.raises(UserError, match="is written, but the hub did not take it: no space"):
        hub.push(tmp_path, "encoder")
