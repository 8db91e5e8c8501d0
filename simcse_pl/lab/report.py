"""Compare encoders, training runs and sweeps in tables and figures."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from simcse_pl.evaluation.results import AGGREGATIONS, Aggregation, Result
from simcse_pl.lab.figures import encoder_figures, save
from simcse_pl.lab.runs import is_sweep, read, read_results
from simcse_pl.lab.seed_groups import Sweep, read_sweeps
from simcse_pl.lab.sweep_figure import sweep_figure
from simcse_pl.lab.sweep_tables import sweep_table
from simcse_pl.lab.tables import encoder_tables
from simcse_pl.run_table import run_table
from simcse_pl.runs import CURVES_FILE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.terminal import show


def write_report(folders: Sequence[tuple[str, str]], output: str, aggregation: Aggregation) -> list[Sweep]:
    """Save tables and figures of pairs of a label and a folder, print tables and names of files, and return sweeps."""
    sweeps = {label: folder for label, folder in folders if is_sweep(folder)}
    single = [(label, folder, read(folder)) for label, folder in folders if not is_sweep(folder)]
    results = [result.model_copy(update={"label": label}) for label, _, result in single if isinstance(result, Result)]
    runs = [(folder, replace(run, label=label)) for label, folder, run in single if not isinstance(run, Result)]
    tables = encoder_tables(results, aggregation)
    figures = encoder_figures(results, [run for _, run in runs], aggregation)
    for number, (folder, run) in enumerate(runs, 1):
        if results_of_run := read_results(Path(folder)):
            table = run_table(results_of_run)
            tables.append(replace(table, name=f"run_{number}", title=f"{run.label}: {table.title}"))
    compared = read_sweeps(sweeps)
    for number, sweep in enumerate(compared, 1):
        name = "sweep" if len(compared) == 1 else f"sweep_{number}"
        tables.append(sweep_table(sweep, name))
        if figure := sweep_figure(sweep):
            figures[name] = figure
    files = save(output, tables, figures)
    for table in tables:
        show(table.printed())
    print(f"in {output}: {', '.join(file.name for file in files)}")
    return compared


def default_label(folder: str) -> str:
    """Return the label of an evaluation, the last two parts of the path of a run, or the path of a sweep."""
    return folder if is_sweep(folder) else read(folder).label


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "output folder of `simcse evaluate` (or its results.json), of a training run or of a sweep; several "
    text += "folders of the same sweep are combined"
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help=text)
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="one label per folder, in the same order")
    text = "output folder for tables and figures (default: FOLDER if it is the only one, else outputs/report)"
    parser.add_argument("--output", metavar="DIR", help=text)
    text = "how to combine the subsets of an STS task: all pairs together, their mean, or a mean by size (default: all)"
    parser.add_argument("--aggregation", choices=AGGREGATIONS, default=AGGREGATIONS[0], help=text)
    parser.add_argument("--wandb", action="store_true", help="also create a report in W&B of each sweep")


def run(arguments: argparse.Namespace) -> None:
    labels = arguments.labels or [default_label(folder) for folder in arguments.folders]
    is_run = [(Path(folder) / CURVES_FILE).is_file() for folder in arguments.folders]
    if len(labels) != len(is_run) or len({*zip(labels, is_run, strict=True)}) < len(labels):
        given = ", ".join(labels)
        raise UserError(f"labels are {given}: give one per folder by --labels, and each encoder, run or sweep its own")
    folders = list(zip(labels, arguments.folders, strict=True))
    if arguments.wandb and not any(map(is_sweep, arguments.folders)):
        raise UserError(f"--wandb: no sweep among {', '.join(arguments.folders)}: give the folder of one")
    alone = arguments.folders[0] if len(folders) == 1 and Path(arguments.folders[0]).is_dir() else None
    sweeps = write_report(folders, arguments.output or alone or "outputs/report", arguments.aggregation)
    if arguments.wandb:
        from simcse_pl.lab.dashboards import sweep_report  # W&B is an extra

        for sweep in sweeps:
            sweep_report(sweep).save()  # prints its address
