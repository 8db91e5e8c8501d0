"""What the commands import: torch, Lightning and pandas take seconds, so --help and errors do without them."""

import re

import pytest

from simcse_pl.__main__ import COMMANDS

HEAVY = {"torch", "transformers", "pytorch_lightning", "pandas", "matplotlib", "scipy", "wandb"}
LIBRARIES = {"torch", "transformers"}  # and no module of a model, which imports scipy
SIMCSE = ["-m", "simcse_pl"]
PACKAGE = ["-c", "import sys, simcse_pl; print('torch' in sys.modules); simcse_pl.SimCSE"]


def imported(stderr):
    """Return the heavy packages that a process with `-X importtime` has imported."""
    return HEAVY & set(re.findall(r"^import time: .*\| +(\w+)$", stderr, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "status", "expected", "shown"),
    [
        ([*SIMCSE, "--help"], 0, set(), COMMANDS),
        ([*SIMCSE, "train", "--help"], 0, set(), ("the encoder to train", "\n  data.batch_size ", "(default: 64)")),
        ([*SIMCSE, "evaluate", "encodr=folder"], 2, set(), ()),
        ([*SIMCSE, "encode", "--help"], 0, LIBRARIES, ("--out OUT",)),
        (PACKAGE, 0, LIBRARIES, ("False\n",)),
    ],
)
def test_help_mistakes_and_the_package_import_little(arguments, status, expected, shown, run_command):
    done = run_command("-X", "importtime", *arguments, status=status)
    assert imported(done.stderr) == expected
    assert all(text in done.stdout for text in shown)


def test_search_imports_neither_lightning_nor_pandas(run_command, make_model, sentences):
    search = ["search", make_model("bert"), "--pooling", "mean", "--device", "cpu", sentences, "dog"]
    done = run_command("-X", "importtime", *SIMCSE, *search)
    assert imported(done.stderr) == {*LIBRARIES, "scipy"}
