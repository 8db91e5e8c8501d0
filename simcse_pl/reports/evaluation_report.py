"""All tables and figures of results, and their files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from simcse_pl.reports.figures.encoders import encoder_plane, run_plane, similarity_densities, spectra
from simcse_pl.reports.figures.style import figure_files
from simcse_pl.reports.tables.measure_tables import geometry_tables, own_data_table, retrieval_table
from simcse_pl.reports.tables.score_tables import benchmark_table, failure_notes, sts_table, transfer_table
from simcse_pl.results.evaluation_results import Result
from simcse_pl.results.metrics import Aggregation
from simcse_pl.results.run_files import TrainingTrajectory
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tables import Table


def encoder_tables(results: Sequence[Result], aggregation: Aggregation = "all") -> list[Table]:
    """Return every table that has content, of results with different labels; the first names the tasks that failed."""
    every = [part for result in results for part in result.of_dims().values()]
    tables = [
        sts_table(every, aggregation),
        sts_table(results, aggregation, metric="pearson"),
        transfer_table(results),
        transfer_table(results, probing=True),
        benchmark_table(results),
        *geometry_tables(results),
        retrieval_table(results),
        own_data_table(every),
    ]
    shown = [table for table in tables if table is not None]
    if shown:
        shown[0].notes.extend(failure_notes({result.label: result.failed for result in results}))
    return shown


def encoder_figures(
    results: Sequence[Result], runs: Sequence[TrainingTrajectory] = (), aggregation: Aggregation = "all"
) -> dict[str, Figure]:
    """Return every figure that has content, by name: of encoders with different labels, and of training runs."""
    figures = {
        "alignment_uniformity": encoder_plane(results, aggregation),
        "training_paths": run_plane(runs),
        "spectra": spectra(results),
        "similarities": similarity_densities(results),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def save(folder: str | Path, tables: Sequence[Table], figures: Mapping[str, Figure]) -> list[Path]:
    """Write tables (md, csv, tex) and figures (png, svg) atomically, and return their paths."""
    parts = [table.files() for table in tables] + [figure_files(*item) for item in figures.items()]
    files = {name: content for part in parts for name, content in part.items()}
    with atomic_write(Path(folder)) as new:
        for name, content in files.items():
            (new / name).write_bytes(content)
    return [Path(folder, name) for name in files]
