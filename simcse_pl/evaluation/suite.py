"""Evaluation of an encoder on a set of tasks: read their data, then measure all of them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from simcse_pl.data.senteval.bundle import NotInBundleError
from simcse_pl.data.senteval.sts_sets import (
    SPLITS,
    STS_TASKS,
    STS_TASKS_WITH_DEV,
    StsTask,
    joined,
    load_sample,
    load_sts_task,
)
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS, TransferTask, load_transfer_task
from simcse_pl.evaluation.geometry import evaluate_geometry
from simcse_pl.evaluation.regressor import evaluate_with_regressor
from simcse_pl.evaluation.retrieval import RetrievalTask
from simcse_pl.evaluation.sts import evaluate_sts
from simcse_pl.evaluation.transfer import CLASSIFIERS, SCIKIT_LEARN, evaluate_transfer
from simcse_pl.models.protocols import Encode
from simcse_pl.results.evaluation_results import SuiteResults
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.progress import tracked

log = logging.getLogger(__name__)

GEOMETRY, RETRIEVAL = "geometry", "retrieval"
WHOLE = "all"  # of the splits of STS-B, for geometry


@dataclass
class Suite:
    """The data of a set of tasks.

    Args:
        sts, transfer: STS and transfer tasks.
        regression: splits `train`, `dev` and `test` of the STS tasks to measure with a regressor, by task.
        geometry: pairs to measure geometry on; None to omit it.
        retrieval: queries and their corpus; None to omit them.
        failed: error messages of tasks that could not be read, by task (also `STS-B regressor`).
        classifier: classifier of the transfer tasks (see transfer.evaluate_transfer).
    """

    sts: list[StsTask] = field(default_factory=list)
    transfer: list[TransferTask] = field(default_factory=list)
    regression: dict[str, dict[str, StsTask]] = field(default_factory=dict)
    geometry: StsTask | None = None
    retrieval: RetrievalTask | None = None
    failed: dict[str, str] = field(default_factory=dict)
    classifier: str = SCIKIT_LEARN

    def sentences(self) -> list[str]:
        """Return the distinct sentences of all tasks except retrieval."""
        pairs = [*self.sts, *(task for splits in self.regression.values() for task in splits.values())]
        pairs += [self.geometry] if self.geometry else []
        examples = [example for task in self.transfer for split in task.splits.values() for example in split]
        return sorted(set().union(*(task.sentences for task in pairs), *(example.sentences for example in examples)))


def load_suite(
    names: Sequence[str] | str,
    senteval_dir: str | Path | None,
    split: str = "test",
    regressor: bool = False,
    classifier: str = SCIKIT_LEARN,
    geometry_split: str = WHOLE,
) -> Suite:
    """Read the data of tasks. If one task cannot be read, the others still are.

    Args:
        names: one or several of `sts`, `transfer`, `geometry`, and names of tasks. Tasks of the groups `sts` and
            `transfer` that the bundle does not have are omitted with a warning. A task given by its own name must be
            there.
        senteval_dir: a SentEval bundle; None for the project's sample, which has STS and geometry only.
        split: `test`, or `dev`, which only STS-B and SICK-R have.
        regressor: also read the splits that SentEval's regressor needs for STS-B and SICK-R.
        classifier: classifier of the transfer tasks (see transfer.evaluate_transfer).
        geometry_split: split of STS-B for geometry: `dev`, `test`, or `all` for train, dev and test as in the paper.

    Raises:
        UserError: an option is invalid, the bundle does not exist or has none of the tasks, or an option needs a
            bundle and `senteval_dir` is None.
    """
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, Sequence):
        raise UserError(f"tasks={names}: give one, or a list such as [sts,MR]")
    known = ("sts", "transfer", GEOMETRY, *STS_TASKS, *TRANSFER_TASKS)
    for name in names:
        if name not in known:
            raise UserError(f"tasks: no task {name}; choose among {', '.join(known)}")
    for option, value, choices in (
        ("split", split, SPLITS),
        ("geometry.split", geometry_split, (WHOLE, *SPLITS)),
        ("transfer.classifier", classifier, CLASSIFIERS),
    ):
        if value not in choices:
            raise UserError(f"{option}={value}: choose one of {', '.join(choices)}")
    if regressor and split != "test":
        raise UserError("regressor=true: it is trained with the dev split, so it needs split=test")
    if regressor and not {"sts", *STS_TASKS_WITH_DEV}.intersection(names):
        raise UserError(f"regressor=true: it is for {' and '.join(STS_TASKS_WITH_DEV)}; add one to tasks")
    if not senteval_dir:
        return _sample_suite(names, split, regressor, geometry_split)
    if not Path(senteval_dir).is_dir():
        raise UserError(f"senteval_dir: no folder {senteval_dir}")

    suite = Suite(classifier=classifier)
    groups = {"sts": STS_TASKS if split == "test" else STS_TASKS_WITH_DEV, "transfer": TRANSFER_TASKS}
    for task in dict.fromkeys(task for name in names for task in groups.get(name, (name,))):
        try:
            if task == GEOMETRY:
                load = partial(load_sts_task, senteval_dir, "STS-B")
                suite.geometry = _geometry_pairs(load, ("train", *SPLITS), geometry_split)
            elif task in TRANSFER_TASKS:
                suite.transfer.append(load_transfer_task(senteval_dir, task))
            else:
                suite.sts.append(load_sts_task(senteval_dir, task, split))
        except UserError as error:
            if isinstance(error, NotInBundleError) and task not in names:
                log.warning("%s is left out: %s", task, first_line(error))
            else:
                suite.failed[task] = first_line(error)
    for test in suite.sts if regressor else []:
        if test.name in STS_TASKS_WITH_DEV:
            try:
                train, dev = (load_sts_task(senteval_dir, test.name, split) for split in ("train", "dev"))
                suite.regression[test.name] = {"train": train, "dev": dev, "test": test}
            except UserError as error:
                suite.failed[f"{test.name} regressor"] = first_line(error)
    if names and not suite.sentences():
        reasons = "; ".join(f"{task}: {why}" for task, why in suite.failed.items())
        raise UserError(f"senteval_dir: {senteval_dir} has none of the tasks{reasons and f' ({reasons})'}")
    return suite


def _sample_suite(names: Sequence[str], split: str, regressor: bool, geometry_split: str) -> Suite:
    needs_bundle = [f"tasks: {name}" for name in names if name not in ("sts", GEOMETRY)]
    needs_bundle += ["regressor=true"] if regressor else []
    if needs_bundle:
        raise UserError(f"{needs_bundle[0]} needs a SentEval bundle, and senteval_dir is not set")
    if names:
        log.info("senteval_dir is not set: measuring on the project's own sample")
    return Suite(
        sts=[load_sample(split)] if "sts" in names else [],
        geometry=_geometry_pairs(load_sample, SPLITS, geometry_split) if GEOMETRY in names else None,
    )


def _geometry_pairs(load: Callable[[str], StsTask], splits: Sequence[str], split: str) -> StsTask:
    return joined([load(own) for own in splits]) if split == WHOLE else load(split)


def evaluate_suite(
    encode: Encode, suite: Suite, device: str | torch.device = "cpu", progress: bool = False
) -> SuiteResults:
    """Measure all tasks of a suite. If one task fails with a UserError, the others are still measured.

    Args:
        encode: function from sentences to vectors [n, dim]. It is called once per task (and once per regressor, and
            for geometry), with the distinct sentences of the task.
        suite: see load_suite.
        device: device of the classifiers.
        progress: show a progress bar on standard error.
    """
    jobs: dict[str, Any] = {task.name: partial(evaluate_sts, encode, task) for task in suite.sts}
    for name, splits in suite.regression.items():
        jobs[f"{name} regressor"] = partial(evaluate_with_regressor, encode, splits)
    for task in suite.transfer:
        jobs[task.name] = partial(evaluate_transfer, encode, task, device, suite.classifier)
    if suite.geometry:
        jobs[GEOMETRY] = partial(evaluate_geometry, encode, suite.geometry)
    if suite.retrieval:
        jobs[RETRIEVAL] = partial(suite.retrieval, encode)
    measured: dict[str, Any] = {}
    failed = dict(suite.failed)
    for name, measure in tracked(jobs.items(), "measuring", shown=progress):
        try:
            measured[name] = measure()
        except UserError as error:
            failed[name] = first_line(error)
    return SuiteResults(
        sts=[
            measured[task.name].model_copy(update={"regressor": measured.get(f"{task.name} regressor")})
            for task in suite.sts
            if task.name in measured
        ],
        transfer=[measured[task.name] for task in suite.transfer if task.name in measured],
        geometry=measured.get(GEOMETRY),
        retrieval=measured.get(RETRIEVAL),
        failed=failed,
    )
