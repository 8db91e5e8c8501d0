"""Train an encoder: build its parts from a config, train, test and save. entry_point.py composes the config."""

import gc
import inspect
import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.views.segmenters import spaces
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.tables.run_table import run_places, run_table
from simcse_pl.results.run_files import RESOLVED_CONFIG, RESULTS_FILE
from simcse_pl.sweeps.jobs import best_score
from simcse_pl.tracking.wandb_runs import closing_run
from simcse_pl.training.checkpoints import remove_checkpoints
from simcse_pl.training.fit import check_trainer, measure_tasks, run_settings, task_scores, train_and_test
from simcse_pl.training.job import Job, started_job
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.preparation import check_views_differ
from simcse_pl.utils.errors import UserError, did_you_mean, reraise_as
from simcse_pl.utils.files import atomic_write, write_json
from simcse_pl.utils.ranks import is_first_process
from simcse_pl.utils.terminal import show

if TYPE_CHECKING:
    from simcse_pl.evaluation.suite import Suite

log = logging.getLogger("simcse_pl.train")
logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # importing it sets INFO
logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
logging.getLogger("lightning_fabric.strategies.launchers").setLevel(logging.INFO)  # says which rank was killed


def train(config: DictConfig) -> dict[str, Any]:
    """Train an encoder, test and save the best checkpoint, and return the content of results.json."""
    with started_job(config) as job:
        return train_job(job) if job.results is None else job.results  # of an earlier run, or of another process


def train_job(job: Job) -> dict[str, Any]:
    """Train a job in this process."""
    gc.collect()  # trainers and modules refer to each other: free those of an earlier job of a sweep
    config = job.config
    callbacks = [*instantiate(config.callbacks).values(), job.metadata]
    if job.trial:
        callbacks.append(job.trial.callback)
    trainer: pl.Trainer = instantiate(config.trainer, logger=False, callbacks=callbacks)
    check_trainer(trainer)
    if trainer.strategy.root_device.type == "cuda":
        torch.cuda.set_device(trainer.strategy.root_device)  # for what is loaded before training
    with reraise_as("seed"):
        pl.seed_everything(config.seed, workers=True, verbose=False)
    torch.set_float32_matmul_precision("high")

    encoder: SentenceEncoder = instantiate(config.model)
    evaluators = instantiate(config.evaluators)
    data: SentenceDataModule = instantiate(
        config.data, tokenizer=encoder.tokenizer, templates=encoder.templates, evaluators=evaluators
    )
    for name in config.objectives:
        if name not in data.sets:
            raise UserError(f"objectives.{name}: data.sets has no {name}{did_you_mean(name, data.sets)}")
    module = build_module(config, encoder)
    if any(getattr(part, "whole_words", False) for part in module.modules()):
        segment = instantiate(config.segmenter)
        data.segment = None if getattr(segment, "func", segment) is spaces else segment
    suite = None
    if config.test_tasks:
        from simcse_pl.evaluation.suite import load_suite  # imports what most runs do not need

        suite = load_suite(config.test_tasks, config.senteval_dir, classifier=config.transfer.classifier)
        if suite.failed:
            raise UserError(f"test_tasks: {failures(suite.failed)}")
    data.setup()
    module.prepare(data.row_kinds)
    check_dropout(config, module, data)
    if trainer.is_global_zero:
        with atomic_write(job.folder) as new:
            (new / RESOLVED_CONFIG.parent).mkdir()
            (new / RESOLVED_CONFIG).write_text(OmegaConf.to_yaml(config, resolve=True), encoding="utf-8")

    with closing_run():
        choices = job.description["choices"]
        settings = run_settings(trainer, module, data, choices)
        loggers = start_loggers(config, trainer, {"choices": choices, "settings": settings})
        log_settings(settings, loggers)
        tested = train_and_test(trainer, module, data, job.metadata, job.checkpoint)
        results = job.description | {"settings": settings} | tested
        if trainer.is_global_zero:
            module.objective.save(encoder, job.folder / "encoder")
            write_results(job, results, suite, module, data, loggers)
    return results


def build_module(config: DictConfig, encoder: SentenceEncoder) -> SimCSEModule:
    """Return the LightningModule that trains an encoder. Its class needs to accept only the parts that are set."""
    if config.encoders not in ("one", "two"):
        raise UserError(f"encoders={config.encoders}: it should be one or two")
    parts = {
        "encoder": encoder,
        "objective": instantiate(config.objective),
        "optimizer": instantiate(config.optimizer),
        "scheduler": instantiate(config.scheduler),
        "auxiliary": instantiate(config.get("auxiliary")) or None,
        "positive_encoder": instantiate(config.model) if config.encoders == "two" else None,
        "queue": instantiate(config.get("queue")),
    }
    if config.objectives:
        from simcse_pl.losses.per_dataset import LossPerDataset  # what most runs do not need

        parts["objective"] = LossPerDataset(parts["objective"], instantiate(config.objectives))
    parts = {name: part for name, part in parts.items() if part is not None}
    make = instantiate(config.module)
    with reraise_as(f"module._target_={config.module._target_}"):
        inspect.signature(make).bind(**parts)
    module: SimCSEModule = make(**parts)
    if not isinstance(module, SimCSEModule):
        raise UserError(f"module._target_={config.module._target_}: it must be a SimCSEModule")
    return module


def check_dropout(config: DictConfig, module: SimCSEModule, data: SentenceDataModule) -> None:
    """Raise UserError if both views of a sentence are equal, unless a dropout is set: Table 3 has a row with 0."""
    dropouts = (config.model.get("dropout"), config.model.get("attention_dropout"))
    if config.encoders == "one" and dropouts == (None, None):
        sets = [dataset for name, dataset in data.sets.items() if name in module.embedded_datasets]
        check_views_differ(module.encoder, sets)


def start_loggers(config: DictConfig, trainer: pl.Trainer, also: Mapping[str, Any]) -> list[Any]:
    """Give the trainer its loggers, log the options and what else describes the run, and return those of results."""
    trainer.loggers = list(instantiate(config.get("logger") or {}).values())
    options: Any = OmegaConf.to_container(config, resolve=True)
    for logger in trainer.loggers:
        logger.log_hyperparams(options | also)
    return [logger for logger in trainer.loggers if hasattr(logger, "log_results")]


def dashboards(loggers: Sequence[Any]) -> list[str]:
    """Return where the runs of W&B are; rank 0 only."""
    return [logger.place for logger in loggers if hasattr(logger, "place")]


def log_settings(settings: Mapping[str, str], loggers: Sequence[Any]) -> None:
    """Log what is trained, and where the curves are."""
    for name, value in settings.items():
        log.info("%-13s %s", name, value)
    for place in dashboards(loggers) if is_first_process() else ():
        log.info("%-13s %s", "W&B", f"offline: {place}" if place.startswith("wandb sync") else place)


def write_results(
    job: Job,
    results: dict[str, Any],
    suite: "Suite | None",
    module: SimCSEModule,
    data: SentenceDataModule,
    loggers: Sequence[Any],
) -> None:
    """Measure the saved encoder on the tasks, write, log and print all results, and remove checkpoints."""
    score = best_score(results)
    if job.trial:
        results["trial"] = job.trial.tell(score)
    shown = loggers if math.isfinite(score) else []
    stsb = (evaluator.stsb.get("test") for evaluator in data.evaluators.values() if hasattr(evaluator, "stsb"))
    shown_task = next(filter(None, stsb), None) if dashboards(shown) else None
    measured = measure_tasks(module.encoder, suite, shown_task) if suite or shown_task else None
    if suite and measured:
        results |= task_scores(measured, suite)
    write_json(job.folder / RESULTS_FILE, results)
    for logger in shown:
        logger.log_results(results, measured)
    if not job.config.keep_checkpoints:
        remove_checkpoints(job.folder)
    show(run_table(results).printed())
    show(run_places(job.folder, dashboards(loggers)))
    if results.get("failed"):
        raise UserError(failures(results["failed"]))


def failures(failed: Mapping[str, str]) -> str:
    """Return the tasks that failed, and why, in one line."""
    return "; ".join(f"{task}: {why}" for task, why in failed.items())
