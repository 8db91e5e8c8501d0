"""Evaluation of an encoder on a set of tasks: read their data, then measure all of them.

The function `encode` may have a cache, and be followed by a post-processing.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from simcse_pl.evaluation.evaluators import TEST, Evaluator, measure, source_of
from simcse_pl.evaluation.sts import (
    SPLITS,
    STS_TASKS,
    STS_TASKS_WITH_DEV,
    NotInBundleError,
    StsTask,
    evaluate_geometry,
    evaluate_sts,
    load_sample,
    load_sts_task,
)
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.results import (
    CLASSIFIERS,
    PROBING_TASKS,
    SCIKIT_LEARN,
    TRANSFER_TASKS,
    BenchmarkScores,
    OwnData,
    RetrievalResults,
    StsScores,
    SuiteResults,
    TransferScores,
)
from simcse_pl.utils.code import locate
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.tensors import Encode, unit_vectors
from simcse_pl.utils.terminal import tracked

if TYPE_CHECKING:
    from simcse_pl.lab.transfer import TransferTask

log = logging.getLogger(__name__)
GEOMETRY, RETRIEVAL, OWN_DATA = "geometry", "retrieval", "own data"
TASK_NAMES = ("sts", "transfer", "probing", GEOMETRY, *STS_TASKS, *TRANSFER_TASKS, *PROBING_TASKS)
WHOLE = "all"  # of the splits of STS-B, for geometry


@dataclass
class Suite:
    """The data of a set of tasks. What is None is not measured."""

    sts: list[StsTask] = field(default_factory=list)
    transfer: list["TransferTask"] = field(default_factory=list)  # and probing tasks
    # functions that measure tasks of mteb, by name (see benchmarks.evaluate_task)
    benchmarks: Mapping[str, Callable[[Encode], BenchmarkScores]] = field(default_factory=dict)
    geometry: StsTask | None = None  # pairs to measure geometry on
    retrieval: Callable[[Encode], RetrievalResults] | None = None  # see RetrievalTask
    evaluators: Mapping[str, Evaluator] = field(default_factory=dict)  # of the user's own data, by name: its test split
    failed: dict[str, str] = field(default_factory=dict)  # error messages of tasks that could not be read, by task
    classifier: str = SCIKIT_LEARN  # see transfer.evaluate_transfer

    def sentences(self) -> list[str]:
        """Return the distinct sentences of all tasks except retrieval and benchmarks."""
        texts = [task.sentences for task in [*self.sts, *([self.geometry] if self.geometry else [])]]
        texts += [[*example.sentences] for task in self.transfer for rows in task.splits.values() for example in rows]
        return sorted(set().union(*texts, *(evaluator.sentences(TEST) for evaluator in self.evaluators.values())))


def load_suite(
    names: Sequence[str] | str,
    senteval_dir: str | Path | None,
    split: str = "test",
    classifier: str = SCIKIT_LEARN,
    geometry_split: str = WHOLE,
) -> Suite:
    """Read the data of tasks. If one task cannot be read, the others still are.

    Args:
        names: one or several of TASK_NAMES, groups and names of tasks. A task of a group that the bundle
            does not have is omitted with a warning. A task given by its own name must be there.
        senteval_dir: a SentEval bundle; None for the project's sample, which has STS and geometry only.
        split: `test`, or `dev`, which only STS-B and SICK-R have.
        classifier: classifier of the transfer tasks (see transfer.evaluate_transfer).
        geometry_split: split of STS-B for geometry: `dev`, `test`, or `all` for train, dev and test as in the paper.

    Raises:
        UserError: an option is invalid, the bundle has none of the tasks, or a task needs a bundle and `senteval_dir`
            is None.
    """
    names = [names] if isinstance(names, str) else names
    if classifier not in CLASSIFIERS:
        raise UserError(f"transfer.classifier={classifier}: choose one of {', '.join(CLASSIFIERS)}")
    if not senteval_dir:
        if needs_bundle := [name for name in names if name not in ("sts", GEOMETRY)]:
            raise UserError(f"tasks: {needs_bundle[0]} needs a SentEval bundle, and senteval_dir is not set")
        if names:
            log.info("senteval_dir is not set: measuring on the project's own sample")

    sts_tasks = (STS_TASKS if split == "test" else STS_TASKS_WITH_DEV) if senteval_dir else ("sample",)
    groups = {"sts": sts_tasks, "transfer": TRANSFER_TASKS, "probing": PROBING_TASKS}
    suite = Suite(classifier=classifier)
    for task in dict.fromkeys(task for name in names for task in groups.get(name, (name,))):
        try:
            if task == GEOMETRY:
                suite.geometry = _geometry_pairs(senteval_dir, geometry_split)
            elif senteval_dir and task in (*TRANSFER_TASKS, *PROBING_TASKS):
                suite.transfer.append(locate("simcse_pl.lab.transfer.load_transfer_task")(senteval_dir, task))
            else:
                suite.sts.append(_sts(senteval_dir, task, split))
        except NotInBundleError as error:
            if task in names:
                suite.failed[task] = first_line(error)
            else:
                log.warning("%s is left out: %s", task, first_line(error))
        except UserError as error:
            suite.failed[task] = first_line(error)
    if names and not suite.sentences():
        reasons = "; ".join(f"{task}: {why}" for task, why in suite.failed.items())
        raise UserError(f"senteval_dir: {senteval_dir} has none of the tasks{reasons and f' ({reasons})'}")
    return suite


def _sts(senteval_dir: str | Path | None, task: str, split: str) -> StsTask:
    return load_sts_task(senteval_dir, task, split) if senteval_dir else load_sample(split)


def _geometry_pairs(senteval_dir: str | Path | None, split: str) -> StsTask:
    if split != WHOLE:
        return _sts(senteval_dir, "STS-B", split)
    *first, last = parts = [*(["train"] if senteval_dir else []), *SPLITS]
    tasks = [_sts(senteval_dir, "STS-B", part) for part in parts]
    return StsTask(tasks[0].name, f"{', '.join(first)} and {last}", {task.split: task.pairs for task in tasks})


def released_fitting_sets(suite: Suite, senteval_dir: str | Path | None) -> dict[frozenset[str], list[str]]:
    """Return what the released code of BERT-whitening fits on for each STS task, by the sentences of the task.

    A sentence counts as often as it occurs. STS-B and SICK-R are fitted on their train, dev and test splits.
    """
    fitting_sets = {}
    for task in suite.sts:
        splits = [task]
        if senteval_dir and task.name in STS_TASKS_WITH_DEV:
            splits = [load_sts_task(senteval_dir, task.name, split) for split in ("train", *SPLITS)]
        fitting_sets[frozenset(task.sentences)] = [sentence for split in splits for sentence in split.sentences]
    return fitting_sets


def evaluate_suite(
    encode: Encode, suite: Suite, device: str | torch.device = "cpu", progress: bool = False
) -> SuiteResults:
    """Measure all tasks of a suite. If one task fails with a UserError, the others are still measured.

    Args:
        encode: function from sentences to vectors [n, dim]. It is called once per task (and once for geometry), with
            the distinct sentences of the task.
        device: device of the classifiers.
        progress: show a progress bar on standard error.
    """
    jobs: dict[str, Callable[[], Any]] = {task.name: partial(evaluate_sts, encode, task) for task in suite.sts}
    for task in suite.transfer:
        jobs[task.name] = partial(
            locate("simcse_pl.lab.transfer.evaluate_transfer"), encode, task, device, suite.classifier
        )
    jobs |= {name: partial(task, encode) for name, task in suite.benchmarks.items()}
    if suite.geometry:
        jobs[GEOMETRY] = partial(evaluate_geometry, encode, suite.geometry)
    if suite.retrieval:
        jobs[RETRIEVAL] = partial(suite.retrieval, encode)
    if data := source_of(suite.evaluators, TEST):
        jobs[OWN_DATA] = partial(measure, suite.evaluators, encode, TEST)
    measured: dict[str, Any] = {}
    failed = dict(suite.failed)
    for name, job in tracked(jobs.items(), "measuring", shown=progress):
        try:
            measured[name] = job()
        except UserError as error:
            failed[name] = first_line(error)
    return SuiteResults(
        sts=[result for result in measured.values() if isinstance(result, StsScores)],
        transfer=[result for result in measured.values() if isinstance(result, TransferScores)],
        benchmarks=[result for result in measured.values() if isinstance(result, BenchmarkScores)],
        geometry=measured.get(GEOMETRY),
        retrieval=measured.get(RETRIEVAL),
        own=OwnData(data=data, metrics=measured[OWN_DATA]) if OWN_DATA in measured else None,
        failed=failed,
    )


def encode_once(encode: Encode, sentences: list[str]) -> Encode:
    """Return an `encode` function that has the vectors of `sentences`, because several tasks share sentences.

    Other sentences are encoded at each call. UserError is raised if a vector is not finite.
    """

    def checked(texts: list[str]) -> Tensor:
        vectors = encode(texts)
        bad = (~vectors.isfinite()).any(dim=1).nonzero()
        if len(bad):
            raise UserError(f"the encoder's vector of {texts[int(bad[0])]!r} is not finite")
        return vectors

    row = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}
    cache = checked(list(row)) if row else torch.empty(0)

    def cached(texts: list[str]) -> Tensor:
        return cache[[row[text] for text in texts]] if row and row.keys() >= set(texts) else checked(texts)

    return cached


def postprocessed(
    encode: Encode,
    postprocess: PostProcess,
    device: str | torch.device = "cpu",
    normalize: bool = False,
    fit_on: Mapping[frozenset[str], list[str]] | None = None,
) -> Encode:
    """Return an `encode` function followed by a post-processing, in the order of `SentenceEncoder.encode`.

    Args:
        encode: function from sentences to vectors [n, dim] that are not normalized.
        postprocess: if it is not fitted, each call fits it on the sentences of the call, which are those of one task.
        device: device of the fit.
        normalize: scale the vectors to length 1 after the post-processing.
        fit_on: the sentences to fit on in place of those of a call, see `released_fitting_sets`.
    """
    fit_each_call = not postprocess.fitted

    def transformed(texts: list[str]) -> Tensor:
        vectors = encode(texts).to(device)
        if fit_each_call:
            others = (fit_on or {}).get(frozenset(texts))
            postprocess.fit(encode(others).to(device) if others else vectors)
        vectors = postprocess.transform(vectors).cpu()
        return unit_vectors(vectors) if normalize else vectors

    return transformed
