"""Everything that there is to show of some results: all tables, all figures, and the files of both."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from simcse_pl.reports.figures.alignment_uniformity import encoder_plane, run_plane
from simcse_pl.reports.figures.distributions import similarity_densities, spectra
from simcse_pl.reports.figures.style import figure_files
from simcse_pl.reports.tables.geometry_tables import geometry_table, retrieval_table, spectrum_table
from simcse_pl.reports.tables.score_tables import failure_notes, sts_table, subset_table, transfer_table
from simcse_pl.results.evaluation_results import Aggregation, Result
from simcse_pl.results.trajectory import TrainingTrajectory
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tables import Table


def encoder_tables(results: Sequence[Result], aggregation: Aggregation = "all") -> list[Table]:
    """Every table that the results have something for.

    Args:
        results: of any number of encoders.
        aggregation: of the subsets of STS12 to STS16.

    Raises:
        UserError: two results have one label, or one names a row that the paper does not have.
    """
    labels = [result.label for result in results]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two results have the label {twice[0]}: tell them apart with --labels, one a folder")
    tables = (
        sts_table(results, aggregation),
        sts_table(results, aggregation, metric="pearson"),
        sts_table(results, regressor=True),
        sts_table(results, metric="pearson", regressor=True),
        subset_table(results),
        transfer_table(results),
        geometry_table(results),
        spectrum_table(results),
        retrieval_table(results),
    )
    return _all_failures_told([table for table in tables if table is not None], results)


def _all_failures_told(tables: list[Table], results: Sequence[Result]) -> list[Table]:
    """The tables, the first with what failed and no table tells: a regressor, or what has no table of its own."""
    told = {note for table in tables for note in table.notes}
    failures = failure_notes({result.label: result.failed for result in results})
    untold = [note for note in failures if note not in told]
    return [replace(table, notes=[*table.notes, *untold]) for table in tables[:1]] + tables[1:]


def check_labels(labels: Sequence[str] | None, folders: Sequence[str]) -> None:
    """Refuse labels that are not one a folder; None is for none."""
    if labels is not None and len(labels) != len(folders):
        raise UserError(f"--labels: {len(labels)} for {len(folders)} folders; give one a folder, in their order")


def encoder_figures(
    results: Sequence[Result], runs: Sequence[TrainingTrajectory] = (), aggregation: Aggregation = "all"
) -> dict[str, Figure]:
    """Every figure that the results have something for, by name.

    Args:
        results: of any number of encoders, no two with one label.
        runs: of training, whose paths are drawn.
        aggregation: of the subsets of STS12 to STS16, in the averages.
    """
    figures = {
        "alignment_uniformity": encoder_plane(results, aggregation),
        "training_paths": run_plane(runs),
        "spectra": spectra(results),
        "similarities": similarity_densities(results),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def save(folder: str | Path, tables: Sequence[Table], figures: Mapping[str, Figure]) -> list[Path]:
    """Write tables (md, csv, json, tex) and figures (png, svg), replacing those of an earlier report there.

    Every file is written whole beside its place and then moved there.

    Returns:
        The files.

    Raises:
        WriteError: the system does not let them be written.
    """
    folder = Path(folder)
    files: dict[str, bytes] = {}
    for table in tables:
        files |= table.files()
    for name, figure in figures.items():
        files |= figure_files(name, figure)
    with atomic_write(folder) as new:
        for name, content in files.items():
            (new / name).write_bytes(content)
    return [folder / name for name in files]
