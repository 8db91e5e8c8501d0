"""Explain a group, a choice or an option of `simcse train` and `simcse evaluate`, and find it by words."""

import argparse
import difflib
import json
import re
import shlex
import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from simcse_pl.__main__ import COMMANDS
from simcse_pl.config import CONF
from simcse_pl.config.options import walk
from simcse_pl.config.reference import HYDRA_COMMANDS, Entry, command_file, entries, group_files
from simcse_pl.utils.errors import UserError

MOST_SET = {
    "train": (
        *("data.train", "data.validation", "data.batch_size", "data.max_length", "objective.temperature"),
        *("optimizer.lr", "trainer.max_epochs", "val_every", "seed", "hydra.run.dir"),
    ),
    "evaluate": (
        *("encoder", "tasks", "data.test", "senteval_dir", "split", "pooling"),
        *("prompts", "max_length", "truncate_dim", "hydra.run.dir"),
    ),
}
_SYNONYMS = {  # of words that no comment in conf/ has
    "accumulation": "caching",
    "amp": "precision",
    "dev": "validation",
    "fp16": "precision",
    "multi": "devices",
    "push": "upload",
    "save": "output folder",
}
_FLAGS = (
    "`simcse options NAME` explains a group, a choice or an option, and finds options by words. --help-all lists all "
    "options. -m: a sweep; --config-dir FOLDER: configs of your own; --cfg job: print the config; --hydra-help: more."
)


def compose(command: str, given: Sequence[str] = ()) -> DictConfig:
    """Return the config of a command with these options, and Hydra's own part."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose(command, list(given), return_hydra_config=True)


def help_text(command: str, given: Sequence[str], everything: bool) -> str:
    """Return what --help prints, with the values of the chosen groups; `everything` is for --help-all."""
    config = compose(command, given)
    values, chosen = _values(config), dict(config.hydra.runtime.choices)
    known = [entry for entry in entries() if entry.name in values and entry.group in (command, *chosen)]
    known.sort(key=lambda entry: str(chosen.get(entry.group)) != entry.choice)  # a chosen file explains its options
    meanings = {entry.name: entry.meaning for entry in reversed(known)}
    groups = [entry for entry in command_file(command)[0] if entry.name in group_files()]
    options = (
        [name for name in values if name in meanings and name not in group_files()] if everything else MOST_SET[command]
    )
    return "\n".join(
        [
            f"simcse {command} [group=choice ...] [option=value ...]\n",
            _fill(config.hydra.help.header),
            textwrap.indent(f"\n{config.hydra.help.footer}", "  "),
            "All options:" if everything else "The options that most people set:",
            *(_line(name, meanings[name], f" (default: {values[name]})", not everything) for name in options),
            "\nThe groups, with the choices that are loaded:",
            *(
                _line(f"{entry.name}={chosen.get(entry.name, entry.value) or 'null'}", entry.meaning)
                for entry in groups
            ),
            f"\n{_fill(_FLAGS)}",
        ]
    )


def option_names(command: str, given: Sequence[str]) -> list[str]:
    """Return the names of all groups and options, those of the chosen groups if they exist."""
    groups = [*group_files()]
    for options in ([option for option in given if option.partition("=")[0] in groups], []):
        with suppress(HydraException):
            return [*groups, *_values(compose(command, options))]
    return groups


def _values(config: DictConfig) -> dict[str, str]:
    """Return the values of all options as on the command line, by name; of Hydra's own, only the output folders."""
    options: Any = OmegaConf.to_container(config)
    options["hydra"] = {name: {"dir": options["hydra"][name]["dir"]} for name in ("run", "sweep")}
    return {
        name: value if isinstance(value, str) else json.dumps(value).replace('"', "") for name, value in walk(options)
    }


def _width() -> int:
    return min(110, shutil.get_terminal_size((100, 24)).columns)


def _fill(text: str, indent: int = 0) -> str:
    """Return a text in lines of the terminal's width."""
    room = _room() - indent
    return textwrap.indent(textwrap.fill(text, room, break_on_hyphens=False), " " * indent)


def _line(name: str, meaning: str, default: str = "", short: bool = True) -> str:
    """Return a name and its meaning; short means in a line, or in two lines with a default."""
    room = _room() - 26
    if short:
        meaning = textwrap.shorten(meaning, (2 * room - 12 - len(default)) if default else room, placeholder=" ...")
    text = _fill(meaning + default, 26)
    return f"  {name:<23} {text[26:]}" if len(name) < 24 else f"  {name}\n{text}"


def _room() -> int:
    return min(110, shutil.get_terminal_size((100, 24)).columns)


def explain(entry: Entry, known: Sequence[Entry]) -> str:
    """Return the meaning, the default, the choices and an example of a group, a choice or an option."""
    choices = [other for other in known if other.name.startswith(f"{entry.name}=")]
    inside = dict.fromkeys(
        other.name
        for other in known
        if other.name != other.source and entry.name in (other.source, other.source.partition("=")[0])
    )
    texts = [entry.name, _fill(entry.meaning, 6)]
    others = {other.meaning: other.source for other in known if other.name == entry.name}
    texts += [_fill(f"{source}: {meaning}", 6) for meaning, source in others.items() if meaning != entry.meaning]
    if entry.source not in COMMANDS or entry.source in HYDRA_COMMANDS:
        call, default = _example(entry, choices)
        texts += [f"      default: {default}"] * bool(default)
    else:
        call = f"{entry.name} --help"
    texts += ["      choices:"] * bool(choices)
    texts += [_line(f"  {other.choice}", other.meaning) for other in choices]
    texts += [_fill(f"options: {', '.join(inside)}", 6)] * bool(inside)
    return "\n".join([*texts, f"      example: {call}"])


def _example(entry: Entry, choices: Sequence[Entry]) -> tuple[str, str]:
    """Return a command that sets an option or chooses a choice, and the default."""
    values = _values(compose(entry.command))
    words = ["simcse", entry.command, *["encoder=FOLDER"] * (entry.command == "evaluate" and entry.name != "encoder")]
    if entry.name == entry.source:  # a choice
        return " ".join([*words, entry.name]), ""
    if choices:
        other = next(other for other in choices if other.choice != entry.value)
        return " ".join([*words, other.name]), entry.value
    default = values.get(entry.name, f"{entry.value}, with {entry.source}")
    words += [entry.source] * (entry.name not in values)
    return " ".join([*words, shlex.quote(f"{entry.name}={_other_value(entry)}")]), default


def _other_value(entry: Entry) -> str:
    """Return a value for an example: one that the comment names, the other boolean, or a larger number."""
    if named := re.search(r"such as (\[.*?\]|\{.*?\}|'[^']*'|[^\s,;)]+)", entry.meaning):
        return named[1]
    if entry.value in ("true", "false"):
        return "false" if entry.value == "true" else "true"
    if further := [word for word in re.findall(r"; ([a-z_]+):", entry.meaning) if word not in ("null", entry.value)]:
        return further[0]
    if re.fullmatch("[1-9][0-9]*", entry.value):
        return str(2 * int(entry.value))
    return f"{float(entry.value) / 2:g}" if re.fullmatch(r"[\d.]+(e-\d+)?", entry.value) else "VALUE"


def search(text: str, known: Sequence[Entry]) -> list[Entry]:
    """Return the entries that a text names, or whose names and meanings have its words, the best first."""
    words = {entry: (_words(entry.name), _words(entry.meaning)) for entry in known}
    counts = Counter(word for name, meaning in words.values() for word in {*name, *meaning})
    last = {entry: re.split("[.=]", entry.name)[-1] for entry in known}
    wanted: dict[str, None] = {}
    for word in _words(text):
        same = [word] if word in counts else difflib.get_close_matches(word, {*counts, *last.values()}, 1, 0.75)
        wanted |= dict.fromkeys(_words(_SYNONYMS.get(word, " ".join(same))))
    usual = {name for command in HYDRA_COMMANDS for name in [*group_files(), *_values(compose(command))]}
    scores: dict[str, tuple[float, Entry]] = {}
    for entry, (name, meaning) in words.items():
        score = sum((3 * (word in name) + (word in meaning)) / counts[word] for word in wanted)
        score += bool(wanted) * (" ".join(wanted) in " ".join(meaning)) + 9 * (text == last[entry])
        score *= (0.5 if entry.command == "evaluate" else 1) * (1 if entry.name in usual else 0.7)
        if score > scores.get(entry.name, (0, entry))[0]:
            scores[entry.name] = score, entry
    return [entry for _, entry in sorted(scores.values(), key=lambda scored: -scored[0])]


def _words(text: str) -> list[str]:
    return [word.rstrip("s") if len(word) > 3 else word for word in re.findall("[a-z0-9]+", text.lower())]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a group, a choice or an option, such as data, data=text or data.train; or words, such as early stopping"
    parser.add_argument("name", nargs="*", metavar="NAME", help=text)


def run(arguments: argparse.Namespace) -> None:
    known, text = entries(), " ".join(arguments.name)
    if not text:
        for command in HYDRA_COMMANDS:
            print(f"simcse {command}:")
            for entry in command_file(command)[0]:
                print(_line(entry.name, entry.meaning))
        return
    known += [Entry(f"simcse {name}", "", about, name) for name, about in COMMANDS.items()]
    if not (found := search(text, known)):
        raise UserError(f"nothing about {text}: `simcse options` lists the groups, and `simcse train --help-all` all")
    print(explain(found[0], known))
    if found[1:]:
        print(_fill(f"see also: {', '.join(entry.name for entry in found[1:8])}"))
