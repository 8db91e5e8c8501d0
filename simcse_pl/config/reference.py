"""What the comments in conf/ say, for --help, `simcse options` and the site's page of options."""

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from simcse_pl.config import CONF
from simcse_pl.sweeps.jobs import OF_TWO_GROUPS

HYDRA_COMMANDS = ("train", "evaluate")
_OPTION = re.compile(r"(?P<indent> *)(?P<name>[\w/]+):(?: (?P<value>[^#]*?))?(?:\s+# (?P<comment>.*))?")
_GROUP = re.compile(r"  - (?:optional )?(?P<name>[\w/]+): (?P<choice>[^#$]*?)(?:\s+# (?P<comment>.*))?")


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
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(CONF.glob("*/**/*.yaml"))}
    for file in sorted(texts, key=lambda file: (file.parent, "# @package _global_" in texts[file])):
        group = file.parent.relative_to(CONF).as_posix()
        if not group.startswith(("hydra", "local", "sweep/base", *OF_TWO_GROUPS)):
            files.setdefault(group, {})[file.stem] = texts[file]
    return files


def entries() -> list[Entry]:
    """Return all groups, choices and options."""
    result = [entry for command in HYDRA_COMMANDS for part in command_file(command) for entry in part]
    for group, texts in group_files().items():
        for choice, text in texts.items():
            result += [Entry(f"{group}={choice}", "", header(text), group, choice), *options(text, group, choice)]
    return result
