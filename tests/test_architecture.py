"""The rules of docs/architecture.md: which way imports point, told from the source."""

import ast
import re

import pytest

from tests.conftest import ROOT

ALONE = ("losses", "pooling", "metrics", "geometry", "directions", "postprocess")  # of Lightning and Hydra
FRAMEWORKS = {"pytorch_lightning", "hydra", "omegaconf"}


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path):
    """All that a file imports, wherever in it, by dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found - {"simcse_pl"}  # which imports nothing before it is asked for it


IMPORTS = {name_of(path): imports(path) for path in sorted((ROOT / "simcse_pl").rglob("*.py"))}


def reached_from(module):
    """What a module imports, and what that imports, as long as it is the project's."""
    reached, ahead = set(), {module}
    while ahead:
        found = set().union(*(IMPORTS.get(name, set()) for name in ahead))
        ahead, reached = found - reached, reached | found
    return reached


def modules(*packages):
    found = [name for name in IMPORTS for one in packages if f"{name}.".startswith(f"simcse_pl.{one}.")]
    assert len(found) >= len(packages)
    return found


@pytest.mark.parametrize("module", modules(*ALONE))
def test_the_science_can_be_read_and_used_alone(module):
    assert not {name.partition(".")[0] for name in reached_from(module)} & FRAMEWORKS


@pytest.mark.parametrize("module", modules("evaluation"))
def test_evaluation_never_sees_a_model(module):
    assert not reached_from(module) & {
        "simcse_pl.models.encoder",
        "simcse_pl.models.backbone",
        "simcse_pl.training.module",
        "transformers",
    }


def test_one_file_alone_knows_of_ranks():
    knowing = {name for name, found in IMPORTS.items() if "torch.distributed" in found}
    assert knowing == {"simcse_pl.utils.distributed"}


def test_only_the_entry_point_imports_the_commands():
    commands = {name for name, found in IMPORTS.items() if any(one.startswith("simcse_pl.cli") for one in found)}
    assert all(name.startswith("simcse_pl.cli") for name in commands)


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_commands_register_the_resolvers_without_hydras_callbacks(command):
    assert "simcse_pl.sweeps.resolvers" in reached_from(f"simcse_pl.cli.{command}")


def test_the_page_lists_every_file_and_package():
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("## Packages and modules")[2].partition("\n## ")[0]
    named = {name.rstrip("/") for name in re.findall(r"`(?:simcse_pl/)?(\w+(?:\.py|/))`", table)}
    there = {path.name for path in (ROOT / "simcse_pl").glob("[!_]*") if path.suffix == ".py" or path.is_dir()}
    assert there - named == {"sample"}
    assert {name for name in named if name.endswith(".py")} <= there | {"train.py", "evaluate.py"}
