"""Explain a group, a choice or an option of `simcse train` and `simcse evaluate`, and find it by words."""

import argparse
import difflib
import functools
import inspect
import json
import re
import shlex
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from simcse_pl.__main__ import COMMANDS, HYDRA_COMMANDS
from simcse_pl.config import CONF, config_folders, walk, with_row, with_values
from simcse_pl.runs import OF_TWO_GROUPS
from simcse_pl.utils.code import LIBRARIES, locate
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text import as_number

_OPTION = re.compile(r"(?P<indent> *)(?P<name>[\w/]+):(?: (?P<value>[^#]*?))?(?:\s+# (?P<comment>.*))?")
_GROUP = re.compile(r"  - (?:optional )?(?P<name>[\w/]+): (?P<choice>[^#$]*?)(?:\s+# (?P<comment>.*))?")
MOST_SET = {
    "train": "data.train data.validation data.batch_size data.max_length objective.temperature optimizer.lr "
    "trainer.max_epochs val_every seed hydra.run.dir",
    "evaluate": "encoder tasks data.test senteval_dir split pooling prompts max_length truncate_dim hydra.run.dir",
}
_FLAGS = """
`simcse options NAME` explains a group, a choice or an option, and finds options by words. --help-all lists all options.
-m: a sweep; --config-dir FOLDER: configs of your own; --cfg job: print the config; --hydra-help: more.
"""
_WIDTH = min(110, shutil.get_terminal_size((100, 24)).columns)
_COLUMN = 26  # where meanings begin


class Entry(NamedTuple):
    """A group, a choice or an option, as a file of conf/ explains it."""

    name: str  # as on the command line: `data`, `data=text`, `data.batch_size`
    value: str  # of a group or option in the file
    meaning: str
    group: str  # that the file belongs to, or the command
    choice: str = ""  # whose file it is; empty for the file of a command


def header(text: str) -> str:
    """Return the comment that a file begins with, without its command."""
    lines = re.match(r"(#.*\n)*", text)[0].splitlines()  # type: ignore[index]
    return " ".join(line[2:] for line in lines if line != "#" and not line.startswith(("# @package", "# python ")))


def options(text: str, group: str, choice: str = "") -> Iterator[Entry]:
    """Yield every option of a file that has a comment, beside it or in the lines above."""
    first = prefix = f"{group.replace('/', '.')}." if choice else ""
    if package := re.search(r"# @package (\S+)", text):
        # a file at the top of the config explains the options of its group, and sets others that other files explain
        first, prefix = (first, "") if package[1] == "_global_" else ("", f"{package[1]}.")
    parents: list[str] = []
    above = ""
    for line in re.sub(r"\A(#.*\n)+", "", text).splitlines():
        if match := _OPTION.fullmatch(line):
            parents = [*parents[: len(match["indent"]) // 2], match["name"]]
            meaning, name = match["comment"] or above, prefix + ".".join(parents)
            if meaning and match["value"] and name.startswith(first) and not match["name"].startswith("_"):
                yield Entry(name, match["value"].strip(), meaning, group, choice)
        above = f"{above} {line[2:]}".lstrip() if line.startswith("# ") else ""


@functools.cache
def command_file(command: str) -> tuple[list[Entry], list[Entry]]:
    """Return the groups in the defaults list of a command, and the options of its file."""
    text = (CONF / f"{command}.yaml").read_text(encoding="utf-8")
    matches = filter(None, map(_GROUP.fullmatch, text.splitlines()))
    groups = [Entry(match["name"], match["choice"], match["comment"], command) for match in matches]
    return groups, [*options(text, command)]


@functools.cache
def group_files() -> dict[str, dict[str, str]]:
    """Return the text of each choice's file, by group and choice; first those that are not at the top of the config."""
    files: dict[str, dict[str, str]] = {}
    folders = [CONF, *(Path(folder.removeprefix("file://")) for folder in config_folders())]
    found = sorted((file.relative_to(folder), file) for folder in folders for file in folder.glob("*/**/*.yaml"))
    texts = {name: file.read_text(encoding="utf-8") for name, file in reversed(found)}
    for file in sorted(texts, key=lambda file: (file.parent, "# @package _global_" in texts[file], file)):
        group = file.parent.as_posix()
        if not group.startswith(("hydra", "local", "sweep/base", *OF_TWO_GROUPS)):
            files.setdefault(group, {})[file.stem] = texts[file]
    return files


def entries() -> list[Entry]:
    """Return all groups, choices and options."""
    result = [entry for command in HYDRA_COMMANDS for part in command_file(command) for entry in part]
    of_rows = options((CONF / "sweep" / "base" / "rows.yaml").read_text(encoding="utf-8"), "sweep", "table_3_dropout")
    result += (entry for entry in of_rows if entry.name == "sweep.row")  # the others are for configs
    for group, texts in group_files().items():
        for choice, text in texts.items():
            result += [Entry(f"{group}={choice}", "", header(text), group, choice), *options(text, group, choice)]
    return result


def help_text(command: str, given: Sequence[str], everything: bool) -> str:
    """Return what --help prints, with the values of the chosen groups; `everything` is for --help-all."""
    config = _compose(command, *given)
    values, chosen = _values(config), dict(config.hydra.runtime.choices)
    sample = chosen.get("data") == "nli_sample"
    of_own_data = _values(_compose(command, *given, "data=text")) if sample else values
    groups = {entry.name: entry for entry in command_file(command)[0]}
    known = [entry for entry in entries() if entry.name in values and entry.group in (command, *groups)]
    known.sort(key=lambda entry: str(chosen.get(entry.group)) != entry.choice)  # a chosen file explains its options
    meanings = {entry.name: entry.meaning for entry in reversed(known) if entry.name not in group_files()}
    names = [name for name in (values if everything else MOST_SET[command].split()) if name in meanings]

    def default(name: str) -> str:
        own, of_sample = of_own_data.get(name, "???"), values[name]
        text = of_sample if own in ("???", of_sample) else f"{own}; the sample: {of_sample}"
        return f" (default: {text})"

    texts = [
        f"simcse {command} [group=choice ...] [option=value ...]\n",
        _fill(config.hydra.help.header),
        textwrap.indent(f"\n{config.hydra.help.footer}", "  "),
        "All options:" if everything else "The options that most people set:",
        *(_line(name, meanings[name], default(name), not everything) for name in names),
        "\nThe groups, with the choices that are loaded:",
        *(_line(f"{name}={chosen.get(name, group.value) or 'null'}", group.meaning) for name, group in groups.items()),
        f"\n{_fill(_FLAGS)}",
    ]
    return "\n".join(texts)


def config_text(command: str, given: Sequence[str], package: str | None, resolve: bool) -> str:
    """Return what `--cfg job` prints: the config that runs, with the sweep's row and the ranges of a search."""
    config = _compose(command, *given).copy()
    HydraConfig.instance().set_config(config)
    if OmegaConf.select(config, "sweep.row") is not None:
        config = with_row(config)
    if space := OmegaConf.select(config, "search.space"):
        config = with_values(config, OmegaConf.to_container(space))
    OmegaConf.set_struct(config, False)
    del config["hydra"]
    if (shown := OmegaConf.select(config, package) if package else config) is None:
        raise UserError(f"--package {package}: the config does not have it")
    return OmegaConf.to_yaml(shown, resolve=resolve).rstrip() if OmegaConf.is_config(shown) else str(shown)


def search(text: str, known: Sequence[Entry] = (), command: str = "train") -> list[Entry]:
    """Return the entries that a text names, or whose names and meanings have its words, the best first.

    A name counts more than a meaning, a rare word more than a common one, and all words in their order most. Options of
    the other command, and those that the default groups do not have, come later.
    """
    known = known or entries()
    words = {entry: (_words(entry.name), _words(entry.meaning)) for entry in known}
    counts = Counter(word for name, meaning in words.values() for word in {*name, *meaning})
    spellings = [*counts, *(entry.name.rpartition(".")[2] for entry in known)]
    wanted = _words(" ".join(word if word in counts else _nearest(word, spellings) for word in _words(text)))
    phrase, usual = f" {' '.join(wanted)} ", {*group_files(), *_values(_compose(command))}

    def score(entry: Entry) -> float:
        name, meaning = words[entry]
        result = sum((3 * (word in name) + (word in meaning)) / counts[word] for word in wanted)
        for joined in (f" {' '.join(part)} " for part in (name, meaning)):
            result += (phrase in joined) + joined.startswith(phrase)
        if text == entry.name or wanted == name[-len(wanted) :]:
            result += 2 if entry.name == _source(entry) else 9
        if " " in entry.name:  # a command
            return result
        return result * (1 if entry.name in usual else 0.7) * (1 if _command(entry) == command else 0.1)

    best = {entry.name: entry for entry in sorted(filter(score, known), key=score)}  # some files have the same option
    return sorted(best.values(), key=score, reverse=True)


def instead(name: str, command: str, given: Sequence[str]) -> str:
    """Return which options an unknown one may mean, as the end of an error message.

    They are those of the same last name that the other `given` options have, or near ones, or all of a user's class, or
    who has the option.
    """
    known, near = entries(), list[str]()
    with suppress(Exception):  # there may be another mistake
        values = _values(_compose(command, *(option for option in given if option.partition("=")[0] != name)))
        place, _, last = name.rpartition(".")
        chosen = [own for own in values if own != place and not re.search(r"\.\d", own)]  # no positions of lists
        same = [own for own in chosen if own.rpartition(".")[2] == last and own.startswith(name.partition(".")[0])]
        target, of_class = values.get(f"{place}._target_", ""), []
        if target and not target.startswith(LIBRARIES):  # the user's class; + adds what its file does not have
            arguments = inspect.signature(locate(target)).parameters.values()
            names = [f"{place}.{x.name}" for x in arguments if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
            of_class = [own if own in values else f"+{own}" for own in names]
        near = same[:2] or difflib.get_close_matches(name, dict.fromkeys([*of_class, *chosen]), 2, 0.8) or of_class
    owners = dict.fromkeys(_source(entry) for entry in known if entry.name == name)
    if owners and not near:
        return f"; {' or '.join(owners)} has it, and is not chosen"
    found = (entry.name for entry in search(name, known, command)[:2])
    near = near or sorted(found, key=lambda own: not name.endswith(own.rpartition(".")[2]))
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _nearest(word: str, spellings: Sequence[str]) -> str:
    """Return the group whose name is near to a word, or else the nearest spelling; empty if none is near."""
    near = (difflib.get_close_matches(word, names, 1, 0.75) for names in (group_files(), spellings))
    return next(chain.from_iterable(near), "")


def explain(entry: Entry, known: Sequence[Entry]) -> str:
    """Return the meaning, the default, the choices and an example of a group, a choice or an option."""
    meanings = {entry.meaning: ""}
    for other in (other for other in known if other.name == entry.name):
        meanings.setdefault(other.meaning, f"with {_source(other)}: ")
    texts = [entry.name, *(_fill(source + meaning, 2) for meaning, source in meanings.items())]
    choices = [other for other in known if other.name.startswith(f"{entry.name}=")]
    command = _command(entry)
    call = f"simcse {command} " + "encoder=FOLDER " * (command == "evaluate" and entry.name != "encoder")
    call += "data=text data.train=FILE " * (entry.group == "setting" or entry.name == "setting")
    if " " in entry.name:  # a command
        call = f"{entry.name} --help"
    elif entry.name == _source(entry):
        call += f"{'-m ' * (entry.group == 'sweep')}{entry.name}"
    elif choices:
        call += next(other.name for other in choices if other.choice != entry.value)
        lines = [_line(f"  {choice.choice}", choice.meaning) for choice in choices]
        texts += [f"  default: {entry.value}\n  choices:", *lines]
    else:
        default = _values(_compose(command)).get(entry.name)
        call += f"{_source(entry)} " * (default is None)
        call += shlex.quote(f"{entry.name}={_other_value(entry.meaning, default or entry.value)}")
        overridden = entry.group == command and as_number(default or "") != as_number(entry.value)
        otherwise = f", which a default choice of a group sets; otherwise {entry.value}" if overridden else ""
        texts.append(f"  default: {default or f'{entry.value}, with {_source(entry)}'}{otherwise}")
    options = [other for other in known if other.name != _source(other)]
    inside = dict.fromkeys(option.name for option in options if entry.name in (option.group, _source(option)))
    texts += [_fill(f"options: {', '.join(inside)}", 2)] * bool(inside)
    return "\n".join([*texts, f"  example: {call}"])


def _command(entry: Entry) -> str:
    return "evaluate" if entry.group in ("evaluate", "postprocess", "templates", "test_sets") else "train"


def _source(entry: Entry) -> str:
    return f"{entry.group}={entry.choice}" if entry.choice else entry.group


def _other_value(meaning: str, value: str) -> str:
    """Return a value for an example: one that the comment names, the other boolean, or another number."""
    if named := re.search(r"such as (\[.*?\]|\{.*?\}|'[^']*'|[^\s,;)]+)", meaning):
        return named[1]
    if value in ("true", "false"):
        return "false" if value == "true" else "true"
    if number := max(0, as_number(value) or 0):
        return f"{number / 2 if number < 1 else number * 2:g}"
    return next((word for word in re.findall(r"; ([a-z_]+):", meaning) if word != "null"), "VALUE")


@functools.cache
def _compose(command: str, *given: str) -> DictConfig:
    """Return the config of a command with these options, and Hydra's own part."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose(command, [*given], return_hydra_config=True)


def _values(config: DictConfig) -> dict[str, str]:
    """Return the values of all options as on the command line, by name; of Hydra's own, only the output folders."""
    options: Any = OmegaConf.to_container(config)
    options["hydra"] = {name: {"dir": options["hydra"][name]["dir"]} for name in ("run", "sweep")}
    return {name: x if isinstance(x, str) else json.dumps(x).replace('"', "") for name, x in walk(options)}


def _words(text: str) -> list[str]:
    return [word.rstrip("s") if len(word) > 3 else word for word in re.findall("[a-z0-9]+", text.lower())]


def _fill(text: str, indent: int = 0) -> str:
    return textwrap.indent(textwrap.fill(text, _WIDTH - indent, break_on_hyphens=False), " " * indent)


def _line(name: str, meaning: str, default: str = "", short: bool = True) -> str:
    """Return a name and its meaning; short means in a line, or in two lines with a default."""
    if short:
        most = 2 * (_WIDTH - _COLUMN) - 12 - len(default) if default else _WIDTH - _COLUMN
        meaning = textwrap.shorten(meaning, most, placeholder=" ...")
    text = _fill(meaning + default, _COLUMN)
    return f"  {name:<{_COLUMN - 3}} {text[_COLUMN:]}" if len(name) < _COLUMN - 2 else f"  {name}\n{text}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a group, a choice or an option, such as data, data=text or data.train; or words, such as early stopping"
    parser.add_argument("name", nargs="*", metavar="NAME", help=text)
    text = "print the file of a choice, such as experiment=overfit, which a config of your own can begin with"
    parser.add_argument("--yaml", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> None:
    known, text = entries(), " ".join(arguments.name)
    if not text:
        for command in HYDRA_COMMANDS:
            lines = [_line(entry.name, entry.meaning) for entry in command_file(command)[0]]
            print(f"simcse {command}:", *lines, sep="\n")
        return
    if arguments.yaml:
        group, _, choice = text.partition("=")
        if (file := group_files().get(group, {}).get(choice)) is None:
            raise UserError(f"--yaml {text}: give a choice, such as data=text; `simcse options GROUP` lists them")
        print(file.rstrip())
        return
    known += [Entry(f"simcse {name}", "", meaning, name) for name, meaning in COMMANDS.items()]
    if not (matches := search(text, known)[:6]):
        raise UserError(
            f"no option is about '{text}': `simcse options` lists the groups, `simcse train --help-all` all options"
        )
    print(explain(matches[0], known))
    if matches[1:]:
        print(_fill(f"see also: {', '.join(other.name for other in matches[1:])}"))
