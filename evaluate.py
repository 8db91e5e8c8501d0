"""Measure an encoder on the STS tasks: `python evaluate.py encoder=FOLDER`; `--help` lists what there is."""

import dataclasses
import functools
import json
import logging
from pathlib import Path

import hydra
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from simcse_pl.data.sts import load_sample, load_senteval_tasks
from simcse_pl.evaluation.sts import evaluate_sts
from simcse_pl.front_door import errors_in_one_line
from simcse_pl.report.tables import show, sts_table

log = logging.getLogger("evaluate")


@hydra.main(config_path="conf", config_name="evaluate", version_base="1.3")
@errors_in_one_line
def main(config: DictConfig) -> None:
    """Print the STS table of an encoder and write it as JSON."""
    if config.senteval_dir:
        tasks = load_senteval_tasks(config.senteval_dir, config.split)
    else:
        log.info("senteval_dir is not set: measuring on the project's own sample")
        tasks = [load_sample(config.split)]
    encoder = instantiate(config.model)
    encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    encode = functools.partial(encoder.encode, batch_size=config.batch_size, progress=True)
    results = evaluate_sts(encode, tasks)
    output = Path(config.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    scores = [dataclasses.asdict(result) for result in results]
    report = {"encoder": config.encoder, "split": config.split, "sts": scores}
    output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show(sts_table(results, config.encoder, config.split))
    print(f"results  {output}")


if __name__ == "__main__":
    main()
