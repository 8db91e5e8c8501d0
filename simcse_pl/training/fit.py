"""A training run from its first validation to its last test."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.senteval.sts_sets import StsTask
from simcse_pl.evaluation.encoding import EncodeOnce
from simcse_pl.evaluation.suite import Suite, SuiteResults, evaluate_suite
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.results.run_files import VALIDATION_PREFIXES
from simcse_pl.training.callbacks import BestCheckpoint
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.resume import RunMetadata
from simcse_pl.training.watchdog import watched_workers
from simcse_pl.utils.distributed import is_first_process
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)


def train_and_test(
    trainer: pl.Trainer, module: SimCSEModule, data: SentenceDataModule, record: RunMetadata, resume: Path | None = None
) -> dict[str, Any]:
    """Validate, train, and test the checkpoint that validated best.

    `module` holds its weights afterwards, and its encoder is on the trainer's device.

    Args:
        trainer: its first checkpoint callback is a BestCheckpoint, and `record` is among its callbacks.
        module: what is trained.
        data: what on, and what is validated and tested on.
        record: gets what is measured before training.
        resume: a checkpoint to go on from.

    Returns:
        What was validated on, the precision, the steps, and the metrics: `before` training, at the `best` step, and of
        their tests, `test_before` and `test`.

    Raises:
        UserError: what `best_checkpoint` refuses, no such metric to choose the best by, or no step to train.
        FailureError: a process that prepares batches was killed.
    """
    best = best_checkpoint(trainer)
    if not resume:
        validated = trainer.validate(module, data, verbose=False)[0]
        if best.monitor not in validated:
            raise UserError(f"callbacks.best.monitor={best.monitor}: choose one of {', '.join(validated)}")
        tested = trainer.test(module, data, verbose=False)[0]
        record.before = {name: float(score) for name, score in {**validated, **tested}.items()}
    with watched_workers():
        trainer.fit(module, data, ckpt_path=resume, weights_only=True)
    if not best.best_metrics:
        raise UserError("trainer.max_epochs and trainer.max_steps leave no step to train")
    _tell_if_lowered(record.before, best.best_metrics)
    module.load_state_dict(_best_weights(trainer, best.best_model_path))
    test = trainer.test(module, data, verbose=False)[0]
    module.encoder.to(trainer.strategy.root_device)  # Lightning has moved it to the CPU
    return {
        "validation": data.tasks["dev"].name,
        "precision": trainer.precision,
        "steps": trainer.global_step,
        "best_step": best.best_step,
        "before": _without_stage({k: v for k, v in record.before.items() if k.startswith(VALIDATION_PREFIXES)}),
        "test_before": _without_stage({k: v for k, v in record.before.items() if k.startswith("test/")}),
        "best": _without_stage(best.best_metrics),
        "test": _without_stage(test),
    }


def run_settings(
    trainer: pl.Trainer, module: SimCSEModule, data: SentenceDataModule, choices: Mapping[str, str | None]
) -> dict[str, str]:
    """Return what a run is about to do, by what it is called, to be printed.

    Args:
        trainer: its number of epochs or steps is set.
        module: that it trains.
        data: that has been read.
        choices: of Hydra's groups.
    """
    encoder, config, rows = module.encoder, module.encoder.backbone.config, data.rows
    assert rows is not None
    steps = trainer.max_steps
    if steps == -1:
        steps = (trainer.max_epochs or 0) * len(data.train_dataloader())
    parts = [choices.get("objective"), *(str(term.name) for term in module.auxiliary), choices.get("queue")]
    return {
        "model": f"{config.name_or_path}, {config.num_hidden_layers} layers",
        "pooling": encoder.pooling,
        "head": encoder.head,
        "objective": ", ".join(part for part in parts if part),
        "data": f"{data.train}, {len(rows)} rows of {len(rows.rows[0])}",
        "batch size": str(data.batch_size),
        "learning rate": f"{module.optimizer_settings.lr:g}",
        "precision": str(trainer.precision),
        "steps": f"{steps}, validated every {trainer.val_check_interval}" if steps > 0 else "until it is stopped",
        "device": f"{trainer.world_size} x {trainer.strategy.root_device.type}",
    }


def best_checkpoint(trainer: pl.Trainer) -> BestCheckpoint:
    """The callback that knows which checkpoint to test.

    Raises:
        UserError: another checkpoint callback comes first, or gradients are accumulated over batches.
    """
    best = trainer.checkpoint_callback
    if trainer.accumulate_grad_batches != 1:
        raise UserError("trainer.accumulate_grad_batches: a batch's negatives are its own rows; set chunk_size instead")
    if not isinstance(best, BestCheckpoint):
        raise UserError("callbacks: the first checkpoint must be a BestCheckpoint, which is tested at the end")
    return best


def _best_weights(trainer: pl.Trainer, path: str) -> dict[str, torch.Tensor]:
    """Those of a checkpoint, for all ranks: on other machines than rank 0's there may be no such file."""
    first = trainer.is_global_zero
    weights = torch.load(path, map_location="cpu", weights_only=True)["state_dict"] if first else {}
    return trainer.strategy.broadcast(weights)


def measure(encoder: SentenceEncoder, suite: Suite, also: StsTask | None = None) -> SuiteResults:
    """What evaluate.py would measure of a trained encoder.

    Args:
        encoder: the trained one; it encodes in its weights' own precision, without the trainer's autocast.
        suite: the tasks.
        also: pairs to measure correlations and geometry on besides.
    """
    if also and also.name not in [task.name for task in suite.sts]:
        suite = replace(suite, sts=[*suite.sts, also])
    suite = replace(suite, geometry=suite.geometry or also)
    encode = EncodeOnce(partial(encoder.encode, progress=True), suite.sentences())
    return evaluate_suite(encode, suite, encoder.device, progress=True)


def task_scores(measured: SuiteResults, suite: Suite) -> dict[str, Any]:
    """The tasks of a suite: correlations of `sts`, accuracies of `transfer` (test and dev), and why others `failed`.

    The classifier of `transfer` is there only where a transfer task is.
    """
    asked = [task.name for task in suite.sts]
    return {
        "sts": {task.task: task.all.spearman for task in measured.sts if task.task in asked},
        "transfer": {task.task: task.accuracy for task in measured.transfer},
        "transfer_dev": {task.task: task.dev_accuracy for task in measured.transfer},
        "failed": measured.failed,
        **({"transfer_classifier": suite.classifier} if measured.transfer else {}),
    }


def _tell_if_lowered(before: Mapping[str, float], best: Mapping[str, float]) -> None:
    lowered = before["val/spearman"] - best["val/spearman"]
    if lowered > 0 and is_first_process():
        log.warning(
            "training has lowered Spearman's correlation on dev by %.2f or more: what is saved is the best of its "
            "checkpoints, and behind what it began with",
            100 * lowered,
        )


def _without_stage(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name.partition("/")[2]: value for name, value in metrics.items()}
