"""Measure any encoder: `simcse evaluate encoder=FOLDER`; `--help` lists all options."""

import dataclasses
import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

import simcse_pl.sweeps.resolvers  # noqa: F401  that the config refers to
from simcse_pl.config import CONF
from simcse_pl.config.entry_point import report_errors, run
from simcse_pl.config.type_checks import EvaluateOptions
from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed, sentences_to_fit_on
from simcse_pl.evaluation.suite import Suite, evaluate_suite, load_suite
from simcse_pl.export.fingerprint import fingerprint
from simcse_pl.models.load import Encoder
from simcse_pl.models.protocols import Encode
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.reports.evaluation_report import encoder_tables, save
from simcse_pl.reports.paper import named_row
from simcse_pl.results.evaluation_results import write_results
from simcse_pl.results.run_files import RESULTS_FILE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import show

TARGET, NLI = "target", "nli"


@hydra.main(config_path=str(CONF), config_name="evaluate", version_base="1.3")
@report_errors(EvaluateOptions)
def evaluate(config: DictConfig) -> None:
    """Measure, print the tables, and write them and results.json into the output folder."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    suite = read_suite(config)
    tell(suite.failed)
    postprocess: PostProcess | None = instantiate(config.postprocess) or None
    fit_on = read_to_fit_on(config) if postprocess and not postprocess.fitted else None
    report = describe(config, postprocess)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder: Encoder = instantiate(config.model)
    report["settings"]["dim"] = encoder.dim
    normalize = encoder.normalize
    if postprocess:
        postprocess.check_width(encoder.dim)
        encoder.normalize = False  # until after the post-processing, as in an exported encoder
    if isinstance(encoder, torch.nn.Module):
        encoder.to(device)
    encode: Encode = functools.partial(encoder.encode, batch_size=config.batch_size, bf16=config.bf16, progress=True)
    if postprocess and fit_on:
        postprocess.fit(encode(fit_on).to(device)).save(folder / "postprocess")
    report["fingerprint"] = fingerprint(encoder, postprocess, normalize)
    encode = EncodeOnce(encode, suite.sentences())
    encode = Postprocessed(encode, postprocess, device, normalize) if postprocess else encode
    results = evaluate_suite(encode, suite, device, progress=True)
    tell({task: why for task, why in results.failed.items() if task not in suite.failed})
    result = write_results(folder / RESULTS_FILE, report | dataclasses.asdict(results))
    tables = encoder_tables([result], config.aggregation)
    save(folder, tables, figures={})
    for table in tables:
        show(table.printed())
    print(f"results  {folder}")
    instantiate(config.wandb)(result, tables)
    if results.failed:
        raise UserError(f"not measured: {', '.join(results.failed)}; all else was")


def read_suite(config: DictConfig) -> Suite:
    """The data of all tasks; what is wrong with it is told before anything slow begins."""
    tasks = config.tasks or []
    if not config.retrieval.corpus and (config.retrieval.queries or not tasks):
        asked = "retrieval.queries are given" if config.retrieval.queries else "tasks is empty"
        raise UserError(f"{asked}, and there is no retrieval.corpus to search")
    how = {"classifier": config.transfer.classifier, "geometry_split": config.geometry.split}
    suite = load_suite(tasks, config.senteval_dir, config.split, config.regressor, **how)
    suite.search = instantiate(config.retrieval) if config.retrieval.corpus else None
    return suite


def tell(failed: Mapping[str, str]) -> None:
    """What could not be measured, a line a task."""
    for task, why in failed.items():
        print(f"error: {task}: {why}", file=sys.stderr)


def read_to_fit_on(config: DictConfig) -> list[str] | None:
    """The sentences that a post-processing is fitted on; None for each task's own."""
    if config.fit_on == TARGET:
        if config.retrieval.corpus:
            raise UserError("fit_on=target: retrieval has no target; give a file, the corpus itself perhaps")
        return None
    source = config.nli if config.fit_on == NLI else config.fit_on
    return sentences_to_fit_on(source, config.fit_columns, config.fit_limit, config.seed)


def describe(config: DictConfig, postprocess: PostProcess | None) -> dict[str, Any]:
    """What is measured and how: all of results.json but the scores."""
    if config.paper:
        named_row(config.paper.get("table"), config.paper.get("row"))  # a row that does not exist is told now
    options = ("pooling", "num_layers", "max_length", "normalize", "word_counts", "split", "bf16")
    settings: dict[str, Any] = {option: config[option] for option in options}
    settings["postprocess"] = after = None
    if postprocess:
        fit_on = config.postprocess.get("folder", config.fit_on)  # of a saved one
        settings["postprocess"] = {"name": postprocess.name, "fit_on": fit_on, **postprocess.options}
        if not postprocess.fitted:
            fit: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, ["fit_columns", "fit_limit", "nli"]))
            settings["postprocess"] |= fit | {"fit_seed": config.seed}
        after = f"{postprocess.name} ({fit_on})"
    parts = [config.encoder, config.pooling, config.num_layers and f"first {config.num_layers} layers", after]
    return {
        "label": config.label or ", ".join(part for part in parts if part),
        "encoder": config.encoder,
        "settings": settings,
        "paper": OmegaConf.to_container(config.paper) if config.paper else None,
    }


def main() -> None:
    """Run the command."""
    run(evaluate)


if __name__ == "__main__":
    main()
