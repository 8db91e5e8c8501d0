"""All tables and figures of results, and their files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from simcse_pl.reports.figures.alignment_uniformity import encoder_plane, run_plane
from simcse_pl.reports.figures.dimensions import dimension_curves
from simcse_pl.reports.figures.distributions import similarity_densities, spectra
from simcse_pl.reports.figures.style import figure_files
from simcse_pl.reports.tables.geometry_tables import geometry_table, retrieval_table, spectrum_table
from simcse_pl.reports.tables.own_data_table import own_data_table
from simcse_pl.reports.tables.score_tables import failure_notes, sts_table, subset_table, transfer_table
from simcse_pl.results.evaluation_results import Result
from simcse_pl.results.metrics import Aggregation
from simcse_pl.results.trajectory import TrainingTrajectory
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tables import Table


def encoder_tables(results: Sequence[Result], aggregation: Aggregation = "all") -> list[Table]:
    """Return every table that has content; `aggregation` is that of the subsets of STS12 to STS16.

    Raises:
        UserError: two results have the same label, or one names a row that the paper does not have.
    """
    labels = [result.label for result in results]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two results have the label {twice[0]}: give different ones with --labels, one per folder")
    every = [own for result in results for own in result.of_dims().values()]
    tables = (
        sts_table(every, aggregation),
        sts_table(results, aggregation, metric="pearson"),
        subset_table(results),
        transfer_table(results),
        geometry_table(results),
        spectrum_table(results),
        retrieval_table(results),
        own_data_table(every),
    )
    shown = [table for table in tables if table is not None]
    known = {note for table in shown for note in table.notes}
    failures = failure_notes({result.label: result.failed for result in results})
    missing = [note for note in failures if note not in known]  # failures without a table, such as that of a retrieval
    return [replace(table, notes=[*table.notes, *missing]) for table in shown[:1]] + shown[1:]


def encoder_figures(
    results: Sequence[Result], runs: Sequence[TrainingTrajectory] = (), aggregation: Aggregation = "all"
) -> dict[str, Figure]:
    """Return every figure that has content, by name: of encoders with different labels, and of training runs."""
    figures = {
        "alignment_uniformity": encoder_plane(results, aggregation),
        "training_paths": run_plane(runs),
        "dimensions": dimension_curves(results, aggregation),
        "spectra": spectra(results),
        "similarities": similarity_densities(results),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def save(folder: str | Path, tables: Sequence[Table], figures: Mapping[str, Figure]) -> list[Path]:
    """Write tables (md, csv, json, tex) and figures (png, svg) atomically, and return their paths.

    Raises:
        WriteError: a file cannot be written.
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
