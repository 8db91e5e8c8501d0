"""The package of others adds its command and its configs by entry points, as pip writes them."""

import os
import tomllib
from configparser import ConfigParser

import pytest

from simcse_pl import SimCSE
from tests.conftest import ROOT, SENTENCES

EXAMPLE = ROOT / "examples" / "my_package"


@pytest.fixture
def installed(tmp_path):
    """The variable with which a process finds the package, as if it were installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / f"my_package-{project['version']}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: my_package\nVersion: {project['version']}\n")
    groups = ConfigParser()
    groups.read_dict(project["entry-points"])
    with (folder / "entry_points.txt").open("w") as file:
        groups.write(file)
    return {"PYTHONPATH": os.pathsep.join(map(str, (folder.parent, EXAMPLE)))}


def test_its_command_is_listed_and_runs(installed, run_command, make_model, sentences, tmp_path):
    assert "spread          of the package my_package" in run_command("-m", "simcse_pl", "--help", **installed).stdout
    simcse = SimCSE(make_model("bert"), pooling="mean", device="cpu")
    simcse.encoder.save_pretrained(tmp_path / "encoder")
    printed = run_command("-m", "simcse_pl", "spread", str(tmp_path / "encoder"), str(sentences), **installed).stdout
    assert float(printed) == pytest.approx((simcse.similarity(SENTENCES, SENTENCES) ** 2).mean(), abs=1e-4)


def test_help_imports_no_torch_and_a_package_without_its_configs_is_named(installed, run_command, tmp_path):
    done = run_command("-X", "importtime", "-m", "simcse_pl", "train", "--help", **installed)
    assert "| torch\n" not in done.stderr
    site = str(tmp_path / "site")  # the package was removed by hand
    done = run_command("-m", "simcse_pl", "train", "--help", status=2, PYTHONPATH=site)
    assert "an installed package names its configs my_package.conf, which do not exist" in done.stderr
