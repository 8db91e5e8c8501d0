"""Tables and figures of encoders, of training runs and of sweeps: `python -m simcse_pl.report FOLDER...`."""

import dataclasses
import sys

from matplotlib.figure import Figure

from simcse_pl.command_line import Parser, run
from simcse_pl.errors import UserError
from simcse_pl.report.report import check_labels, encoder_figures, encoder_tables, save
from simcse_pl.report.results import AGGREGATIONS, Aggregation, Result, read
from simcse_pl.report.run_path import RunPath
from simcse_pl.report.sweep_figure import sweep_figure
from simcse_pl.report.sweep_groups import grouped
from simcse_pl.report.sweep_runs import is_sweep, read_sweeps
from simcse_pl.report.sweep_tables import sweep_tables
from simcse_pl.report.table import Table, show


def report(folders: list[str], labels: list[str] | None, output: str, aggregation: Aggregation) -> None:
    """Print the tables, save tables and figures, and say where.

    Args:
        folders: of results or of training runs, see `results.read`, or of sweeps, see `sweep_runs.read_sweeps`.
        labels: one a folder; where None, results have their own, runs their folder's name and sweeps their folder.
        output: the folder to write to.
        aggregation: of the subsets of STS12 to STS16.

    Raises:
        UserError: something cannot be read, labels do not fit, or there is nothing to show.
        WriteError: the system does not let something be written.
    """
    check_labels(labels, folders)
    results: list[Result] = []
    runs: list[RunPath] = []
    sweeps: dict[str, str] = {}
    for place, folder in enumerate(folders):
        if is_sweep(folder):
            label = labels[place] if labels else folder
            if label in sweeps:
                raise UserError(f"two sweeps are called {label}: give each once, or tell them apart with --labels")
            sweeps[label] = folder
            continue
        match read(folder):
            case Result() as result:
                results.append(result.model_copy(update={"label": labels[place]}) if labels else result)
            case RunPath() as run:
                runs.append(dataclasses.replace(run, label=labels[place]) if labels else run)
    own_tables, own_figures = of_sweeps(sweeps)
    tables = encoder_tables(results, aggregation) + own_tables
    figures = encoder_figures(results, runs, aggregation) | own_figures
    if not tables and not figures:
        raise UserError("nothing was measured in what was given: there is nothing to show")
    files = save(output, tables, figures)
    for table in tables:
        show(table.printed())
    for file in files:
        print(file)


def of_sweeps(folders: dict[str, str]) -> tuple[list[Table], dict[str, Figure]]:
    """The tables and the figure of each sweep, called `sweep`, or by its number where there are several."""
    tables, figures = [], {}
    sweeps = read_sweeps(folders)
    for number, sweep in enumerate(sweeps, 1):
        name = f"sweep_{number}" if len(sweeps) > 1 else "sweep"
        groups = grouped(sweep)
        tables += sweep_tables(groups, name)
        if figure := sweep_figure(groups):
            figures[name] = figure
    return tables, figures


def main() -> None:
    """The command line; with `html` as its first word, that of the page."""
    if sys.argv[1:2] == ["html"]:
        from simcse_pl.report.html import command  # alone: encoders come with it

        command.main(sys.argv[2:])
        return
    parser = Parser(
        prog="python -m simcse_pl.report",
        usage="%(prog)s FOLDER [FOLDER ...] [options]\n       %(prog)s html RUN_OR_SWEEP [RUN_OR_SWEEP ...] [options]",
        description=__doc__,
        epilog="html writes one page instead, with curves to zoom and compare; `html --help` tells its options. "
        "A folder that is called html is ./html.",
    )
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="with what evaluate.py wrote (or its results.json itself); of a training run, whose path is drawn; or of "
        "a sweep of train.py, whose jobs are compared; folders that hold parts of one sweep are taken together",
    )
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="what to call each, in the order of the folders")
    parser.add_argument("--output", default="outputs/report", metavar="DIR", help="where to save (%(default)s)")
    parser.add_argument(
        "--aggregation", choices=AGGREGATIONS, default="all", help="of the subsets of an STS task (%(default)s)"
    )
    run(parser, lambda given: report(given.folders, given.labels, given.output, given.aggregation))


if __name__ == "__main__":
    main()
