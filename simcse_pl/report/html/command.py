"""Training runs and sweeps as one page with curves to zoom and compare, which needs no network and no account."""

from collections.abc import Sequence
from pathlib import Path

from simcse_pl.command_line import Parser, run
from simcse_pl.errors import UserError
from simcse_pl.report.html.neighbours import neighbourhood, read_corpus
from simcse_pl.report.html.page import page, write_page
from simcse_pl.report.html.runs import default_label, read_runs
from simcse_pl.report.report import check_labels


def write_report(folders: Sequence[str], labels: Sequence[str] | None, output: str, sentences: str | None) -> None:
    """Read runs and sweeps, and write the page.

    Args:
        folders: of training runs and of sweeps.
        labels: one a folder; where None, runs are called by their folder's name, and sweeps by their folder.
        output: the file to write.
        sentences: a file of those whose neighbours are shown; the project's sample where None.

    Raises:
        UserError: something cannot be read, or labels do not fit.
        WriteError: the system does not let the page be written.
    """
    check_labels(labels, folders)
    named = labels or [default_label(folder) for folder in folders]
    if twice := [label for label in named if named.count(label) > 1]:
        raise UserError(f"two folders are called {twice[0]}: give each once, or tell them apart with --labels")
    corpus = read_corpus(sentences)
    runs, sweeps = read_runs(dict(zip(named, folders, strict=True)))
    write_page(Path(output), page(runs, sweeps, neighbourhood(runs, corpus)))
    print(output)


def main(arguments: Sequence[str]) -> None:
    """The command line, behind the word `html`."""
    parser = Parser(prog="python -m simcse_pl.report html", description=__doc__)
    parser.add_argument("folders", nargs="+", metavar="RUN_OR_SWEEP", help="a folder of train.py's")
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="what to call each, in the order of the folders")
    parser.add_argument("--output", default="outputs/report.html", metavar="FILE", help="the page (%(default)s)")
    parser.add_argument(
        "--sentences",
        metavar="FILE",
        help="of which a few are shown with their nearest neighbours before and after training, of the run that is "
        "best on dev: a sentence a line, or a table of one column (the project's sample of scored pairs)",
    )
    run(parser, lambda given: write_report(given.folders, given.labels, given.output, given.sentences), arguments)
