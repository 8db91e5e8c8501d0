"""Tables of how encoders' embeddings lie in their space: geometry, and what is nearest to what."""

from collections.abc import Mapping, Sequence

import pandas as pd

from simcse_pl.report.results import Geometry, Result
from simcse_pl.report.score_tables import failure_notes, keys_of
from simcse_pl.report.table import Table

# Each measure's name in a results file, in the table, and the decimals that are shown.
_MEASURES = (
    ("alignment", "alignment", 3),
    ("uniformity", "uniformity", 3),
    ("mean_cosine", "mean cosine", 3),
    ("effective_rank", "effective rank", 1),
    ("isoscore", "IsoScore", 3),
    ("gram_sum", "Sum(WW^T)", 0),
    ("largest_eigenvalue", "largest eigenvalue", 1),
    ("trace", "trace", 0),
    ("nonnegative", "share >= 0", 3),
)
_NOTE = "top k: share of variance in the first k principal components; share >= 0: of the entries of WW^T"


def geometry_table(results: Sequence[Result]) -> Table | None:
    """An encoder a row and a measure a column (sections 2.3 and 5 of the paper); None where nothing was measured."""
    measured = {result.label: result.geometry for result in results if result.geometry is not None}
    failures = {r.label: {"geometry": r.failed["geometry"]} for r in results if "geometry" in r.failed}
    if not measured:
        return None
    geometries = list(measured.values())
    frame = pd.DataFrame({"encoder": list(measured)})
    decimals: dict[str, int] = {}
    for name, column, digits in _MEASURES:
        frame[column] = pd.Series([getattr(geometry, name) for geometry in geometries], dtype=float)
        decimals[column] = digits
    for k in keys_of(geometry.top_variance for geometry in geometries):
        shares = pd.Series([geometry.top_variance.get(k) for geometry in geometries], dtype=float)
        frame.insert(list(frame).index("IsoScore"), f"top {k}", shares)
        decimals[f"top {k}"] = 3
    where, notes = _common({label: _data(geometry) for label, geometry in measured.items()})
    return Table("geometry", f"Geometry{where}", frame, decimals, [_NOTE, *notes, *failure_notes(failures)])


def retrieval_table(results: Sequence[Result]) -> Table | None:
    """Queries, and beneath each what every encoder finds nearest, as the paper's Table 8; None where there is none."""
    searched = {result.label: result.retrieval for result in results if result.retrieval is not None}
    found = {label: {query.query: query.neighbours for query in own.queries} for label, own in searched.items()}
    columns: dict[str, list[str | None]] = {"": [], **{label: [] for label in found}}
    for query in keys_of(found.values()):
        depth = max(len(own.get(query, [])) for own in found.values())
        columns[""] += ["query", *(f"#{place}" for place in range(1, depth + 1))]
        for label, own in found.items():
            sentences = [neighbour.sentence for neighbour in own.get(query, [])]
            columns[label] += [query, *sentences, *[None] * (depth - len(sentences))]
    if not columns[""]:
        return None
    corpora = {label: f"{own.corpus}: {own.sentences} sentences" for label, own in searched.items()}
    where, notes = _common(corpora, " in ")
    return Table("retrieval", f"The nearest sentences{where}", pd.DataFrame(columns, dtype=object), notes=notes)


def _data(geometry: Geometry) -> str:
    return f"{geometry.data}: {geometry.sentences} sentences, {geometry.positives} positives"


def _common(texts: Mapping[str, str], word: str = " on ") -> tuple[str, list[str]]:
    """What is the same for all encoders goes into the title; what differs, into a note each."""
    if len(set(texts.values())) == 1:
        return word + next(iter(texts.values())), []
    return "", [f"{label}{word}{text}" for label, text in texts.items()]
