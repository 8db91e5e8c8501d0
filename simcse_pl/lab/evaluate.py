"""Measure an encoder: read the data, load the encoder, score, and save. cli.py composes the config."""

import logging
import random
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from simcse_pl.config import in_sweep
from simcse_pl.data.rows import read_rows
from simcse_pl.evaluation.evaluators import make_evaluators
from simcse_pl.evaluation.results import Result
from simcse_pl.evaluation.sts import SPLITS, STS_TASKS_WITH_DEV, load_sts_task
from simcse_pl.evaluation.suite import TASK_NAMES, OwnDataTask, Suite, encode_once, evaluate_suite, load_suite
from simcse_pl.lab.encoder_tables import encoder_tables
from simcse_pl.lab.figures import save
from simcse_pl.lab.published import named_row
from simcse_pl.models.load import Encoder, fingerprint, load_encoder
from simcse_pl.models.templates import with_newlines
from simcse_pl.models.word_vectors import AveragedVectors
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.results import TEST
from simcse_pl.run_folder import CURVES_FILE, RESULTS_FILE, encoder_label
from simcse_pl.utils.errors import UserError, prefixed, reraise_as
from simcse_pl.utils.files import write_json
from simcse_pl.utils.tensors import Encode, hash_tensors, unit_vectors
from simcse_pl.utils.terminal import show

log = logging.getLogger("simcse_pl.evaluate")
_LOADER = f"{load_encoder.__module__}.{load_encoder.__name__}"


def evaluate(config: DictConfig) -> dict[str, Any]:
    """Measure an encoder, print the tables, save them, and return the content of results.json."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    if (folder / CURVES_FILE).exists() or (folder / "checkpoints").exists():
        raise UserError(f"{folder} holds a training run, whose results would be lost: choose another hydra.run.dir")
    if in_sweep():  # a job that fails must not leave the scores of an earlier one
        (folder / RESULTS_FILE).unlink(missing_ok=True)

    suite = read_suite(config)
    postprocess: PostProcess | None = instantiate(config.postprocess) or None
    if not (suite.tasks or suite.failed or postprocess):
        raise UserError("there is nothing to measure: give tasks, test_sets, or data.test for the evaluators")
    fit_on = sentences_for_fit(config, suite) if postprocess and not postprocess.fitted else None
    released = released_fitting_sets(suite, config.senteval_dir) if config.fit_on == "released" else {}
    about = describe(config, postprocess)

    encoder, encode = load(config, postprocess)
    if postprocess and fit_on:
        postprocess.fit(encode(fit_on).to(_device())).save(folder / "postprocess")
    about["settings"]["dim"] = encoder.dim
    about["fingerprint"] = fingerprint(encoder, postprocess)
    tell_benchmarks(suite, about)

    encode = encode_once(encode, getattr(encoder, "prompts", None) or ())
    if postprocess:
        encode = postprocessed(encode, postprocess, _device(), encoder.normalize, released)
    measured = evaluate_suite(encode, suite, _device())
    small = Suite([*suite.sts, *(task for task in suite.tasks if isinstance(task, OwnDataTask))])
    by_dim = {str(dim): evaluate_suite(first_dimensions(encode, dim), small) for dim in config.dims}

    warnings = list(dict.fromkeys(postprocess.warnings)) if postprocess else []
    result = Result(**about, **dict(measured), warnings=warnings, dims=by_dim)
    write_json(folder / RESULTS_FILE, result.model_dump())
    write_tables(config, folder, result)
    print_failed({task: why for task, why in measured.failed.items() if task not in suite.failed})
    if measured.failed:
        raise UserError(f"not measured: {', '.join(measured.failed)}; everything else was measured")
    return result.model_dump()


def load(config: DictConfig, postprocess: PostProcess | None) -> tuple[Encoder, Encode]:
    """Return the encoder, and its `encode` with the options of the command, such as the prompt of all other sentences.

    UserError is raised if it lacks the prompt, or its vectors lack dimensions of `dims` or of the post-processing.
    """
    encoder: Encoder = instantiate(config.model)
    if isinstance(encoder, AveragedVectors) and config.prompt_name and not encoder.prompts:  # it would ignore the name
        raise UserError(f"prompt_name={config.prompt_name}: the encoder has no such prompt; it has none")
    if isinstance(encoder, torch.nn.Module):
        encoder.to(_device())
    if config.dims and (postprocess or max(config.dims) > encoder.dim):
        numbers = f"give numbers from 1 to {encoder.dim}, without a post-processing, which has its own"
        raise UserError(f"dims={config.dims}: {numbers}")
    if postprocess:
        postprocess.check_width(encoder.dim)
    options: Any = {"batch_size": config.batch_size, "bf16": config.bf16, "progress": True}
    options["normalize"] = False if postprocess else None  # after it, as in an exported encoder

    def encode(sentences: list[str], *, prompt_name: str | None = None) -> Tensor:
        return encoder.encode(sentences, prompt_name=prompt_name or config.prompt_name, **options)

    return encoder, encode


def first_dimensions(encode: Encode, dim: int) -> Encode:
    """Return a function that keeps the first dimensions of the vectors of another one."""
    return lambda sentences, *, prompt_name=None: encode(sentences, prompt_name=prompt_name)[:, :dim]


def read_suite(config: DictConfig) -> Suite:
    """Read the data of all tasks, and print which could not be read, before the encoder is loaded."""
    tasks = [config.tasks] if isinstance(config.tasks, str) else config.tasks or []
    mteb_names = [task for task in tasks if task not in TASK_NAMES]
    data: Any = OmegaConf.to_container(config.data, resolve=True)
    own = OwnDataTask(make_evaluators(instantiate(config.evaluators), validation=None, test=data["test"]))
    retrieval = [instantiate(config.retrieval)] if config.retrieval.corpus else []
    options = {"classifier": config.transfer.classifier, "geometry_split": config.geometry.split}
    suite = load_suite([task for task in tasks if task in TASK_NAMES], config.senteval_dir, config.split, **options)
    suite.tasks += read_benchmarks(config, mteb_names) if mteb_names else []
    suite.tasks += retrieval + ([own] if any(len(part.sentences(TEST)) for part in own.evaluators.values()) else [])
    print_failed(suite.failed)
    return suite


def read_benchmarks(config: DictConfig, names: Sequence[str]) -> list[Any]:
    """Return tasks of mteb, without the name and the revision of the encoder."""
    with reraise_as(f"tasks={names[0]} is none of {', '.join(TASK_NAMES)}; for more tasks, pip install mteb"):
        from mteb.models.abs_encoder import AbsEncoder  # an extra, which takes seconds to import

        from simcse_pl.lab import mteb_tasks as benchmarks
    options: Any = OmegaConf.to_container(config.mteb)
    with reraise_as("mteb.prompts"):  # mteb would ignore an unknown name
        AbsEncoder.validate_task_to_prompt_name(options["prompts"])
    folder = Path(HydraConfig.get().runtime.output_dir) / "mteb"
    fixed = {"folder": folder, "prompts": with_newlines(options["prompts"]), "batch_size": config.batch_size}
    tasks = benchmarks.find_tasks(names, options["languages"])
    return [benchmarks.MtebTask(name, task, **fixed) for name, task in tasks.items()]


def tell_benchmarks(suite: Suite, about: Mapping[str, Any]) -> None:
    """Give the tasks of mteb the name of the encoder and a revision, by which mteb finds its own results again."""
    known = about["fingerprint"] or uuid.uuid4().hex  # a class of another kind may have other weights each time
    task: Any
    for task in suite.tasks:
        if hasattr(task, "revision"):
            task.model, task.revision = about["label"], hash_tensors({}, known, about["settings"])


def print_failed(failed: Mapping[str, str]) -> None:
    """Print one line for each task that could not be measured."""
    for task, why in failed.items():
        print(f"error: {task}: {why}", file=sys.stderr)


def sentences_for_fit(config: DictConfig, suite: Suite) -> list[str] | None:
    """Return the sentences to fit a post-processing on, distinct ones of a file or a random sample of them.

    None means to fit it on the sentences of each task.
    """
    if config.fit_on in ("target", "released"):
        kinds = [task.name.partition("/")[0] for task in suite.tasks]
        unknown = [what for kind, what in (("retrieval", "retrieval"), ("mteb", "tasks of mteb")) if kind in kinds]
        own = (task.evaluators for task in suite.tasks if isinstance(task, OwnDataTask))
        unknown += [
            f"evaluators={name}"  # it encodes queries and documents one after the other
            for evaluators in own
            for name, evaluator in evaluators.items()
            if any(prompt and texts for prompt, texts in evaluator.by_prompt(TEST).items())
        ]
        if unknown:
            raise UserError(f"fit_on={config.fit_on}: with {unknown[0]}, set it to a file, for example the corpus")
        return None
    source = config.nli if config.fit_on == "nli" else config.fit_on
    columns = [config.fit_columns] if isinstance(config.fit_columns, int | str) else config.fit_columns
    with prefixed("fit_on", "'fit_columns=[NAME]'"):
        sentences = list(dict.fromkeys(sentence for row in read_rows(source, columns) for sentence in row))
    if config.fit_limit is not None and config.fit_limit < len(sentences):
        sentences = random.Random(config.seed).sample(sentences, config.fit_limit)
    log.info("fitting the post-processing on %d sentences of %s", len(sentences), source)
    return sentences


def released_fitting_sets(suite: Suite, senteval_dir: str | Path | None) -> dict[frozenset[str], list[str]]:
    """Return what the released code of BERT-whitening fits on for each STS task, by the sentences of the task.

    A sentence counts as often as it occurs. STS-B and SICK-R are fitted on their train, dev and test splits.
    """
    fitting_sets = {}
    for task in suite.sts:
        splits = [task]
        if senteval_dir and task.name in STS_TASKS_WITH_DEV:
            splits = [load_sts_task(senteval_dir, task.name, split) for split in ("train", *SPLITS)]
        fitting_sets[frozenset(task.sentences)] = [sentence for split in splits for sentence in split.sentences]
    return fitting_sets


def postprocessed(
    encode: Encode,
    postprocess: PostProcess,
    device: str | torch.device = "cpu",
    normalize: bool = False,
    fit_on: Mapping[frozenset[str], list[str]] | None = None,
) -> Encode:
    """Return an `encode` function followed by a post-processing, in the order of `SentenceEncoder.encode`.

    A post-processing that is not fitted is fitted on the sentences of each call, which are those of one task, or on
    those that `fit_on` has in their place (see `released_fitting_sets`). With `normalize`, the vectors have length 1.
    """
    fit_each_call = not postprocess.fitted

    def transformed(texts: list[str], *, prompt_name: str | None = None) -> Tensor:
        vectors = encode(texts, prompt_name=prompt_name).to(device)
        if fit_each_call:
            others = (fit_on or {}).get(frozenset(texts))
            postprocess.fit(encode(others).to(device) if others else vectors)
        vectors = postprocess.transform(vectors).cpu()
        return unit_vectors(vectors) if normalize else vectors

    return transformed


def describe(config: DictConfig, postprocess: PostProcess | None) -> dict[str, Any]:
    """Return the part of results.json that says what is measured and how, without the scores."""
    if config.paper:
        named_row(config.paper.get("table"), config.paper.get("row"))  # raises an error if there is no such row
    options: Any = OmegaConf.to_container(config.model, resolve=True)
    settings = {name: value for name, value in options.items() if name != "name" and value != _LOADER}
    settings |= {"split": config.split, "bf16": config.bf16, "prompt_name": config.prompt_name}
    settings |= {"mteb.prompts": OmegaConf.to_container(config.mteb.prompts)} if config.mteb.prompts else {}
    settings["postprocess"] = after = None
    if postprocess:
        fit_on = config.postprocess.get("folder", config.fit_on)  # a saved one has a folder
        settings["postprocess"] = {"name": postprocess.name, "fit_on": fit_on, **postprocess.options}
        if not postprocess.fitted:
            fit: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, ["fit_columns", "fit_limit", "nli"]))
            settings["postprocess"] |= fit | {"fit_seed": config.seed}
        after = f"{postprocess.name} ({fit_on})"
    parts = [
        encoder_label(config.encoder),  # short for a column
        config.pooling,
        config.template and str(config.template),
        config.prompt_name and f"prompt {config.prompt_name}",
        config.num_layers and f"first {config.num_layers} layers",
        config.truncate_dim and f"{config.truncate_dim} dimensions",
        after,
    ]
    return {
        "label": config.label or ", ".join(part for part in parts if part),
        "encoder": config.encoder,
        "settings": settings,
        "paper": OmegaConf.to_container(config.paper) if config.paper else None,
    }


def write_tables(config: DictConfig, folder: Path, result: Result) -> None:
    """Print, save and log the tables."""
    tables = encoder_tables([result], config.aggregation)
    save(folder, tables, {})
    for table in tables:
        show(table.printed())
    print(f"results  {folder}")
    instantiate(config.wandb)(result, tables)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
