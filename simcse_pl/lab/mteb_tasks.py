"""Tasks and benchmarks of the mteb package. It takes seconds to import, so this file is imported when it is needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mteb
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder, get_prompt
from mteb.models.model_meta import ScoringFunction
from torch import Tensor

from simcse_pl.evaluation.results import BenchmarkScores
from simcse_pl.evaluation.suite import TASK_NAMES
from simcse_pl.utils.errors import UserError, did_you_mean, reraise_as
from simcse_pl.utils.tensors import Encode

PREFIX = "mteb/"  # of the name of a task that SentEval has too


def find_tasks(names: Sequence[str], languages: Sequence[str] | None = None) -> dict[str, mteb.AbsTask]:
    """Return tasks by name, with the prefix `mteb/`, before their data is loaded.

    Args:
        names: tasks or benchmarks, with or without the prefix; `mteb` is the benchmark MTEB(eng, v2).
        languages: ISO 639-3 codes of the subsets to keep of a task that is not given by a benchmark; None for all.
    """
    known = mteb.get_benchmarks()
    benchmarks = {name: benchmark for benchmark in known for name in (benchmark.name, *(benchmark.aliases or ()))}
    benchmarks["mteb"] = benchmarks["MTEB(eng, v2)"]
    tasks: dict[str, mteb.AbsTask] = {}
    for name in (name.removeprefix(PREFIX) for name in names):
        try:
            members = benchmarks[name].tasks if name in benchmarks else [mteb.get_task(name, languages=languages)]
        except KeyError as error:
            near = did_you_mean(name, [*TASK_NAMES, *benchmarks, *(task.metadata.name for task in mteb.get_tasks())])
            raise UserError(f"tasks={name}: neither SentEval nor mteb has it{near}") from error
        except ValueError as error:
            raise UserError(f"mteb.languages={languages}: {name} has none of them") from error
        tasks |= {PREFIX + task.metadata.name: task for task in members}
    return tasks


class _BenchmarkModel(AbsEncoder):
    """An `encode` function with prompts, as mteb calls it."""

    def __init__(self, encode: Encode, prompts: Mapping[str, str] | None, meta: ModelMeta) -> None:
        self.encode_texts, self.model_prompts, self.mteb_model_meta = encode, dict(prompts or {}), meta

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: Any = None, **_: Any) -> Tensor:
        """Return the vectors of the texts of a data loader, with the prompt of the task, or the encoder's own."""
        texts = [text for batch in inputs for text in batch["text"]]
        if self.model_prompts:
            prompt = get_prompt(self.model_prompts, task_metadata, prompt_type) or ""
            return self.encode_texts([prompt + text for text in texts])
        return self.encode_texts(texts, prompt_name=prompt_type and prompt_type.value)


@dataclass
class MtebTask:
    """A task that mteb measures, unless the folder has its result."""

    name: str  # see `find_tasks`
    task: mteb.AbsTask
    folder: Path  # of mteb's own files, results/MODEL/REVISION/TASK.json, which it writes after each subset
    model: str = ""  # its name in these files; mteb needs OWNER/NAME, so the owner is `simcse_pl` if there is none
    revision: str = ""  # stands for all that determines the vectors; a result of another revision is not used
    # texts before the sentences, by `query`, `document`, type of task or task; None for the prompts of `encode`
    prompts: Mapping[str, str] | None = None
    batch_size: int | None = None  # number of sentences; None for 32

    def __call__(self, encode: Encode, device: object = None) -> BenchmarkScores:
        """Measure the task by mteb; `encode` returns the vectors [n, dim] of sentences."""
        named = {"name": self.model if "/" in self.model else f"simcse_pl/{self.model}", "revision": self.revision}
        meta = ModelMeta.create_empty({**named, "similarity_fn_name": ScoringFunction.COSINE})
        model: Any = _BenchmarkModel(encode, self.prompts, meta)  # mteb's annotation asks for its constructor, too
        options: Any = {"batch_size": self.batch_size or 32, "show_progress_bar": False}
        cache = mteb.ResultCache(self.folder)
        with reraise_as("mteb"):
            done = mteb.evaluate(
                model, self.task, co2_tracker=False, encode_kwargs=options, cache=cache, show_progress_bar=False
            )
        if done.exceptions:  # a private data set
            raise UserError(f"mteb: {done.exceptions[0].exception}")
        about, score = self.task.metadata, float(done.task_results[0].get_score())
        return BenchmarkScores(task=about.name, type=about.type, metric=about.main_score, score=score)
