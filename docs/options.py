"""The page of all options, made from the comments in conf/. hooks.py adds it to the site."""

import re
from collections.abc import Iterator
from pathlib import Path

CONF = Path(__file__).parents[1] / "conf"
COMMANDS = {"train": "simcse train", "evaluate": "simcse evaluate"}
LEFT_OUT = ("hydra", "local", "sweep", "experiment")  # other pages explain them

_OPTION = re.compile(r"(?P<indent> *)(?P<name>[\w/]+):(?: (?P<value>[^#]*?))?(?:\s+# (?P<comment>.*))?")
_GROUP = re.compile(r"  - (?:optional )?(?P<name>[\w/]+): (?P<choice>[^#]*?)(?:\s+# (?P<comment>.*))?")


def header(text: str) -> str:
    """Return the comment that a file begins with, without its command."""
    lines = [line for line in text.splitlines() if line != "#" and not line.startswith(("# @package", "# python "))]
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(filter(None, comment))


def options(text: str, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and comment of every option that has a comment, beside it or in the line above."""
    group = ""
    if package := re.search(r"# @package (\S+)", text):
        # a file at the top of the config explains the options of its group, and sets others that other files explain
        group, prefix = (prefix, "") if package[1] == "_global_" else ("", f"{package[1]}.")
    parents: list[str] = []
    above = ""
    for line in text.splitlines():
        if found := _OPTION.fullmatch(line):
            parents = [*parents[: len(found["indent"]) // 2], found["name"]]
            comment = found["comment"] or above
            name = prefix + ".".join(parents)
            own = name.startswith(group) and not name.startswith("hydra.") and not found["name"].startswith("_")
            if comment and found["value"] and own:
                yield name, found["value"].strip(), comment
        above = line.removeprefix("# ") if line.startswith("# ") else ""


def groups(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name, default choice and comment of every group in the defaults list of a command."""
    for line in text.splitlines():
        if found := _GROUP.fullmatch(line):
            yield found["name"], found["choice"], found["comment"] or ""


def table(head: str, rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table; the first column is code."""
    names = head.split("|")
    cells = [[f"`{row[0]}`", *(cell.replace("|", "\\|") for cell in row[1:])] for row in rows]
    lines = [names, ["---"] * len(names), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """Return the page."""
    parts = [
        "# Options\n",
        "Set an option by `option=value`, and choose a group's config file by `group=choice`:\n",
        "    simcse train model=bert objective.temperature=0.1 data.batch_size=128\n",
        "Each group is a folder of `conf`, and each of its choices is a file in that folder. A",
        "choice sets the options of its group, and many choices also set options of other groups. Options on",
        "the command line have priority. `simcse train --help` and `simcse evaluate --help` print all options",
        "with their values.\n",
        "The first two sections have the groups and the options of the two commands. After them, each group",
        "has a section with its choices and their options. The choices of `sweep` are in",
        "[sweeps.md](sweeps.md), and those of `experiment` in `conf/experiment`.\n",
        "In the tables, the default `???` is a value that you must give, and `${NAME}` is the value of another",
        "option. A row of the training data is a list of sentences: an anchor, positives, and perhaps hard",
        "negatives. `views` makes further sentences from the anchor and adds them to the row. Each sentence of",
        "a row has a role: anchor, positive, negative or other. Contrastive objectives ignore sentences with",
        "the role other, which some auxiliary losses use.\n",
    ]
    for command, called in COMMANDS.items():
        text = (CONF / f"{command}.yaml").read_text(encoding="utf-8")
        parts += [f"## {called}\n", table("group|default|what it chooses", [*_as_code(groups(text))])]
        parts.append(table("option|default|meaning", [*_as_code(options(text, ""))]))
    for folder in sorted(path for path in CONF.glob("**/") if path != CONF):
        group = folder.relative_to(CONF).as_posix()
        if group.partition("/")[0] in LEFT_OUT:
            continue
        texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.yaml"))}
        parts += [
            f"## {group}\n",
            table("choice|meaning", [(name, header(text)) for name, text in texts.items()]),
        ]
        found = [
            (option, f"`{choice}`", *rest)
            for choice, text in texts.items()
            for option, *rest in _as_code(options(text, f"{group.replace('/', '.')}."))
        ]
        if found:
            parts.append(table("option|choice|default|meaning", found))
    return "\n".join(parts)


def _as_code(rows: Iterator[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    return ((name, f"`{value}`", comment) for name, value, comment in rows)
