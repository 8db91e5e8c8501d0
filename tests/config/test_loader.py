"""Composing configs, and the nearest names in errors."""

import hydra._internal.hydra
import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode

from simcse_pl.config import CONF
from simcse_pl.config.loader import CheckedLoader
from simcse_pl.utils.errors import UserError


@pytest.fixture
def composed(monkeypatch):
    """Compose the config of a command as its command line does."""
    monkeypatch.setattr(hydra._internal.hydra, "ConfigLoaderImpl", CheckedLoader)

    def compose_(name, *overrides):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose(name, [*overrides], return_hydra_config=True)

    return compose_


def test_suggestions_come_from_the_selected_groups(composed):
    with pytest.raises(UserError, match=r"no option dim; did you mean postprocess.dim\?"):
        composed("evaluate", "postprocess=whitening", "dim=3")


def test_options_can_be_added_below_the_top(composed):
    config = composed("train", "model=bert", "+trainer.limit_val_batches=1", "+callbacks.mine._target_=mine.Callback")
    assert (config.trainer.limit_val_batches, config.callbacks.mine._target_) == (1, "mine.Callback")


def test_null_deselects_a_group(composed):
    assert "queue" not in composed("train", "queue=momentum", "queue=null")
    assert composed("train", "model/adapter=lora", "model/adapter=null").model.adapter is None
    assert composed("train", "model/quantization=null").model.quantization is None


def test_a_config_name_may_contain_dots(tmp_path):
    (tmp_path / "main.yaml").write_text("defaults: [{part: own-v1.2}]\n")
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "own-v1.2.yaml").write_text("x: 3\n")
    loader = CheckedLoader(create_config_search_path(str(tmp_path)))
    assert loader.load_configuration("main", [], RunMode.RUN).part.x == 3


def test_a_config_contains_the_selected_row_of_a_sweep(composed):
    config = composed("train", "sweep=table_3_dropout", "sweep.row='fixed 0.1'", "run_dir=/tmp/run")
    assert config.module.shared_dropout_mask and config.model.dropout == 0.1 and not config.sweep.rows
    assert composed("train", "sweep=table_3_dropout", "run_dir=/tmp/run").sweep.rows
