"""Rules of docs/architecture.md that import-linter does not check (its contracts are in pyproject.toml)."""

import importlib
import inspect
import re

from tests.conftest import ROOT


def test_two_files_alone_use_torch_distributed():
    use = re.compile(r"(?<![\"\w])torch\.distributed|from torch import .*\bdistributed")
    files = [path for path in (ROOT / "simcse_pl").rglob("*.py") if use.search(path.read_text(encoding="utf-8"))]
    assert {path.stem for path in files} == {"distributed", "fsdp"}


def test_no_class_overrides_a_private_method_of_a_class_in_another_file():
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in (ROOT / "simcse_pl").rglob("*.py")]
    modules = [importlib.import_module(".".join(own)) for own in parts if own[-1] not in ("__init__", "__main__")]
    classes = {own for module in modules for own in vars(module).values() if inspect.isclass(own)}
    bases = [(own, base) for own in classes for base in own.__mro__[1:] if base.__module__.startswith("simcse_pl.")]
    assert len(bases) > 100
    for own, base in bases:
        private = {name for name, method in vars(base).items() if name[:1] == "_" != name[1:2] and callable(method)}
        assert own.__module__ == base.__module__ or not private & {*vars(own)}, (own, base)


def test_the_page_describes_every_package():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "simcse_pl").glob("*/__init__.py")}
    assert packages == set(re.findall(r"^- `(\w+)/`", page, re.MULTILINE))
