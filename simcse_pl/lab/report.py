"""Compare encoders, training runs and sweeps in tables and figures."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from simcse_pl.evaluation.results import AGGREGATIONS, Aggregation, Result
from simcse_pl.lab.curves import curves_figure
from simcse_pl.lab.encoder_tables import encoder_tables
from simcse_pl.lab.figures import encoder_figures, save
from simcse_pl.lab.read_runs import Run, is_sweep, read
from simcse_pl.lab.seed_groups import Sweep, read_sweeps
from simcse_pl.lab.sweep_figure import sweep_figure
from simcse_pl.lab.sweep_tables import seed_table, sweep_table
from simcse_pl.run_folder import CURVES_FILE, RESULTS_FILE, run_label
from simcse_pl.run_table import run_table
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_json
from simcse_pl.utils.terminal import show


def write_report(folders: Sequence[tuple[str, str]], output: str, aggregation: Aggregation) -> list[Sweep]:
    """Save tables and figures of pairs of a label and a folder, print tables and names of files, and return sweeps.

    Several runs and sweeps are compared in one table and one figure, unless they repeat tables of the paper. An
    evaluation is a row there if it measured the same on their validation set.
    """
    encoders, runs, sweeps = _read(folders)
    names = ["sweep" if sweep.table or not sweep.has_rows else "comparison" for sweep in sweeps]
    if len(sweeps) > 1:
        names = [f"{name}_{number}" for number, name in enumerate(names, 1)]
    tables = encoder_tables(encoders, aggregation) + list(map(sweep_table, sweeps, names))
    for run in runs if not sweeps else ():
        if run.results:
            table = run_table(run.results)
            tables.append(replace(table, title=f"{run.label}: {table.title}"))
    curves = curves_figure([run for run in runs if run.results])
    drawn = zip(["curves", *names], [curves, *map(sweep_figure, sweeps)], strict=True)
    figures = encoder_figures(encoders, runs, aggregation) | {name: figure for name, figure in drawn if figure}
    if not tables and not figures:
        raise UserError(f"{folders[0][1]} has curves, and no results.json or validations: nothing to report")
    seed_tables = {f"{name}_seeds": seed_table(sweep) for name, sweep in zip(names, sweeps, strict=True)}
    files = save(output, tables, figures, seed_tables)
    for table in tables:
        show(table.printed())
    print(f"in {output}: {', '.join(file.name for file in files)}")
    return sweeps


def _read(folders: Sequence[tuple[str, str]]) -> tuple[list[Result], list[Run], list[Sweep]]:
    """Return evaluations, without what is a row of a sweep; runs; and sweeps. A run alone is none."""
    single = [(label, read(folder)) for label, folder in folders if not is_sweep(folder)]
    encoders = [one.model_copy(update={"label": label}) for label, one in single if isinstance(one, Result)]
    runs = [replace(one, label=label) for label, one in single if isinstance(one, Run)]
    finished = {run.folder for run in runs if run.results}
    trained = {label: folder for label, folder in folders if is_sweep(folder) or Path(folder) in finished}
    sweeps = read_sweeps(trained, encoders) if trained else []
    rows = {label for sweep in sweeps for label in sweep.encoders}
    encoders = [one.model_copy(update={"own": None}) if one.label in rows else one for one in encoders]
    compared = len(trained) > len(finished) or sum(len(sweep.runs) for sweep in sweeps) > 1
    return encoders, runs, sweeps if compared else []


def report_multirun(folder: Path, jobs: list[Path], aggregation: Any) -> bool:
    """Report a sweep, or evaluations side by side, and return whether all tasks were measured."""
    results = {job: read_json(job / RESULTS_FILE) for job in jobs}
    labels = [result.get("label") for result in results.values()]  # a training has none
    named = [
        (label if labels.count(label) == 1 else f"{label} ({job.name})", str(job))
        for job, label in zip(jobs, labels, strict=True)
    ]
    write_report(named if all(labels) else [(str(folder), str(folder))], str(folder), aggregation)
    return not any(result.get("failed") for result in results.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "output folder of `simcse evaluate` (or its results.json), of a training run or of a sweep; several "
    text += "folders of the same sweep are combined"
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help=text)
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="one label per folder, in the same order")
    text = "output folder for tables and figures (default: FOLDER if it is the only one, else outputs/report/TIME)"
    parser.add_argument("--output", metavar="DIR", help=text)
    text = "how to combine the subsets of an STS task: all pairs together, their mean, or a mean by size (default: all)"
    parser.add_argument("--aggregation", choices=AGGREGATIONS, default=AGGREGATIONS[0], help=text)
    parser.add_argument("--wandb", action="store_true", help="also create a report in W&B of each sweep")


def run(arguments: argparse.Namespace) -> None:
    labels = arguments.labels or [
        run_label(Path(folder)) if is_sweep(folder) else read(folder).label for folder in arguments.folders
    ]
    trained = [is_sweep(folder) or (Path(folder) / CURVES_FILE).is_file() for folder in arguments.folders]
    if len(labels) != len(trained) or len({*zip(labels, trained, strict=True)}) < len(labels):
        given = ", ".join(labels)
        raise UserError(f"labels are {given}: give one per folder by --labels, and each encoder, run or sweep its own")
    folders = list(zip(labels, arguments.folders, strict=True))
    if arguments.wandb and not any(map(is_sweep, arguments.folders)):
        raise UserError(f"--wandb: no sweep among {', '.join(arguments.folders)}: give the folder of one")
    alone = arguments.folders[0] if len(folders) == 1 and Path(arguments.folders[0]).is_dir() else None
    new = f"outputs/report/{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
    sweeps = write_report(folders, arguments.output or alone or new, arguments.aggregation)
    if arguments.wandb:
        from simcse_pl.lab.dashboards import sweep_report  # W&B is an extra

        for sweep in sweeps:
            sweep_report(sweep).save()  # prints its address
