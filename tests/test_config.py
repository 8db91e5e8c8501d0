"""Rows of a sweep: all compose, set their options only, and are omitted without their file; groups and names in W&B."""

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf, open_dict

from simcse_pl.config import in_sweep, job_name, row_names, sweep_group, with_row
from simcse_pl.lab.published import ablation
from simcse_pl.option_checks import check_options
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT, compose_config

SWEEPS = sorted(file.stem for file in (ROOT / "conf" / "sweep").glob("*.yaml"))
TABLES = [name for name in SWEEPS if name.startswith("table_") and name != "table_a1_hyperparameters"]


def composed(*overrides):
    """Return the config of train.py as a job of a sweep has it."""
    config = compose_config("train", "hydra.sweep.dir=/tmp/sweeps/monday", *overrides)
    OmegaConf.set_struct(config, True)
    return config


def rows_of(config):
    return [name.strip("'") for name in row_names(config).split("','")]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_all_rows_of_all_sweeps_compose(sweep):
    config = composed(f"sweep={sweep}", "size=mini", "logger=csv")
    assert config.hydra.sweeper.params
    with open_dict(config):
        del config.hydra
    for row in rows_of(config) if config.sweep.get("rows") else [None]:
        if row:
            config.sweep.row = row
        job = with_row(config).copy()
        check_options(job)
        OmegaConf.resolve(job)
        assert not OmegaConf.missing_keys(job)
        assert job.data.train is not None
        assert job.trainer.max_steps == 60


@pytest.mark.parametrize("table", TABLES)
def test_rows_and_columns_have_the_names_of_the_papers_table(table):
    config = composed(f"sweep={table}")
    paper = ablation(table)
    assert config.sweep.table == table
    places = [(str(name), row.get("sweep", {})) for name, row in config.sweep.rows.items()]
    assert list(dict.fromkeys(place.get("row", name) for name, place in places)) == list(paper.rows)
    assert {place.get("column") for _, place in places} <= {None, *paper.settings}
    assert (config.sweep.column is None) == (not paper.settings)
    if paper.settings:
        assert config.sweep.column in paper.settings


def number(row):
    """The number that ends a row's name, in percent or not."""
    return float(row.split()[-1].removesuffix("%")) / (100 if row.endswith("%") else 1)


SAID = {  # what the name of a row says
    "table_1_augmentation": lambda row: {"views.rate": number(row)} if row.endswith("%") else {},
    "table_3_dropout": lambda row: {"model.dropout": number(row), "module.shared_dropout_mask": "fixed" in row},
    "table_6_pooling": lambda row: {
        "model.pooling": "first_last" if row.startswith("first") else "cls",
        "model.head": "mlp_train_only" if row.endswith("only") else "mlp" if row.endswith("with MLP") else "none",
    },
    "table_7_hard_negative": lambda row: {
        "objective.hard_negative_weight": 1.0 if row == "none" else number(row),
        "data.columns": [0, 1, 2, 3][: 2 if row == "none" else 4 if "neutral" in row else 3],
    },
    "table_d1_temperature": lambda row: {
        "objective.similarity": "dot" if row == "dot product" else "cosine",
        "objective.temperature": 1.0 if row == "dot product" else number(row),
    },
    "table_d2_mlm": lambda row: {"auxiliary.mlm.weight": 0.0 if row == "none" else number(row)},
}


@pytest.mark.parametrize("table", SAID)
def test_the_config_of_a_row_has_what_its_name_says(table):
    given = [f"sweep={table}", *(["sweep.with_neutral=x"] if table == "table_7_hard_negative" else [])]
    config = composed(*given)
    for row in rows_of(config):
        config.sweep.row = row
        job = with_row(config)
        for option, value in SAID[table](row).items():
            assert OmegaConf.select(job, option) == value, (row, option)


def resolved(config):
    return OmegaConf.to_container(config, resolve=True)


def cells_of_table_4(*overrides):
    """Return the config of the job of each cell, which has one."""
    config = composed(*overrides)
    assert [*config.hydra.sweeper.params] == ["sweep.row"]
    jobs = {}
    for name in rows_of(config):
        config.sweep.row = name
        job = with_row(config)
        assert jobs.setdefault((job.sweep.row, job.sweep.column), job) is job
    return jobs


def test_the_jobs_of_table_4_are_its_cells_with_a_number_and_qqp_is_trained_once():
    files = ("qqp", "flickr30k", "paranmt", "entailment", "neutral", "contradiction", "all", "triplets_with_anli")
    jobs = cells_of_table_4("sweep=table_4_supervised_data", *(f"sweep.files.{name}={name}" for name in files))
    paper = ablation("table_4_supervised_data").rows
    cells = {(row, column) for row, figures in paper.items() for column in figures}
    assert jobs.keys() == cells - {("QQP (134k)", "134k pairs")} and len(jobs) == 17
    for (row, column), job in jobs.items():
        assert job.data.limit == (134000 if column == "134k pairs" else None)
        assert job.data.train == jobs[row, "all pairs"].data.train
    unsupervised, plain = jobs["unsupervised SimCSE (1m)", "all pairs"], composed("data=wiki", "model=bert")
    plain.data.columns = [0]  # the file's only column
    for name in ("model", "data", "views", "objective", "optimizer", "scheduler", "trainer", "module"):
        assert resolved(unsupervised[name]) == resolved(plain[name])
    jobs = cells_of_table_4("sweep=table_4_supervised_data", "size=mini")
    assert len(jobs) == 11 and [job.data.limit for job in jobs.values()].count(400) == 4
    assert {job.optimizer.lr for job in jobs.values()} == {1e-4}


def test_a_row_sets_its_options_only():
    config = composed("sweep=table_3_dropout")
    plain = OmegaConf.to_container(composed("data=wiki", "model=bert"))
    config.sweep.row = "fixed 0.1"
    job = OmegaConf.to_container(with_row(config))
    assert job["module"]["shared_dropout_mask"] and job["model"] == plain["model"] | {"dropout": 0.1}
    for name in ("data", "objective", "optimizer", "trainer", "views"):
        assert job[name] == plain[name]
    assert not config.module.shared_dropout_mask  # the config itself is unchanged


def test_rows_that_need_a_missing_file_are_omitted(monkeypatch):
    monkeypatch.delenv("WNSEARCHDIR", raising=False)
    everything = list(composed("sweep=table_1_augmentation").sweep.rows)
    of_no_file = [row for row in everything if row not in ("synonym replacement", "MLM 15%")]
    assert rows_of(composed("sweep=table_1_augmentation", "size=mini")) == of_no_file
    monkeypatch.setenv("WNSEARCHDIR", "wordnet")
    given = ["sweep=table_1_augmentation", "sweep.mlm=bert-base-uncased"]
    assert rows_of(composed(*given)) == everything
    config = composed("sweep=table_4_supervised_data", "sweep.files.qqp=qqp.csv")
    config.sweep.row = "ParaNMT (5m)"
    with pytest.raises(UserError, match=r"^sweep.row=ParaNMT \(5m\): data.train has no value; see what the row needs"):
        with_row(config)


def test_the_group_is_the_table_and_the_folder_of_the_sweep_and_a_single_run_is_its_folder():
    config = composed("sweep=table_3_dropout", "hydra.job.num=0")
    assert sweep_group(config) == "table_3_dropout monday"
    assert sweep_group(composed("hydra.job.num=0")) == "monday"
    single = composed("hydra.mode=RUN", "seed=1")
    assert sweep_group(single) is None and not in_sweep() and job_name(single) == "tmp/run"
    HydraConfig.instance().cfg = None
    assert sweep_group(config) is None


def test_the_name_of_a_job_has_the_options_that_differ_between_jobs(tmp_path):
    params = {"method": "glob(*)", "scheduler": "linear"}
    given = ["seed=0,1", "run_name=test", "optimizer.lr=1e-3"]
    hydra = {"sweeper": {"params": params}, "overrides": {"task": given}}
    OmegaConf.save({"hydra": hydra}, tmp_path / "multirun.yaml")
    of_sweep = ["hydra.job.num=0", f"hydra.sweep.dir={tmp_path}"]
    options = ["method=simcse", "scheduler=linear", "seed=0", "run_name=test", "optimizer.lr=0.001"]
    job = composed(*options, *of_sweep)
    assert job_name(job) == "test method=simcse seed=0"
