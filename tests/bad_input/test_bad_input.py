"""Transcripts of error messages, in the text files beside this one.

Each entry is a command and the line that it prints to standard error. The command exits with status 2 and leaves no
results. The mistakes are those that would change results without a message, and those that this project explains.
`REWRITE=1 python -m pytest tests/bad_input -n 0` rewrites the transcripts.
"""

import os
import shlex
import sys
from pathlib import Path

import pytest

import simcse_pl
from simcse_pl.__main__ import main
from simcse_pl.inference.simcse import SimCSE
from tests.conftest import ROOT, SENTENCES

HERE = Path(__file__).parent
NAMES = ("train", "evaluate", "commands")


def transcript(name):
    """Return the commands of a transcript with their lines."""
    parts = (HERE / f"{name}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return dict(part.split("\n") for part in parts)


CASES = [pytest.param(name, command, line, id=command) for name in NAMES for command, line in transcript(name).items()]


@pytest.fixture(scope="module")
def printed():
    """Collect what the commands print. If REWRITE is set, write it to the transcripts."""
    printed = {name: transcript(name) for name in NAMES}
    yield printed
    if os.environ.get("REWRITE"):
        for name, lines in printed.items():
            text = "\n\n".join("\n".join(pair) for pair in lines.items())
            (HERE / f"{name}.txt").write_text(f"{text}\n", encoding="utf-8")


@pytest.fixture(scope="module")
def index(make_model, tmp_path_factory):
    """Return the folder of a quantized index."""
    folder = tmp_path_factory.mktemp("index")
    simcse = SimCSE(make_model("bert"), pooling="mean", device="cpu")
    simcse.build_index(SENTENCES, precision="uint8")
    simcse.save_index(folder)
    return folder


@pytest.fixture
def files(tmp_path, make_model, index):
    """Return a folder of valid and invalid files."""
    folder = tmp_path / "files"
    for own in (
        "empty_folder",
        "run/encoder",
        "same/method",
        "lost_base",
        "lost.npy.shards",
    ):
        (folder / own).mkdir(parents=True)
    (folder / "model").symlink_to(make_model("bert"))
    (folder / "decoder").symlink_to(make_model("llama"))
    (folder / "index").symlink_to(index)
    contents = {
        "sentences.txt": "\n".join(SENTENCES),
        "empty.txt": "",
        "latin.txt": "café\n".encode("latin-1"),
        "one.txt": "One sentence.\n",
        "x.ckpt": b"PK nothing",
        "pairs.csv": "anchor,positive\nA dog runs.,A dog is running.\nA cat sat.,The cat sits.\n",
        "scored.tsv": "A dog.\tA cat.\t2\nA man.\tA woman.\t3.5\n",
        "word_as_score.tsv": "A dog.\tA cat.\t2\nA man.\tA woman.\thigh\n",
        "lost_base/adapter_config.json": '{"peft_type": "LORA", "base_model_name_or_path": "/nowhere/base"}',
        "same/method/arccse.yaml": "objective: {margin: 33.0}\n",
        "lost.npy.shards/000000.npy": "without a manifest",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.parametrize(("name", "command", "line"), CASES)
def test_a_mistake_is_one_line(name, command, line, files, printed, mistake_in, monkeypatch, capsys, tmp_path):
    places = {"files": files, "package": Path(simcse_pl.__file__).parent, "root": ROOT, "new": tmp_path / "new"}
    before = sorted(tmp_path.rglob("*"))
    given = command.removeprefix("$ ").removeprefix("python ")
    for place, path in places.items():
        given = given.replace(f"{{{place}}}", str(path))
    program, *arguments = shlex.split(given)
    if program == "simcse":
        monkeypatch.setattr(sys, "argv", ["simcse", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        done = capsys.readouterr()
        assert exit_.value.code == 2 and not done.out and sorted(tmp_path.rglob("*")) == before
        said = done.err
    else:
        said = mistake_in(program, *arguments)
        assert not (tmp_path / "run" / "results.json").exists()
    for place, path in places.items():
        said = said.replace(str(path), f"{{{place}}}")
    printed[name][command] = said.rstrip("\n")
    if not os.environ.get("REWRITE"):
        assert said == f"{line}\n"
    assert said.startswith("error: ") and said.count("\n") == 1
