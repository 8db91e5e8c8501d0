"""What a mistake is told, word for word: the transcripts beside this file, run line by line.

Each is a command and the one line that it prints to standard error; its exit status is 2, and nothing is left behind.
"""

import shlex
from pathlib import Path

import pytest

import simcse_pl
from tests.conftest import ROOT, SENTENCES

HERE = Path(__file__).parent


def transcript(name):
    """Commands and the lines that they print."""
    parts = (HERE / name).read_text(encoding="utf-8").strip().split("\n\n")
    pairs = [part.split("\n") for part in parts]
    return [(command.removeprefix("$ python "), line) for command, line in pairs]


OF_TRAIN, OF_EVALUATE, OF_COMMANDS = (transcript(f"{name}.txt") for name in ("train", "evaluate", "commands"))


@pytest.fixture
def files(tmp_path, make_model):
    """Good and bad ones; the working folder is an empty one beside them."""
    folder = tmp_path / "files"
    for own in ("empty_folder", "conf/experiment"):
        (folder / own).mkdir(parents=True)
    (folder / "model").symlink_to(make_model("bert"))
    contents = {
        "sentences.txt": "\n".join(SENTENCES),
        "empty.txt": "",
        "blank.txt": "\n\n  \n",
        "latin.txt": "café\n".encode("latin-1"),
        "one.txt": "One sentence.\n",
        "x.docx": "x",
        "x.parquet": b"PAR1nothing",
        "x.jsonl": '{"a": 1}\nnot json\n',
        "ragged.csv": "a,b\n1,2\n3\n",
        "header.csv": "sent0,sent1\n",
        "x.ckpt": b"PK nothing",
        "x.vec": "2 3\na 1 2 3\nb 1 2\n",
        "x.json": "{",
        "conf/experiment/no_yaml.yaml": "seed: [1,\n",
        "conf/experiment/itself.yaml": "defaults: [itself]\n",
        "conf/experiment/no_list.yaml": "defaults: model\n",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def said(files, tmp_path):
    """A line of a transcript with the places that it stands for."""
    places = {"files": files, "package": Path(simcse_pl.__file__).parent, "root": ROOT, "new": tmp_path / "new"}

    def fill(text):
        for name, place in places.items():
            text = text.replace(f"{{{name}}}", str(place))
        return text

    return fill


@pytest.mark.parametrize(("command", "line"), OF_TRAIN + OF_EVALUATE)
def test_a_mistake_is_one_line(command, line, said, mistake_in, tmp_path):
    """By the front door itself, in this process: each would take seconds to start."""
    assert mistake_in(*shlex.split(said(command))) == said(line) + "\n"
    assert not list(tmp_path.glob("run/*/*.ckpt")) and not list(tmp_path.glob("run/*.json"))


@pytest.mark.parametrize(("command", "line"), OF_COMMANDS)
def test_a_mistake_of_a_command_is_one_line(command, line, said, run_command, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = run_command(*shlex.split(said(command)), status=2)
    assert (done.stdout, done.stderr) == ("", said(line) + "\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_there_are_more_than_250():
    cases = OF_TRAIN + OF_EVALUATE + OF_COMMANDS
    assert len(cases) == len(set(cases)) > 250
    assert all(line.startswith("error: ") for _, line in cases)
