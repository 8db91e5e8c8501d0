"""Invented results of encoders, training runs and sweeps."""

import json
import math

import pytest
import yaml

from simcse_pl.reports.sweeps.seed_groups import read_sweeps
from simcse_pl.results.evaluation_results import Result

STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")
PAIRS = dict(zip(STS, (3108, 1500, 3750, 3000, 1186, 1379, 4927), strict=True))


def _sts(task, seed, split):
    """Return scores that differ between aggregations and correlations."""
    base = 0.5 + 0.01 * seed + 0.03 * STS.index(task)
    scores = {
        name: {"spearman": base + 0.0012345678901 * k, "pearson": base - 0.1 - 0.001 * k}
        for k, name in enumerate(("all", "mean", "wmean"))
    }
    parts = "ab" if task in ("STS12", "STS13") else ""
    subsets = {f"{task}_{part}": {"pairs": 750, "spearman": base + 0.02, "pearson": base} for part in parts}
    return {"task": task, "split": split, "pairs": PAIRS[task], **scores, "subsets": subsets}


def _transfer(task, seed):
    f1 = 0.8 + 0.001 * seed if task == "MRPC" else None
    protocol = "test set given" if task in ("TREC", "MRPC") else "10-fold nested cross-validation"
    accuracy = 0.7 + 0.01 * seed + 0.02 * TRANSFER.index(task)
    return {"task": task, "accuracy": accuracy, "f1": f1, "dev_accuracy": 0.7, "rows": 5000, "protocol": protocol}


def _geometry(seed):
    return {
        "data": "STS-B test",
        "sentences": 2758,
        "positives": 338,
        "alignment": 0.1 + 0.05 * seed,
        "uniformity": -2.5 + 0.123456789012 * seed,
        "mean_cosine": 0.2,
        "spectrum": [1 / (1 + k * (1 + seed)) for k in range(32)],
        "effective_rank": 20.5,
        "gram_sum": 123456.7,
        "largest_eigenvalue": 543.2,
        "trace": 2758.0,
        "nonnegative": 0.97,
        "similarities": {
            f"{band}-{band + 1}": [math.sin(k + band) * 0.1 + 0.15 * band for k in range(40)] for band in range(5)
        },
    }


def _retrieval(label):
    queries = ["A man rides a boat.", "A dog runs."]
    found = {query: [{"sentence": f"{label} {query} {k}", "similarity": 0.9} for k in range(3)] for query in queries}
    return {
        "corpus": "captions.txt",
        "sentences": 150000,
        "queries": [{"query": query, "neighbours": own} for query, own in found.items()],
    }


@pytest.fixture
def make_report():
    """Make the content of a results.json."""

    def make(label="my_encoder", seed=0, sts=STS, transfer=TRANSFER, split="test", **changes):
        return {
            "label": label,
            "encoder": f"models/{label}",
            "settings": {"pooling": "mean", "num_layers": None, "split": split, "postprocess": None},
            "paper": None,
            "sts": [_sts(task, seed, split) for task in sts],
            "transfer": [_transfer(task, seed) for task in transfer],
            "geometry": _geometry(seed),
            "retrieval": _retrieval(label),
            "failed": {},
        } | changes

    return make


@pytest.fixture
def make_result(make_report):
    """Make a Result."""
    return lambda *args, **changes: Result.model_validate(make_report(*args, **changes))


@pytest.fixture
def bert():
    """The encoder and settings of the paper's BERT-base."""
    settings = {"pooling": "first_last", "num_layers": None, "split": "test", "postprocess": None}
    return {"encoder": "bert-base-uncased", "settings": settings}


@pytest.fixture
def write_results(tmp_path):
    """Write a results.json into a folder of its own."""

    def write(name, report):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps(report), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def write_run(tmp_path):
    """Write the curves of a training run."""

    def write(name="run", steps=(0, 4, 8, 12), spearman=0.7):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        lines = ["epoch,step,train/loss,val/alignment,val/spearman,val/uniformity"]
        for k, step in enumerate(steps):
            lines += [f"0,{step},,{0.3 - 0.01 * k},{spearman + 0.01 * k},{-1.5 - 0.1 * k}", f"0,{step + 1},1.25,,,"]
        (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
        return folder

    return write


def _training(dev, test=None, validation="STS-B dev", **more):
    """Return the results of a run without those of the job."""

    def scores(spearman):
        return {"spearman": spearman, "alignment": 0.2 + spearman / 10, "uniformity": -3 * spearman, "trace": 2758.0}

    own = test if isinstance(test, dict) else scores(dev - 0.05 if test is None else test)
    stages = {"before": scores(0.6), "best": scores(dev), "test": own}
    return {"validation": validation, "steps": 60, "best_step": 40, **stages, **more}


@pytest.fixture
def job():
    """Make a job for `write_sweep`; without a score on dev it has failed."""

    def make(dev=None, seed=0, row=None, column=None, options=None, choices=None, **more):
        given = {"sweep.row": f"'{row}'"} if row is not None else {}
        overrides = [f"{name}={value}" for name, value in (given | (options or {}) | {"seed": seed}).items()]
        choices = {"model": "minilm", "data": "wiki", "sweep": None} | (choices or {})
        place = {"row": row, "column": column}
        about = {"overrides": overrides, "choices": choices, "seed": seed, "sweep": place}
        return about, None if dev is None else _training(dev, **more)

    return make


@pytest.fixture
def write_sweep(tmp_path):
    """Write a multirun folder as Hydra and train.py do, one job each."""

    def write(name, *jobs, table=None, size=None):
        folder = tmp_path / name
        for number, (about, results) in enumerate(jobs):
            config = folder / str(number) / "config"
            config.mkdir(parents=True)
            (config / "overrides.yaml").write_text(yaml.safe_dump(about["overrides"]))
            if results is not None:
                place = about["sweep"] | {"table": table, "size": size}
                (config.parent / "results.json").write_text(json.dumps(about | {"sweep": place} | results))
        return folder

    return write


@pytest.fixture
def group():
    """Read the only sweep in a folder."""

    def read(folder):
        (sweep,) = read_sweeps({"sweep": folder})
        return sweep

    return read


@pytest.fixture
def of_seeds():
    """Make the jobs of methods for `compare`, with the seeds 0, 1, ..."""
    return lambda scores, **about: [
        (name, dev, seed, about) for name, own in scores.items() for seed, dev in enumerate(own)
    ]


@pytest.fixture
def compare(job, write_sweep, group):
    """The groups of a sweep of methods; each job is a method, its score on dev, its seed, and more if needed."""

    def read(*jobs, size=None):
        made = []
        for name, dev, seed, *more in jobs:
            about = {"setting": "unsupervised", "options": {}, "choices": {}} | (more[0] if more else {})
            options = {"method": name} | about.pop("options")
            choices = {"method": name, "setting": about.pop("setting")} | about.pop("choices")
            made.append(job(dev, seed=seed, options=options, choices=choices, **about))
        return group(write_sweep("s", *made, table="methods", size=size))

    return read
