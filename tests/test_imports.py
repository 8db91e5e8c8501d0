"""What the commands import: torch, Lightning and pandas take seconds, so --help and errors do without them."""

import re

import pytest

from simcse_pl.__main__ import COMMANDS

HEAVY = {"torch", "transformers", "pytorch_lightning", "pandas", "matplotlib", "scipy", "wandb"}
LIBRARIES = {"torch", "transformers"}  # and no module of a model, which imports scipy
SIMCSE = ["-m", "simcse_pl"]
STAGES = f"""
import contextlib, sys, simcse_pl
from simcse_pl.__main__ import main

def print_imported(*command):
    sys.argv[1:] = command
    with contextlib.suppress(SystemExit):
        command and main()
    print("imported", *sorted({HEAVY} & {{*sys.modules}}))

search = sys.argv[1:]
print_imported()
simcse_pl.SimCSE
print_imported()
print_imported("encode", "--help")
print_imported("search", *search)
"""


def imported(stderr):
    """Return the heavy packages that a process with `-X importtime` has imported."""
    return HEAVY & set(re.findall(r"^import time: .*\| +(\w+)$", stderr, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "status", "shown"),
    [
        ([*SIMCSE, "--help"], 0, COMMANDS),
        ([*SIMCSE, "train", "--help"], 0, ("the encoder to train", "\n  data.batch_size ", "(default: 64)")),
        ([*SIMCSE, "evaluate", "encodr=folder"], 2, ()),
    ],
)
def test_help_and_mistakes_import_little(arguments, status, shown, run_command):
    done = run_command("-X", "importtime", *arguments, status=status)
    assert not imported(done.stderr)
    assert all(text in done.stdout for text in shown)


def test_the_package_encode_and_search_import_neither_lightning_nor_pandas(run_command, make_model, sentences):
    search = [make_model("bert"), "--pooling", "mean", "--device", "cpu", sentences, "dog"]
    done = run_command("-X", "frozen_modules", "-c", STAGES, *search)
    found = [{*line.split()[1:]} for line in done.stdout.splitlines() if line.startswith("imported")]
    assert found == [set(), LIBRARIES, LIBRARIES, {*LIBRARIES, "scipy"}] and "--out OUT" in done.stdout
