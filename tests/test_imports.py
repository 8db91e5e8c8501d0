"""What the commands import: torch, Lightning and pandas take seconds, so --help and errors do without them."""

import re

import pytest

from simcse_pl.__main__ import COMMANDS

HEAVY = {"torch", "transformers", "pytorch_lightning", "pandas", "matplotlib", "scipy", "wandb"}
LIBRARIES = {"torch", "transformers"}  # and no module of a model, which imports scipy
SHOWN = {  # by --help
    "--help": COMMANDS,
    "train --help": ("the encoder to train", "\n  data.batch_size ", "(default: 64)"),
    "encode --help": ("--out OUT",),
}


def imported(stderr):
    """Return the heavy packages that a process with `-X importtime` has imported."""
    return HEAVY & set(re.findall(r"^import time: .*\| +(\w+)$", stderr, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--help"], 0, set()),
        (["train", "--help"], 0, set()),
        (["evaluate", "encodr=folder"], 2, set()),
        (["encode", "--help"], 0, LIBRARIES),
    ],
)
def test_help_and_mistakes_import_little(arguments, status, expected, run_command):
    done = run_command("-X", "importtime", "-m", "simcse_pl", *arguments, status=status)
    assert imported(done.stderr) == expected
    assert all(text in done.stdout for text in SHOWN.get(" ".join(arguments), ()))


def test_search_imports_neither_lightning_nor_pandas(run_command, make_model, tmp_path):
    (tmp_path / "sentences.txt").write_text("A man sleeps.\nA dog runs.\n")
    encoder = [make_model("bert"), "--pooling", "mean", "--device", "cpu"]
    search = ["search", *encoder, tmp_path / "sentences.txt", "dog"]
    done = run_command("-X", "importtime", "-m", "simcse_pl", *search)
    assert imported(done.stderr) == {*LIBRARIES, "scipy"}


def test_the_package_imports_torch_when_its_class_is_used(run_command):
    code = "import sys, simcse_pl; print('torch' in sys.modules); simcse_pl.SimCSE"
    done = run_command("-X", "importtime", "-c", code)
    assert done.stdout == "False\n" and imported(done.stderr) == LIBRARIES
