"""The documentation: links have targets, generated pages are up to date, and commands are valid.

These are the commands that docs/commands.py does not run. Options of train and evaluate compose and have the right
types, arguments of other commands parse, and targets of make, extras and test files exist.
"""

import argparse
import csv
import re
import runpy
import shlex
import sys
import tomllib

import pytest
import yaml

import simcse_pl
from simcse_pl.cli import _for_hydra
from simcse_pl.option_checks import check_options
from simcse_pl.utils.private import jobs_of_sweep
from tests.conftest import ROOT
from tests.support.helpers import composed

SCRIPT = runpy.run_path(str(ROOT / "docs" / "commands.py"))  # runs all other commands
PAGES = SCRIPT["PAGES"]


def words_of(command):
    """Return the words of a command; torchrun and sbatch are replaced by the command that they start."""
    words = [word for word in shlex.split(command, comments=True) if not re.match("[A-Z_]+=", word)]
    if words[0] == "sbatch":
        words = shlex.split(words[-1])
    if "simcse_pl" in words:
        return ["simcse", *words[words.index("simcse_pl") + 1 :]]
    return ["python", *words[words.index("train.py") :]] if "train.py" in words else words


def is_run_by_hand(words):
    return any("launcher=ray" in word for word in words)  # Ray is not installed


COMMANDS = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)}", marks=[pytest.mark.by_hand] * is_run_by_hand(words))
    for page in PAGES
    for command in SCRIPT["commands_of"](page)
    if SCRIPT["reason_not_to_run"](command)
    for words in [words_of(command)]
]


class ParsedError(Exception):
    """Raised after the arguments were parsed, so that the command does not run."""


def parses(module, arguments, monkeypatch):
    """Run a module until it has parsed its arguments."""
    name = "parse_intermixed_args" if module.startswith("simcse_pl") else "parse_args"
    original = getattr(argparse.ArgumentParser, name)

    def parse(*given, **options):
        original(*given, **options)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, name, parse)
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ParsedError):
        runpy.run_module(module, run_name="__main__", alter_sys=True)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import of package")
@pytest.mark.filterwarnings("ignore:\n'hydra/launcher/.*' is validated against ConfigStore schema")
@pytest.mark.parametrize("words", COMMANDS)
def test_commands_are_valid(words, monkeypatch):
    match words:
        case ["python" | "simcse", ("train.py" | "evaluate.py" | "train" | "evaluate") as name, *options]:
            name = name.removesuffix(".py")
            if "--config-dir" in options:
                return  # the user's own configs
            sweeps = "-m" in options
            options = [option for option in options if option != "-m" and not (sweeps and option.startswith("seed="))]
            options = [_for_hydra(option) for option in options]
            for job in jobs_of_sweep(options, None) if sweeps else [options]:
                check_options(composed(*job, config=name))
        case ["python", "docs/findings.py" | "docs/fidelity.py", *_]:
            return  # it would write the page again
        case ["python", "-m", "pytest", *arguments]:
            paths = [argument for argument in arguments if argument.startswith("tests")]
            assert all((ROOT / path).exists() for path in paths)
        case ["python", "-m", module, *arguments]:
            parses(module, arguments, monkeypatch)
        case ["simcse", *arguments]:
            parses("simcse_pl", arguments, monkeypatch)
        case ["make", target]:
            assert target in re.search(r"\.PHONY: (.*)", (ROOT / "Makefile").read_text())[1].split()
        case ["pip", "install", *what]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            for extra in filter(None, (re.fullmatch(r"\.\[(\w+)\]", one) for one in what)):
                assert extra[1] in extras
        case _:
            assert words[0] == "wandb"


def test_installation_hints_name_the_packages_of_an_extra_or_dependency():
    """They do not name an extra of simcse_pl, because it is on no package index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [{re.split("[=>]", one)[0] for one in extra} for extra in project["optional-dependencies"].values()]
    groups += [{re.split("[=>]", one)[0]} for one in project["dependencies"]]
    texts = [path.read_text() for end in ("simcse_pl/**/*.py", "conf/**/*.yaml") for path in ROOT.glob(end)]
    hints = {hint for text in texts for hint in re.findall(r"pip install ('[^']*'|[a-z][\w -]*\w)", text)}
    assert hints
    for hint in hints:
        assert set(re.split(", or |[ ,]", hint)) in groups, hint


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page):
    for link in re.findall(r"(?:\]\(|src=\")([^)\"\s]+)[)\"]", page.read_text()):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE) if heading else []
        assert not heading or heading in [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings]


def test_the_script_for_cross_lingual_triplets_finds_the_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [("P", "C", "contradictory"), ("Q", "D", "entailment"), ("P", "E", "entailment"), ("P", "N", "neutral")]
    for language in ("en", "de", "zh"):
        rows = [f'{language} "{first}\t{language} {second}\t{label}\n' for first, second, label in pairs]
        (tmp_path / f"multinli.train.{language}.tsv").write_text("premise\thypo\tlabel\n" + "".join(rows))
    exec(re.search(r"(?ms)^```python\n(import csv\n.*?)^```", (ROOT / "docs" / "adapt.md").read_text())[1], {})
    _, *triplets = csv.reader((tmp_path / "cross_lingual_nli.csv").read_text().splitlines())
    assert [anchor for anchor, _, _ in triplets] == ['en "P', 'de "P', 'zh "P']
    assert {(positive[3:], negative[3:]) for _, positive, negative in triplets} == {("E", "C")}


def test_the_changelog_and_the_citation_name_the_version():
    """pyproject.toml takes the version from simcse_pl/__init__.py."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\d\S*) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest.groups() == (simcse_pl.__version__, str(citation["date-released"]))
    assert citation["version"] == simcse_pl.__version__


@pytest.mark.parametrize("page", [page for page in PAGES if "methods" in (page.stem, page.parent.name)], ids=str)
def test_the_generated_parts_of_the_pages_of_methods_are_up_to_date(page):
    """`python docs/methods.py` writes them."""
    script, text = runpy.run_path(str(ROOT / "docs" / "methods.py")), page.read_text()
    name = None if page == script["INDEX"] else page.stem
    assert script["updated"](text, name) == text


def test_the_readme_counts_its_methods():
    page, table = ((ROOT / name).read_text() for name in ("README.md", "docs/methods.md"))
    rows = re.findall(r"^\| \[.*\]\(methods/.*$", table, re.MULTILINE)
    simcse = sum("Gao, Yao and Chen" in row for row in rows)  # unsupervised and supervised
    equal = sum("| equal |" in row for row in rows)  # RankCSE's code is not official
    assert simcse == 2 and f"SimCSE and {len(rows) - simcse} other methods" in page
    assert f"gradients of SimCSE and {equal - simcse} other methods are tested against published code" in page
    for other in ("README.zh.md", "docs/methods.md"):
        assert f" {len(rows) - simcse} " in (ROOT / other).read_text()[:200], other
    supervised = {name for row in rows if " supervised |" in row for name in re.findall(r"`(\w+)`", row)}
    assert supervised == {"angle", "sup_simcse"}


def test_the_ablation_of_the_readme_is_that_of_the_findings():
    names = ("README.md", "README.zh.md", "docs/findings.md")
    pages = [(ROOT / name).read_text() for name in names]
    rows = [re.findall(r"^\|([\w. ]+)\|([\d.]+ ± [\d.]+)\|([\d.]+)\|$", page, flags=re.MULTILINE) for page in pages[:2]]
    assert len(rows[0]) == 5 and rows[0] == rows[1]
    for name, here, paper in rows[0]:
        assert re.search(rf"^\| {name} +\| [* ]*{here} \(\d+\) +\| +{paper} ", pages[2], flags=re.MULTILINE), name
