"""Invented results of encoders, training runs and sweeps."""

import math

from simcse_pl.evaluation.results import Result
from simcse_pl.lab.seed_groups import read_sweeps

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
    return {"task": task, "split": split, "pairs": PAIRS[task], **scores}


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


def make_report(label="my_encoder", seed=0, sts=STS, transfer=TRANSFER, split="test", **changes):
    """Return the content of a results.json."""
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


def make_result(*args, **changes):
    return Result.model_validate(make_report(*args, **changes))


BERT = {  # the encoder and settings of the paper's BERT-base
    "encoder": "bert-base-uncased",
    "settings": {"pooling": "first_last", "num_layers": None, "split": "test", "postprocess": None},
}


def _training(dev, test=None, validation="STS-B", **more):
    """Return the results of a run without those of the job."""

    def scores(spearman):
        return {"spearman": spearman, "alignment": 0.2 + spearman / 10, "uniformity": -3 * spearman, "trace": 2758.0}

    own = test if isinstance(test, dict) else scores(dev - 0.05 if test is None else test)
    stages = {"before": scores(0.6), "best": scores(dev), "test": own}
    settings = {"data": "wiki"}
    return {"validation": validation, "settings": settings, "steps": 60, "best_step": 40, **stages, **more}


def job(dev=None, seed=0, row=None, column=None, options=None, choices=None, **more):
    """Return a job for `write_sweep`; without a score on dev it has failed."""
    given = {"sweep.row": f"'{row}'"} if row is not None else {}
    overrides = [f"{name}={value}" for name, value in (given | (options or {}) | {"seed": seed}).items()]
    choices = {"model": "minilm", "data": "wiki", "sweep": None} | (choices or {})
    place = {"row": row, "column": column}
    about = {"overrides": overrides, "choices": choices, "seed": seed, "sweep": place}
    return about, None if dev is None else _training(dev, **more)


def group(folder):
    """Read the only sweep in a folder."""
    (sweep,) = read_sweeps({"sweep": folder})
    return sweep


def of_seeds(scores, **about):
    """Return the jobs of methods for `compare`, with the seeds 0, 1, ..."""
    return [(name, dev, seed, about) for name, own in scores.items() for seed, dev in enumerate(own)]
