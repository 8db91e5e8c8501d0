"""Find the nearest neighbours of a few sentences before and after training."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.inference.sentence_index import SentenceIndex
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.html.runs import Run
from simcse_pl.reports.sweeps.sweep_results import Job
from simcse_pl.results.neighbourhood import Neighbour, Neighbourhood, QueryNeighbours
from simcse_pl.sweeps.rows import with_row
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.yaml_files import read_yaml

_MAX_QUERIES = 6
_TOP_K = 5
_MODEL = "simcse_pl.models.encoder.SentenceEncoder.from_pretrained"


def find_neighbours(runs: Sequence[Run], file: str | None) -> Neighbourhood:
    """Return neighbours before and after training, for the best run on dev among those with a saved encoder.

    Args:
        runs: the runs of the page.
        file: a file of at least two sentences to search; None for the packaged sample. Every n-th sentence is a query.
    """
    corpus = Path(file).name if file else "the project's sample"
    sentences = list(dict.fromkeys(read_sentences(file) if file else load_sample("test").sentences))
    if len(sentences) < 2:
        raise UserError(f"{file} has only one distinct sentence: neighbours need at least two")
    saved = [run for run in runs if run.dev is not None and (run.job.folder / "encoder").is_dir()]
    if not saved:
        return Neighbourhood(corpus, len(sentences), None, [], "no run has a saved encoder; finished runs have one")
    first = saved[0].job.run
    sign = -1 if first and first.mode == "min" else 1
    best = max(saved, key=lambda run: sign * (run.dev or 0.0))
    queries = sentences[:: -(-len(sentences) // _MAX_QUERIES)]
    try:
        before = _search(rebuild_encoder_before_training(best.job), sentences, queries)
        after = _search(SentenceEncoder.from_pretrained(best.job.folder / "encoder"), sentences, queries)
    except UserError as error:
        return Neighbourhood(corpus, len(sentences), best.job.name, [], str(error))
    found = [QueryNeighbours(*one) for one in zip(queries, before, after, strict=True)]
    return Neighbourhood(corpus, len(sentences), best.job.name, found)


def rebuild_encoder_before_training(job: Job) -> SentenceEncoder:
    """Build a run's encoder from its config, with new weights drawn from the run's seed.

    The config of a run may come from others, so only a SentenceEncoder is built. Any problem raises UserError.
    """
    file = job.folder / "config" / "config.yaml"
    with reraise_as(f"{file}: cannot rebuild the encoder before training", users_too=True):
        config = with_row(read_yaml(file))
        if job.run and job.run.trial:
            for name, value in job.run.trial.values.items():
                OmegaConf.update(config, name, value)
        options: Any = OmegaConf.to_container(config.model, resolve=True)
        target = options.pop("_target_")
        if target != _MODEL:
            raise UserError(f"model._target_={target} is not {_MODEL}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return SentenceEncoder.from_pretrained(**options)


def _search(encoder: SentenceEncoder, sentences: Sequence[str], queries: Sequence[str]) -> list[list[Neighbour]]:
    encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    index = SentenceIndex.build(functools.partial(encoder.encode, progress=True), sentences)
    return index.search(queries, _TOP_K, leave_out_equal=True)
