"""Explain a group, a choice or an option of `simcse train` and `simcse evaluate`, and find it by words."""

import argparse
import difflib
import functools
import inspect
import json
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from simcse_pl.__main__ import HYDRA_COMMANDS
from simcse_pl.config import CONF, config_folders, walk, with_row, with_values
from simcse_pl.run_folder import OF_TWO_GROUPS
from simcse_pl.utils.code import LIBRARIES, locate
from simcse_pl.utils.errors import UserError

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
    folders = [CONF, *(Path(folder.removeprefix("file://")) for folder in config_folders())]
    found = [(file.relative_to(folder), file) for folder in folders for file in folder.glob("*/**/*.yaml")]
    texts = [(name.parent.as_posix(), name.stem, file.read_text(encoding="utf-8")) for name, file in found]
    files: dict[str, dict[str, str]] = {}
    for group, choice, text in sorted(texts, key=lambda file: (file[0], "# @package _global_" in file[2], file[1])):
        if not group.startswith(("hydra", "local", "sweep/base", *OF_TWO_GROUPS)):
            files.setdefault(group, {})[choice] = text
    return files


@functools.cache
def entries() -> dict[str, list[Entry]]:
    """Return all groups, choices and options by name; several files may explain an option."""
    every = [entry for command in HYDRA_COMMANDS for part in command_file(command) for entry in part]
    for group, texts in group_files().items():
        for choice, text in texts.items():
            every += [Entry(f"{group}={choice}", "", header(text), group, choice), *options(text, group, choice)]
    row_options = (CONF / "sweep" / "base" / "rows.yaml").read_text(encoding="utf-8")
    by_name: dict[str, list[Entry]] = {}
    for entry in [*every, *options(row_options, "sweep", "table_3_dropout")]:
        by_name.setdefault(entry.name, []).append(entry)
    return by_name


def help_text(command: str, given: Sequence[str], everything: bool) -> str:
    """Return what --help prints, with the values of the chosen groups; `everything` is for --help-all."""
    config, defaults = _compose(command, *given), _defaults(command, *given)
    chosen = dict(config.hydra.runtime.choices)
    groups = {entry.name: entry for entry in command_file(command)[0]}
    known = [entry for same in entries().values() for entry in same if entry.group in (command, *groups)]
    known.sort(key=lambda entry: str(chosen.get(entry.group)) != entry.choice)  # a chosen file explains its options
    meanings = {entry.name: entry.meaning for entry in reversed(known) if entry.name in defaults.keys() - groups}
    names = [name for name in (defaults if everything else MOST_SET[command].split()) if name in meanings]
    texts = [
        f"simcse {command} [group=choice ...] [option=value ...]\n",
        _fill(config.hydra.help.header),
        textwrap.indent(f"\n{config.hydra.help.footer}", "  "),
        "All options:" if everything else "The options that most people set:",
        *(_line(name, meanings[name], f" (default: {defaults[name]})", not everything) for name in names),
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


def search(text: str, command: str | None = None) -> list[str]:
    """Return the names of the entries whose names and meanings have the most words of a text, the best first.

    A word also matches longer words that begin with it. A word that no entry has is replaced by the nearest one that
    some entry has. An entry with exactly this name comes first. With `command`, only its options are searched.
    """
    texts = {}
    for name, same in entries().items():
        if not command or ("=" not in name and command in map(_command, same)):
            texts[name] = _words(name), _words(" ".join(entry.meaning for entry in same))
    everything = "".join(chain(*texts.values()))
    spellings = dict.fromkeys([*(name.rpartition(".")[2] for name in texts), *everything.split()])
    wanted = ""
    for word in _words(text).split():
        near = (difflib.get_close_matches(word, among, 1, 0.75) for among in (group_files(), spellings))
        wanted += _words(word if f" {word}" in everything else next(chain.from_iterable(near), word))
    usual = _values(_compose(command or "train"))

    def rank(name: str) -> tuple[float, ...]:
        words, meaning = texts[name]
        in_name, in_both = (sum(f" {word}" in part for word in wanted.split()) for part in (words, words + meaning))
        offset = meaning.index(wanted) if wanted in meaning else 999  # characters before the words
        return in_both, name == text, words.endswith(wanted), name in usual, in_name / words.count(" "), -offset

    ranks = {name: rank(name) for name in texts}
    most, *_ = max(ranks.values())
    return sorted((name for name in texts if ranks[name][0] == most > 0), key=ranks.__getitem__, reverse=True)


def instead(name: str, command: str, given: Sequence[str]) -> str:
    """Return which options an unknown one may mean, as the end of an error message.

    They are options of the config with a similar name; or all options of a user's class. For an option of a choice that
    is not chosen, the message names the choice.
    """
    near = list[str]()
    with suppress(Exception):  # there may be another mistake
        values = _values(_compose(command, *(option for option in given if option.partition("=")[0] != name)))
        node, class_options = name.rpartition(".")[0], []
        target = values.get(f"{node}._target_", "")
        if target and not target.startswith(LIBRARIES):  # the user's class; + adds what its file does not have
            arguments = inspect.signature(locate(target)).parameters.values()
            names = [f"{node}.{x.name}" for x in arguments if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
            class_options = [option if option in values else f"+{option}" for option in names]
        # no positions of lists
        chosen = [option for option in values if option != node and not re.search(r"\.\d", option)]
        near = difflib.get_close_matches(name, dict.fromkeys([*class_options, *chosen]), 2, 0.8) or class_options
    if not near and name in entries():
        return f"; {' or '.join(map(_source, entries()[name]))} has it, and is not chosen"
    near = near or search(name, command)[:2]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def explain(name: str) -> str:
    """Return the meaning, the default, the choices, the options and an example of a group, a choice or an option."""
    command = _command(entries()[name][0])
    chosen = _compose(command).hydra.runtime.choices  # their files come first
    entry, *others = sorted(entries()[name], key=lambda file: chosen.get(file.group) != file.choice)
    source, choices = _source(entry), group_files().get(name, {})
    meanings = {entry.meaning: ""}
    for other in others:
        meanings.setdefault(other.meaning, f"with {_source(other)}: ")
    texts = [name, *(_fill(of + meaning, 2) for meaning, of in meanings.items())]
    given = name
    if name != source:  # it is no choice
        default = entry.value if choices else _defaults(command).get(name)
        texts.append(f"  default: {default or f'{entry.value}, with {source}'}")
        given = f"{name}=VALUE" if default else f"{source} {name}=VALUE"
    if choices:
        texts += ["  choices:", *(_line(f"  {choice}", header(text)) for choice, text in choices.items())]
    own = [option for option, files in entries().items() if any(name in (file.group, _source(file)) for file in files)]
    if inside := ", ".join(option for option in own if "=" not in option):
        texts.append(_fill(f"options: {inside}", 2))
    multirun = "-m " if entry.group == "sweep" else ""
    return "\n".join([*texts, f"  example: simcse {command} {multirun}{given}"])


def _command(entry: Entry) -> str:
    return "evaluate" if entry.group in ("evaluate", "postprocess", "templates", "test_sets") else "train"


def _source(entry: Entry) -> str:
    return f"{entry.group}={entry.choice}" if entry.choice else entry.group


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


def _defaults(command: str, *given: str) -> dict[str, str]:
    """Return the default of each option as text; one of the sample, where it differs, follows that of other data."""
    values, sample = _values(_compose(command, *given)), _compose(command, *given).hydra.runtime.choices.get("data")
    with_own_data = _values(_compose(command, *given, "data=text")) if sample == "nli_sample" else {}
    return {
        name: value if (own := with_own_data.get(name, "???")) in ("???", value) else f"{own}; the sample: {value}"
        for name, value in values.items()
    }


def _words(text: str) -> str:
    """Return the words of a text in lower case, with a space before each."""
    return "".join(f" {word}" for word in re.findall("[a-z0-9]+", text.lower()))


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
    text = " ".join(arguments.name)
    if not text:
        for command in HYDRA_COMMANDS:
            lines = [_line(entry.name, entry.meaning) for entry in command_file(command)[0]]
            print(f"simcse {command}:", *lines, sep="\n")
    elif arguments.yaml:
        group, _, choice = text.partition("=")
        if (file := group_files().get(group, {}).get(choice)) is None:
            raise UserError(f"--yaml {text}: give a choice, such as data=text; `simcse options GROUP` lists them")
        print(file.rstrip())
    elif names := search(text):
        print(explain(names[0]))
        if names[1:]:
            print(_fill(f"see also: {', '.join(names[1:6])}"))
    else:
        lists = "`simcse options` lists the groups, `simcse train --help-all` all options"
        raise UserError(f"no option is about '{text}': {lists}")
