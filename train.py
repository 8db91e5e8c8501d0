"""Train a sentence encoder: `python train.py model=roberta data=nli`; `--help` lists what there is."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl
import torch
import wandb
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import ModelCheckpoint

from simcse_pl.callbacks import BestValidation
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.errors import UserError
from simcse_pl.front_door import errors_in_one_line
from simcse_pl.module import SimCSEModule
from simcse_pl.report.tables import RESULTS_FILE, run_table, show

log = logging.getLogger("train")


@hydra.main(config_path="conf", config_name="train", version_base="1.3")
@errors_in_one_line
def main(config: DictConfig) -> float:
    """Train, test and save the checkpoint that validates best; return its Spearman's correlation on dev."""
    pl.seed_everything(config.seed, workers=True, verbose=False)
    torch.set_float32_matmul_precision("high")
    encoder = instantiate(config.model)
    data = instantiate(config.data, tokenizer=encoder.tokenizer)
    module = SimCSEModule(encoder, instantiate(config.objective), instantiate(config.optimizer))
    data.setup()  # data that cannot be used is told before anything is logged
    best = BestValidation()
    loggers = list(instantiate(config.logger).values())
    callbacks = [best, *instantiate(config.callbacks).values()]
    trainer = instantiate(config.trainer, logger=loggers, callbacks=callbacks)
    for logger in loggers:
        logger.log_hyperparams(OmegaConf.to_container(config, resolve=True))
    try:
        results = run(trainer, module, data, best, config.resume)
    finally:
        wandb.finish()  # the next job of a multirun starts a run of its own
    folder = Path(config.run_dir)
    if trainer.is_global_zero:
        encoder.save_pretrained(folder / "encoder")
        (folder / RESULTS_FILE).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        show(run_table(results, folder))
    return float(results["best"]["spearman"])


def run(
    trainer: pl.Trainer, module: SimCSEModule, data: SentenceDataModule, best: BestValidation, resume: str | None
) -> dict[str, Any]:
    """Validate, train, and test the best checkpoint, which `module` holds afterwards."""
    before = trainer.validate(module, data, verbose=False)[0]
    trainer.fit(module, data, ckpt_path=resume, weights_only=True)
    module.load_state_dict(torch.load(best_checkpoint(trainer), map_location="cpu", weights_only=True)["state_dict"])
    test = trainer.test(module, data, verbose=False)[0]
    return {
        "validation": data.tasks["dev"].name,
        "steps": trainer.global_step,
        "best_step": best.step,
        "before": _without_stage(before),
        "best": _without_stage(best.metrics),
        "test": _without_stage(test),
    }


def best_checkpoint(trainer: pl.Trainer) -> str:
    """The path of the checkpoint with the best validation score."""
    callback = trainer.checkpoint_callback
    if not isinstance(callback, ModelCheckpoint) or not callback.best_model_path:
        raise UserError("callbacks: no ModelCheckpoint that monitors a score, so there is no best checkpoint to test")
    return callback.best_model_path


def _without_stage(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name.partition("/")[2]: value for name, value in metrics.items()}


if __name__ == "__main__":
    main()
