"""The values of options against the types of what they are given to, before anything is built."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError

from simcse_pl.utils.errors import UserError, did_you_mean

_SAID = {
    bool: "true or false",
    dict: "a mapping",
    float: "a number",
    int: "a whole number",
    str: "text (put numbers in quotes)",
    Path: "a path",
    types.NoneType: "null",
}
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def check_types(config: DictConfig, *given_to: Callable[..., Any]) -> None:
    """Hold every value that a config gives to a class or function against the type that it asks for.

    Types that are not of YAML (an encoder, a view) are left to whoever is given them.

    Args:
        config: whole.
        given_to: what the options at its top are given to.

    Raises:
        UserError: a value of another type, or an argument that there is not.
    """
    written: Any = OmegaConf.to_container(config)
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    for made in given_to:
        _check_values(made, resolved, written, ())
    for place, node in _built(resolved):
        made = get_object(node["_target_"])
        for name in _unknown(made, node):
            near = did_you_mean(name, inspect.signature(made).parameters)
            raise UserError(f"no option {'.'.join(map(str, [*place, name]))}{near} (--help lists all)")
        if place[:2] == ("sweep", "rows"):  # one that lacks something has null for it, and is left out
            node = {name: value for name, value in node.items() if value is not None}
        _check_values(made, node, written, place)


def _check_values(made: Callable[..., Any], values: Mapping[Any, Any], written: Any, place: Sequence[Any]) -> None:
    for name, said in wrong_values(made, values):
        raise UserError(f"{_said_by_user(written, [*place, name])}={values[name]}: it must be {said}")


def _unknown(made: Callable[..., Any], node: Mapping[Any, Any]) -> list[str]:
    """The options of a part that are arguments of nothing, as far as it says what it takes."""
    parameters = inspect.signature(made).parameters
    if any(one.kind == one.VAR_KEYWORD for one in parameters.values()):
        return []
    return [str(name) for name in node if name not in parameters and not str(name).startswith("_")]


def wrong_values(made: Callable[..., Any], values: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """The arguments of a class or function whose values are of another type than it asks for.

    Args:
        made: the class or function.
        values: by the names of arguments; what is none of them is left alone.

    Yields:
        The name of an argument, and what its value must be.
    """
    required = [name for name, one in inspect.signature(made).parameters.items() if one.default is one.empty]
    for name, hint in _hints(made).items():
        if name not in values or (said := _in_words(hint)) is None:
            continue
        if isinstance(values[name], Mapping) and "_target_" in values[name]:
            continue
        if values[name] is None and name in required:  # a part that is built where this is given
            continue
        try:
            TypeAdapter(hint).validate_python(values[name], strict=True)
        except ValidationError:
            yield name, said


def _hints(made: Callable[..., Any]) -> dict[str, Any]:
    """By argument; a function that takes further ones gives them to the constructor of what it returns."""
    if inspect.isclass(made):
        return typing.get_type_hints(made.__init__)
    hints = typing.get_type_hints(made)
    returned = hints.pop("return", None)
    takes_further = any(one.kind == one.VAR_KEYWORD for one in inspect.signature(made).parameters.values())
    return _hints(returned) | hints if takes_further and inspect.isclass(returned) else hints


def _built(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Every part of a config that names a class or function, and where it stands."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    if isinstance(node, dict) and "_target_" in node:
        yield place, node
    for key, value in items:
        yield from _built(value, (*place, key))


def _said_by_user(written: Any, place: Sequence[Any]) -> str:
    """The option's name; where its value is a reference, the name of what it refers to."""
    value = written
    for key in place:
        value = value[key]
        if isinstance(value, str) and (reference := _REFERENCE.fullmatch(value)):
            return reference[1]
    return ".".join(map(str, place))


def named_in_full(message: str, config: DictConfig, part: str) -> str:
    """Return a message of a class with its arguments named as the user gives them, `model.pooling=` for `pooling=`.

    Args:
        message: of the class.
        config: whole.
        part: the place in the config that names the class.
    """
    written: Any = OmegaConf.to_container(config)
    arguments = OmegaConf.select(config, part) if re.fullmatch(r"[\w.]+", part) else None

    def full(found: re.Match[str]) -> str:
        if not isinstance(arguments, DictConfig) or found[1] not in arguments:
            return found[0]
        return f"{_said_by_user(written, [*part.split('.'), found[1]])}="

    return re.sub(r"(?<![\w./=-])(\w+)=", full, message)


def _in_words(hint: Any) -> str | None:
    """What a value must be; None for a type that YAML has no values of."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [_in_words(argument) for argument in arguments if not (argument is int and float in arguments)]
        return None if None in parts else " or ".join(dict.fromkeys(part for part in parts if part))
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return "a list" if _in_words(arguments[0]) else None
    return _SAID.get(hint)
