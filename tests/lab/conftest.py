"""Write invented results, runs and sweeps."""

import json
from contextlib import ExitStack

import pytest
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from simcse_pl.config import CONF
from tests.lab.invented import group, job


@pytest.fixture
def write_results(tmp_path):
    """Write a results.json into a folder of its own."""

    def write(name, report):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps(report), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def write_run(tmp_path):
    """Write the curves of a training run."""

    def write(name="run"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        lines = ["epoch,step,train/loss,val/alignment,val/spearman,val/uniformity"]
        for k, step in enumerate((0, 4, 8, 12)):
            lines += [f"0,{step},,{0.3 - 0.01 * k},{0.7 + 0.01 * k},{-1.5 - 0.1 * k}", f"0,{step + 1},1.25,,,"]
        (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
        return folder

    return write


@pytest.fixture
def write_sweep(tmp_path):
    """Write a multirun folder as Hydra and train.py do, one job each."""

    def write(name, *jobs, table=None, size=None):
        folder = tmp_path / name
        for number, (about, results) in enumerate(jobs):
            config = folder / str(number) / "config"
            config.mkdir(parents=True)
            (config / "overrides.yaml").write_text(yaml.safe_dump(about["overrides"]))
            if results is not None:
                place = about["sweep"] | {"table": table, "size": size}
                (config.parent / "results.json").write_text(json.dumps(about | {"sweep": place} | results))
        return folder

    return write


@pytest.fixture
def compare(write_sweep):
    """The groups of a sweep of methods; each job is a method, its score on dev, its seed, and more if needed."""

    def read(*jobs, size=None):
        made = []
        for name, dev, seed, *more in jobs:
            about = {"setting": "unsupervised", "options": {}, "choices": {}} | (more[0] if more else {})
            options = {"method": name} | about.pop("options")
            choices = {"method": name, "setting": about.pop("setting")} | about.pop("choices")
            made.append(job(dev, seed=seed, options=options, choices=choices, **about))
        return group(write_sweep("s", *made, table="methods", size=size))

    return read


@pytest.fixture
def multirun_config():
    """Return the config of a sweep of train.py, before it starts; Hydra is set from then on."""
    with ExitStack() as hydra:

        def make(*options):
            hydra.enter_context(initialize_config_dir(str(CONF), version_base="1.3"))
            return GlobalHydra.instance().hydra.compose_config("train", [*options], RunMode.MULTIRUN)

        yield make
