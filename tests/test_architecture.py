"""Rules of docs/architecture.md: what the contracts in pyproject.toml find, and what they do not check."""

import importlib
import inspect
import re
import shutil
import subprocess
import sys

from simcse_pl.models import pooling
from simcse_pl.utils.code import optional
from tests.conftest import ROOT

PLANTED = {
    "losses.loss -> simcse_pl.lab.encoder_tables": "from simcse_pl.lab import encoder_tables",
    "train_job -> simcse_pl.methods.gist": "def planted():\n    import simcse_pl.methods.gist",
    "utils.files -> simcse_pl.speed.fsdp": "from simcse_pl.speed import fsdp",
    "module -> simcse_pl.tools.simcse": "from simcse_pl.tools.simcse import SimCSE",
}


def test_the_import_contract_finds_lines_of_the_core_that_import_an_optional_part(tmp_path):
    shutil.copytree(ROOT / "simcse_pl", tmp_path / "simcse_pl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for edge, line in PLANTED.items():
        file = tmp_path / "simcse_pl" / f"{edge.split(' ')[0].replace('.', '/')}.py"
        file.write_text(f"{file.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main(['--no-cache'])"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert re.search(r"the core never imports an optional part .*? BROKEN", " ".join(done.stdout.split()))
    assert [edge for edge in PLANTED if f"simcse_pl.{edge} (l." not in done.stdout] == []


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
