"""Tables and figures of one or several encoders: `python -m simcse_pl.report FOLDER...`."""

import argparse
import dataclasses

from simcse_pl.errors import UserError
from simcse_pl.report.report import encoder_figures, encoder_tables, save
from simcse_pl.report.results import AGGREGATIONS, Aggregation, Result, RunPath, read
from simcse_pl.report.tables import show


def report(folders: list[str], labels: list[str] | None, output: str, aggregation: Aggregation) -> None:
    """Print the tables, save tables and figures, and say where.

    Args:
        folders: of results or of training runs; see `results.read`.
        labels: one a folder; where None, results have their own and runs their folder's name.
        output: the folder to write to.
        aggregation: of the subsets of STS12 to STS16.

    Raises:
        UserError: something cannot be read or written, labels do not fit, or there is nothing to show.
    """
    if labels is not None and len(labels) != len(folders):
        raise UserError(f"--labels: {len(labels)} for {len(folders)} folders; give one a folder, in their order")
    results: list[Result] = []
    runs: list[RunPath] = []
    for place, folder in enumerate(folders):
        match read(folder):
            case Result() as result:
                results.append(result.model_copy(update={"label": labels[place]}) if labels else result)
            case RunPath() as run:
                runs.append(dataclasses.replace(run, label=labels[place]) if labels else run)
    tables = encoder_tables(results, aggregation)
    figures = encoder_figures(results, runs, aggregation)
    if not tables and not figures:
        raise UserError("nothing was measured in what was given: there is nothing to show")
    files = save(output, tables, figures)
    for table in tables:
        show(table.printed())
    for file in files:
        print(file)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m simcse_pl.report", description=__doc__)
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="with what evaluate.py wrote (or its results.json itself), or of a training run, whose path is drawn",
    )
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="what to call each, in the order of the folders")
    parser.add_argument("--output", default="outputs/report", metavar="DIR", help="where to save (%(default)s)")
    parser.add_argument(
        "--aggregation", choices=AGGREGATIONS, default="all", help="of the subsets of an STS task (%(default)s)"
    )
    arguments = parser.parse_args()
    try:
        report(arguments.folders, arguments.labels, arguments.output, arguments.aggregation)
    except UserError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
