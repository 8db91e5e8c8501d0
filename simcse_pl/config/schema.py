"""The options that the front doors read themselves, by their types; all others are arguments of classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from simcse_pl.results.evaluation_results import Aggregation


@dataclass
class TrainOptions:
    """Those of conf/train.yaml."""

    encoders: Literal["one", "two"]
    test_tasks: Sequence[str] | str
    transfer: dict  # type: ignore[type-arg]
    seed: int
    resume: str | None
    senteval_dir: str | None
    debug: bool
    run_name: str


@dataclass
class EvaluateOptions:
    """Those of conf/evaluate.yaml."""

    tasks: Sequence[str] | str | None
    split: Literal["dev", "test"]
    regressor: bool
    transfer: dict  # type: ignore[type-arg]
    geometry: dict  # type: ignore[type-arg]
    aggregation: Aggregation
    senteval_dir: str | None
    retrieval: dict  # type: ignore[type-arg]
    fit_on: str
    fit_columns: Sequence[int | str] | int | str | None
    fit_limit: int | None
    nli: str
    label: str | None
    paper: dict | None  # type: ignore[type-arg]
    batch_size: int | None
    bf16: bool
    seed: int
    debug: bool
    wandb: dict  # type: ignore[type-arg]
