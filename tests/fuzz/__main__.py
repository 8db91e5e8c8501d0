"""Coverage-guided fuzzing of the readers of files: `python -m tests.fuzz TARGET... --runs N --seed S`.

Without a target it lists them. Each is a fork of this process, which has the libraries; the status is 1 where one of
them found something, and what it found lies in the folder that is named: the input, and what went wrong.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["simcse_pl"]):
    from tests.fuzz.targets import TARGETS

from tests.fuzz.engine import fuzz


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="`all` for all of them")
    parser.add_argument("--runs", type=int, help="inputs of each; by default so many that all take a minute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, help="the folder that gets what is found")
    given = parser.parse_args()
    if not given.targets:
        print(*TARGETS, sep="\n")
        return
    names = list(TARGETS) if given.targets == ["all"] else given.targets
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no target {unknown[0]}: choose among {', '.join(TARGETS)}")
    folder = given.found or Path(tempfile.mkdtemp(prefix="simcse_pl-fuzz-"))
    found = 0
    for name in names:
        result = fuzz(name, TARGETS[name], given.runs or TARGETS[name].runs, given.seed, folder)
        found += result.found
        print(f"{name}: {result.runs} inputs, {result.seconds:.1f} CPU s, {result.found} found", flush=True)
    if found:
        sys.exit(f"{found} found: {folder}")


main()
