"""Tables of embedding geometry and of nearest neighbours."""

from collections.abc import Mapping, Sequence

import pandas as pd

from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.results.evaluation_results import Result
from simcse_pl.utils.tables import Table

# The name in results.json, the name in the table, and the number of decimals.
_Measures = Sequence[tuple[str, str, int]]
_GEOMETRY: _Measures = (
    ("alignment", "alignment", 3),
    ("uniformity", "uniformity", 3),
    ("mean_cosine", "mean cosine", 3),
    ("effective_rank", "effective rank", 1),
    ("isoscore", "IsoScore", 3),
)
_SPECTRUM: _Measures = (
    ("gram_sum", "Sum(WW^T)", 0),
    ("largest_eigenvalue", "largest eigenvalue", 1),
    ("trace", "trace", 0),
    ("nonnegative", "share >= 0", 3),
)
_NOTE = "top k: fraction of variance in the first k principal components; share >= 0: fraction of entries of WW^T"


def geometry_table(results: Sequence[Result]) -> Table | None:
    """Return alignment, uniformity and isotropy, one row per encoder; None without results."""
    return _table("geometry", "Geometry", results, _GEOMETRY, [])


def spectrum_table(results: Sequence[Result]) -> Table | None:
    """Return variance by principal component and the measures of section 5 of the paper; None without results."""
    ks = keys_of(result.geometry.top_variance for result in results if result.geometry is not None)
    return _table("spectrum", "Spectrum", results, _SPECTRUM, [_NOTE], ks)


def _table(
    name: str, title: str, results: Sequence[Result], measures: _Measures, notes: list[str], ks: Sequence[str] = ()
) -> Table | None:
    measured = {result.label: result.geometry for result in results if result.geometry is not None}
    if not measured:
        return None
    geometries = list(measured.values())
    columns = {f"top {k}": [geometry.top_variance.get(k) for geometry in geometries] for k in ks}
    columns |= {column: [getattr(geometry, name) for geometry in geometries] for name, column, _ in measures}
    decimals = dict.fromkeys(columns, 3) | {column: digits for _, column, digits in measures}
    frame = pd.DataFrame(columns, dtype=float)
    frame.insert(0, "encoder", list(measured))
    data = {label: f"{g.data}: {g.sentences} sentences, {g.positives} positives" for label, g in measured.items()}
    where, differences = in_common(data)
    return Table(name, f"{title}{where}", frame, decimals, [*notes, *differences])


def retrieval_table(results: Sequence[Result]) -> Table | None:
    """Return queries and the nearest sentences of every encoder, as in Table 8 of the paper; None without results."""
    searched = {result.label: result.retrieval for result in results if result.retrieval is not None}
    found = {
        label: {query.query: query.neighbours for query in retrieval.queries} for label, retrieval in searched.items()
    }
    columns: dict[str, list[str | None]] = {"": [], **{label: [] for label in found}}
    for query in keys_of(found.values()):
        depth = max(len(nearest.get(query, [])) for nearest in found.values())
        columns[""] += ["query", *(f"#{place}" for place in range(1, depth + 1))]
        for label, nearest in found.items():
            sentences = [neighbour.sentence for neighbour in nearest.get(query, [])]
            columns[label] += [query, *sentences, *[None] * (depth - len(sentences))]
    if not columns[""]:
        return None
    corpora = {label: f"{retrieval.corpus}: {retrieval.sentences} sentences" for label, retrieval in searched.items()}
    where, notes = in_common(corpora, " in ")
    return Table("retrieval", f"The nearest sentences{where}", pd.DataFrame(columns, dtype=object), notes=notes)


def in_common(texts: Mapping[str, str], word: str = " on ") -> tuple[str, list[str]]:
    """Return the text for the title if it is the same for all encoders, and otherwise a note per encoder."""
    if len(set(texts.values())) == 1:
        return word + next(iter(texts.values())), []
    return "", [f"{label}{word}{text}" for label, text in texts.items()]
