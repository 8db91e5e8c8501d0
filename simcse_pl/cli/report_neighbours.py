"""Nearest neighbours of a few sentences before and after training, side by side."""

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.inference.sentence_index import SentenceIndex
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.html.runs import Run
from simcse_pl.reports.sweeps.sweep_results import Job
from simcse_pl.results.neighbourhood import Neighbour, Neighbourhood, Query
from simcse_pl.sweeps.rows import with_row
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.yaml_files import read_yaml

_QUERIES = 6
_COUNT = 5
_MODEL = "simcse_pl.models.encoder.SentenceEncoder.from_pretrained"
_ENCODER = "encoder"  # the folder of the best, in that of the run


@dataclass(frozen=True)
class Corpus:
    """Distinct sentences, and what they are called."""

    name: str
    sentences: list[str]


def read_corpus(path: str | None) -> Corpus:
    """The sentences of a file, or of the STS pairs that come with the project where there is none.

    Raises:
        UserError: no such file, a damaged one, or fewer than two sentences.
    """
    if path is None:
        return Corpus("the project's sample", list(dict.fromkeys(load_sample("test").sentences)))
    sentences = list(dict.fromkeys(read_sentences(path)))
    if len(sentences) < 2:
        raise UserError(f"{path} has one sentence alone: a neighbour takes two")
    return Corpus(Path(path).name, sentences)


def neighbourhood(runs: Sequence[Run], corpus: Corpus) -> Neighbourhood:
    """The neighbours of some sentences of a corpus, by the run that is best on dev of those that saved an encoder.

    Args:
        runs: of the page.
        corpus: what is searched; the queries are spread evenly over it.
    """
    saved = [run for run in runs if run.dev is not None and (run.job.folder / _ENCODER).is_dir()]
    if not saved:
        problem = "no run has an encoder: it is saved at a run's end"
        return Neighbourhood(corpus.name, len(corpus.sentences), None, [], problem)
    best = max(saved, key=lambda run: run.dev or 0.0)
    about = (corpus.name, len(corpus.sentences), best.label)
    queries = corpus.sentences[:: -(-len(corpus.sentences) // _QUERIES)]
    try:
        before = _nearest(encoder_before_training(best.job), corpus.sentences, queries)
        after = _nearest(SentenceEncoder.from_pretrained(best.job.folder / _ENCODER), corpus.sentences, queries)
    except UserError as error:
        return Neighbourhood(*about, [], str(error))
    return Neighbourhood(*about, [Query(*found) for found in zip(queries, before, after, strict=True)])


def encoder_before_training(job: Job) -> SentenceEncoder:
    """The encoder that a run began with, its fresh weights, where it had some, drawn as they were then.

    Only an encoder of ours is made, whatever the run's config asks to be instantiated.

    Raises:
        UserError: the config is missing, damaged or of another kind of model, or its checkpoint cannot be loaded.
    """
    file = job.folder / "config" / "config.yaml"
    try:
        config = with_row(_config(file))
        for name, value in (job.run.trial.values if job.run and job.run.trial else {}).items():
            OmegaConf.update(config, name, value)
        options: Any = OmegaConf.to_container(config.model, resolve=True)
        target, seed = options.pop("_target_"), int(config.seed)
    except (OmegaConfBaseException, KeyError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{file} does not tell what the run began with: {first_line(error)}") from error
    takes = inspect.signature(SentenceEncoder.from_pretrained).parameters
    odd = [name for name in options if name not in takes]
    if target != _MODEL or odd:
        raise UserError(f"{file}: model is no {_MODEL} but {target}" + f" with {', '.join(odd)}" * bool(odd))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SentenceEncoder.from_pretrained(**options)


def _config(file: Path) -> DictConfig:
    config = read_yaml(file)
    if not isinstance(config, DictConfig):
        raise ValueError("no config")
    return config


def _nearest(encoder: SentenceEncoder, sentences: Sequence[str], queries: Sequence[str]) -> list[list[Neighbour]]:
    encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    index = SentenceIndex.build(functools.partial(encoder.encode, progress=True), sentences)
    return index.search(queries, _COUNT, leave_out_equal=True)
