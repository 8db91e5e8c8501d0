"""What a process does with a job of `simcse train`: train it, resume it, or nothing if it is done elsewhere."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from simcse_pl.sweeps.jobs import describe_job, finished_job, job_arguments
from simcse_pl.sweeps.rows import with_values
from simcse_pl.training.checkpoints import RunMetadata, find_checkpoint, locked, resume_option
from simcse_pl.training.launch import run_job
from simcse_pl.training.trainer import starts_ranks

if TYPE_CHECKING:
    from simcse_pl.sweeps.optuna_search import OptunaTrial

log = logging.getLogger(__name__)


@dataclass
class Job:
    """A job of `simcse train`.

    Attributes:
        config: the config, with the values that an Optuna search proposes.
        folder: the folder of the job.
        description: the part of results.json that says which job it is.
        metadata: the callback that stores what the run trains with and its first metrics in checkpoints.
        checkpoint: the checkpoint to resume from, if any.
        trial: the trial of an Optuna search, if any.
        results: the content of results.json if this process does not train, empty if the job failed elsewhere;
            None if this process trains.
    """

    config: DictConfig
    folder: Path
    description: dict[str, Any]
    metadata: RunMetadata
    checkpoint: Path | None = None
    trial: "OptunaTrial | None" = None
    results: dict[str, Any] | None = None


@contextmanager
def started_job(config: DictConfig) -> Iterator[Job]:
    """Decide whether this process trains a job, and from which checkpoint. Within the block, its folder is locked.

    A job of a sweep that has finished is not run again, and one that was interrupted is resumed. A job of a multirun
    with several ranks runs in a separate process, because a second job in this process would find the process group of
    the first.

    Raises:
        UserError: the folder holds another job, or the checkpoint does not fit.
    """
    folder, runtime = Path(config.run_dir), HydraConfig.get()
    description = describe_job(config, runtime)
    options = description["overrides"]
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    job = Job(config, folder, description, RunMetadata(resolved))
    if resume_option(config.resume) == "auto":
        job.results = finished_job(folder, options)
    if job.results is not None:
        log.info("%s has run already", folder)
    elif runtime.mode == RunMode.MULTIRUN and starts_ranks(instantiate(config.trainer, logger=False)):
        run_job("simcse_pl.cli", job_arguments(runtime, folder))
        job.results = finished_job(folder, options) or {}
    if job.results is not None:
        yield job
        return
    with locked(folder):
        job.checkpoint = find_checkpoint(config.resume, folder, search=bool(config.get("search")))
        job.trial = instantiate(config.get("search"))
        if job.trial:
            job.config = with_values(config, job.trial.values)
        yield job
