"""Evaluation of an encoder on a suite of tasks: read their data, then measure all of them."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from simcse_pl.evaluation.evaluators import Evaluator, measure, source_of
from simcse_pl.evaluation.results import PROBING_TASKS, SCIKIT_LEARN, TRANSFER_TASKS, OwnData, SuiteResults
from simcse_pl.evaluation.sts import STS_TASKS, STS_TASKS_WITH_DEV, NotInBundleError, StsTask, load_sts_task
from simcse_pl.results import TEST, Shape
from simcse_pl.utils.code import optional
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.tensors import Encode
from simcse_pl.utils.terminal import tracked

log = logging.getLogger(__name__)
GEOMETRY, OWN_DATA = "geometry", "own data"
_MOST_KEPT = 2**18  # sentences whose vectors are kept
TASK_NAMES = ("sts", "transfer", "probing", GEOMETRY, *STS_TASKS, *TRANSFER_TASKS, *PROBING_TASKS)


class Task(Protocol):
    """Something to measure, whose data has been read."""

    @property
    def name(self) -> str:
        """The name in messages."""

    def __call__(self, encode: Encode, device: str | torch.device = "cpu") -> Shape:
        """Return the results. `encode` gets distinct sentences, and `device` is that of classifiers."""


@dataclass(frozen=True)
class OwnDataTask:
    """The test sets of evaluators on the user's own data."""

    evaluators: Mapping[str, Evaluator]
    name: str = OWN_DATA

    def __call__(self, encode: Encode, device: object = None) -> OwnData:
        """Return the metrics of all evaluators."""
        return OwnData(data=source_of(self.evaluators, TEST), metrics=measure(self.evaluators, encode, TEST))


@dataclass
class Suite:
    """A set of tasks."""

    tasks: list[Task] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # error messages of tasks that could not be read, by task

    @property
    def sts(self) -> list[StsTask]:
        """The STS tasks."""
        return [task for task in self.tasks if isinstance(task, StsTask)]


def load_suite(
    names: Sequence[str],
    senteval_dir: str | Path | None,
    split: str = "test",
    classifier: str = SCIKIT_LEARN,
    geometry_split: str = "all",
) -> Suite:
    """Read the data of tasks. If one task cannot be read, the others still are.

    Args:
        names: some of TASK_NAMES, groups and names of tasks. A task of a group that the bundle does not have is omitted
            with a warning. A task that is named itself must be there.
        senteval_dir: a SentEval bundle; None for the project's sample, which has STS and geometry only.
        split: `test`, or `dev`, which only STS-B and SICK-R have.
        classifier: classifier of the transfer tasks (see lab.transfer.TransferTask).
        geometry_split: split of STS-B for geometry: `dev`, `test`, or `all` for train, dev and test as in the paper.
    """
    if unknown := [name for name in names if name not in TASK_NAMES]:
        raise UserError(f"test_tasks={unknown[0]}: no such task; choose among {', '.join(TASK_NAMES)}")
    if not senteval_dir:
        if needs_bundle := [name for name in names if name not in ("sts", GEOMETRY)]:
            raise UserError(f"{needs_bundle[0]} needs a SentEval bundle, and senteval_dir is not set")
        if names:
            log.info("senteval_dir is not set: measuring on the project's own sample")

    def load(name: str) -> Any:
        if name == GEOMETRY:
            return optional("lab.geometry.read_geometry_task")(senteval_dir, geometry_split)
        if name in TRANSFER_TASKS + PROBING_TASKS:
            return optional("lab.transfer.load_transfer_task")(senteval_dir, name, classifier)
        return load_sts_task(senteval_dir, name, split)

    sts_tasks = (STS_TASKS if split == "test" else STS_TASKS_WITH_DEV) if senteval_dir else ("sample",)
    groups = {"sts": sts_tasks, "transfer": TRANSFER_TASKS, "probing": PROBING_TASKS}
    suite = Suite()
    for task in dict.fromkeys(task for name in names for task in groups.get(name, (name,))):
        try:
            suite.tasks.append(load(task))
        except UserError as error:
            if isinstance(error, NotInBundleError) and task not in names:
                log.warning("%s is left out: %s", task, first_line(error))
            else:
                suite.failed[task] = first_line(error)
    if names and not suite.tasks:
        reasons = "; ".join(f"{task}: {why}" for task, why in suite.failed.items())
        raise UserError(f"senteval_dir: {senteval_dir} has none of the tasks{reasons and f' ({reasons})'}")
    return suite


def evaluate_suite(encode: Encode, suite: Suite, device: str | torch.device = "cpu") -> SuiteResults:
    """Measure all tasks of a suite. If one task fails with a UserError, the others are still measured.

    `encode` may have a cache, and be followed by a post-processing. A task calls it with its distinct sentences.
    `device` is that of classifiers.
    """
    results, failed = [], dict(suite.failed)
    for task in tracked(suite.tasks, "measuring"):
        try:
            results.append(task(encode, device))
        except UserError as error:
            failed[task.name] = first_line(error)
    return SuiteResults.collected(results, failed)


def encode_once(encode: Encode, prompts: Collection[str | None] = ()) -> Encode:
    """Return an `encode` function that keeps vectors, because several tasks share sentences.

    `prompts` are the names of the encoder's. Sentences are encoded at each call if there would be too many to keep, as
    of a corpus. UserError is raised if a vector is not finite.
    """
    known: dict[tuple[str | None, str], Tensor] = {}

    def checked(sentences: list[str], name: str | None) -> Tensor:
        vectors = encode(sentences, prompt_name=name)
        for row in (~vectors.isfinite()).any(dim=1).nonzero():
            raise UserError(f"the encoder's vector of {sentences[int(row)]!r} is not finite")
        return vectors

    def cached(sentences: list[str], *, prompt_name: str | None = None) -> Tensor:
        name = prompt_name if prompt_name in prompts else None
        new = [text for text in dict.fromkeys(sentences) if (name, text) not in known]
        if not sentences or len(known) + len(new) > _MOST_KEPT:
            return checked(sentences, name)
        if new:
            known.update(zip([(name, text) for text in new], checked(new, name), strict=True))
        return torch.stack([known[name, text] for text in sentences])

    return cached


def measure_tasks(
    encode: Encode, suite: Suite | None, device: str | torch.device, also: StsTask | None = None
) -> SuiteResults:
    """Measure the tasks at the end of a run, and also the correlations and the geometry of the task `also`."""
    tasks = [*suite.tasks] if suite else []
    names = [task.name for task in tasks]
    more = [also, optional("lab.geometry.GeometryTask")(also)] if also else []
    suite = Suite(tasks + [task for task in more if task.name not in names])
    return evaluate_suite(encode_once(encode), suite, device)


def task_scores(measured: SuiteResults, suite: Suite) -> dict[str, Any]:
    """Return the scores and the errors of a suite's tasks, as results.json has them."""
    in_suite = [task.name for task in suite.sts]
    return {
        "sts": {task.task: task.all.spearman for task in measured.sts if task.task in in_suite},
        "transfer": {task.task: task.accuracy for task in measured.transfer},
        "transfer_dev": {task.task: task.dev_accuracy for task in measured.transfer},
        "failed": measured.failed,
        **({"transfer_classifier": measured.transfer[0].classifier} if measured.transfer else {}),
    }
