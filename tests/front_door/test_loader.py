"""Options that do not exist or cannot be read: one line each, with the nearest names."""

import hydra._internal.hydra
import pytest
from hydra import compose, initialize_config_dir

from simcse_pl.errors import UserError
from simcse_pl.front_door.loader import CheckedLoader
from simcse_pl.front_door.trust import CONF


@pytest.fixture
def composed(monkeypatch):
    """The config of a front door, as its command line has it composed."""
    monkeypatch.setattr(hydra._internal.hydra, "ConfigLoaderImpl", CheckedLoader)

    def compose_(door, *overrides):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose(door, [*overrides], return_hydra_config=True)

    return compose_


MISTAKES = [
    ("train", "modle=bert", "no option modle; did you mean model? (--help lists all)"),
    ("train", "model.poling=cls", "no option model.poling; did you mean model.pooling? (--help lists all)"),
    ("train", "lr=1e-4", "no option lr; did you mean optimizer.lr? (--help lists all)"),
    ("train", "temprature=0.1", "no option temprature; did you mean objective.temperature? (--help lists all)"),
    ("train", "batch_size=8", "no option batch_size; did you mean data.batch_size? (--help lists all)"),
    (
        "train",
        "max_length=8",
        "no option max_length; did you mean model.max_length or data.max_length? (--help ",
    ),
    ("train", "chunksize=8", "no option chunksize; did you mean chunk_size? (--help lists all)"),
    ("train", "xyzzy=1", "no option xyzzy (--help lists all)"),
    ("train", "~nothing", "no option nothing (--help lists all)"),
    ("train", "+seed=1", "+seed: there is such an option already; leave out the +"),
    ("train", "foo", "foo: write it as option=value"),
    (
        "train",
        "model.name=a=b",
        "model.name: its value cannot be read (mismatched input '=' expecting <EOF>); "
        "put it in quotes: model.name='\"...\"'",
    ),
    (
        "train",
        "trainer.devices=[1",
        "trainer.devices: its value cannot be read (no viable alternative at input '[1'); "
        "put it in quotes: trainer.devices='\"...\"'",
    ),
    ("train", "views=crops", "views=crops: choose one of crop, dropout, "),
    ("train", "model=robrta", "model=robrta: choose one of roberta, "),
    ("train", "+model=robrta", "model=robrta: choose one of roberta, "),
    ("train", "sweep=table_5", "sweep=table_5: choose one of table_"),
    ("train", "hydra/launcher=submitit_slrum", "hydra/launcher=submitit_slrum: choose one of submitit_slurm, "),
    ("evaluate", "poolng=cls", "no option poolng; did you mean pooling? (--help lists all)"),
    ("evaluate", "corpus=x", "no option corpus; did you mean retrieval.corpus? (--help lists all)"),
    ("evaluate", "postprocess=whitning", "postprocess=whitning: choose one of whitening, "),
    ("evaluate", "postprocess.dim=3", "no option postprocess.dim; did you mean postprocess? (--help lists all)"),
]


@pytest.mark.parametrize(("door", "option", "line"), MISTAKES)
def test_a_mistake_is_a_line_with_the_nearest_names(composed, door, option, line):
    with pytest.raises(UserError) as error:
        composed(door, option)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
    assert line.endswith((" ", "_")) or str(error.value) == line


def test_names_are_those_of_the_groups_chosen(composed):
    with pytest.raises(UserError, match=r"no option dim; did you mean postprocess.dim\?"):
        composed("evaluate", "postprocess=whitening", "dim=3")
    with pytest.raises(UserError, match=r"no option queue_size; did you mean queue.size\?"):
        composed("train", "queue=momentum", "queue_size=3")


def test_what_is_right_is_composed(composed):
    assert composed("train", "model=bert", "+trainer.limit_val_batches=1").trainer.limit_val_batches == 1
