"""Tasks and benchmarks of the mteb package. It takes seconds to import, so this file is imported when it is needed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mteb
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder, get_prompt
from mteb.models.model_meta import ScoringFunction
from torch import Tensor

from simcse_pl.results.evaluation_results import BenchmarkScores
from simcse_pl.utils.errors import UserError, did_you_mean, reraise_as
from simcse_pl.utils.tensors import Encode

PREFIX = "mteb/"  # of the name of a task that SentEval has too
_DEFAULT = {"mteb": "MTEB(eng, v2)"}


def find_tasks(
    names: Sequence[str], languages: Sequence[str] | None = None, other_names: Sequence[str] = ()
) -> dict[str, mteb.AbsTask]:
    """Return tasks of mteb by name, with the prefix `mteb/`. Nothing is downloaded yet.

    Args:
        names: tasks or benchmarks, with or without the prefix; `mteb` is the benchmark MTEB(eng, v2).
        languages: ISO 639-3 codes, such as `eng`, of the subsets of tasks with several languages; None for all. A
            benchmark has languages of its own.
        other_names: further names that the error message may suggest.

    Raises:
        UserError: mteb has no task or benchmark of a name, or the task has none of the languages.
    """
    tasks: dict[str, mteb.AbsTask] = {}
    for name in names:
        known = _DEFAULT.get(name, name.removeprefix(PREFIX))
        try:
            members: Sequence[mteb.AbsTask] = mteb.get_benchmark(known).tasks
        except KeyError:
            try:
                with reraise_as(f"mteb.languages={languages}: {known}"):
                    members = [mteb.get_task(known, languages=languages)]
            except UserError as error:
                if isinstance(error.__cause__, KeyError):
                    raise UserError(_unknown(known, other_names)) from error
                raise
        tasks |= {PREFIX + task.metadata.name: task for task in members}
    return tasks


def _unknown(name: str, other_names: Sequence[str]) -> str:
    benchmarks = mteb.get_benchmarks()
    names = [*other_names, *(alias for benchmark in benchmarks for alias in benchmark.aliases or ())]
    names += [benchmark.name for benchmark in benchmarks] + [task.metadata.name for task in mteb.get_tasks()]
    hint = did_you_mean(name, names) or f"; choose among {', '.join(other_names)}, or tasks and benchmarks of mteb"
    return f"tasks={name}: neither SentEval nor mteb has it{hint}"


class _BenchmarkModel(AbsEncoder):
    """An `encode` function with prompts, as mteb calls it."""

    def __init__(self, encode: Encode, prompts: Mapping[str, str], meta: ModelMeta) -> None:
        self.encode_texts, self.model_prompts, self.mteb_model_meta = encode, dict(prompts), meta

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: Any = None, **_: Any) -> Tensor:
        """Return the vectors of the texts of a data loader, each after the prompt of the task."""
        prompt = get_prompt(self.model_prompts, task_metadata, prompt_type) or ""
        return self.encode_texts([prompt + text for batch in inputs for text in batch["text"]])


def check_prompts(prompts: Mapping[str, str]) -> None:
    """Raise UserError if a key is no task, type of task, `query` or `document`, because mteb would ignore it."""
    with reraise_as("mteb.prompts"):
        AbsEncoder.validate_task_to_prompt_name(dict(prompts))


def evaluate_task(
    encode: Encode,
    task: mteb.AbsTask,
    folder: Path,
    name: str,
    revision: str,
    prompts: Mapping[str, str] | None = None,
    batch_size: int | None = None,
) -> BenchmarkScores:
    """Measure a task by mteb, unless the folder already has its result.

    Args:
        encode: function from sentences to vectors [n, dim].
        task: see `find_tasks`; mteb loads its data.
        folder: of mteb's own files, results/NAME/REVISION/TASK.json. They are written after each subset.
        name: of the model, in these files; `simcse_pl/NAME` if it has no organization.
        revision: stands for all that determines the vectors. A result of another revision is not used.
        prompts: text before the sentences, by task, type of task, `query` or `document`, or two of them such as
            `STS22-query`; mteb documents which one is preferred.
        batch_size: sentences in a batch of mteb's data loader; None for 32.

    Raises:
        UserError: mteb cannot load or measure the task.
    """
    named = {"name": name if "/" in name else f"simcse_pl/{name}", "revision": revision}
    meta = ModelMeta.create_empty({**named, "similarity_fn_name": ScoringFunction.COSINE})
    model: Any = _BenchmarkModel(encode, prompts or {}, meta)  # mteb's annotation asks for a constructor, too
    with reraise_as("mteb"):
        done = mteb.evaluate(
            model,
            task,
            co2_tracker=False,
            encode_kwargs={"batch_size": batch_size or 32, "show_progress_bar": False},
            cache=mteb.ResultCache(folder),
            show_progress_bar=False,
        )
    if done.exceptions:  # a private data set
        raise UserError(f"mteb: {done.exceptions[0].exception}")
    kind, metric, score = task.metadata.type, task.metadata.main_score, float(done.task_results[0].get_score())
    return BenchmarkScores(task=task.metadata.name, type=kind, metric=metric, score=score)
