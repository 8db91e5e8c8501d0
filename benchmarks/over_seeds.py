"""Training runs over seeds: each in a process of its own, with a table and a figure of their scores on STS-B."""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import parser
from simcse_pl.evaluation.suite import evaluate_suite, load_suite
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.figures.style import COLOURS, STYLE, WIDTH
from simcse_pl.reports.sweeps.paired import Difference
from simcse_pl.results.run_files import RESULTS_FILE
from simcse_pl.utils.tables import Table


class Scores(NamedTuple):
    """Spearman x 100 of an encoder."""

    dev: float
    test: float


def options(description: str | None, steps: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks of this kind.

    Args:
        description: the module's docstring.
        steps: default number of training steps.
    """
    made = parser(description, rounds=False)
    made.add_argument("--senteval-dir", help="SentEval bundle; default: the project's sample")
    made.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    made.add_argument("--steps", type=int, default=steps, help="training steps (%(default)s)")
    return made


def train(folder: Path, given: argparse.Namespace, seed: int, *overrides: str) -> tuple[Scores, Scores]:
    """Train in a process of its own. The run validates half-way and at the end, and leaves no checkpoint.

    Args:
        folder: the run's folder.
        given: see `options`.
        seed: the run's seed.
        overrides: further options of `simcse train`.

    Returns:
        The scores before training and of the best checkpoint.
    """
    command = [sys.executable, "-m", "simcse_pl", "train", f"seed={seed}", f"hydra.run.dir={folder}", "logger=csv"]
    command += [f"trainer.max_steps={given.steps}", f"val_every={given.steps // 2}"]
    command += [f"senteval_dir={given.senteval_dir or 'null'}", "data.validation=[senteval,sample]"]
    subprocess.run([*command, *overrides], check=True)
    shutil.rmtree(folder / "checkpoints")
    found = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    before, after = (
        Scores(*(100 * found[split]["spearman"] for split in splits))
        for splits in (("before", "test_before"), ("best", "test"))
    )
    return before, after


def scores_of(name: str, senteval_dir: str | None) -> Scores:
    """Return the scores of an encoder that is not trained."""
    task, encode = "STS-B" if senteval_dir else "sts", SentenceEncoder.from_pretrained(name).encode
    results = (evaluate_suite(encode, load_suite([task], senteval_dir, split)) for split in ("dev", "test"))
    return Scores(*(100 * own.sts[0].all.spearman for own in results))


def train_all(
    ways: Mapping[str, Sequence[str]], given: argparse.Namespace
) -> tuple[dict[str, Scores], dict[str, pd.DataFrame]]:
    """Train each way with each seed.

    Args:
        ways: options of `simcse train` by way.
        given: see `options`.

    Returns:
        By way, the scores before training, and a frame of those after it with one row per seed.
    """
    before: dict[str, Scores] = {}
    after: dict[str, dict[int, Scores]] = {way: {} for way in ways}
    with TemporaryDirectory() as folder:
        for seed in given.seeds:
            for number, (way, overrides) in enumerate(ways.items()):
                before[way], after[way][seed] = train(Path(folder, f"{number}-{seed}"), given, seed, *overrides)
                print(f"{way}, seed {seed}: {after[way][seed]}", flush=True)
    return before, {way: pd.DataFrame(own.values(), own.keys()) for way, own in after.items()}


def table(
    name: str,
    title: str,
    fixed: Mapping[str, Scores],
    after: Mapping[str, pd.DataFrame],
    notes: Sequence[str],
) -> Table:
    """Return means over seeds with the lowest and the highest, and differences from the first way, paired over seeds.

    Args:
        name: name of the files.
        title: title of the table.
        fixed: the scores of encoders that are not trained, by name.
        after: scores of each way, a row per seed.
        notes: notes below the table.
    """
    first = next(iter(after.values()))
    rows = [{"training": name, "seeds": 0, "dev": own.dev, "test": own.test} for name, own in fixed.items()]
    for way, own in after.items():
        difference = Difference((own.dev - first.dev) if own is not first else pd.Series(dtype=float))
        row = {"training": way, "seeds": len(own), "dev": own.dev.mean(), "lowest": own.dev.min()}
        row |= {"highest": own.dev.max(), "difference": difference.mean, "+-": difference.margin}
        rows.append(row | {"test": own.test.mean()})
    order = ["training", "dev", "lowest", "highest", "seeds", "difference", "+-", "test"]
    note = f"difference: on dev, from {next(iter(after))}, paired over seeds; +-: half the width of its 95 % t-interval"
    decimals = {column: 0 if column == "seeds" else 2 for column in order}
    return Table(name, title, pd.DataFrame(rows)[order], decimals, [*notes, note])


@matplotlib.rc_context(STYLE)
def figure(fixed: Mapping[str, Scores], after: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the score of each run on dev, and the mean of each way; arguments as in `table`."""
    drawn = Figure((WIDTH, 0.8 + 0.3 * len(after)), layout="constrained")
    axes = drawn.add_subplot()
    for place, own in enumerate(after.values()):
        axes.plot(own.dev, [place] * len(own), "o", color=COLOURS[2], markersize=4, alpha=0.6)
        axes.plot(own.dev.mean(), place, "|", color=COLOURS[0], markersize=14)
    for name, scores in fixed.items():
        axes.axvline(scores.dev, color=COLOURS[-1], linestyle=":")
        axes.annotate(name, (scores.dev, 1.02), xycoords=("data", "axes fraction"), ha="center")
    axes.set_yticks(range(len(after)), list(after))
    axes.set_ylim(len(after) - 0.5, -0.5)
    axes.set_xlabel("dev split, Spearman x 100: each seed, and the mean")
    return drawn
