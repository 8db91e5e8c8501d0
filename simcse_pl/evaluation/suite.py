"""Evaluation of an encoder on a set of tasks: read their data, then measure all of them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simcse_pl.data.evaluation import TEST, Evaluator, source_of
from simcse_pl.data.evaluation import measure as measure_all
from simcse_pl.data.senteval.sts_sets import (
    SPLITS,
    STS_TASKS,
    STS_TASKS_WITH_DEV,
    NotInBundleError,
    StsTask,
    joined,
    load_sample,
    load_sts_task,
)
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS, TransferTask, load_transfer_task
from simcse_pl.evaluation.geometry import evaluate_geometry
from simcse_pl.evaluation.regressor import evaluate_with_regressor
from simcse_pl.evaluation.sts import evaluate_sts
from simcse_pl.evaluation.transfer import CLASSIFIERS, SCIKIT_LEARN, evaluate_transfer
from simcse_pl.models.protocols import Encode
from simcse_pl.results.evaluation_results import OwnData, RetrievalResults, StsScores, SuiteResults, TransferScores
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.terminal import tracked

log = logging.getLogger(__name__)

GEOMETRY, RETRIEVAL, OWN_DATA = "geometry", "retrieval", "own data"
WHOLE = "all"  # of the splits of STS-B, for geometry


@dataclass
class Suite:
    """The data of a set of tasks.

    Args:
        sts, transfer: STS and transfer tasks.
        regression: splits `train`, `dev` and `test` of the STS tasks to measure with a regressor, by task.
        geometry: pairs to measure geometry on; None to omit it.
        retrieval: measures queries and their corpus (see RetrievalTask); None to omit them.
        evaluators: measurements of the user's own data, by name; their test split is measured.
        failed: error messages of tasks that could not be read, by task (also `STS-B regressor`).
        classifier: classifier of the transfer tasks (see transfer.evaluate_transfer).
    """

    sts: list[StsTask] = field(default_factory=list)
    transfer: list[TransferTask] = field(default_factory=list)
    regression: dict[str, dict[str, StsTask]] = field(default_factory=dict)
    geometry: StsTask | None = None
    retrieval: Callable[[Encode], RetrievalResults] | None = None
    evaluators: Mapping[str, Evaluator] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    classifier: str = SCIKIT_LEARN

    def sentences(self) -> list[str]:
        """Return the distinct sentences of all tasks except retrieval."""
        pairs = [*self.sts, *(task for splits in self.regression.values() for task in splits.values())]
        pairs += [self.geometry] if self.geometry else []
        examples = [example for task in self.transfer for split in task.splits.values() for example in split]
        sentences = [task.sentences for task in pairs] + [example.sentences for example in examples]
        return sorted(set().union(*sentences, *(evaluator.sentences(TEST) for evaluator in self.evaluators.values())))


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
        names: one or several of `sts`, `transfer`, `geometry`, and names of tasks. A task of a group that the bundle
            does not have is omitted with a warning. A task given by its own name must be there.
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
    known = ("sts", "transfer", GEOMETRY, *STS_TASKS, *TRANSFER_TASKS)
    for name in names:
        if name not in known:
            raise UserError(f"tasks: no task {name}; choose among {', '.join(known)}")
    for option, value, choices in (
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
        needs_bundle = [f"tasks: {name}" for name in names if name not in ("sts", GEOMETRY)]
        needs_bundle += ["regressor=true"] if regressor else []
        if needs_bundle:
            raise UserError(f"{needs_bundle[0]} needs a SentEval bundle, and senteval_dir is not set")
        if names:
            log.info("senteval_dir is not set: measuring on the project's own sample")
    elif not Path(senteval_dir).is_dir():
        raise UserError(f"senteval_dir: no folder {senteval_dir}")

    def load_sts(task: str, split: str) -> StsTask:
        return load_sts_task(senteval_dir, task, split) if senteval_dir else load_sample(split)

    suite = Suite(classifier=classifier)
    sts_tasks = (STS_TASKS if split == "test" else STS_TASKS_WITH_DEV) if senteval_dir else ("sample",)
    groups = {"sts": sts_tasks, "transfer": TRANSFER_TASKS}
    for task in dict.fromkeys(task for name in names for task in groups.get(name, (name,))):
        what = task
        try:
            if task == GEOMETRY:
                splits = ("train", *SPLITS) if senteval_dir else SPLITS
                parts = [load_sts("STS-B", part) for part in (splits if geometry_split == WHOLE else [geometry_split])]
                suite.geometry = joined(parts) if geometry_split == WHOLE else parts[0]
            elif senteval_dir and task in TRANSFER_TASKS:
                suite.transfer.append(load_transfer_task(senteval_dir, task))
            else:
                test = load_sts(task, split)
                suite.sts.append(test)
                if regressor and task in STS_TASKS_WITH_DEV:
                    what = f"{task} regressor"
                    train, dev = (load_sts(task, part) for part in ("train", "dev"))
                    suite.regression[task] = {"train": train, "dev": dev, "test": test}
        except UserError as error:
            if isinstance(error, NotInBundleError) and what == task and task not in names:
                log.warning("%s is left out: %s", task, first_line(error))
            else:
                suite.failed[what] = first_line(error)
    if names and not suite.sentences():
        reasons = "; ".join(f"{task}: {why}" for task, why in suite.failed.items())
        raise UserError(f"senteval_dir: {senteval_dir} has none of the tasks{reasons and f' ({reasons})'}")
    return suite


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
    jobs: dict[str, Callable[[], Any]] = {task.name: partial(evaluate_sts, encode, task) for task in suite.sts}
    for name, splits in suite.regression.items():
        jobs[f"{name} regressor"] = partial(evaluate_with_regressor, encode, splits)
    for task in suite.transfer:
        jobs[task.name] = partial(evaluate_transfer, encode, task, device, suite.classifier)
    if suite.geometry:
        jobs[GEOMETRY] = partial(evaluate_geometry, encode, suite.geometry)
    if suite.retrieval:
        jobs[RETRIEVAL] = partial(suite.retrieval, encode)
    if data := source_of(suite.evaluators, TEST):
        jobs[OWN_DATA] = partial(measure_all, suite.evaluators, encode, TEST)
    measured: dict[str, Any] = {}
    failed = dict(suite.failed)
    for name, measure in tracked(jobs.items(), "measuring", shown=progress):
        try:
            measured[name] = measure()
        except UserError as error:
            failed[name] = first_line(error)
    results = list(measured.values())
    sts = [result for result in results if isinstance(result, StsScores)]
    return SuiteResults(
        sts=[scores.model_copy(update={"regressor": measured.get(f"{scores.task} regressor")}) for scores in sts],
        transfer=[result for result in results if isinstance(result, TransferScores)],
        geometry=measured.get(GEOMETRY),
        retrieval=measured.get(RETRIEVAL),
        own=OwnData(data=data, metrics=measured[OWN_DATA]) if OWN_DATA in measured else None,
        failed=failed,
    )


def evaluate_at_dims(encode: Encode, suite: Suite, dims: Sequence[int]) -> dict[str, SuiteResults]:
    """Measure the STS tasks and the evaluators of a suite on the first dimensions of its vectors.

    Args:
        encode: see evaluate_suite; it should not compute the same vectors twice (see encoding.EncodeOnce).

    Returns:
        The results by the number of dimensions, as text.
    """
    small = Suite(sts=suite.sts, evaluators=suite.evaluators)

    def truncated(dim: int, sentences: list[str]) -> Tensor:
        return encode(sentences)[:, :dim]

    return {str(dim): evaluate_suite(partial(truncated, dim), small) for dim in dims}
