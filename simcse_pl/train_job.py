"""Train an encoder: build its parts from a config, train, test and save. cli.py composes the config."""

import gc
import glob
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from simcse_pl.checkpoints import find_start, prepare_folder, remove_checkpoints, resume_option
from simcse_pl.config import walk, with_values
from simcse_pl.data.sources import content_hash, files_of
from simcse_pl.data.view import spaces
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.fit import run_settings, total_steps, train_and_test
from simcse_pl.loggers import closing_run
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.preparation import check_views_differ
from simcse_pl.results import TEST, TrainingRun
from simcse_pl.run_folder import RESOLVED_CONFIG, RESULTS_FILE, describe_job, study_name
from simcse_pl.run_metadata import RunMetadata, finished_job
from simcse_pl.run_table import printed_settings, run_paths, run_table
from simcse_pl.trainer import check_trainer, sharding
from simcse_pl.utils.code import optional
from simcse_pl.utils.errors import SweepError, UserError, first_line
from simcse_pl.utils.files import locked, write_json, write_text
from simcse_pl.utils.hub import quiet
from simcse_pl.utils.processes import is_first_process
from simcse_pl.utils.tensors import read_torch_file, tensor_float32
from simcse_pl.utils.terminal import show

if TYPE_CHECKING:
    from simcse_pl.evaluation.suite import Suite
    from simcse_pl.lab.optuna_search import OptunaTrial

log = logging.getLogger("simcse_pl.train")


@quiet("pytorch_lightning", "lightning_fabric", level=logging.WARNING)  # importing Lightning sets INFO
@quiet("lightning_fabric.strategies.launchers", level=logging.INFO)  # says which rank was killed
def train(config: DictConfig) -> dict[str, Any]:
    """Train an encoder, test and save the best checkpoint, and return the content of results.json.

    A job of a sweep that has finished is not run again, and one that was interrupted is resumed. A job of a multirun
    runs in a separate process if it has several ranks, or if several jobs run at once; the returned content is empty
    if it fails there, or has not ended.

    Raises:
        UserError: the folder holds another job or the results of other data, or the checkpoint does not fit.
    """
    folder, runtime = Path(config.run_dir), HydraConfig.get()
    description = describe_job(config, runtime)
    finished = partial(finished_job, folder, config)
    if resume_option(config.resume) == "auto" and (results := finished()) is not None:
        trained: Any = OmegaConf.load(folder / RESOLVED_CONFIG)
        before = results.get("settings", {})
        if changed := [name for name, now in contents(trained).items() if before.get(name, now) != now]:
            raise SweepError(f"{folder} has the results of other files ({changed[0]}): choose another folder")
        log.info("%s has run already", folder)
        if is_first_process() and not config.keep_checkpoints:
            remove_checkpoints(folder)  # the job may have been killed before this cleanup
        return results
    if runtime.mode == RunMode.MULTIRUN and optional("lab.multirun.start_elsewhere")(config, runtime):
        return finished() or {}
    with locked(folder, "checkpoints", "config", "encoder"):
        search = bool(config.get("search"))
        start = find_start(config.resume, folder, search)
        if is_first_process():
            prepare_folder(folder, start, search)
        study = study_name(description["overrides"])
        trial: OptunaTrial | None = instantiate(config.search, job=folder.name, study=study) if search else None
        return train_here(with_values(config, trial.values) if trial else config, description, start.checkpoint, trial)


def contents(config: DictConfig) -> dict[str, str]:
    """Return hashes of the local files that a run trains on, loads and is measured on, as settings of the run.

    Training files are left out if one of them is on the Hub or has gone.
    """
    options: Any = OmegaConf.to_container(config, resolve=True)
    data, found = options["data"], {}
    sets = data.get("sets") or {"": {}}
    sources = [set_options.get("train", data.get("train")) for set_options in sets.values()]
    with suppress(UserError):
        if all(isinstance(files_of(source), list) for source in sources):
            found["content"] = "; ".join(map(content_hash, sources))
    models = {name: options.get(name) for name in ("model", "objective", "objectives", "auxiliary", "queue", "views")}
    measured = {"validation": data.get("validation"), "test": data.get("test"), "evaluators": options["evaluators"]}
    for setting, part in {"models": models, "measured on": measured}.items():
        names = sorted({value for _, value in walk(part) if isinstance(value, str)})
        if files := [str(file) for name in names for file in local_files(name)]:
            found[setting] = content_hash(files)
    return found


def local_files(name: str) -> list[Path]:
    """Return the local files of an option: a file, a pattern, a folder in BEIR's layout, or a model's weights."""
    if os.path.isdir(name):  # os.path takes any string, such as a long prompt
        folder = Path(name)
        is_task, is_model = (folder / "queries.jsonl").is_file(), any(folder.glob("*config*.json"))
        patterns = ["**/*"] if is_task else ["*", "[0-9]*_*/*"] if is_model else []  # a model's modules are numbered
        files = sorted(file for pattern in patterns for file in folder.glob(pattern) if file.is_file())
        return [file for file in files if is_task or file.suffix in (".safetensors", ".bin")]
    if not (os.sep in name or "." in name):
        return []  # an option such as `cls`, and not a file of this name
    found = glob.glob(name, recursive=True) if glob.has_magic(name) and not os.path.exists(name) else [name]
    return sorted(Path(path) for path in found if os.path.isfile(path))


def train_here(
    config: DictConfig, description: dict[str, Any], checkpoint: Path | None, trial: "OptunaTrial | None"
) -> dict[str, Any]:
    """Train in this process. `description` is the part of results.json that says which job it is."""
    started, folder = time.monotonic(), Path(config.run_dir)
    gc.collect()  # trainers and modules refer to each other: free those of an earlier job of a sweep
    options: Any = OmegaConf.to_container(config, resolve=True)
    metadata, done = RunMetadata(options), 0
    if checkpoint:  # check now: with another model, torch's own error would be unreadable
        saved = read_torch_file(checkpoint, mmap=True)
        metadata.check(saved["callbacks"][metadata.state_key]["trained_with"], options_only=True)
        done = saved["global_step"]
    trainer = build_trainer(config, [metadata, *([trial.callback] if trial else [])])
    pl.seed_everything(config.seed, workers=True, verbose=False)

    strategy = sharding(trainer.strategy)
    with strategy.loading_weights() if strategy else nullcontext():
        encoder: SentenceEncoder = instantiate(config.model)
    module = build_module(config, encoder)
    data = build_data(config, module)
    suite = read_test_tasks(config)
    data.setup()
    if done > (steps := total_steps(trainer, data)) > 0:
        numbers = f"the checkpoint has {done} steps, and this run {steps}"
        raise UserError(f"{numbers}: increase trainer.max_epochs or trainer.max_steps")
    chosen = description["choices"].keys() & {"setting", "method", "experiment"}
    if not chosen and all(rows.width == 1 for rows in data.rows.values()):
        what = "the rows are single sentences, and the values those of pairs"
        log.warning("%s: setting=unsupervised sets the paper's", what)
    embedded = module.prepare(data.rows)
    default_dropout = config.model.get("dropout") is config.model.get("attention_dropout") is None
    if config.encoders == "one" and default_dropout:  # Table 3 has dropout 0
        check_views_differ(encoder, [data.rows[name] for name in embedded])
    if trainer.is_global_zero:
        write_text(folder / RESOLVED_CONFIG, OmegaConf.to_yaml(config, resolve=True))

    with closing_run():
        settings = run_settings(trainer, module, data, description["choices"]) | contents(config)
        addresses = start_loggers(trainer, config, options | {"choices": description["choices"]}, settings)
        with tensor_float32():
            tested = train_and_test(trainer, module, data, metadata, checkpoint)
        run = TrainingRun(**description, settings=settings, **tested)
        if trainer.is_global_zero:
            module.objective.save(encoder, folder / "encoder")
            if trial:
                run = run.model_copy(update={"trial": trial.tell(run.best_score)})
            run = log_results(run, suite, module, config)
    if trainer.is_global_zero:
        write_results(config, run, addresses, started)
    return run.content()


def build_trainer(config: DictConfig, callbacks: Sequence[pl.Callback]) -> pl.Trainer:
    """Return the trainer with the callbacks of the config and further ones, and make its GPU the current one."""
    callbacks = [*filter(None, instantiate(config.get("callbacks") or {}, _convert_="all").values()), *callbacks]
    trainer: pl.Trainer = instantiate(config.trainer, logger=False, callbacks=callbacks)
    check_trainer(trainer)
    if trainer.strategy.root_device.type == "cuda":
        torch.cuda.set_device(trainer.strategy.root_device)  # for what is loaded before training
    return trainer


def build_data(config: DictConfig, module: SimCSEModule) -> SentenceDataModule:
    """Return the datamodule of what a module trains; it has not read its data yet."""
    parts = {"templates": module.encoder.templates, "evaluators": instantiate(config.evaluators)}
    if any(getattr(part, "whole_words", False) for part in module.modules()):
        segment = instantiate(config.segmenter)
        if getattr(segment, "func", segment) is not spaces:  # the tokenizer knows these words
            parts["segment"] = segment
    data: SentenceDataModule = instantiate(config.data, tokenizer=module.encoder.tokenizer, **parts)
    return data


def build_module(config: DictConfig, encoder: SentenceEncoder) -> SimCSEModule:
    """Return the LightningModule that trains an encoder. Its class needs to accept only the parts that are set."""
    parts = {
        "encoder": encoder,
        "objective": instantiate(config.objective),
        "optimizer": instantiate(config.optimizer),
        "scheduler": instantiate(config.scheduler),
        "auxiliary": instantiate(config.get("auxiliary")) or None,
        "queue": instantiate(config.get("queue")),
        "objectives": instantiate(config.objectives) or None,
    }
    if config.encoders == "two":
        with torch.device("meta") if encoder.device.type == "meta" else nullcontext():
            parts["positive_encoder"] = instantiate(config.model)
    parts = {name: part for name, part in parts.items() if part is not None}
    module: SimCSEModule = instantiate(config.module)(**parts)
    if not isinstance(module, SimCSEModule):
        raise UserError(f"module._target_={config.module._target_}: it must be a SimCSEModule")
    return module


def start_loggers(
    trainer: pl.Trainer, config: DictConfig, options: Mapping[str, Any], settings: Mapping[str, str]
) -> list[str]:
    """Give the trainer the loggers of the config, log the options and the settings, and return where W&B's runs are."""
    trainer.loggers = list(filter(None, instantiate(config.get("logger") or {}).values()))
    for logger in trainer.loggers:
        logger.log_hyperparams({**options, "settings": settings})
    for name, value in printed_settings(settings).items():
        log.info("%-13s %s", name, value)
    addresses = [logger.address for logger in trainer.loggers if trainer.is_global_zero and hasattr(logger, "address")]
    for address in addresses:
        log.info("%-13s %s", "W&B", f"offline: {address}" if address.startswith("wandb sync") else address)
    return addresses


def read_test_tasks(config: DictConfig) -> "Suite | None":
    """Read the tasks that are measured at the end, so that a damaged file ends the run before it trains.

    The paper's score, the mean of the STS tasks, is left out with a warning if the folder of SentEval is not known.
    """
    tasks = [config.test_tasks] if isinstance(config.test_tasks, str) else list(config.test_tasks)
    if "sts" in tasks and not config.senteval_dir:
        tasks.remove("sts")
        log.warning("the mean of the STS tasks will not be measured: set SENTEVAL_DIR or senteval_dir=FOLDER")
    if not tasks:
        return None
    from simcse_pl.evaluation.suite import load_suite

    suite = load_suite(tasks, config.senteval_dir, classifier=config.transfer.classifier)
    if suite.failed:
        raise UserError("test_tasks: " + "; ".join(map(": ".join, suite.failed.items())))
    return suite


def log_results(run: TrainingRun, suite: "Suite | None", module: SimCSEModule, config: DictConfig) -> TrainingRun:
    """Measure the saved encoder on the tasks, write what made it beside it, and print, log and return all results."""
    loggers = module.trainer.loggers if math.isfinite(run.best_score) else []
    evaluators: Any = module.trainer.datamodule.evaluators  # type: ignore[attr-defined]
    stsb = (evaluator.stsb.get(TEST) for evaluator in evaluators.values() if hasattr(evaluator, "stsb"))
    shown = next(filter(None, stsb), None) if any(hasattr(logger, "address") for logger in loggers) else None
    measured, tables = None, []
    if suite or shown:
        from simcse_pl.evaluation.suite import measure_tasks, task_scores

        measured = measure_tasks(partial(module.encoder.encode, progress=True), suite, module.encoder.device, shown)
    if suite and measured:
        run = run.model_copy(update=task_scores(measured, suite))
        tables = optional("lab.encoder_tables.task_tables")(run, measured)
    optional("tools.model_card.write_training")(run, config, module.encoder)
    for table in [run_table(run), *tables]:
        show(table.printed())
    for logger in loggers:
        if hasattr(logger, "log_results"):
            logger.log_results(run, measured)
    return run


def write_results(config: DictConfig, run: TrainingRun, dashboards: Sequence[str], started: float) -> None:
    """Write results.json, with which a run is complete, remove checkpoints, and print where everything is.

    `started` is the time of `time.monotonic` when the run started.
    """
    folder = Path(config.run_dir)
    try:
        optional("lab.curves.save_curves")(folder, run)
    except Exception as error:  # the run has trained
        log.warning("no figure of the curves: %s", first_line(error))
    write_json(folder / RESULTS_FILE, run.content())
    if not config.keep_checkpoints:
        remove_checkpoints(folder)
    show(run_paths(folder, run, time.monotonic() - started, dashboards))
    if run.failed:
        raise UserError("; ".join(map(": ".join, run.failed.items())))
