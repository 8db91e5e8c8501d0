"""Published numbers: the paper's (paper.yaml), and those of other methods (methods.yaml).

The paper has ablations, and rows of encoders that a result can match. Methods are compared with one of the paper's.
"""

import fnmatch
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from omegaconf import OmegaConf

from simcse_pl.evaluation.results import Aggregation, Result
from simcse_pl.results import TrainingRun
from simcse_pl.run_folder import OF_LOGS
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text import as_number

_OTHER_MODELS = "BERT-base"  # whose scores stand beside those of a model that no paper has
# options that a run of the paper's may have: choices that are compared, a copy of the data, and what changes no weight
_MAY_DIFFER = re.compile(
    r"\+*(model|data|setting|method|objective|views|seed|val_every|test_tasks|transfer\..*|senteval_dir"
    r"|data\.(train|test|num_workers|tokenizing_processes)|trainer(\.devices|\.num_nodes|(?==(auto|cpu|gpu|ddp|fsdp)$))"
    rf"|({'|'.join(OF_LOGS)})(\..*)?)=.*"
)
# settings that an encoder of the paper's may have; those that decide its vectors are in paper.yaml
_MAY_BE_SET = {"pooling", "num_layers", "postprocess", "dim", "split", "bf16"}


class PaperRow(NamedTuple):
    """A row of one of the paper's tables: its label in our tables, and scores x 100 by task, and `Avg`."""

    label: str
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Ablation:
    """An ablation of the paper: Spearman x 100 on STS-B dev, BERT-base."""

    number: str  # of the table, such as 3 or D.1
    varied: str  # what the rows vary
    baseline: str | None  # the row that the others are compared with; None: the first
    trained: str | None  # unsupervised or supervised; None if both or unknown
    settings: tuple[str, ...]  # settings of runs that are the table's columns; empty if its columns are scores
    scores: tuple[str, ...]  # scores that are the table's columns
    rows: Mapping[str, Mapping[str, float]]  # numbers by row and column, without those that the paper lacks

    def row(self, name: str) -> str | None:
        """Return the paper's spelling of a row, with equal numbers as the same row; None if there is none."""
        number = as_number(name)
        same = (row for row in self.rows if row == name or (number is not None and as_number(row) == number))
        return next(same, None)


def ablation(table: str) -> Ablation | None:
    """Return an ablation by its name in paper.yaml; None for any other name."""
    facts = paper_file()["ablation_tables"].get(table)
    if facts is None:
        return None
    settings, scores = tuple(facts.get("settings", ())), tuple(facts.get("scores", ("dev",)))
    rows: dict[str, dict[str, float]] = {}
    for name, value in paper_file()["ablations"].get(table, {}).items():
        figures = value if isinstance(value, list) else [value]
        rows[str(name)] = {column: f for column, f in zip(settings or scores, figures, strict=True) if f is not None}
    return Ablation(facts["number"], facts["rows"], facts.get("baseline"), facts.get("trained"), settings, scores, rows)


@functools.cache
def paper_file() -> Mapping[str, Any]:
    """Return the content of paper.yaml."""
    return cast(Mapping[str, Any], OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("paper.yaml"))))


def named_row(table: str, row: str) -> PaperRow:
    """Return a row by its names in paper.yaml, such as `BERT-base-flow` of `table_5_sts`."""
    tables = paper_file()["encoders"]
    content = tables.get(table, {"rows": {}})
    matching = [name for name in content["rows"] if row in (name, name.rpartition("/")[2])]
    if len(matching) != 1:
        option = f"paper.row={row}" if table in tables else f"paper.table={table}"
        raise UserError(f"{option}: choose one of {', '.join(matching or content['rows'] or tables)}")
    part, _, name = matching[0].rpartition("/")
    label = f"paper, Table {content['number']}: {name}" + (f" ({part})" if part else "")
    return PaperRow(label, dict(zip(content["columns"], content["rows"][matching[0]], strict=True)))


def row_of_run(run: TrainingRun) -> dict[Literal["table", "row"], str] | None:
    """Return the names of the row of Table 5 that a run repeats, or None if it is another run."""
    choices, table = run.choices, "table_5_sts"
    row = f"{choices.get('setting')}/SimCSE-{methods_file()['models'].get(choices.get('model'))}"
    known = (
        row in paper_file()["encoders"][table]["rows"]
        and (choices.get("data"), choices["setting"]) in (("wiki", "unsupervised"), ("nli", "supervised"))
        and choices.get("method") in (None, *methods_file()["baselines"].values())
        and (run.settings["objective"], choices.get("views")) == ("simcse", "dropout")
        and not (choices.get("experiment") or run.sweep)
        and all(map(_MAY_DIFFER.fullmatch, run.overrides))
    )
    return {"table": table, "row": row} if known else None


def find_row(result: Result, protocol: Literal["sts", "transfer"], aggregation: Aggregation | None) -> PaperRow | None:
    """Return the paper's row to compare a result with: the one that the user named, or the one that matches.

    `aggregation` is None for transfer.
    """
    tables = paper_file()["encoders"]
    fitting = [name for name, t in tables.items() if (t["protocol"], t["aggregation"]) == (protocol, aggregation)]
    if result.paper is not None:
        row = named_row(result.paper["table"], result.paper["row"])
        if result.paper["table"] in fitting:
            return row
    if {name for name, value in result.settings.items() if value is not None} - _MAY_BE_SET:
        return None
    settings = {"encoder": result.encoder, **result.settings}
    known: Mapping[str, str] = next((m["rows"] for m in paper_file()["matches"] if _fits(m["when"], settings)), {})
    return next((named_row(table, known[table]) for table in fitting if table in known), None)


def _fits(wanted: Any, value: Any) -> bool:
    """Return whether a setting fits a pattern of paper.yaml."""
    if isinstance(wanted, list):
        return any(_fits(pattern, value) for pattern in wanted)
    if isinstance(wanted, dict):
        return isinstance(value, Mapping) and all(_fits(pattern, value.get(name)) for name, pattern in wanted.items())
    if isinstance(wanted, str):
        return isinstance(value, str) and fnmatch.fnmatchcase(value, wanted)
    return bool(value == wanted)


@dataclass(frozen=True)
class PublishedScore:
    """Published scores of a method with one model: Spearman x 100 on test sets."""

    setting: str  # unsupervised or supervised
    model: str  # such as BERT-base
    average: float  # over STS12 to STS16, STS-B and SICK-R
    source: str  # a key of `sources` in methods.yaml
    scores: Mapping[str, float]  # by task, and Avg; empty if only the average is known
    variant: str | None = None  # distinguishes it from other scores with this setting and model
    deviation: float | None = None  # of the average over seeds
    note: str | None = None
    doubt: str | None = None  # why the score is not certain


@functools.cache
def methods_file() -> Any:
    """Return the content of methods.yaml, such as the method that the others of a setting are compared with."""
    return OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("methods.yaml")))


@functools.cache
def published_scores() -> Mapping[str, tuple[PublishedScore, ...]]:
    """Return the scores of each method of methods.yaml by its name in conf/method."""
    content = methods_file()

    def score(given: Mapping[str, Any]) -> PublishedScore:
        scores = dict(zip(content["columns"], given["scores"], strict=True)) if "scores" in given else {}
        return PublishedScore(**{"average": scores.get("Avg"), **given, "scores": scores})

    return {name: tuple(map(score, method["scores"])) for name, method in content["methods"].items()}


def setting_of(choices: Mapping[str, str | None]) -> str:
    """Return the setting of a run by its choices in the config groups; the data without a setting are labelled."""
    return choices.get("setting") or "supervised"


def published_score(method: str, setting: str, model: str | None) -> PublishedScore | None:
    """Return the published score to show beside a run with these choices of conf/; None if there is none."""
    published = methods_file()["models"].get(model, _OTHER_MODELS)
    scores = published_scores().get(method, ())
    return next((score for score in scores if (score.setting, score.model) == (setting, published)), None)
