"""Update the generated parts of docs/fidelity.md: `python docs/fidelity.py`, from the records in tests/fidelity.

These parts stand between `<!-- NAME -->` and `<!-- end -->`. All other text is written by hand.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks is not installed

from benchmarks.fidelity.compare import RECORDS, differences, hyperparameters

PAGE = Path(__file__).with_suffix(".md")
PART = re.compile(r"(?<=<!-- )(?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)


def table(*rows: list[str]) -> str:
    """Return a Markdown table; the first row is its head."""
    head, *others = rows
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *others))


def summary() -> str:
    """Return the number of records, and the largest differences of their losses and gradients."""
    loss = gradient = 0.0
    for name in RECORDS:
        pairs = differences(name)
        del pairs["tokens"]
        apart = {place: float((official - here).abs().max()) for place, (official, here) in pairs.items()}
        loss = max(loss, apart.pop("loss"))
        gradient = max(gradient, *apart.values())
    repositories = len({record["repository"] for record in RECORDS.values()})
    counts = f"{len(RECORDS)} records from {repositories} repositories"
    return f"{counts}: losses differ by at most {loss:.0e}, gradients by {gradient:.0e}.\n"


def records() -> Iterator[list[str]]:
    """Yield the rows of the table of records; those of the same code with the same changes share a row."""
    yield ["Records", "Official code", "Changed in the released code"]
    names = defaultdict(list)
    for name, record in RECORDS.items():
        names[record["repository"], record["commit"], record.get("repaired", "–")].append(f"`{name}`")
    for (repository, commit, changed), same in names.items():
        code = f"[{repository}@{commit}](https://github.com/{repository}/tree/{commit})"
        yield [", ".join(same), code, changed]


def hyperparameters_that_differ() -> Iterator[list[str]]:
    """Yield the rows of the table of hyperparameters that are others in the released script than here."""
    yield ["Record", "Option", "Released script", "Here"]
    for name, record in RECORDS.items():
        for option, released, here in hyperparameters(record) if "script" in record else ():
            if float(released) != float(here):
                yield [f"`{name}`", f"`{option}`", released, here]


if __name__ == "__main__":
    differing = table(*hyperparameters_that_differ())
    parts = {"summary": summary(), "records": table(*records()), "hyperparameters": differing}
    text = PART.sub(
        lambda part: f"{part['name']} -->\n{parts[part['name']]}<!-- end -->", PAGE.read_text(encoding="utf-8")
    )
    PAGE.write_text(text, encoding="utf-8")
