"""The commands against a Hub on loopback that works, fails, or does not answer."""

import json
import shutil

import pytest

from tests.conftest import SENTENCES, environment
from tests.support.hub_server import hub_server

TOKEN = "hf_secret_token"
USE = ("-m", "simcse_pl", "similarity", "me/model", *SENTENCES[:2], "--pooling", "mean")


@pytest.fixture(scope="module")
def hub():
    with hub_server() as hub:
        yield hub


@pytest.fixture
def command(hub, forks_of_session, make_model, tmp_path, tmp_path_factory):
    """Run a command; the Hub's cache is empty at the start of a test."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.txt").write_text("\n".join(SENTENCES))
    hub.repositories = {"me/model": make_model("bert"), "me/data": tmp_path / "data"}
    home = tmp_path_factory.getbasetemp() / "hf"
    shutil.rmtree(home, ignore_errors=True)

    def run(*arguments, fault="", where="", status=0):
        hub.fault, hub.where, hub.asked = fault, where, []
        given = {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home), "HF_TOKEN": TOKEN}
        done = forks_of_session.run(*arguments, environment=environment(**given), fault=["online"])
        assert done.returncode == status, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        return done

    return run


def test_a_model_is_loaded_from_the_hub_and_then_from_the_cache(command, hub, run_command, make_model):
    done = command(*USE)
    assert all(token == f"Bearer {TOKEN}" for path, token in hub.asked if path.startswith("/me/model"))
    local = run_command(*USE[:3], make_model("bert"), *USE[4:])
    assert done.stdout == local.stdout
    assert command(*USE, fault="dead").stdout == done.stdout
    asked = [path for path, _ in hub.asked if path.startswith("/api/models")]
    assert len(asked) <= 2  # the model once, and once more by huggingface_hub; not each of its files


def test_a_hub_that_fails_is_one_line(command):
    (line,) = command(*USE, fault="401", status=2).stderr.splitlines()
    assert line.startswith("error: ") and "me/model" in line


def test_a_file_of_a_dataset_of_the_hub_is_read(command):
    done = command("-m", "simcse_pl", "encode", "me/model", "hf://datasets/me/data/train.txt", "--pooling", "mean")
    assert [json.loads(line)["sentence"] for line in done.stdout.splitlines()] == SENTENCES


def test_an_upload_that_fails_keeps_the_folder(command, make_model, tmp_path):
    export = ["-m", "simcse_pl", "export", make_model("bert"), "--pooling", "mean", tmp_path / "out"]
    done = command(*export, "--push-to-hub", "me/new", fault="403", where="/api/repos", status=2)
    assert "the upload failed: " in done.stderr
    assert (tmp_path / "out" / "model.safetensors").exists()
