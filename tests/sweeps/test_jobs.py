"""Jobs of a sweep: their results and command lines, and a sweep that is killed and started again."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.conf import ConfigSourceInfo
from omegaconf import OmegaConf

from simcse_pl.sweeps.jobs import best_score, finished_job, job_arguments
from simcse_pl.sweeps.rows import in_sweep
from simcse_pl.utils.errors import SweepError, UserError
from tests.conftest import ROOT, tiny


def write_job(folder: Path, results):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(results if isinstance(results, str) else json.dumps(results))


def test_the_results_of_a_finished_job_are_read(tmp_path):
    results = {"overrides": ["seed=1", "model.dropout=0.1"], "best": {"spearman": 0.5}}
    write_job(tmp_path, results)
    assert finished_job(tmp_path, ["model.dropout=0.1", "seed=1"]) == results


def test_the_score_of_diverged_training_is_nan():
    assert math.isnan(best_score({"best": {"spearman": None}}))


def test_the_folder_of_another_job_is_an_error(tmp_path):
    write_job(tmp_path, {"overrides": ["seed=1"], "best": {"spearman": 0.5}})
    with pytest.raises(SweepError, match=r"holds another job \(seed=1\): choose another folder"):
        finished_job(tmp_path, ["seed=2"])


@pytest.mark.parametrize("content", ["{", "{}", '{"overrides": ["seed=1"], "best": {"spearman": "high"}}'])
def test_damaged_results_are_an_error(tmp_path, content):
    write_job(tmp_path, content)
    with pytest.raises(UserError, match="is damaged, remove it to run the job again: "):
        finished_job(tmp_path, ["seed=1"])


def test_the_command_line_of_a_job(composed):
    hydra = composed("hydra.job.num=3").hydra
    OmegaConf.set_readonly(hydra, False)
    hydra.job.config_name = "train"
    hydra.runtime.config_sources = [
        ConfigSourceInfo(path=path, schema="file", provider=provider)
        for provider, path in (("hydra", "theirs"), ("main", "/project/conf"), ("command-line", "/mine"))
    ]
    hydra.overrides.task = ["seed=2", "sweep.row='fixed 0.1'"]
    hydra.overrides.hydra = ["hydra.mode=MULTIRUN", "hydra.sweep.dir=elsewhere", "hydra.verbose=true"]
    assert in_sweep()
    assert job_arguments(hydra, Path("/tmp/sweeps/monday/3")) == [
        *("--config-name", "train", "--config-path", "/project/conf", "--config-dir", "/mine"),
        *("seed=2", "sweep.row='fixed 0.1'", "hydra.verbose=true"),
        *('hydra.run.dir="/tmp/sweeps/monday/3"', 'hydra.sweep.dir="/tmp/sweeps/monday"', "hydra.job.num=3"),
    ]


@pytest.mark.slow
def test_a_killed_sweep_is_resumed(run_command, sentences, make_model, tmp_path):
    folder = tmp_path / "sweep"
    given = ["-m", "sweep=table_3_dropout", "size=mini", "sweep.row=0.0,'fixed 0.1'", "seed=0,1", "logger=csv"]
    given += ["data=text", f"data.train={sentences}", *tiny(make_model("bert")), "trainer.max_steps=2", "val_every=1"]
    given += ["data.batch_size=4", "data.validation=[sample]", f"hydra.sweep.dir={folder}"]
    process = subprocess.Popen([sys.executable, "train.py", *given], cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (folder / "1" / "metrics.csv").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    finished = [job for job in range(4) if (folder / str(job) / "results.json").exists()]
    assert finished in ([0], [0, 1])
    before = {job: (folder / str(job) / "results.json").stat().st_mtime_ns for job in finished}

    done = run_command("train.py", *given)
    assert all((folder / str(job) / "results.json").stat().st_mtime_ns == then for job, then in before.items())
    assert done.stdout.count("has run already") == len(finished)
    results = [json.loads((folder / str(job) / "results.json").read_text()) for job in range(4)]
    assert [(str(own["sweep"]["row"]), own["seed"]) for own in results] == [
        ("0.0", 0), ("0.0", 1), ("fixed 0.1", 0), ("fixed 0.1", 1),
    ]  # fmt: skip
    assert all(own["sweep"]["table"] == "table_3_dropout" and own["steps"] == 2 for own in results)
    assert "Table 3 of the paper" in done.stdout and "82.5" in done.stdout

    done = run_command("train.py", *given)
    assert done.stdout.count("has run already") == 4
