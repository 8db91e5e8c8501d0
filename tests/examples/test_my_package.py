"""The package of others adds its command and its method by entry points, as pip writes them."""

import sys
import tomllib
from configparser import ConfigParser

import pandas as pd
import pytest

import simcse_pl
from simcse_pl import SimCSE
from tests.conftest import ROOT, SENTENCES, tiny

EXAMPLE = ROOT / "examples" / "my_package"


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """Install the package for this process, without network."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / f"my_package-{project['version']}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: my_package\nVersion: {project['version']}\n")
    groups = ConfigParser()
    groups.read_dict(project["entry-points"])
    with (folder / "entry_points.txt").open("w") as file:
        groups.write(file)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.syspath_prepend(EXAMPLE)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


def test_its_command_is_listed_and_runs(command, make_model, sentences, tmp_path, capsys):
    simcse = SimCSE(make_model("bert"), pooling="mean", device="cpu")
    simcse.encoder.save_pretrained(tmp_path / "encoder")
    printed = float(command("spread", tmp_path / "encoder", sentences).out)
    assert printed == pytest.approx((simcse.similarity(SENTENCES, SENTENCES) ** 2).mean(), abs=1e-4)
    with pytest.raises(SystemExit):
        command("--help")
    assert "spread          of the package my_package" in capsys.readouterr().out


def test_its_method_trains_with_its_loss(make_model, sentences, pairs, tmp_path):
    data = ["data=text", f"data.train={sentences}", f"data.validation={pairs}", "data.batch_size=4", "logger=csv"]
    given = ["method=spread", *data, *tiny(make_model("bert")), "trainer.max_steps=2", f"hydra.run.dir={tmp_path}/run"]
    simcse_pl.train([*given, "log_every=1"])
    assert pd.read_csv(tmp_path / "run" / "metrics.csv")["train/spread"].between(0, 1).any()
