"""Targets: what runs leave, which reports, sweeps and searches read; and the requests that the server gets."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from rich.console import Console

from simcse_pl.export.model_card import trained_by
from simcse_pl.loggers import CurvesLogger
from simcse_pl.report.__main__ import of_sweeps
from simcse_pl.report.html.neighbours import Neighbourhood, encoder_before_training
from simcse_pl.report.html.page import page
from simcse_pl.report.html.runs import read_runs
from simcse_pl.report.report import encoder_figures, encoder_tables
from simcse_pl.report.results import Result, read
from simcse_pl.report.sweep_runs import read_job
from simcse_pl.resume import WANDB_FILE
from simcse_pl.run_files import CURVES_FILE, RESULTS_FILE
from simcse_pl.search import Search
from simcse_pl.sentence_index import SentenceIndex
from simcse_pl.serve.application import Limits, Served, application
from simcse_pl.sweep import finished_job
from simcse_pl.wandb_runs import remembered_run
from tests.fuzz.engine import Target
from tests.fuzz.tiny import encode, encoder, files_under

Files = dict[str, Sequence[bytes]]


def _json(value: object) -> list[bytes]:
    return [json.dumps(value).encode()]


def _scores(spearman: float) -> dict[str, float]:
    return {"spearman": spearman, "alignment": 0.2, "uniformity": -2.0}


def _job(number: int, dropout: float) -> Files:
    options = [f"model.dropout={dropout}", "sweep=table_3", f"sweep.row='{dropout}'", f"seed={number}"]
    told = {"overrides": options, "choices": {"model": "minilm", "sweep": None}, "seed": number}
    stages = {"before": _scores(0.6), "best": _scores(0.7 + dropout), "test": _scores(0.7)}
    run = {
        **{"validation": "sample", "steps": 8, "best_step": 4, "failed": {}, "transfer_dev": {"MR": 0.5}},
        **{"sweep": {"table": None, "row": str(dropout), "column": None, "size": "mini"}},
        "trial": {"values": {"model.dropout": dropout}, "pruned": False},
    }
    return {
        f"{number}/{RESULTS_FILE}": _json(told | stages | run),
        f"{number}/{CURVES_FILE}": _CURVES,
        f"{number}/config/overrides.yaml": _json(options),
        f"{number}/config/hydra.yaml": _json({"hydra": {"runtime": {"choices": told["choices"]}}}),
        f"{number}/config/config.yaml": [_json(_CONFIG)[0], b"seed: 1\nmodel: &a\n  name: model\n  x: *a\n"],
    }


_CONFIG = {
    "seed": 1,
    "model": {
        "_target_": "simcse_pl.encoder.SentenceEncoder.from_pretrained",
        **{"name": "model", "pooling": "mean", "head": "mlp", "max_length": 8},
    },
    "sweep": None,
}
_CURVES = [
    b"epoch,step,train/loss,val/alignment,val/spearman,val/uniformity\n"
    b"0,0,,0.3,0.6,-1.5\n0,1,1.25,,,\n0,3,,0.2,0.7,-1.6\n0,7,nan,0.2,inf,-1.7\n",
    b"step\n",
]
_TASK = {"task": "STS-B", "split": "test", "pairs": 9, "all": {"spearman": 0.5, "pearson": 0.4}, "regressor": {}}
_SUBSETS = {"task": "STS12", "wmean": {"spearman": 0.5}, "subsets": {"a": {"pairs": 3, "spearman": 0.5}}}
_GEOMETRY = {
    **{"data": "x", "alignment": 0.2, "uniformity": -2.0, "spectrum": [3.0, 1.0], "top_variance": {"1": 0.5}},
    "similarities": {"0-1": [0.1, 0.2, 0.3], "4-5": [0.9, 0.8, 0.7]},
}
_RESULT = {
    **{"label": "a", "encoder": "b", "settings": {"pooling": "mean"}, "sts": [_TASK, _SUBSETS], "failed": {"MR": "no"}},
    "transfer": [{"task": "MR", "accuracy": 0.5}, {"task": "MRPC", "accuracy": 0.5, "f1": 0.6}],
    "geometry": _GEOMETRY,
    "retrieval": {"corpus": "c", "queries": [{"query": "q", "neighbours": [{"sentence": "<b>"}]}]},
    "paper": {"table": "table_5_sts", "row": "unsupervised/SimCSE-BERT-base"},
}
_RUN: Files = {name.removeprefix("0/"): own for name, own in _job(0, 0.1).items()}
_SWEEP: Files = _job(0, 0.1) | _job(1, 0.2)
_MULTIRUN = {
    "hydra": {
        "sweeper": {"_target_": "hydra._internal.BasicSweeper", "params": {"seed": "1,2"}},
        "overrides": {"task": ["model.dropout=0.1,0.2"]},
    }
}


def _results(folder: Path) -> None:
    result = read(folder)
    assert isinstance(result, Result)
    for table in encoder_tables([result]):
        table.files()
        Console(file=io.StringIO()).print(table.printed())
    encoder_figures([result])


def _curves(folder: Path) -> None:
    logger = CurvesLogger(save_dir=folder, name="", version="")
    logger.log_metrics({"val/spearman": 0.5}, step=1)


def _path(folder: Path) -> None:
    trained_by(str(folder / "encoder"))
    encoder_figures([], [read(folder)])


def _sweep(folder: Path) -> None:
    of_sweeps({"x": str(folder)})
    nothing = Neighbourhood("x", 0, None, [], "none")
    page(*read_runs({"x": folder}), nothing)


def _began_with(folder: Path) -> None:
    encoder_before_training(read_job(folder, "x"))


def _finished(folder: Path) -> None:
    finished_job(folder, ["seed=0"])


def _search(folder: Path) -> None:
    Search(folder, {"lr": {"low": 0.1, "high": 1.0}, "x": {"choices": [1, 2]}}, trial=1)


class _Indexed:
    """What the server asks of an encoder."""

    def __init__(self) -> None:
        self.index = SentenceIndex.build(encode, ["A dog.", "A cat runs.", "Oh."])

    def search(self, queries: list[str], top_k: int, threshold: float | None) -> Any:
        return self.index.search(queries, top_k, threshold)


def _client() -> TestClient:
    app = application([Served("a", _Indexed(), {})], Limits(4, 40, 3), ["127.0.0.1"])  # type: ignore[arg-type]
    return TestClient(app, "http://127.0.0.1", raise_server_exceptions=True)


def _request(folder: Path) -> None:
    body, headers = (folder / "body").read_bytes(), {"Content-Type": "application/json"}
    answer = _client().post("/search", content=body, headers=headers)
    assert answer.status_code == 200 or (answer.status_code in (400, 413, 422) and list(answer.json()) == ["error"])


TARGETS = {
    "results": Target({RESULTS_FILE: _json(_RESULT)}, _results, 60, names_file=False),
    "curves": Target({CURVES_FILE: _CURVES}, _curves, 300),
    "path": Target(_RUN, _path, 40),
    "sweep": Target(_SWEEP | {"multirun.yaml": _json(_MULTIRUN)}, _sweep, 30),
    "began_with": Target(
        _RUN | {f"model/{name}": own for name, own in files_under(encoder().save_pretrained).items()},
        _began_with,
        40,
        names_file=False,
    ),
    "finished_job": Target({RESULTS_FILE: _json({"overrides": ["seed=0"], "best": {"spearman": 0.5}})}, _finished),
    "wandb_run": Target(
        {WANDB_FILE: _json({"id": "a", "project": "b", "entity": None, "summary": {"x": 1}})}, remembered_run
    ),
    "study": Target(files_under(lambda folder: Search(folder, {"lr": {"low": 0.1, "high": 1.0}})), _search, 100),
    "request": Target({"body": _json({"queries": ["A dog."], "top_k": 2, "threshold": 0.5})}, _request, 100),
}
