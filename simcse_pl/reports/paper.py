"""The paper's own figures (paper.yaml): which of its rows a result corresponds to, and its ablations."""

import fnmatch
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from simcse_pl.results.evaluation_results import Aggregation, Result
from simcse_pl.utils.errors import UserError

_FILE = Path(__file__).parent / "paper.yaml"
_NOT_THE_PAPERS = ("max_length", "normalize", "word_counts")  # settings that no encoder of the paper was given


@dataclass(frozen=True)
class PaperRow:
    """A row of one of the paper's tables.

    Args:
        table: its number, as `5` or `E.1`.
        name: of the row; after a slash, where the table has two parts.
        figures: x 100, by task, and `Avg`.
    """

    table: str
    name: str
    figures: Mapping[str, float]

    @property
    def label(self) -> str:
        """What tables call it, so that nobody takes it for measured here."""
        part, _, name = self.name.rpartition("/")
        return f"paper, Table {self.table}: {name}" + (f" ({part})" if part else "")


@dataclass(frozen=True)
class Ablation:
    """One of the paper's tables that vary one thing: Spearman x 100 on STS-B dev, BERT-base.

    Args:
        number: of the table, as `3` or `D.1`.
        varied: what its rows are.
        trained: `unsupervised` or `supervised`; None where the table's columns say it, or nothing does.
        settings: of runs, which are the table's columns; none where it has one column, or scores as columns.
        scores: that are its columns.
        rows: in order, the figures of each by column; what the paper does not have is not there.
    """

    number: str
    varied: str
    trained: str | None
    settings: tuple[str, ...]
    scores: tuple[str, ...]
    rows: Mapping[str, Mapping[str, float]]

    def row(self, name: str) -> str | None:
        """How the paper spells a row; numbers are one row if they are equal."""
        return next((row for row in self.rows if row == name or _equal_numbers(row, name)), None)


def ablation(table: str) -> Ablation | None:
    """One of the tables of ablations, by its name in paper.yaml; None if there is none of that name."""
    about = published()["ablation_tables"].get(table)
    if about is None:
        return None
    settings, scores = tuple(about.get("settings", ())), tuple(about.get("scores", ("dev",)))
    rows = {
        name: {column: f for column, f in zip(settings or scores, figures, strict=True) if f is not None}
        for name, figures in _flat(published()["ablations"].get(table, {}))
    }
    return Ablation(about["number"], about["rows"], about.get("trained"), settings, scores, rows)


def ablation_names() -> list[str]:
    """The tables that `ablation` knows."""
    return list(published()["ablation_tables"])


@functools.cache
def published() -> Mapping[str, Any]:
    """All of paper.yaml."""
    content: Any = OmegaConf.to_container(OmegaConf.load(_FILE))
    return content  # type: ignore[no-any-return]


def named_row(table: str, row: str) -> PaperRow:
    """A row by the names that paper.yaml has for it.

    Args:
        table: as `table_5_sts`.
        row: as `BERT-base-flow`; with the table's part, as `supervised/SimCSE-BERT-base`, where both parts have one.

    Raises:
        UserError: no such table or row, or two such rows; the message lists what there is.
    """
    tables = published()["encoders"]
    if table not in tables:
        raise UserError(f"paper.table={table}: choose one of {', '.join(tables)}")
    rows = _rows(table)
    found = [name for name in rows if row in (name, name.rpartition("/")[2])]
    if len(found) != 1:
        problem = "choose one of" if not found else f"{table} has {len(found)} of that name; choose one of"
        raise UserError(f"paper.row={row}: {problem} {', '.join(found or rows)}")
    return rows[found[0]]


def find_row(result: Result, protocol: Literal["sts", "transfer"], aggregation: Aggregation | None) -> PaperRow | None:
    """The row that a result's scores can be compared with: the one that the user named, else the one it is known to be.

    Args:
        result: of an encoder.
        protocol: `sts` or `transfer`.
        aggregation: of STS subsets; None for transfer.

    Raises:
        UserError: the result names a row that is not there.
    """
    tables = published()["encoders"]
    fitting = [name for name, t in tables.items() if (t["protocol"], t["aggregation"]) == (protocol, aggregation)]
    if result.paper is not None:
        row = named_row(result.paper.table, result.paper.row)
        if result.paper.table in fitting:
            return row
    if any(result.settings.get(option) for option in _NOT_THE_PAPERS):
        return None
    own = {"encoder": result.encoder, **result.settings}
    known: Mapping[str, str] = next((m["rows"] for m in published()["matches"] if _fits(m["when"], own)), {})
    return next((named_row(table, known[table]) for table in fitting if table in known), None)


def _rows(table: str) -> dict[str, PaperRow]:
    content = published()["encoders"][table]
    rows: dict[str, PaperRow] = {}
    for name, value in content["rows"].items():
        parts = {name: value} if isinstance(value, list) else {f"{name}/{row}": v for row, v in value.items()}
        for full, figures in parts.items():
            rows[full] = PaperRow(content["number"], full, dict(zip(content["columns"], figures, strict=True)))
    return rows


def _flat(rows: Mapping[Any, Any]) -> Iterator[tuple[str, list[float | None]]]:
    """Rows by their names, those of a group with the group's name before theirs, as `crop 10%`."""
    for name, value in rows.items():
        if isinstance(value, dict):
            yield from ((f"{name} {part}", figures) for part, figures in _flat(value))
        else:
            yield str(name), value if isinstance(value, list) else [value]


def _equal_numbers(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def _fits(wanted: Any, value: Any) -> bool:
    """Whether a setting is as a match of paper.yaml wants it."""
    if isinstance(wanted, list):
        return any(_fits(one, value) for one in wanted)
    if isinstance(wanted, dict):
        return isinstance(value, Mapping) and all(_fits(one, value.get(name)) for name, one in wanted.items())
    if isinstance(wanted, str):
        return isinstance(value, str) and fnmatch.fnmatchcase(value, wanted)
    return bool(value == wanted)
