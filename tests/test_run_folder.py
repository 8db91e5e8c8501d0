"""Jobs of a sweep: their results and command lines, and a sweep that is killed and started again."""

import json
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT, environment, tiny


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
    assert "fixed 0.1" in done.stdout and "71.1" not in done.stdout  # the paper has scores on STS-B alone

    done = run_command("train.py", *given)
    assert done.stdout.count("has run already") == 4
    sentences.write_text(sentences.read_text() + "One more.\n")
    assert "has the results of other files (content)" in run_command("train.py", *given, status=2).stderr
