"""Rules of docs/architecture.md that import-linter does not check (its contracts are in pyproject.toml)."""

import ast
import re

from tests.conftest import ROOT


def test_one_file_alone_uses_torch_distributed():
    files = (ROOT / "simcse_pl").rglob("*.py")
    assert [path.stem for path in files if "torch.distributed" in imports(path)] == ["distributed"]


def imports(path):
    """The modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_the_page_describes_every_package():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "simcse_pl").glob("*/__init__.py")}
    assert packages == set(re.findall(r"^- `(\w+)/`", page, re.MULTILINE))
