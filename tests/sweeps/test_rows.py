"""Rows of a sweep: all rows compose, set their options only, and are omitted if they need a missing file."""

import pytest
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from simcse_pl.config.options import check_options
from simcse_pl.reports.paper import ablation
from simcse_pl.sweeps.rows import row_names, with_row, with_values
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT

SWEEPS = sorted(file.stem for file in (ROOT / "conf" / "sweep").glob("*.yaml"))
MINI = [name for name in SWEEPS if name.endswith("_mini")]
WITH_SIZES = [(name, size) for name in SWEEPS for size in ("mini", "paper") if name not in MINI or size == "mini"]
TABLES = [name for name in SWEEPS if name.startswith("table_") and name not in ("table_a1_hyperparameters", *MINI)]


def rows_of(config):
    return [name.strip("'") for name in row_names(config).split("','")]


@pytest.mark.parametrize("sweep", MINI)
def test_a_mini_sweep_needs_no_further_option(sweep, composed):
    config = composed(f"sweep={sweep}")
    assert config.size == "mini" and config.sweep.table == sweep.removesuffix("_mini") and not config.test_tasks


@pytest.mark.parametrize(("sweep", "size"), WITH_SIZES)
def test_all_rows_of_all_sweeps_compose(sweep, size, composed):
    config = composed(f"sweep={sweep}", f"size={size}", "logger=csv")
    assert config.size == size and config.hydra.sweeper.params
    with open_dict(config):
        del config.hydra
    for row in rows_of(config) if config.sweep.get("rows") else [None]:
        if row:
            config.sweep.row = row
        job = with_row(config).copy()
        check_options(job)
        OmegaConf.resolve(job)
        assert not OmegaConf.missing_keys(job)
        assert job.data.train is not None and (job.trainer.max_steps == (60 if sweep == "methods_mini" else 100)) == (
            size == "mini"
        )


@pytest.mark.parametrize("table", TABLES)
def test_rows_and_columns_have_the_names_of_the_papers_table(table, composed):
    config = composed(f"sweep={table}", "size=paper")
    paper = ablation(table)
    assert config.sweep.table == table
    assert [str(name) for name in config.sweep.rows] == list(paper.rows)
    assert (config.sweep.column is None) == (not paper.settings)
    if paper.settings:
        assert config.sweep.column in paper.settings


def test_a_row_sets_its_options_only(composed):
    config = composed("sweep=table_3_dropout")
    plain = OmegaConf.to_container(composed("setting=unsupervised", "size=paper"))
    config.sweep.row = "fixed 0.1"
    job = OmegaConf.to_container(with_row(config))
    assert job["module"]["shared_dropout_mask"] and job["model"] == plain["model"] | {"dropout": 0.1}
    for name in ("data", "objective", "optimizer", "trainer", "views"):
        assert job[name] == plain[name]
    assert not config.module.shared_dropout_mask  # the config itself is unchanged


def test_a_node_with_a_target_is_replaced_as_a_whole(composed):
    config = composed("sweep=table_1_augmentation", "views=mlm")
    config.sweep.row = "crop 20%"
    assert set(with_row(config).views) == {"_target_", "rate"}


def test_rows_that_need_a_missing_file_are_omitted(composed, monkeypatch):
    monkeypatch.delenv("WNSEARCHDIR", raising=False)
    everything = list(composed("sweep=table_1_augmentation").sweep.rows)
    without_synonyms = [row for row in everything if row != "synonym replacement"]
    assert rows_of(composed("sweep=table_1_augmentation", "size=mini")) == without_synonyms
    monkeypatch.setenv("WNSEARCHDIR", "wordnet")
    assert rows_of(composed("sweep=table_1_augmentation", "size=paper")) == everything
    files = ["sweep.files.qqp=qqp.csv", "sweep.files.neutral=neutral.csv"]
    left = ["QQP (134k)", "SNLI+MNLI neutral (314k)"]
    config = composed("sweep=table_4_supervised_data", "size=paper", *files)
    assert rows_of(config)[:2] == left
    config.sweep.row = "ParaNMT (5m)"
    with pytest.raises(UserError, match=r"^sweep.row=ParaNMT \(5m\): data.train has no value; see what the row needs"):
        with_row(config)


def test_an_unknown_row_is_an_error(composed):
    config = composed("sweep=table_3_dropout")
    config.sweep.row = 0.3
    with pytest.raises(UserError, match=r"^sweep.row=.*: choose one of 0.0, 0.01, .*, fixed 0.1; -m runs them all$"):
        with_row(config)


@pytest.mark.parametrize("values", [{"model": {"dropuot": 0.2}}, {"modle": {"dropout": 0.2}}])
def test_an_unknown_option_is_an_error(values):
    with pytest.raises(OmegaConfBaseException, match="is not in struct"):
        with_values(OmegaConf.create({"model": {"dropout": 0.1}}), values)
