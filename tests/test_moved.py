"""Names of version 0.3.0 that still work."""

import importlib

import pytest
from hydra.utils import get_class, get_method

from simcse_pl.moved import _PRESENT, present_name


@pytest.mark.parametrize("old", _PRESENT)
def test_a_module_has_its_old_name(old):
    present = present_name(old)
    if old.rpartition(".")[2].islower():
        assert importlib.import_module(old) is importlib.import_module(present)
    else:
        assert get_class(present).__name__ == old.rpartition(".")[2]


@pytest.mark.parametrize("name", ["simcse_pl.data.views.sentences.Dropout", "simcse_pl.cpu.Speed"])
def test_an_old_config_names_a_class_of_now(name):
    assert get_method(name) is get_method(present_name(name))


def test_other_names_stay():
    assert present_name("my_package.training.module.Loss") == "my_package.training.module.Loss"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("simcse_pl.training.nothing")
