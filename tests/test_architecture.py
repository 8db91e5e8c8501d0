"""Rules of docs/architecture.md that the contracts in pyproject.toml do not check."""

import importlib
import inspect
import re

from simcse_pl.models import pooling
from simcse_pl.utils.code import optional
from tests.conftest import ROOT


def test_three_files_alone_use_torch_distributed():
    use = re.compile(r"(?<![\"\w])torch\.distributed|from torch import .*\bdistributed")
    files = [path for path in (ROOT / "simcse_pl").rglob("*.py") if use.search(path.read_text(encoding="utf-8"))]
    assert {path.stem for path in files} == {"distributed", "fsdp", "private"}


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


def test_what_the_core_calls_by_name_exists_and_is_on_the_page():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "simcse_pl").rglob("*.py")]
    names = {name for text in code for name in re.findall(r'optional\("([\w.]+)"\)', text)}
    names |= {*pooling._FAMILIES.values()}
    assert len(names) > 12
    for name in names:
        assert callable(optional(name))
        if name.startswith(("methods.", "speed.", "lab.", "tools.")):
            assert f"`{name}`" in page or f"`{name.rpartition('.')[0]}`" in page, name


def test_files_that_comments_and_pages_name_exist():
    paths = [*(ROOT / "simcse_pl").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    name = re.compile(r"(?<![\w/.-])(?:[a-z_]+/)+[a-z_]+\.py\b")
    named = {(path, file) for path in paths for file in name.findall(path.read_text(encoding="utf-8"))}
    missing = {
        (path, file) for path, file in named if not any((ROOT / base / file).exists() for base in ("", "simcse_pl"))
    }
    assert named and not missing
