"""Names of classes and functions in the current folder, and values that do not fit."""

import math
import sys
from collections import OrderedDict

import pytest

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.utils.code import expected_instead, locate


def test_a_name_is_found_in_the_current_folder_which_is_on_the_path_only_meanwhile(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "losses.py").write_text("class Loss:\n    margin = 3\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert locate("mine.losses.Loss").margin == 3 and locate("collections.OrderedDict") is OrderedDict
    with pytest.raises(ModuleNotFoundError):
        locate("other.Loss")
    assert sys.path == before


def test_what_a_module_adds_to_the_path_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adds.py").write_text("import sys\nsys.path.append('further')\n")
    locate("adds.sys")
    assert sys.path[-1] == "further" and str(tmp_path) not in sys.path


def test_numbers_must_be_finite_but_those_of_a_users_own_class():
    assert expected_instead(math.inf, float) == "a finite number"
    assert expected_instead(math.inf, float, ContrastiveLoss) == "a finite number"
    assert expected_instead(math.inf, float, expected_of_users) == ""


def expected_of_users(cap: float) -> None:
    """Stand for a function of a user."""
