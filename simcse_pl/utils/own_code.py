"""A user's own classes and functions, by their dotted names."""

import importlib
import os
import sys
from typing import Any


def locate(name: str) -> Any:
    """Import a class or function by its dotted name, from an installed package or the current folder.

    The folder is on Python's path only meanwhile: it may be that of a downloaded model, and libraries try to import
    packages that are not installed.
    """
    first, *attributes = name.split(".")
    folder = os.getcwd()
    is_new = folder not in sys.path
    if is_new:
        sys.path.append(folder)
    try:
        found: Any = importlib.import_module(first)
        for depth, attribute in enumerate(attributes, 1):
            if hasattr(found, "__path__") and not hasattr(found, attribute):  # a package
                importlib.import_module(".".join([first, *attributes[:depth]]))
            found = getattr(found, attribute)
    finally:
        if is_new:
            sys.path.remove(folder)
    return found
