"""Mutations that keep a file's structure, so that what is odd comes past the parser: JSON, safetensors, torch's zip."""

import io
import json
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import torch

Mutate = Callable[[bytes], bytes]

_DEEP = "\x1adeep"
_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3.5, 2**31, 2**63, -(2**63), 10**9, 10**12, 10**30),
    *(1e308, float("nan"), float("inf"), "", " ", "x", "0", "../x", "/etc/passwd", "a\nb", "\ud800", "\0", "é字🐕"),
    *([], {}, [[]], [0], [1, 1], [""], {"": ""}, {"x": None}, _DEEP),
]


def mutated(content: bytes, chance: random.Random, mutate: Mutate) -> bytes:
    """The content with something changed.

    Args:
        content: of a file.
        chance: of the kind and the place of the change.
        mutate: changes bytes.
    """
    kinds = [own for own in (_torch, _safetensors, _json, _json_line) if chance.random() < 0.6]
    for kind in kinds:
        if (found := kind(content, chance, mutate)) is not None:
            return found
    return mutate(content)


def _json(content: bytes, chance: random.Random, mutate: Mutate) -> bytes | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    text = json.dumps(_tree(value, chance, mutate), ensure_ascii=chance.random() < 0.5)
    return text.replace(json.dumps(_DEEP), "[" * 50_000 + "]" * 50_000).encode("utf-8", "replace")


def _json_line(content: bytes, chance: random.Random, mutate: Mutate) -> bytes | None:
    lines = content.split(b"\n")
    place = chance.randrange(len(lines))
    changed = _json(lines[place], chance, mutate)
    if changed is None:
        return None
    return b"\n".join([*lines[:place], changed, *lines[place + 1 :]])


def _safetensors(content: bytes, chance: random.Random, mutate: Mutate) -> bytes | None:
    if len(content) < 8:
        return None
    (length,) = struct.unpack("<Q", content[:8])
    header, rest = content[8 : 8 + length], content[8 + length :]
    changed = _json(header, chance, mutate) if length < len(content) else None
    return changed and struct.pack("<Q", len(changed)) + changed + rest


def _torch(content: bytes, chance: random.Random, mutate: Mutate) -> bytes | None:
    if not content.startswith(b"PK"):
        return None
    try:
        value = torch.load(io.BytesIO(content), weights_only=True)
        buffer = io.BytesIO()
        torch.save(_tree(value, chance, mutate), buffer)
    except Exception:  # whatever an earlier change made of it
        return None
    return buffer.getvalue()


def _tree(value: Any, chance: random.Random, mutate: Mutate) -> Any:
    """A tree of dicts and lists with one change in it."""
    places = [((), value), *_places(value)]
    path, old = chance.choice(places)
    kind = chance.randrange(5)
    if kind == 0 and path:
        return _replaced(value, path, None, remove=True)
    if kind == 1 and isinstance(old, str):
        changed = _json(old.encode("utf-8", "replace"), chance, mutate) or mutate(old.encode("utf-8", "replace"))
        return _replaced(value, path, changed.decode("utf-8", "replace"))
    if kind == 2:
        return _replaced(value, path, chance.choice(places)[1])
    if kind == 3 and isinstance(old, int | float):
        return _replaced(value, path, chance.choice([old + 1, old - 1, -old, old * 10**6, str(old)]))
    return _replaced(value, path, chance.choice(_VALUES))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, own in items:
        yield (*path, key), own
        if len(path) < 20:
            yield from _places(own, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], new: Any, remove: bool = False) -> Any:
    if not path:
        return new
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[key] = _replaced(value[key], tuple(rest), new, remove)
    elif remove:
        del copy[key]
    else:
        copy[key] = new
    return copy
