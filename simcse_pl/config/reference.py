"""What the comments in conf/ say, for --help, `simcse options` and the site's page of options."""

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from simcse_pl.config import CONF

HYDRA_COMMANDS = ("train", "evaluate")
_LEFT_OUT = ("hydra", "local", "sweep/base")
_OPTION = re.compile(r"(?P<indent> *)(?P<name>[\w/]+):(?: (?P<value>[^#]*?))?(?:\s+# (?P<comment>.*))?")
_GROUP = re.compile(r"  - (?:optional )?(?P<name>[\w/]+): (?P<choice>[^#]*?)(?:\s+# (?P<comment>.*))?")


class Entry(NamedTuple):
    """A group, a choice or an option, as a file of conf/ explains it."""

    name: str  # as on the command line: `data`, `data=text`, `data.batch_size`
    value: str  # of a group or option in the file; empty for a choice
    meaning: str
    source: str  # the file: `train`, `evaluate` or a choice, such as `data=text`

    @property
    def group(self) -> str:
        """Return the group of the file, or the command."""
        return self.source.partition("=")[0]

    @property
    def choice(self) -> str:
        """Return the choice whose file it is; empty for the file of a command."""
        return self.source.partition("=")[2]

    @property
    def command(self) -> str:
        """Return the command that has the entry."""
        return "evaluate" if self.group in ("evaluate", "postprocess", "templates", "test_sets") else "train"


def header(text: str) -> str:
    """Return the comment that a file begins with, without its command."""
    lines = [line for line in text.splitlines() if line != "#" and not line.startswith(("# @package", "# python "))]
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(filter(None, comment))


def options(text: str, source: str) -> Iterator[Entry]:
    """Yield every option of a file that has a comment, beside it or in the lines above."""
    group, is_choice, _ = source.partition("=")
    first = prefix = f"{group.replace('/', '.')}." if is_choice else ""
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
                yield Entry(name, match["value"].strip(), meaning, source)
        above = f"{above} {line[2:]}".lstrip() if line.startswith("# ") else ""


@functools.cache
def command_file(command: str) -> tuple[list[Entry], list[Entry]]:
    """Return the groups in the defaults list of a command, and the options of its file."""
    text = (CONF / f"{command}.yaml").read_text(encoding="utf-8")
    matches = filter(None, map(_GROUP.fullmatch, text.splitlines()))
    groups = [Entry(match["name"], match["choice"], match["comment"] or "", command) for match in matches]
    return groups, [*options(text, command)]


@functools.cache
def group_files() -> dict[str, dict[str, str]]:
    """Return the text of each choice's file, by group and choice."""
    files: dict[str, dict[str, str]] = {}
    for file in sorted(CONF.glob("*/**/*.yaml")):
        group = file.parent.relative_to(CONF).as_posix()
        if not group.startswith(_LEFT_OUT):
            files.setdefault(group, {})[file.stem] = file.read_text(encoding="utf-8")
    return dict(sorted(files.items()))


def entries() -> list[Entry]:
    """Return all groups, choices and options; first those of files that others extend."""
    found = [entry for command in HYDRA_COMMANDS for part in command_file(command) for entry in part]
    for group, texts in group_files().items():
        for choice, text in sorted(texts.items(), key=lambda item: "# @package _global_" in item[1]):
            source = f"{group}={choice}"
            found += [Entry(source, "", header(text), source), *options(text, source)]
    return found
