"""Targets: configs of Hydra's."""

import contextlib
from pathlib import Path

from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from simcse_pl.front_door.loader import CheckedLoader
from simcse_pl.front_door.options import TrainOptions
from simcse_pl.front_door.trust import keep_secrets
from simcse_pl.front_door.types import check_types
from tests.fuzz.engine import Target

_MAIN = [
    b"defaults: [{group: part}, _self_]\nseed: 1\ndebug: false\nhydra: {output_subdir: config}\n",
    b"a: &a [x]\nb: [*a, {c: *a}]\ndefaults: []\nd: ${a}\n",
]
_PART = [
    b"# @package _global_\nobjective:\n  _target_: simcse_pl.objective.ContrastiveObjective\n  temperature: 0.1\n",
    b"# @package a.b\ndefaults: [part]\nx: ${oc.env:HOME}\n",
]


def _config(folder: Path) -> None:
    keep_secrets()
    loader = CheckedLoader(create_config_search_path(str(folder)))
    config = loader.load_configuration("main", [], RunMode.RUN)
    with contextlib.suppress(OmegaConfBaseException):  # which the front doors tell, and of no file
        check_types(config, TrainOptions)


TARGETS = {"config": Target({"main.yaml": _MAIN, "group/part.yaml": _PART}, _config, 100, names_file=False)}
