"""Jobs of a sweep: every row of every sweep composes, rows set what they say, finished jobs stay finished."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.conf import ConfigSourceInfo
from omegaconf import OmegaConf, open_dict

from simcse_pl.errors import SweepError, UserError
from simcse_pl.front_door.options import TrainOptions
from simcse_pl.front_door.types import check_types
from simcse_pl.module import SimCSEModule
from simcse_pl.report.paper import ablation, ablation_names
from simcse_pl.resolvers import in_sweep, row_names
from simcse_pl.sweep import best_score, finished_job, job_arguments, with_row, with_values
from tests.conftest import ROOT, tiny

SWEEPS = sorted(file.stem for file in (ROOT / "conf" / "sweep").glob("*.yaml"))
TABLES = [name for name in SWEEPS if name.startswith("table_") and name != "table_a1_hyperparameters"]


def rows_of(config):
    return [name.strip("'") for name in row_names(config).split("','")]


def test_the_papers_files_leave_out_the_rows_that_they_lack(composed):
    """Of NLI it has triplets, without a neutral hypothesis."""
    supervised = composed("sweep=table_4_supervised_data")
    assert rows_of(supervised)[:2] == [
        "SNLI+MNLI entailment + hard negatives",
        "dual encoder, entailment + hard negatives",
    ]
    assert "contradiction+neutral 1.0" not in rows_of(composed("sweep=table_7_hard_negative"))
    given = composed("sweep=table_7_hard_negative", "sweep.with_neutral=nli.csv")
    assert rows_of(given)[-1] == "contradiction+neutral 1.0"


def test_table_6_is_both_settings(composed):
    assert composed("sweep=table_6_pooling").hydra.sweeper.params.setting == "unsupervised,supervised"


@pytest.mark.parametrize(("size", "sizes"), [("mini", "8,16,32,64,128"), ("paper", "32,64,128,256,512")])
def test_batch_sizes_are_those_of_the_size(size, sizes, composed):
    config = composed("sweep=batch_size", f"size={size}")
    assert config.hydra.sweeper.params["data.batch_size"] == sizes


@pytest.mark.parametrize("size", ["mini", "paper"])
@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_row_of_every_sweep_composes(sweep, size, composed):
    config = composed(f"sweep={sweep}", f"size={size}", "logger=csv")
    assert config.size == size and config.hydra.sweeper.params
    with open_dict(config):
        del config.hydra
    check_types(config, SimCSEModule, TrainOptions)
    for row in rows_of(config) if config.sweep.get("rows") else [None]:
        if row:
            config.sweep.row = row
        job = with_row(config).copy()
        OmegaConf.resolve(job)
        assert not OmegaConf.missing_keys(job)
        assert job.data.train is not None and (job.trainer.max_steps == 60) == (size == "mini")


@pytest.mark.parametrize("table", TABLES)
def test_rows_and_columns_are_named_as_in_the_papers_table(table, composed):
    config = composed(f"sweep={table}", "size=paper")
    paper = ablation(table)
    assert table in ablation_names() and config.sweep.table == table
    assert [str(name) for name in config.sweep.rows] == list(paper.rows)
    assert (config.sweep.column is None) == (not paper.settings)
    if paper.settings:
        assert config.sweep.column in paper.settings


def test_any_model_and_data_can_be_swept(composed):
    config = composed("sweep=table_3_dropout", "size=mini", "model=roberta", "data=text", "data.train=mine.txt")
    config.sweep.row = 0.15
    job = with_row(config)
    assert (job.model.name, job.model.dropout, job.data.train) == ("roberta-base", 0.15, "mine.txt")


def test_a_file_of_ones_own_is_that_of_the_rows_which_name_none(composed):
    for given, train in (["data.train=mine.csv"], "mine.csv"), ([], composed("setting=supervised").data.train):
        config = composed("sweep=table_4_supervised_data", *given)
        for row in "SNLI+MNLI entailment + hard negatives", "dual encoder, entailment + hard negatives":
            config.sweep.row = row
            assert (with_row(config).data.train, with_row(config).data.columns) == (train, [0, 1, 2])


def test_a_row_sets_what_it_says_and_nothing_else(composed):
    config = composed("sweep=table_3_dropout")
    plain = OmegaConf.to_container(composed("setting=unsupervised", "size=paper"))
    config.sweep.row = "fixed 0.1"
    job = OmegaConf.to_container(with_row(config))
    assert job["fixed_dropout"] and job["model"] == plain["model"] | {"dropout": 0.1}
    for name in ("data", "objective", "optimizer", "trainer", "views"):
        assert job[name] == plain[name]
    assert not config.fixed_dropout, "the config itself stays as it was"


def test_a_view_of_a_row_replaces_the_other_whole(composed):
    config = composed("sweep=table_1_augmentation", "views=mlm")
    config.sweep.row = "crop 20%"
    assert set(with_row(config).views) == {"_target_", "share"}


def test_rows_that_lack_something_are_left_out(composed, monkeypatch):
    monkeypatch.delenv("WNSEARCHDIR", raising=False)
    everything = list(composed("sweep=table_1_augmentation").sweep.rows)
    assert rows_of(composed("sweep=table_1_augmentation", "size=mini")) == everything[:-2]
    monkeypatch.setenv("WNSEARCHDIR", "wordnet")
    assert rows_of(composed("sweep=table_1_augmentation", "size=paper")) == everything
    files = ["sweep.files.qqp=qqp.csv", "sweep.files.neutral=neutral.csv"]
    left = ["QQP (134k)", "SNLI+MNLI neutral (314k)"]
    assert rows_of(composed("sweep=table_4_supervised_data", "size=paper", *files))[:2] == left


def test_a_row_that_lacks_something_says_what(composed):
    config = composed("sweep=table_4_supervised_data", "size=paper")
    config.sweep.row = "ParaNMT (5m)"
    with pytest.raises(UserError, match=r"^sweep.row=ParaNMT \(5m\): its data.train is not there"):
        with_row(config)


@pytest.mark.parametrize("row", [None, 0.3])
def test_a_row_that_is_not_there(row, composed):
    config = composed("sweep=table_3_dropout")
    config.sweep.row = row
    with pytest.raises(UserError, match=r"^sweep.row=.*: choose one of 0.0, 0.01, .*, fixed 0.1; -m runs them all$"):
        with_row(config)


def test_a_sweep_without_rows_and_no_sweep_change_nothing(composed):
    for overrides in (["sweep=seeds"], []):
        config = composed(*overrides)
        assert with_row(config) is config


def test_an_option_that_does_not_exist_is_told():
    config = OmegaConf.create({"model": {"dropout": 0.1}})
    with pytest.raises(UserError, match=r"^rows.x.model.dropuot: there is no such option$"):
        with_values(config, {"model": {"dropuot": 0.2}}, "rows.x")
    with pytest.raises(UserError, match=r"^rows.x.modle: there is no such option$"):
        with_values(config, {"modle": {"dropout": 0.2}}, "rows.x")


NO_SCORE = ['{"overrides": ["seed=1"]}', '{"overrides": ["seed=1"], "best": {"spearman": "high"}}']


def write_job(folder: Path, results):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(results if isinstance(results, str) else json.dumps(results))


def test_a_finished_job_gives_its_results(tmp_path):
    results = {"overrides": ["seed=1", "model.dropout=0.1"], "best": {"spearman": 0.5}}
    write_job(tmp_path, results)
    assert finished_job(tmp_path, ["model.dropout=0.1", "seed=1"]) == results


@pytest.mark.parametrize("written", ["null", "NaN"])
def test_a_job_that_came_apart_has_no_number_for_its_score(tmp_path, written):
    write_job(tmp_path, f'{{"overrides": ["seed=1"], "best": {{"spearman": {written}}}}}')
    assert math.isnan(best_score(finished_job(tmp_path, ["seed=1"])))


def test_another_jobs_folder_is_refused(tmp_path):
    write_job(tmp_path, {"overrides": ["seed=1"], "best": {"spearman": 0.5}})
    with pytest.raises(SweepError, match=r"holds another job \(seed=1\): choose another folder"):
        finished_job(tmp_path, ["seed=2"])


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"overrides": 3}', "[" * 100_000, *NO_SCORE])
def test_damaged_results_are_told(tmp_path, content):
    write_job(tmp_path, content)
    with pytest.raises(UserError, match="is damaged .*: remove it to run the job anew"):
        finished_job(tmp_path, ["seed=1"])


def test_a_job_that_has_not_ended_keeps_what_it_has(tmp_path):
    (tmp_path / "metrics.csv").write_text("x")
    assert finished_job(tmp_path, ["seed=1"]) is None and (tmp_path / "metrics.csv").read_text() == "x"


def test_a_job_by_itself_has_the_options_and_the_folder_of_the_sweeps(composed):
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


def test_a_sweep_that_is_killed_goes_on_where_it_was(run_command, sentences, make_model, tmp_path):
    """After its first job, in the middle of its second; the rows that it ends with are the table's."""
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
