"""Validation, training, and the test of the best checkpoint."""

import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import source_of
from simcse_pl.module import SimCSEModule
from simcse_pl.preparation import options_of
from simcse_pl.results import CURVES, TEST, VALIDATION, logged, metrics_of_split, split_and_metric
from simcse_pl.run_metadata import RunMetadata
from simcse_pl.trainer import sharding
from simcse_pl.utils.code import versions
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.processes import is_first_process
from simcse_pl.utils.tensors import read_torch_file

log = logging.getLogger(__name__)

_WORSE = "the saved encoder scores worse than before training; lower optimizer.lr, or keep the one you had"


def train_and_test(
    trainer: pl.Trainer,
    module: SimCSEModule,
    data: SentenceDataModule,
    record: RunMetadata,
    resume: Path | None = None,
) -> dict[str, Any]:
    """Validate, train, and test the best checkpoint.

    Afterwards, the module has the weights of the best checkpoint. If they were sharded, only rank 0 has them.

    Args:
        trainer, module, data: the trainer's first checkpoint callback must be a BestCheckpoint.
        record: a callback of the trainer, which stores the metrics before training in checkpoints.
        resume: a checkpoint to resume from.

    Returns:
        The first part of results.json. `before` and `best` are metrics on the validation sets, before
        training and at the best step. `test_before` and `test` are those on the test sets. `precision` is that of
        training.

    Raises:
        UserError: if the best checkpoint's metric does not exist, or there is no step to train.
    """
    best: Any = trainer.checkpoint_callback
    if not resume:
        validated = trainer.validate(module, data, verbose=False)[0]
        if best.monitor not in validated:
            names = ", ".join(logged(metric) for metric in metrics_of_split(validated) if metric not in CURVES)
            raise UserError(f"monitor={best.monitor}: no evaluator measures it; choose one of {names}")
        record.before = {**validated, **_test(trainer, module, data)}
    trainer.fit(module, data, ckpt_path=resume, weights_only=True)
    if (early := trainer.early_stopping_callback) and early.stopping_reason_message:
        log.info("stopped early: %s", early.stopping_reason_message.removesuffix(" Signaling Trainer to stop."))
    if not best.best_metrics:
        raise UserError("no steps to train: increase trainer.max_epochs or trainer.max_steps")
    warnings = [warning for rows in data.rows.values() for warning in rows.warnings]
    # Only rank 0 reads the file: other machines may not have it.
    weights = read_torch_file(Path(best.best_model_path))["state_dict"] if trainer.is_global_zero else {}
    strategy = sharding(trainer.strategy)
    if strategy:
        strategy.load_from_first_rank(weights, module.strict_loading)
    else:
        module.load_state_dict(trainer.strategy.broadcast(weights), strict=module.strict_loading)
    test = _test(trainer, module, data)
    if strategy:
        strategy.gather()
    after = {**best.best_metrics, **test}
    new = [*_reasons_for_doubt(module.largest_norm, record.before, after, best.monitor, best.mode)]
    for warning in new if is_first_process() else ():
        log.warning(warning)
    module.encoder.to(trainer.strategy.root_device)  # Lightning moves it to the CPU after a test
    return {
        "validation": source_of(data.evaluators, VALIDATION),
        "test_set": source_of(data.evaluators, TEST),
        "warnings": warnings + new,
        "monitor": split_and_metric(best.monitor)[1],
        "mode": best.mode,
        "precision": trainer.precision,
        "steps": trainer.global_step,
        "best_step": best.best_step,
        "before": metrics_of_split(record.before),
        "test_before": metrics_of_split(record.before, TEST),
        "best": metrics_of_split(best.best_metrics),
        "test": metrics_of_split(test, TEST),
    }


def _test(trainer: pl.Trainer, module: SimCSEModule, data: SentenceDataModule) -> dict[str, float]:
    """Return the metrics of the test sets, if there are any."""
    return dict(trainer.test(module, data, verbose=False)[0]) if len(data.sentences[TEST]) else {}


def total_steps(trainer: pl.Trainer, data: SentenceDataModule) -> int:
    """Return the number of steps of a run; not above 0 if nothing limits it."""
    return (trainer.max_epochs or 0) * data.batches_of_epoch() if trainer.max_steps == -1 else trainer.max_steps


def run_settings(
    trainer: pl.Trainer, module: SimCSEModule, data: SentenceDataModule, choices: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the settings of a run, with values in place of `auto`, -1 and names; `choices` are Hydra's.

    Warn if the learning rate is 0, or rises until the last step.
    """
    encoder, config = module.encoder, module.encoder.backbone.config
    steps = total_steps(trainer, data)
    parts = [choices.get("objective"), *module.auxiliary, choices.get("queue")]
    lr = options_of(module.optimizer).get("lr")
    warmup = options_of(module.scheduler).get("num_warmup_steps") or 0
    suspicious = {
        "optimizer.lr=0: no weight will change": lr == 0,
        f"scheduler.num_warmup_steps={warmup}: the rate still rises in the last of {steps} steps": 0 < steps <= warmup,
    }
    for warning in (text for text, applies in suspicious.items() if applies and trainer.is_global_zero):
        log.warning(warning)
    return {
        "model": f"{config.name_or_path}, {config.num_hidden_layers} layers",
        "pooling": encoder.pooling,
        "head": encoder.head,
        "objective": ", ".join(part for part in parts if part),
        "data": "; ".join(f"{rows.train}, {rows.size}" for rows in data.rows.values()),
        "content": "; ".join(rows.cache.fingerprint for rows in data.rows.values()),  # the SHA-256 of a single file
        "batch size": ", ".join(dict.fromkeys(str(data_set.batch_size) for data_set in data.sets.values())),
        "learning rate": "the optimizer's default" if lr is None else f"{lr:g}",
        "precision": str(trainer.precision),
        "steps": f"{steps}, validated every {trainer.val_check_interval}",
        "device": f"{trainer.world_size} x {trainer.strategy.root_device.type}",
        "versions": versions(),
    }


def _reasons_for_doubt(
    largest_norm: float, before: Mapping[str, float], after: Mapping[str, float], monitor: str, mode: str
) -> Iterator[str]:
    """Yield why the saved encoder may not be the wanted one, from its metrics `before` and `after` training."""
    if largest_norm == 0:
        yield "all gradients were 0, so training has changed nothing: check the weights of the objective"
    if math.isnan(after[monitor]):
        yield f"{monitor} was NaN at every validation, so it did not choose the saved checkpoint"
    fallen = []
    for name in (monitor, logged(split_and_metric(monitor)[1], TEST)):
        new = after.get(name, math.nan)
        old = before.get(name, new)
        if old > new if mode == "max" else old < new:
            fallen.append(f"{name} from {old:.4f} to {new:.4f}")
    if fallen:
        yield f"training has changed {' and '.join(fallen)}: {_WORSE}"
