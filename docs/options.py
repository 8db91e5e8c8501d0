"""The page of all options, made from the comments in conf/. hooks.py adds it to the site."""

import re
from collections.abc import Iterable

from simcse_pl.tools.options import HYDRA_COMMANDS, Entry, command_file, group_files, header, options

LEFT_OUT = ("sweep", "experiment")  # other pages explain them


def table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table; the first column is code."""
    names = head.split("|")
    cells = [[f"`{row[0]}`", *map(_escaped, row[1:])] for row in rows]
    lines = [names, ["---"] * len(names), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|") if cell.startswith("`") else re.sub(r"[|_*<]", r"\\\g<0>", cell)


def rows_of(entries: Iterable[Entry]) -> list[tuple[str, ...]]:
    """Return the name, the default as code, and the meaning of each entry."""
    return [(entry.name, f"`{entry.value}`", entry.meaning) for entry in entries]


def page() -> str:
    """Return the page."""
    parts = [
        "# Options\n",
        "`simcse options NAME` explains a group, a choice or an option in the terminal: its meaning, its",
        "default, its choices and an example. It also finds options by words, and misspelt ones:\n",
        '    simcse options patience\n    simcse options "learning rate"\n    simcse options fp16\n',
        "`simcse train --help` shows the groups and the options that most people set, and `--help-all` all",
        "options of a command, with the values of the groups that you choose.\n",
        "Set an option by `option=value`, and choose a group's config file by `group=choice`:\n",
        "    simcse train model=bert objective.temperature=0.1 data.batch_size=128\n",
        "Each group is a folder of `conf`, and each of its choices is a file in that folder, which",
        "`simcse options GROUP=CHOICE --yaml` prints. A choice sets the options of its group, and many choices",
        "also set options of other groups. Options on the command line have priority.\n",
        "The first two sections have the groups and the options of the two commands. After them, each group",
        "has a section with its choices and their options. The choices of `sweep` are in",
        "[sweeps.md](sweeps.md), and `simcse options experiment` lists those of `experiment`.\n",
        "In the tables, the default `???` is a value that you must give, and `${NAME}` is the value of another",
        "option. A row of the training data is a list of sentences: an anchor, positives, and perhaps hard",
        "negatives. `views` makes further sentences from the anchor and adds them to the row. Each sentence of",
        "a row has a role: anchor, positive, negative or other. Contrastive objectives ignore sentences with",
        "the role other, which some auxiliary losses use.\n",
    ]
    for command in HYDRA_COMMANDS:
        groups, of_command = command_file(command)
        parts += [f"## simcse {command}\n", table("group|default|what it chooses", rows_of(groups))]
        parts.append(table("option|default|meaning", rows_of(of_command)))
    for group, files in group_files().items():
        texts = dict(sorted(files.items()))
        if group in LEFT_OUT:
            continue
        parts += [f"## {group}\n", table("choice|meaning", [(name, header(text)) for name, text in texts.items()])]
        of_choices = [entry for choice, text in texts.items() for entry in options(text, group, choice)]
        if of_choices:
            cells = [(entry.name, f"`{entry.choice}`", f"`{entry.value}`", entry.meaning) for entry in of_choices]
            parts.append(table("option|choice|default|meaning", cells))
    return "\n".join(parts)
