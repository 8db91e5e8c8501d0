"""The paper's tables on 2 cores: train every row with several seeds, and append the results to a file of records.

    python -m benchmarks.findings --senteval-dir SentEval/data/downstream

benchmarks/findings.yaml lists the runs. Rows of several tables with the same config are trained once. The command
prints an estimate of the time first. An interrupted one continues when it is repeated, with the same backbone. On
another processor, `experiment=mini_backbone` can make another one; then all given seeds are trained with it. `python
docs/findings.py RECORDS` writes docs/findings.md from the records.
"""

import argparse
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from simcse_pl.config import CONF
from simcse_pl.data.sample import mini_backbone
from simcse_pl.results.run_files import RESULTS_FILE, read_run
from simcse_pl.sweeps.jobs import describe_job
from simcse_pl.sweeps.rows import with_row

PLAN: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_suffix(".yaml")))
RECORDS = Path(__file__).with_name("findings.jsonl")  # those of docs/findings.md
SECONDS = 80.0  # of a run, before any has been measured
_NO_EFFECT = ("sweep", "run_name", "run_dir", "hydra", "logger", "senteval_dir", "debug", "resume", "size")


class Job(NamedTuple):
    """A run of the plan: its options, its description in results.json, and a hash of its config."""

    overrides: list[str]
    about: dict[str, Any]
    config: str

    @property
    def place(self) -> str:
        """The row, the column and the seed of the table."""
        return place_of(self.about)


def place_of(results: dict[str, Any]) -> str:
    """Return the row, the column and the seed of the table that a run belongs to."""
    return json.dumps([*(results["sweep"][name] for name in ("table", "column", "row")), results["seed"]])


def planned(tables: Sequence[str], seeds: Sequence[int] | None = None) -> Iterator[Job]:
    """Yield the runs of some tables, one seed of all tables after the other."""
    given = []
    for table, own in ((table, PLAN["tables"][table]) for table in tables):
        for column, row in itertools.product(own.get("columns", [None]), own["rows"]):
            options = [f"sweep={own.get('sweep', table)}", f"sweep.table={table}", f"sweep.row='{row}'"]
            options += [*([column] if column else []), *own.get("options", [])]
            given += [(seed, [*PLAN["options"], *options]) for seed in seeds or PLAN["seeds"]]
    for seed, options in sorted(given, key=lambda own: own[0]):  # a stable sort
        yield _job([*options, f"seed={seed}"])


def _job(overrides: list[str]) -> Job:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [*overrides, "run_dir=run"], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    about = describe_job(config, config.hydra) | {"overrides": overrides}
    row = with_row(config)
    del row.hydra
    resolved: Any = OmegaConf.to_container(row, resolve=True)
    same = {name: own for name, own in resolved.items() if name not in _NO_EFFECT}
    return Job(overrides, about, hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16])


def train(job: Job, folder: Path, senteval_dir: str, threads: int) -> dict[str, Any]:
    """Train a job in a process of its own, or continue it, and return what a record has of it."""
    started = time.monotonic()
    command = [sys.executable, "-m", "simcse_pl", "train", *job.overrides, f"senteval_dir={senteval_dir}"]
    command += [f"hydra.run.dir={folder}", "logger=csv", "resume=auto"]
    with open(folder.with_suffix(".log"), "a", encoding="utf-8") as log:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment).returncode:
            raise SystemExit(f"error: a run failed; its output is in {log.name}")
    results = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    points = read_run(folder).points.round(5)
    seconds = round(time.monotonic() - started)
    return {"config": job.config, "results": results, "path": points.to_dict("records"), "seconds": seconds}


def backbone() -> str:
    """Return a hash of the weights that all runs start from."""
    with open(Path(mini_backbone(), "model.safetensors"), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def read_records(path: Path = RECORDS) -> list[dict[str, Any]]:
    """Return the records, one for each row and seed that is finished."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--senteval-dir", default=os.environ.get("SENTEVAL_DIR"), help="SentEval bundle, for STS-B")
    options.add_argument("--seeds", type=int, nargs="+", help="seeds of all tables (default: those of the plan)")
    options.add_argument("--only", nargs="+", default=list(PLAN["tables"]), choices=PLAN["tables"], help="these tables")
    work = Path("outputs/findings")
    options.add_argument("--records", type=Path, default=work / "records.jsonl", help="file of results (%(default)s)")
    options.add_argument("--work", type=Path, default=work, help="folder of runs (%(default)s)")
    about = "runs at a time; the cores are divided among them (%(default)s)"
    options.add_argument("--processes", type=int, default=2, help=about)
    given = options.parse_args(arguments)
    if not given.senteval_dir:
        options.error("give --senteval-dir, or set SENTEVAL_DIR: the scores are on STS-B")
    common = {"backbone": backbone()}
    done = [own for own in read_records(given.records) if own.get("backbone") == common["backbone"]]
    finished, of_config = {place_of(own["results"]) for own in done}, {own["config"]: own for own in done}
    left = [job for job in planned(given.only, given.seeds) if job.place not in finished]
    new = {job.config: job for job in left if job.config not in of_config}
    times = [own["seconds"] for own in of_config.values()] or [SECONDS * given.processes]
    minutes = len(new) * sum(times) / len(times) / 60 / given.processes
    print(f"{len(left)} rows of tables left: {len(new)} runs, about {minutes:.0f} minutes", flush=True)
    given.work.mkdir(parents=True, exist_ok=True)

    def folder(config: str) -> Path:
        return Path(given.work, f"{common['backbone']}-{config}")

    threads = max(1, (os.cpu_count() or 1) // given.processes)
    with ThreadPoolExecutor(given.processes) as pool:
        runs = {
            config: pool.submit(train, job, folder(config), given.senteval_dir, threads) for config, job in new.items()
        }
        try:
            for job in left:
                if job.config not in of_config:
                    of_config[job.config] = runs[job.config].result()
                record = of_config[job.config]
                record = record | common | {"results": record["results"] | job.about}
                with open(given.records, "a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                shutil.rmtree(folder(job.config), ignore_errors=True)  # checkpoints are large
                print(*job.overrides, f"{100 * record['results']['best']['spearman']:.2f}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
