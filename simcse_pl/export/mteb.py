"""MTEB (Muennighoff et al. 2023): its tasks on any encoder, with its data from the hub or from a SentEval bundle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import mteb
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction
from torch import Tensor

from simcse_pl.api import SimCSE
from simcse_pl.data.sts import STS_TASKS, load_sts_task
from simcse_pl.errors import UserError, one_line

_NAMES = {"STS-B": "STSBenchmark"}  # the other STS tasks are called alike there
LOCAL_TASKS = {_NAMES.get(task, task): task for task in STS_TASKS}


class MtebEncoder(AbsEncoder):  # type: ignore[misc] # mteb may not be installed
    """An encoder as MTEB takes it.

    Args:
        simcse: whose vectors are measured, as they are.
        name: of the results, without a folder.
    """

    def __init__(self, simcse: SimCSE, name: str) -> None:
        self.simcse = simcse
        about = {"name": f"simcse_pl/{name}", "revision": "local", "similarity_fn_name": ScoringFunction.COSINE}
        self.mteb_model_meta = ModelMeta.create_empty(about | {"embed_dim": simcse.encoder.dim})

    def encode(self, inputs: Any, **_: Any) -> Tensor:
        """Vectors [n, dim] of batches with `text`; there are no prompts, and so the kind of task does not matter."""
        texts = [text for batch in inputs for text in batch["text"]]
        vectors: Tensor = self.simcse.encode(texts, normalize_to_unit=False, progress=True)
        return vectors


def evaluate(
    encoder: MtebEncoder, tasks: Sequence[str], senteval_dir: str | Path | None = None, output: str | Path | None = None
) -> dict[str, tuple[str, float]]:
    """Measure an encoder on MTEB's tasks.

    Args:
        encoder: see MtebEncoder.
        tasks: by MTEB's names.
        senteval_dir: data/downstream of a SentEval bundle, from which STS12 to STS16, STSBenchmark and SICK-R are read
            (their test pairs); the data of all other tasks comes from the hub.
        output: a folder that gets MTEB's own files of results.

    Returns:
        By task, the name and the value of its main score.

    Raises:
        UserError: an unknown task, or data that cannot be read.
    """
    try:
        chosen = [mteb.get_task(task) for task in tasks]
    except KeyError as error:
        raise UserError(f"MTEB has no such task: {one_line(error)}") from error
    for task in chosen:
        if senteval_dir and task.metadata.name in LOCAL_TASKS:
            pairs = load_sts_task(senteval_dir, LOCAL_TASKS[task.metadata.name]).pairs
            columns = {"sentence1": "first", "sentence2": "second", "score": "score"}
            rows = {column: [getattr(pair, name) for pair in pairs] for column, name in columns.items()}
            task.dataset, task.data_loaded = {"test": datasets.Dataset.from_dict(rows)}, True
    cache = mteb.ResultCache(Path(output)) if output else None
    try:
        results = mteb.evaluate(
            encoder,  # type: ignore[arg-type] # its protocol asks for a constructor of its own
            chosen,
            cache=cache,
            co2_tracker=False,
            show_progress_bar=False,
        )
    except (OSError, ValueError) as error:  # of the hub, of datasets
        raise UserError(f"MTEB: {one_line(error)}") from error
    return {own.task_name: (own.task.metadata.main_score, float(own.get_score())) for own in results.task_results}
