"""A sound encoder in the working folder."""

import shutil

import pytest

from tests.hostile_files.tiny import encoder


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """A folder of an encoder of ours."""
    folder = tmp_path_factory.mktemp("sound")
    encoder().save_pretrained(folder)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch, sound):
    """The working folder, a sound encoder in it as `model`, and whatever code lies in it found by imports."""
    shutil.copytree(sound, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path
