"""What `simcse train` does with a config."""

import inspect
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from simcse_pl.data.senteval.sts_sets import StsTask
from simcse_pl.losses.combined import LossPerDataset
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.tables.run_table import run_places, run_table
from simcse_pl.results.run_files import RESOLVED_CONFIG, RESULTS_FILE
from simcse_pl.sweeps.jobs import best_score, describe_job, finished_job, job_arguments
from simcse_pl.sweeps.rows import with_row, with_values
from simcse_pl.tracking.closing_run import closing_run
from simcse_pl.training.equal_views import check_views_differ
from simcse_pl.training.fit import best_checkpoint, measure, run_settings, task_scores, train_and_test
from simcse_pl.training.launch import run_job, starts_ranks
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.resume import RunMetadata, find_checkpoint, resume_option
from simcse_pl.training.watchdog import watched_ranks
from simcse_pl.utils.errors import UserError, did_you_mean, reraise_as
from simcse_pl.utils.files import atomic_write, write_json
from simcse_pl.utils.terminal import show

if TYPE_CHECKING:
    from simcse_pl.sweeps.optuna_search import OptunaTrial

log = logging.getLogger("simcse_pl.train")
logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # importing it sets INFO
logging.getLogger("lightning_fabric").setLevel(logging.WARNING)


def train(config: DictConfig) -> float:
    """Train, then test and save the best checkpoint. Return its score, the metric that chose it."""
    config = with_row(config)
    folder = Path(config.run_dir)
    job = describe_job(config, HydraConfig.get())
    metadata = RunMetadata(job["overrides"])
    callbacks = [*instantiate(config.callbacks).values(), metadata]
    trainer: pl.Trainer = instantiate(config.trainer, logger=False, callbacks=callbacks)
    best_checkpoint(trainer)  # raises an error if the run has none
    config, score, checkpoint, search = start_job(config, job, trainer)
    if score is not None:
        return score
    options: Any = OmegaConf.to_container(config, resolve=True)

    pl.seed_everything(config.seed, workers=True, verbose=False)
    torch.set_float32_matmul_precision("high")
    encoder = instantiate(config.model)
    evaluators = instantiate(config.evaluators)
    data = instantiate(config.data, tokenizer=encoder.tokenizer, templates=encoder.templates, evaluators=evaluators)
    for name in config.objectives:
        if name not in data.sets:
            raise UserError(f"objectives.{name}: data.sets has no {name}{did_you_mean(name, data.sets)}")
    module = build_module(config, encoder)
    suite = None
    if config.test_tasks:
        from simcse_pl.evaluation.suite import load_suite  # imports what most runs do not need

        suite = load_suite(config.test_tasks, config.senteval_dir, classifier=config.transfer.classifier)
    data.setup()
    module.prepare(data.row_kinds)
    with_dropout = any(config.model.get(option) is not None for option in ("dropout", "attention_dropout"))
    if not with_dropout and config.encoders == "one":  # Table 3 has a row with dropout=0
        check_views_differ(encoder, [own for name, own in data.sets.items() if name in module.embedded_datasets])
    if trainer.is_global_zero:
        with atomic_write(folder) as new:
            (new / RESOLVED_CONFIG.parent).mkdir()
            (new / RESOLVED_CONFIG).write_text(OmegaConf.to_yaml(options), encoding="utf-8")

    with closing_run():
        with watched_ranks(trainer):
            trainer.loggers = list(instantiate(config.get("logger") or {}).values())
            for logger in trainer.loggers:
                logger.log_hyperparams(options | {"choices": job["choices"]})
            dashboards: list[Any] = [logger for logger in trainer.loggers if hasattr(logger, "log_results")]
            places = [dashboard.place for dashboard in dashboards if trainer.is_global_zero]
            for name, value in run_settings(trainer, module, data, job["choices"]).items():
                log.info("%-13s %s", name, value)
            for place in places:
                log.info("%-13s %s", "W&B", f"offline: {place}" if place.startswith("wandb sync") else place)
            results = job | train_and_test(trainer, module, data, metadata, checkpoint)
        if trainer.is_global_zero:
            module.save(folder / "encoder")
            if search:
                results["trial"] = search.tell(best_score(results))
            also = stsb_test(data.evaluators) if dashboards and math.isfinite(best_score(results)) else None
            measured = measure(encoder, suite, also) if suite or also else None
            if suite and measured:
                results |= task_scores(measured, suite)
            write_json(folder / RESULTS_FILE, results)
            for dashboard in dashboards:
                dashboard.log_results(results, measured)
            show(run_table(results).printed())
            show(run_places(folder, places))
            if results.get("failed"):
                raise UserError("; ".join(f"{task}: {why}" for task, why in results["failed"].items()))
    return best_score(results)


def start_job(
    config: DictConfig, job: Mapping[str, Any], trainer: pl.Trainer
) -> tuple[DictConfig, float | None, Path | None, "OptunaTrial | None"]:
    """Decide whether this process trains a job, and from which checkpoint.

    A job of a sweep that has finished is not run again, and one that was interrupted is resumed. A job of a multirun
    with several ranks runs in a separate process, because a second job in this process would find the process group of
    the first.

    Returns:
        The config, with the values that an Optuna search proposes; the score of a job that has already been trained, or
        None if this process trains it; the checkpoint to resume from, if any; the trial of an Optuna search, if any.
    """
    folder, runtime = Path(config.run_dir), HydraConfig.get()
    if resume_option(config.resume) == "auto" and (finished := finished_job(folder, job["overrides"])):
        log.info("%s has run already", folder)
        return config, best_score(finished), None, None
    if runtime.mode == RunMode.MULTIRUN and starts_ranks(trainer):
        run_job("simcse_pl.cli.train", job_arguments(runtime, folder))
        finished = finished_job(folder, job["overrides"])
        return config, best_score(finished) if finished else math.nan, None, None
    checkpoint = find_checkpoint(config.resume, folder, job["overrides"], search=bool(config.get("search")))
    search: OptunaTrial | None = instantiate(config.get("search"))
    if search:
        config = with_values(config, search.values, "search.space")
        trainer.callbacks.append(search.callback)  # type: ignore[attr-defined]
    return config, None, checkpoint, search


def build_module(config: DictConfig, encoder: SentenceEncoder) -> SimCSEModule:
    """Return the LightningModule that trains an encoder. Its class needs to accept only the parts that are set."""
    make = instantiate(config.module)
    arguments = {
        "encoder": encoder,
        "objective": instantiate(config.objective),
        "optimizer": instantiate(config.optimizer),
        "scheduler": instantiate(config.scheduler),
        "auxiliary": instantiate(config.get("auxiliary")) or None,
        "positive_encoder": instantiate(config.model) if config.encoders == "two" else None,
        "queue": instantiate(config.get("queue")),
    }
    if config.objectives:
        arguments["objective"] = LossPerDataset(arguments["objective"], instantiate(config.objectives))
    arguments = {name: value for name, value in arguments.items() if value is not None}
    with reraise_as(f"module._target_={config.module._target_}"):
        inspect.signature(make).bind(**arguments)
    module: SimCSEModule = make(**arguments)
    if not isinstance(module, SimCSEModule):
        raise UserError(f"module._target_={config.module._target_}: it must be a SimCSEModule")
    return module


def stsb_test(evaluators: Mapping[str, Any]) -> StsTask | None:
    """Return the test split of STS-B, if an evaluator has read it."""
    return next((own.stsb["test"] for own in evaluators.values() if "test" in getattr(own, "stsb", ())), None)
