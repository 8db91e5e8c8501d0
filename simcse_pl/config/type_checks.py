"""Check options against the type annotations of the code that takes them."""

import ast
import dataclasses
import functools
import inspect
import json
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from hydra._internal.utils import _locate
from omegaconf import DictConfig, OmegaConf
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from simcse_pl.results.metrics import Aggregation
from simcse_pl.utils.errors import UserError, did_you_mean, first_line
from simcse_pl.utils.validation import expected_types

_ROOT = Path(__file__).parents[2]
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


@dataclass
class Options:
    """The options of conf/train.yaml and conf/evaluate.yaml that are not arguments of a class."""

    encoders: Literal["one", "two"]
    objectives: Mapping[str, Any]
    test_tasks: Sequence[str] | str
    tasks: Sequence[str] | str | None
    split: Literal["dev", "test"]
    regressor: bool
    transfer: Mapping[str, Any]
    geometry: Mapping[str, Any]
    aggregation: Aggregation
    senteval_dir: str | None
    data: Mapping[str, Any]
    dims: Sequence[int]
    retrieval: Mapping[str, Any]
    fit_on: str
    fit_columns: Sequence[int | str] | int | str | None
    fit_limit: int | None
    nli: str
    label: str | None
    paper: Mapping[str, Any] | None
    batch_size: int | None
    bf16: bool
    seed: int
    resume: str | None
    debug: bool
    run_name: str
    wandb: Mapping[str, Any]


def check_types(config: DictConfig) -> None:
    """Raise UserError unless every option exists and has the type that its class or function annotates.

    Annotations that YAML has no values for, such as an encoder, are not checked.
    """
    written: Any = OmegaConf.to_container(config)
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    _check_values(_hints(Options), resolved, written, ())
    for place, node in _parts(resolved):
        _check_values(source_hints(str(node["_target_"])), node, written, place)  # before torch is imported
    for place, node in _parts(resolved):
        target = _imported(node["_target_"], ".".join(map(str, place)))
        base = _base_for_further_options(target)
        parameters = {**(inspect.signature(base).parameters if base else {}), **inspect.signature(target).parameters}
        for name in node:
            if (base or not _takes_any(target)) and name not in parameters and not str(name).startswith("_"):
                option = ".".join(map(str, [*place, name]))
                near = did_you_mean(str(name), parameters) or f" of {node['_target_']}"
                raise UserError(f"no option {option}{near} (--help lists all)")
        required = [name for name, own in inspect.signature(target).parameters.items() if own.default is own.empty]
        # the command builds the class only if the option is set
        node = {name: value for name, value in node.items() if value is not None or name not in required}
        _check_values(_hints(target), node, written, place)


@functools.cache
def source_hints(target: str) -> dict[str, Any]:
    """Return the annotations of the arguments of a class or function of this project, without importing it.

    Only annotations of Python's own types are returned, of arguments that have a default.
    """
    package, *names = target.split(".")
    modules = (Path(package, *names[:end]).with_suffix(".py") for end in range(len(names) - 1, 0, -1))
    found = next((path for path in modules if (_ROOT / path).is_file()), None)
    if found is None:
        return {}
    node: ast.AST = ast.parse((_ROOT / found).read_text(encoding="utf-8"))
    for name in [*names[len(found.parts) - 1 :], "__init__"]:
        inner = [own for own in ast.iter_child_nodes(node) if getattr(own, "name", None) == name]
        if not inner and name != "__init__":  # inherited
            return {}
        node = inner[0] if inner else node
    if not isinstance(node, ast.FunctionDef):
        return {}
    arguments = [*node.args.args[len(node.args.args) - len(node.args.defaults) :], *node.args.kwonlyargs]
    hints = {}
    for argument in arguments:
        with suppress(NameError, TypeError, AttributeError):
            written = ast.unparse(argument.annotation) if argument.annotation else "Any"
            hints[argument.arg] = eval(written, {"Any": Any, "Mapping": Mapping, "Sequence": Sequence, "Path": Path})
    return hints


def _imported(target: str, place: str) -> Any:
    try:
        found = _locate(target)  # get_object would log the error too
    except (ImportError, ValueError) as error:
        raise UserError(f"{place}._target_={target}: {_why_not(error.__cause__ or error, target)}") from error
    if not callable(found):
        raise UserError(f"{place}._target_={target}: it must be a class or a function")
    return found


def _why_not(error: BaseException, target: str) -> str:
    """Return why a target cannot be imported. If a module has no such name, return the nearest names too."""
    missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    owner, _, name = missing.rpartition(".")
    if not owner or not f"{target}.".startswith(f"{missing}."):  # an import inside the target's own file may fail
        return f"it cannot be imported: {first_line(error)}"
    module = _locate(owner)
    modules = (own.name for own in pkgutil.iter_modules(getattr(module, "__path__", ())))
    return f"{owner} has no {name}{did_you_mean(name, dict.fromkeys([*dir(module), *modules]))}"


def _check_values(hints: Mapping[str, Any], values: Mapping[Any, Any], written: Any, place: Sequence[Any]) -> None:
    for name, hint in hints.items():
        if name not in values:
            continue
        if isinstance(values[name], Mapping) and "_target_" in values[name]:
            continue
        try:
            # As JSON, because there a list can be a tuple, and a string a path.
            TypeAdapter(hint).validate_json(json.dumps(values[name], default=str), strict=True)
        except PydanticUserError:  # the annotation is a class, which cannot be checked
            continue
        except ValidationError as error:
            option = f"{_option_name(written, [*place, name])}={values[name]}"
            raise UserError(f"{option}: it must be {expected_types(error.errors())}") from error


def _hints(taker: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of the arguments. `**kwargs` are arguments of the base class or of the returned class."""
    if inspect.isclass(taker):
        base = _base_for_further_options(taker)
        # a dataclass may inherit fields whose types only its base's module knows
        own = taker if dataclasses.is_dataclass(taker) else taker.__init__
        return (_hints(base) if base else {}) | typing.get_type_hints(own)
    hints = typing.get_type_hints(taker)
    returned = hints.pop("return", None)
    further = _takes_any(taker) and inspect.isclass(returned) and returned is not NoneType
    return _hints(returned) | hints if further else hints


def _base_for_further_options(taker: Callable[..., Any]) -> type | None:
    """Return the base class that takes the `**kwargs` of a class; None if no class has names for them."""
    if not inspect.isclass(taker) or not _takes_any(taker) or _takes_any(taker.__mro__[1]):
        return None
    return taker.__mro__[1] if inspect.signature(taker.__mro__[1]).parameters else None


def _takes_any(taker: Callable[..., Any]) -> bool:
    """Return whether a function has `**kwargs`."""
    return any(one.kind == one.VAR_KEYWORD for one in inspect.signature(taker).parameters.values())


def _parts(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield every node of a config that has a `_target_`, with its place."""
    if isinstance(node, dict) and "_target_" in node:
        in_row = place[:2] == ("sweep", "rows")  # null leaves an option out of the row
        yield place, {name: value for name, value in node.items() if not (in_row and value is None)}
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from _parts(value, (*place, key))


def _option_name(written: Any, place: Sequence[Any]) -> str:
    """Return the name of an option, or of the option that its value refers to."""
    value = written
    for depth, key in enumerate(place, 1):
        value = value[key]
        if isinstance(value, str) and (reference := _REFERENCE.fullmatch(value)):
            return ".".join([reference[1], *map(str, place[depth:])])
    return ".".join(map(str, place))


def named_in_full(message: str, config: DictConfig, part: str) -> str:
    """Return the message of the class at `part` with full names of options: `model.pooling=` for `pooling=`."""
    written: Any = OmegaConf.to_container(config)
    node = OmegaConf.select(config, part) if re.fullmatch(r"[\w.]+", part) else None
    arguments = node if isinstance(node, DictConfig) else ()

    def full(found: re.Match[str]) -> str:
        return f"{_option_name(written, [*part.split('.'), found[1]])}=" if found[1] in arguments else found[0]

    return re.sub(r"(?<![\w./=-])(\w+)=", full, message)
