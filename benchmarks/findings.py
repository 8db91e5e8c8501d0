"""The paper's tables: train every row with several seeds, and append the results to a file of records.

    python -m benchmarks.findings --senteval-dir SentEval/data/downstream
    python -m benchmarks.findings --size paper --senteval-dir SentEval/data/downstream

benchmarks/findings.yaml lists the runs: those of a small model on 2 cores (the default), and those of BERT-base with
the paper's data on GPUs, one run per GPU at a time. Rows of several tables with the same config are trained once. The
command prints an estimate of the time first. An interrupted one continues when it is repeated. `python
docs/findings.py RECORDS PAGE` makes a page of the records.
"""

import argparse
import hashlib
import itertools
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from simcse_pl.config import CONF, with_row
from simcse_pl.evaluation.sts import SPLITS, STS_TASKS_WITH_DEV, NotInBundleError, load_sts_task
from simcse_pl.lab.multirun import gpus_of_machine
from simcse_pl.lab.runs import read_curves
from simcse_pl.lab.transfer import load_transfer_task
from simcse_pl.results import logged
from simcse_pl.runs import RESULTS_FILE, describe_job
from simcse_pl.utils.processes import available_cpus

PLAN: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_suffix(".yaml")))
RECORDS = Path(__file__).with_name("findings.jsonl")  # those of docs/findings.md
WORK = Path("outputs/findings")  # of runs, and of files that the plan names
SENTENCES = WORK / "sentences.txt"
WORDS = range(4, 15)  # in a sentence
_GEOMETRY = ("alignment", "uniformity", "gram_sum", "largest_eigenvalue", "trace", "nonnegative_cosines")
_CURVES = {"step": "step", logged("spearman"): "score", **{logged(name): name for name in _GEOMETRY}}  # of validations
_NO_EFFECT = ("sweep", "run_name", "run_dir", "hydra", "logger", "senteval_dir", "debug", "resume", "size")


class Job(NamedTuple):
    """A run: its options, its description in results.json, the weights it starts from, and a hash of its config."""

    overrides: list[str]
    about: dict[str, Any]
    backbone: str
    config: str

    @property
    def place(self) -> str:
        """The weights, the row, the column and the seed."""
        return place_of({"backbone": self.backbone, "results": self.about})

    @property
    def run(self) -> tuple[str, str]:
        """What the run depends on; rows with equal ones share a run."""
        return self.backbone, self.config

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return WORK / f"{self.backbone.replace('/', '-')}-{self.config}"


def place_of(record: dict[str, Any]) -> str:
    """Return the weights that a run started from, and the row, the column and the seed of its table."""
    results = record["results"]
    names = (results["sweep"][name] for name in ("table", "column", "row"))
    return json.dumps([record["backbone"], *names, results["seed"]])


def planned(size: str, tables: Sequence[str], seeds: Sequence[int] = (), options: Sequence[str] = ()) -> Iterator[Job]:
    """Yield the runs of some tables, one seed of all tables after the other.

    Args:
        size: `mini` or `paper`.
        tables: names of tables of findings.yaml; those that the size does not have are left out.
        seeds: default: those of the size.
        options: further options of all runs.
    """
    common, given = PLAN["sizes"][size], []
    for name in tables:
        table = PLAN["tables"][name]
        if size not in table.get("sizes", PLAN["sizes"]):
            continue
        for column, row in itertools.product(_of(table, size, "columns", [[]]), _of(table, size, "rows", [])):
            place = [f"sweep={_of(table, size, 'sweep', name)}", f"sweep.table={name}"]
            nested = [common["options"], place, column, _of(table, size, "options", []), options]
            given.append(([*_flat(nested)], row))
    for seed, (overrides, row) in itertools.product(seeds or common["seeds"], given):
        yield _job(tuple(overrides), row, seed)


def _flat(options: Iterable[Any]) -> Iterator[str]:
    for option in options:
        yield from [option] if isinstance(option, str) else _flat(option)


def _of(table: dict[str, Any], size: str, name: str, default: Any) -> Any:
    return table.get(f"{size}_{name}", table.get(name, default))


@cache  # for all rows and seeds
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", [*overrides, "run_dir=run"], return_hydra_config=True)


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
    started, folder = time.monotonic(), job.folder
    command = [sys.executable, "-m", "simcse_pl", "train", *job.overrides, f"senteval_dir={senteval_dir}"]
    command += [f"hydra.run.dir={folder}", "logger=csv", "resume=auto"]
    with open(folder.with_suffix(".log"), "a", encoding="utf-8") as log:
        if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | environment).returncode:
            raise SystemExit(f"error: a run failed; its output is in {log.name}")
    results = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    settings = results["settings"]  # without the paths of this machine
    del settings["model"]
    settings["data"] = re.sub("^/.*/", "", settings["data"])
    curves = read_curves(folder).reindex(columns=[*_CURVES]).rename(columns=_CURVES)
    path = curves[curves.score.notna()].round(5).astype({"step": int}).to_dict("records")
    seconds = round(time.monotonic() - started)
    return {"config": job.config, "backbone": job.backbone, "results": results, "path": path, "seconds": seconds}


def read_records(path: Path = RECORDS) -> list[dict[str, Any]]:
    """Return the records, one for each row and seed that is finished."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def write_sentences(senteval_dir: str, file: Path) -> None:
    """Write the short sentences of a SentEval bundle, each once, without those of the dev and test sets of STS-B."""
    texts = []
    for name in ("STS12", "STS13", "STS14", "STS-B", "SICK-R"):
        with suppress(NotInBundleError):
            split = "train" if name in STS_TASKS_WITH_DEV else "test"
            texts += load_sts_task(senteval_dir, name, split).sentences
    for name in ("MR", "CR", "SUBJ", "SST", "MRPC"):
        with suppress(NotInBundleError):
            splits = load_transfer_task(senteval_dir, name).splits.values()
            texts += [text for examples in splits for example in examples for text in example.sentences]
    held_out = [text for split in SPLITS for text in load_sts_task(senteval_dir, "STS-B", split).sentences]
    seen, sentences = set(map(_words, held_out)), []
    for text in texts:
        if (words := _words(text)) not in seen and len(words) in WORDS:
            seen.add(words)
            sentences.append(text)
    random.Random(0).shuffle(sentences)
    file.write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.lower()))


def available(size: str, tables: Sequence[str]) -> list[str]:
    """Return the tables whose files exist, and say what the others need."""
    ready = []
    for name in tables:
        lacking = [file for file in _of(PLAN["tables"][name], size, "needs", []) if not Path(file).exists()]
        if lacking:
            print(f"{name} is left out: it needs {', '.join(lacking)}", flush=True)
        else:
            ready.append(name)
    return ready


def shares(processes: int | None) -> queue.SimpleQueue[dict[str, str]]:
    """Return what each run gets of the machine: a GPU, or some of the cores."""
    gpus = gpus_of_machine()
    number = processes or len(gpus) or 2
    free: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
    for i in range(number):
        threads = {"OMP_NUM_THREADS": str(max(1, available_cpus() // number))}
        free.put(threads | ({"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}))
    return free


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = _arguments(arguments)
    records = given.records or WORK / f"{given.size}.jsonl"
    WORK.mkdir(parents=True, exist_ok=True)
    if given.size == "mini" and not SENTENCES.is_file():
        write_sentences(given.senteval_dir, SENTENCES)
    done = read_records(records)
    finished, of_run = {place_of(record) for record in done}, {_run(record): record for record in done}
    planned_jobs = planned(given.size, available(given.size, given.only), given.seeds, given.options)
    left = [job for job in planned_jobs if job.place not in finished]
    new = {job.run: job for job in left if job.run not in of_run}
    free = shares(given.processes)
    processes = free.qsize()
    times = [record["seconds"] for record in of_run.values()] or [PLAN["sizes"][given.size]["seconds"]]
    hours = len(new) * sum(times) / len(times) / 3600
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


def _run(record: dict[str, Any]) -> tuple[str, str]:
    return record["backbone"], record["config"]


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--senteval-dir", default=os.environ.get("SENTEVAL_DIR"), help="SentEval bundle, for STS-B")
    parser.add_argument("--size", default="mini", choices=PLAN["sizes"], help="model and data (%(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="seeds of all tables (default: the plan's)")
    parser.add_argument("--only", nargs="+", default=list(PLAN["tables"]), choices=PLAN["tables"], help="these tables")
    parser.add_argument("--options", nargs="+", default=[], help="further options of all runs")
    parser.add_argument("--records", type=Path, help="file of results (default: outputs/findings/SIZE.jsonl)")
    parser.add_argument("--processes", type=int, help="runs at a time (default: one per GPU, or 2 on a CPU)")
    given = parser.parse_args(arguments)
    if not given.senteval_dir:
        parser.error("give --senteval-dir, or set SENTEVAL_DIR: the scores are on STS-B")
    return given


if __name__ == "__main__":
    main()
