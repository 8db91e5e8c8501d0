"""Train a sentence encoder: `python train.py model=roberta data=nli`; `--help` lists what there is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from simcse_pl.callbacks import BestCheckpoint
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.distributed import is_first_process
from simcse_pl.errors import UserError
from simcse_pl.front_door import errors_in_one_line
from simcse_pl.loggers import closing_run
from simcse_pl.module import SimCSEModule
from simcse_pl.report.tables import RESULTS_FILE, run_table, show


@hydra.main(config_path="conf", config_name="train", version_base="1.3")
@errors_in_one_line
def main(config: DictConfig) -> float:
    """Train, test and save the checkpoint that validates best; return its Spearman's correlation on dev."""
    folder = Path(config.run_dir)
    if is_first_process() and (folder / "metrics.csv").exists():
        raise UserError(f"{folder} holds a run already, whose curves would be lost: choose another hydra.run.dir")
    if config.resume and not Path(config.resume).is_file():
        raise UserError(f"resume: no file {config.resume}")
    pl.seed_everything(config.seed, workers=True, verbose=False)
    torch.set_float32_matmul_precision("high")
    encoder = instantiate(config.model)
    data = instantiate(config.data, tokenizer=encoder.tokenizer)
    module = SimCSEModule(encoder, instantiate(config.objective), instantiate(config.optimizer))
    data.setup()  # data that cannot be used is told before anything is logged
    with closing_run():
        loggers = list(instantiate(config.logger).values())
        callbacks = list(instantiate(config.callbacks).values())
        trainer = instantiate(config.trainer, logger=loggers, callbacks=callbacks)
        if trainer.world_size > 1 and HydraConfig.get().mode == RunMode.MULTIRUN:  # a child would run all of -m again
            raise UserError(f"a sweep on {trainer.world_size} devices a job: run each job by itself, without -m")
        for logger in loggers:
            logger.log_hyperparams(OmegaConf.to_container(config, resolve=True))
        results = run(trainer, module, data, config.resume)
    if trainer.is_global_zero:
        encoder.save_pretrained(folder / "encoder")
        (folder / RESULTS_FILE).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        show(run_table(results, folder))
    return float(results["best"]["spearman"])


def run(trainer: pl.Trainer, module: SimCSEModule, data: SentenceDataModule, resume: str | None) -> dict[str, Any]:
    """Validate, train, and test the best checkpoint, which `module` holds afterwards."""
    best = trainer.checkpoint_callback
    if not isinstance(best, BestCheckpoint):
        raise UserError("callbacks: the first checkpoint must be a BestCheckpoint, which is tested at the end")
    before = trainer.validate(module, data, verbose=False)[0]
    trainer.fit(module, data, ckpt_path=resume, weights_only=True)
    if not best.best_model_path:
        raise UserError("trainer.max_epochs and trainer.max_steps leave no step to train")
    module.load_state_dict(torch.load(best.best_model_path, map_location="cpu", weights_only=True)["state_dict"])
    test = trainer.test(module, data, verbose=False)[0]
    return {
        "validation": data.tasks["dev"].name,
        "steps": trainer.global_step,
        "best_step": best.best_step,
        "before": _without_stage(before),
        "best": _without_stage(best.best_metrics),
        "test": _without_stage(test),
    }


def _without_stage(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name.partition("/")[2]: value for name, value in metrics.items()}


if __name__ == "__main__":
    main()
