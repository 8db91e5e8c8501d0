"""Measure any encoder: `python evaluate.py encoder=FOLDER`; `--help` lists what there is."""

import dataclasses
import functools
import logging
import random
import sys
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from simcse_pl.data.readers import read_rows
from simcse_pl.errors import UserError
from simcse_pl.evaluation import Encode
from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed
from simcse_pl.evaluation.retrieval import Search
from simcse_pl.evaluation.suite import Suite, evaluate_suite, load_suite
from simcse_pl.front_door import errors_in_one_line
from simcse_pl.load import Encoder
from simcse_pl.postprocess.base import PostProcess
from simcse_pl.report.paper import named_row
from simcse_pl.report.report import encoder_tables, save
from simcse_pl.report.results import write_results
from simcse_pl.report.tables import RESULTS_FILE, show

log = logging.getLogger("evaluate")

TARGET, NLI = "target", "nli"


@hydra.main(config_path="conf", config_name="evaluate", version_base="1.3")
@errors_in_one_line
def main(config: DictConfig) -> None:
    """Measure, print the tables, and write them and results.json into the output folder."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    suite = read_suite(config)
    search: Search | None = instantiate(config.retrieval) if config.retrieval.corpus else None
    if config.paper:
        named_row(**config.paper)  # a row that does not exist is told now
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder: Encoder = instantiate(config.model)
    if isinstance(encoder, torch.nn.Module):
        encoder.to(device)
    encode: Encode = functools.partial(encoder.encode, batch_size=config.batch_size, progress=True)
    postprocess: PostProcess | None = instantiate(config.get("postprocess"))
    fit_on_target = postprocess is not None and not postprocess.fitted and config.fit_on == TARGET
    if search and fit_on_target:
        raise UserError("fit_on=target: retrieval has no target; give a file, the corpus itself perhaps")
    if postprocess and not postprocess.fitted and not fit_on_target:
        postprocess.fit(encode(sentences_to_fit_on(config)).to(device)).save(folder / "postprocess")

    def processed(encode: Encode) -> Encode:
        return Postprocessed(encode, postprocess, fit_on_target, device) if postprocess else encode

    encode_once = EncodeOnce(encode)
    encode_once(suite.sentences())  # all in one go, like lengths together
    results = evaluate_suite(processed(encode_once), suite, device, progress=True)
    report = describe(config, postprocess) | dataclasses.asdict(results)
    report["retrieval"] = dataclasses.asdict(search(processed(encode))) if search else None
    tables = encoder_tables([write_results(folder / RESULTS_FILE, report)], config.aggregation)
    save(folder, tables, figures={})
    for table in tables:
        show(table.printed())
    print(f"results  {folder}")
    if results.failed:
        raise UserError(f"not measured: {', '.join(results.failed)}; all else was")


def read_suite(config: DictConfig) -> Suite:
    """The data of all tasks; what is wrong with it is told before anything slow begins."""
    tasks = [config.tasks] if isinstance(config.tasks, str) else list(config.tasks)
    if tasks and not config.senteval_dir:
        log.info("senteval_dir is not set: measuring on the project's own sample")
    if not tasks and not config.retrieval.corpus:
        raise UserError("tasks is empty, and there is no retrieval.corpus: nothing to measure")
    suite = load_suite(tasks, config.senteval_dir, config.split, config.regressor)
    for task, why in suite.failed.items():
        print(f"error: {task}: {why}", file=sys.stderr)
    return suite


def sentences_to_fit_on(config: DictConfig) -> list[str]:
    """The distinct sentences of what `fit_on` names, or some of them."""
    source = config.nli if config.fit_on == NLI else config.fit_on
    columns = list(config.fit_columns) if config.fit_columns else None
    sentences = list(dict.fromkeys(sentence for row in read_rows(source, columns) for sentence in row))
    if config.fit_limit and config.fit_limit < len(sentences):
        sentences = random.Random(config.seed).sample(sentences, config.fit_limit)
    log.info("fitting the post-processing on %d sentences of %s", len(sentences), source)
    return sentences


def describe(config: DictConfig, postprocess: PostProcess | None) -> dict[str, Any]:
    """What was measured and how: all of results.json but the scores."""
    options = ("pooling", "num_layers", "max_length", "normalize", "word_counts", "split")
    settings: dict[str, Any] = {option: config[option] for option in options}
    settings["postprocess"] = None
    if postprocess:
        settings["postprocess"] = {"name": postprocess.name, "fit_on": config.fit_on, **postprocess.options}
    parts = [
        config.encoder,
        config.pooling,
        f"first {config.num_layers} layers" if config.num_layers else None,
        f"{postprocess.name} ({config.fit_on})" if postprocess else None,
    ]
    return {
        "label": config.label or ", ".join(part for part in parts if part),
        "encoder": config.encoder,
        "settings": settings,
        "paper": OmegaConf.to_container(config.paper) if config.paper else None,
    }


if __name__ == "__main__":
    main()
