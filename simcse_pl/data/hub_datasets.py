"""Data sets on the Hugging Face Hub: their rows, with the words of labels that they have as numbers."""

import sys
from typing import Any

from simcse_pl.data.formats import OpenedTable, Records
from simcse_pl.data.records import with_words
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.private import datasets_offline


def table_of(dataset: Any, source: str) -> OpenedTable:
    """Return the rows of a data set on the Hub."""
    names = dataset.column_names
    words = {i: kind.names for i, kind in enumerate(dataset.features.values()) if hasattr(kind, "names")}
    rows: Records = ((f"row {i}", with_words([*row.values()], words)) for i, row in enumerate(dataset, 1))
    return OpenedTable(source, rows, len(names), names, f"a data set with the columns {', '.join(names)}")


def load_hub_dataset(name: str, split: str) -> Any:
    """Load a split of OWNER/NAME or OWNER/NAME:SUBSET of the Hugging Face Hub, downloaded or from the cache."""
    import datasets  # slow to import

    repository, _, subset = name.partition(":")
    unavailable = hub.unavailable(repository, "dataset")
    hides_bars = datasets.is_progress_bar_enabled() and not sys.stderr.isatty()
    if hides_bars:
        datasets.disable_progress_bars()
    try:
        with hub.quiet("huggingface_hub", "datasets"), datasets_offline(unavailable is not None):
            return datasets.load_dataset(repository, subset or None, split=split)
    except Exception as error:  # the library has dozens of kinds
        why = f"it is not in the local cache, and the Hub returned: {unavailable}" if unavailable else hub.reason(error)
        raise UserError(f"dataset {name}, split {split}, cannot be loaded: {why}") from error
    finally:
        if hides_bars:
            datasets.enable_progress_bars()
