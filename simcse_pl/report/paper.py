"""The paper's own figures (paper.yaml), and which of its rows a result corresponds to."""

import fnmatch
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from simcse_pl.errors import UserError
from simcse_pl.report.results import Aggregation, Result

_FILE = Path(__file__).parent / "paper.yaml"


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


def _fits(wanted: Any, value: Any) -> bool:
    """Whether a setting is as a match of paper.yaml wants it."""
    if isinstance(wanted, list):
        return any(_fits(one, value) for one in wanted)
    if isinstance(wanted, dict):
        return isinstance(value, Mapping) and all(_fits(one, value.get(name)) for name, one in wanted.items())
    if isinstance(wanted, str):
        return isinstance(value, str) and fnmatch.fnmatchcase(value, wanted)
    return bool(value == wanted)
