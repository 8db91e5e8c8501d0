"""All that is measured of an encoder in one go: which tasks, their data, and what came out."""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

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
from simcse_pl.evaluation.geometry import GeometryResult, evaluate_geometry
from simcse_pl.evaluation.regressor import evaluate_with_regressor
from simcse_pl.evaluation.retrieval import RetrievalResult, Search
from simcse_pl.evaluation.sts import StsResult, evaluate_sts
from simcse_pl.evaluation.transfer import CLASSIFIERS, SCIKIT_LEARN, TransferResult, evaluate_transfer
from simcse_pl.models.protocols import Encode
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.progress import tracked

log = logging.getLogger(__name__)

GEOMETRY, RETRIEVAL = "geometry", "retrieval"
WHOLE = "all"  # splits of STS-B, for geometry


@dataclass
class Suite:
    """The data of the tasks that were asked for.

    Args:
        sts, transfer: the tasks that could be read.
        relatedness: `train`, `dev` and `test` of the STS tasks that a regressor is asked for, by their names.
        geometry: the pairs that geometry is measured on; None where it was not asked for.
        search: the queries of retrieval and their corpus; None where it was not asked for.
        failed: the tasks that could not be read (`STS-B regressor`, too), and why.
        classifier: of the transfer tasks (see transfer.evaluate_transfer).
    """

    sts: list[StsTask] = field(default_factory=list)
    transfer: list[TransferTask] = field(default_factory=list)
    relatedness: dict[str, dict[str, StsTask]] = field(default_factory=dict)
    geometry: StsTask | None = None
    search: Search | None = None
    failed: dict[str, str] = field(default_factory=dict)
    classifier: str = SCIKIT_LEARN

    def sentences(self) -> list[str]:
        """The distinct sentences of all tasks; a corpus to search is none of them."""
        related = [task for splits in self.relatedness.values() for task in splits.values()]
        scored = [*self.sts, *related, *([self.geometry] if self.geometry else [])]
        of_pairs = {sentence for task in scored for sentence in task.sentences}
        examples = [example for task in self.transfer for split in task.splits.values() for example in split]
        return sorted(of_pairs.union(*(example.sentences for example in examples)))


@dataclass
class SuiteResults:
    """What came out, protocol by protocol; `failed` are the tasks that were not measured, and why."""

    sts: list[StsResult] = field(default_factory=list)
    transfer: list[TransferResult] = field(default_factory=list)
    geometry: GeometryResult | None = None
    retrieval: RetrievalResult | None = None
    failed: dict[str, str] = field(default_factory=dict)


def load_suite(
    names: Sequence[str] | str,
    senteval_dir: str | Path | None,
    split: str = "test",
    regressor: bool = False,
    classifier: str = SCIKIT_LEARN,
    geometry_split: str = WHOLE,
) -> Suite:
    """Read the data of the tasks that are asked for; one that cannot be read keeps no other from being read.

    Args:
        names: one or several of `sts`, `transfer` and `geometry`, or tasks by name. Of the first two, tasks that the
            bundle does not have are left out with a line in the log; one asked for by its own name has failed then.
        senteval_dir: a SentEval bundle; where None, the project's own sample stands in for STS.
        split: `test`, or `dev`, which STS-B and SICK-R have.
        regressor: for STS-B and SICK-R, read what SentEval's regressor is trained on, too.
        classifier: of the transfer tasks (see transfer.evaluate_transfer).
        geometry_split: of STS-B, for geometry: `dev`, `test`, or `all` for train, dev and test, as the paper's authors.

    Raises:
        UserError: an unknown task, split or classifier, no such folder, or no task that could be read; a task of a
            bundle, or the regressor, where there is no bundle; a regressor without a task that has one.
    """
    groups = {"sts": STS_TASKS if split == "test" else STS_TASKS_WITH_DEV, "transfer": TRANSFER_TASKS}
    known = (*groups, GEOMETRY, *STS_TASKS, *TRANSFER_TASKS)
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, Sequence):
        raise UserError(f"tasks={names}: give one, or a list such as [sts,MR]")
    for name in names:
        if name not in known:
            raise UserError(f"tasks: no task {name}; choose among {', '.join(known)}")
    if split not in SPLITS:
        raise UserError(f"split={split}: choose one of {', '.join(SPLITS)}")
    if geometry_split not in (WHOLE, *SPLITS):
        raise UserError(f"geometry.split={geometry_split}: choose one of {', '.join((WHOLE, *SPLITS))}")
    if classifier not in CLASSIFIERS:
        raise UserError(f"transfer.classifier={classifier}: choose one of {', '.join(CLASSIFIERS)}")
    if regressor and split != "test":
        raise UserError("regressor=true: it is trained with the dev split, so it needs split=test")
    if regressor and not {"sts", *STS_TASKS_WITH_DEV}.intersection(names):
        raise UserError(f"regressor=true: it is for {' and '.join(STS_TASKS_WITH_DEV)}; add one to tasks")
    if not senteval_dir:
        return _sample_suite(names, split, regressor, geometry_split)
    if not Path(senteval_dir).is_dir():
        raise UserError(f"senteval_dir: no folder {senteval_dir}")
    suite = Suite(classifier=classifier)
    for task in dict.fromkeys(task for name in names for task in groups.get(name, (name,))):
        try:
            _read(suite, task, senteval_dir, geometry_split if task == GEOMETRY else split)
        except UserError as error:
            if isinstance(error, NotInBundleError) and task not in names:
                log.warning("%s is left out: %s", task, first_line(error))
            else:
                suite.failed[task] = first_line(error)
    if regressor:
        _read_relatedness(suite, senteval_dir)
    if names and not suite.sentences():
        reasons = "; ".join(f"{task}: {why}" for task, why in suite.failed.items())
        raise UserError(f"senteval_dir: {senteval_dir} has none of the tasks{reasons and f' ({reasons})'}")
    return suite


def _sample_suite(names: Sequence[str], split: str, regressor: bool, geometry_split: str) -> Suite:
    others = [f"tasks: {name}" for name in names if name not in ("sts", GEOMETRY)]
    if regressor:
        others.append("regressor=true")
    if others:
        raise UserError(f"{others[0]} needs a SentEval bundle, and senteval_dir is not set")
    if names:
        log.info("senteval_dir is not set: measuring on the project's own sample")
    return Suite(
        sts=[load_sample(split)] if "sts" in names else [],
        geometry=_pairs_of_geometry(load_sample, SPLITS, geometry_split) if GEOMETRY in names else None,
    )


def _pairs_of_geometry(load: Callable[[str], StsTask], splits: Sequence[str], split: str) -> StsTask:
    return joined([load(own) for own in splits]) if split == WHOLE else load(split)


def _read(suite: Suite, task: str, senteval_dir: str | Path, split: str) -> None:
    if task == GEOMETRY:
        load = partial(load_sts_task, senteval_dir, "STS-B")
        suite.geometry = _pairs_of_geometry(load, ("train", *SPLITS), split)
    elif task in TRANSFER_TASKS:
        suite.transfer.append(load_transfer_task(senteval_dir, task))
    else:
        suite.sts.append(load_sts_task(senteval_dir, task, split))


def _read_relatedness(suite: Suite, senteval_dir: str | Path) -> None:
    for test in suite.sts:
        if test.name in STS_TASKS_WITH_DEV:
            try:
                train, dev = (load_sts_task(senteval_dir, test.name, split) for split in ("train", "dev"))
            except UserError as error:
                suite.failed[_regressor(test.name)] = first_line(error)
            else:
                suite.relatedness[test.name] = {"train": train, "dev": dev, "test": test}


def _regressor(task: str) -> str:
    return f"{task} regressor"


def evaluate_suite(
    encode: Encode, suite: Suite, device: str | torch.device = "cpu", progress: bool = False
) -> SuiteResults:
    """Measure everything in a suite; a task that cannot be measured keeps no other from being measured.

    Args:
        encode: sentences to vectors [n, dim]; it is called once a task (and once more for a regressor or geometry),
            with the task's own distinct sentences.
        suite: see load_suite.
        device: where classifiers are fitted.
        progress: show a progress bar on standard error.
    """
    results = SuiteResults(failed=dict(suite.failed))

    def sts(task: StsTask) -> None:
        results.sts.append(evaluate_sts(encode, task))

    def regressor(name: str, splits: dict[str, StsTask]) -> None:
        scores = evaluate_with_regressor(encode, splits)
        results.sts = [dataclasses.replace(own, regressor=scores) if own.task == name else own for own in results.sts]

    def transfer(task: TransferTask) -> None:
        results.transfer.append(evaluate_transfer(encode, task, device, suite.classifier))

    def geometry(task: StsTask) -> None:
        results.geometry = evaluate_geometry(encode, task)

    def retrieval(search: Search) -> None:
        results.retrieval = search(encode)

    jobs = [
        *((task.name, partial(sts, task)) for task in suite.sts),
        *((_regressor(name), partial(regressor, name, splits)) for name, splits in suite.relatedness.items()),
        *((task.name, partial(transfer, task)) for task in suite.transfer),
        *([(GEOMETRY, partial(geometry, suite.geometry))] if suite.geometry else []),
        *([(RETRIEVAL, partial(retrieval, suite.search))] if suite.search else []),
    ]
    for name, measure in tracked(jobs, "measuring", shown=progress):
        try:
            measure()
        except UserError as error:
            results.failed[name] = first_line(error)
    return results
