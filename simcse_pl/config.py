"""The config of a run: its folder, the resolvers of conf/, the rows of a sweep, and the check of all options.

A row is a set of options, which is applied to the config of a job. A sweep of a table of the paper names its rows like
the table, and lists the options of each:

    sweep:
      rows:
        0.1: {model: {dropout: 0.1}}
        fixed 0.1: {model: {dropout: 0.1}, module: {shared_dropout_mask: true}}

Hydra's sweeper runs the rows by name, as values of the option `sweep.row`.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from simcse_pl.moved import present_name
from simcse_pl.runs import run_label
from simcse_pl.utils.code import locate
from simcse_pl.utils.errors import UserError, did_you_mean, first_line
from simcse_pl.utils.files import cache_folder

_PACKAGE = Path(__file__).parent
# A wheel contains the configs; in a clone they are beside the package.
_IN_WHEEL = _PACKAGE / "conf"
CONF = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent / "conf"
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_CLASSES_TOO = ConfigDict(arbitrary_types_allowed=True)


def with_row(config: DictConfig) -> DictConfig:
    """Return the config with the options of the job's row, or unchanged if it has no rows.

    Raises:
        UserError: the row does not exist, or has an option without a value.
    """
    sweep = config.get("sweep")
    if not sweep or not sweep.get("rows"):
        return config
    rows = {str(name): name for name in sweep.rows}
    if str(sweep.row) not in rows:
        raise UserError(f"sweep.row={sweep.row}: choose one of {', '.join(rows)}; -m runs them all")
    row = sweep.rows[rows[str(sweep.row)]]
    resolved: Any = OmegaConf.to_container(row, resolve=True)
    for option in lacking(resolved):
        raise UserError(f"sweep.row={sweep.row}: {option} has no value; see what the row needs in conf/sweep/")
    config = with_values(config, OmegaConf.to_container(row))
    config.sweep.rows = {}  # the other rows do not belong to this run
    return config


def with_values(config: DictConfig, values: Any) -> DictConfig:
    """Return a copy of a config with other values for some options; OmegaConf raises an error for an unknown option.

    Args:
        config: the config, which is not changed.
        values: a mapping, nested like the config. A node with a `_target_` replaces the config's node.
    """
    config = config.copy()
    OmegaConf.set_struct(config, True)
    _set(config, values)
    return config


def _set(node: DictConfig, values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping) and "_target_" not in value and OmegaConf.is_dict(node[name]):
            _set(node[name], value)
        else:
            node[name] = value


def row_names(_root_: DictConfig) -> str:
    """Return the rows of a sweep as values of `sweep.row`, without rows that have an option set to null."""
    rows: Any = OmegaConf.to_container(_root_.sweep.rows, resolve=True)
    return ",".join(f"'{name}'" for name, values in rows.items() if not any(lacking(values)))


def lacking(values: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield the options that a row sets to null."""
    for name, value in values.items():
        if value is None:
            yield f"{place}{name}"
        elif isinstance(value, Mapping):
            yield from lacking(value, f"{place}{name}.")


def in_sweep() -> bool:
    """Return whether this process runs a job of a sweep."""
    return HydraConfig.initialized() and not OmegaConf.is_missing(HydraConfig.get().job, "num")


def sweep_group(_root_: DictConfig) -> str | None:
    """Return the W&B group of a sweep: its table and its folder; None for a single run."""
    if not in_sweep():
        return None
    table = OmegaConf.select(_root_, "sweep.table")
    return " ".join(part for part in (table, Path(HydraConfig.get().sweep.dir).name) if part)


def job_name(_root_: DictConfig) -> str:
    """Return the name of a run in W&B: its folder; in a sweep, `run_name` and the options that differ between jobs."""
    if not in_sweep():
        return run_label(Path(_root_.run_dir))
    hydra = HydraConfig.get()
    multirun = Path(hydra.sweep.dir) / "multirun.yaml"  # Hydra's sweeper writes the options of all jobs here
    given = OmegaConf.load(multirun).hydra.overrides.task if multirun.is_file() else []
    options = (option.replace("'", "") for option in hydra.overrides.task if option not in given)
    return " ".join([str(_root_.run_name), *options])


def check_options(config: DictConfig) -> None:
    """Raise UserError unless each option of a class or function exists and fits its annotation.

    Pydantic checks the values, including ranges such as `PositiveFloat`. Annotations that YAML has no values for, such
    as an encoder, are not checked. An option without a value is an error too.
    """
    if missing := sorted(OmegaConf.missing_keys(config)):
        raise UserError(f"{missing[0]} is missing: add {missing[0]}=VALUE (simcse options {missing[0]} explains it)")
    if HydraConfig.initialized():
        _check_sources(HydraConfig.get())
    for place, node in walk(OmegaConf.to_container(config, resolve=True)):
        if not isinstance(node, dict) or "_target_" not in node:
            continue
        option = f"{place}._target_={node['_target_']}"
        try:
            target = locate(node["_target_"])
        except Exception as error:  # any code of the user's
            present = present_name(node["_target_"])
            near = f"; it is now {present}" if present != node["_target_"] else ""
            if isinstance(error, AttributeError) and not near:
                near = did_you_mean(str(error.name), dir(error.obj))
            raise UserError(f"{option}: {type(error).__name__}: {first_line(error)}{near}") from error
        if not callable(target):
            raise UserError(f"{option}: it must be a class or a function")
        try:
            parameters = _parameters(target)
        except ValueError:  # a class written in C, such as datetime.timedelta
            continue
        for name in (name for name in node if not name.startswith("_")):
            if name in parameters:
                _check_value(config, f"{place}.{name}", node[name], parameters[name])
            elif not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
                raise UserError(_unknown(place, name, node["_target_"], parameters))


def walk(node: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of all options of a config, and of their own options."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield f"{place}{key}", value
        yield from walk(value, f"{place}{key}.")


def _parameters(target: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters by name; for `**kwargs`, those of the base class, or of the class that is returned.

    Lightning's strategies give them to torch instead, so any are allowed.
    """
    try:
        signature = inspect.signature(target, eval_str=True)
    except Exception:  # an annotation whose class is not imported at runtime
        signature = inspect.signature(target)
    parameters = dict(signature.parameters)
    if target.__module__.startswith("pytorch_lightning."):
        return parameters
    further = next((name for name, parameter in parameters.items() if parameter.kind is Parameter.VAR_KEYWORD), None)
    base = target.__mro__[1] if isinstance(target, type) else signature.return_annotation
    if further and isinstance(base, type) and base is not object and (of_base := _parameters(base)):
        del parameters[further]
        return of_base | parameters
    return parameters


def _check_value(config: DictConfig, option: str, value: Any, parameter: Parameter) -> None:
    as_json = json.dumps(value, default=str)  # there a list can be a tuple, and a string a path
    if '"_target_":' in as_json or parameter.annotation is Parameter.empty:
        return
    if value is None and parameter.default is Parameter.empty:
        return  # the command builds the class only if the option is set
    try:
        TypeAdapter(parameter.annotation, config=_CLASSES_TOO).validate_json(as_json, strict=True)
    except (PydanticUserError, NameError):  # pydantic cannot read the annotation
        return
    except ValidationError as error:
        problems = [problem for problem in error.errors() if problem["type"] != "needs_python_object"]
        if not problems:
            return  # the annotation is a class
        expected = " or ".join(dict.fromkeys(problem["msg"].removeprefix("Input should be ") for problem in problems))
        raise UserError(f"{_as_written(config, option)}={value}: it should be {expected}") from error


def _unknown(place: str, name: str, target: str, parameters: Mapping[str, Parameter]) -> str:
    """Say that a class does not take an option, which the user misspelt, or which another class has left behind."""
    hydra = HydraConfig.get() if HydraConfig.initialized() else None
    group = place.partition(".")[0]
    file = f"{group}/{hydra.runtime.choices.get(group)}.yaml" if hydra else ""
    if (CONF / file).is_file() and target not in (CONF / file).read_text("utf-8"):
        return (
            f"{place}._target_={target}: it has no option {name}, which is left from conf/{file}: write the options of "
            f"your class to my_conf/{group}/NAME.yaml, and choose it by --config-dir my_conf {group}=NAME"
        )
    return f"no option {place}.{name}{did_you_mean(name, parameters) or f' of {target}'} (simcse options {place})"


def _check_sources(hydra: Any) -> None:
    """Raise UserError if Hydra would silently ignore an option that + adds, or a file in --config-dir."""
    choices, given = hydra.runtime.choices, [option.partition("=")[0] for option in hydra.overrides.task]
    if choices.get("setting") and choices.data == "nli_sample" and "data" not in given:
        hint = "add data=wiki, data=nli or data=text data.train=FILE; in a config, override /data, too"
        raise UserError(f"setting={choices.setting}: no data is chosen: {hint}")
    known = {*OmegaConf.load(CONF / f"{hydra.job.config_name}.yaml"), *(path.stem for path in CONF.iterdir()), "search"}
    for option in hydra.overrides.task:
        if option.startswith("run_dir="):
            raise UserError(f"{option}: run_dir follows hydra.run.dir: set hydra.run.dir={option[8:]}")
        top = re.split(r"[.@=]", option.lstrip("+"))[0]
        if option.startswith("+") and "/" not in top and top not in known:
            raise UserError(f"{option}: no code reads {top}{did_you_mean(top, known)}")
    for source in hydra.runtime.config_sources:
        for file in Path(source.path).rglob("*.yaml") if source.provider == "command-line" else ():
            other = CONF / file.relative_to(source.path)
            if other.is_file() and not other.samefile(file):
                raise UserError(f"{file}: the project has a config of this name, which would be used; rename yours")


def name_in_full(message: str, config: DictConfig, place: str = "") -> str:
    """Return the message of a class that begins with an option, with its full name: `model.pooling=` for `pooling=`.

    `place` is the path of the class in the config. If it is empty, the option of this name is meant, if only one class
    and not the whole config has it.
    """
    name = (re.match(r"\w*(?=[=:])", message) or [""])[0]
    options = [path for path, _ in walk(OmegaConf.to_container(config)) if path.endswith(f"{place}.{name}")]
    if not name or len(options) != 1 or (not place and name in config):
        return message
    return _as_written(config, options[0]) + message[len(name) :]


def _as_written(config: DictConfig, option: str) -> str:
    """Return the name of an option, or of the option that its value refers to: val_every, data.batch_size."""
    for path, value in walk(OmegaConf.to_container(config)):
        if f"{option}.".startswith(f"{path}.") and (reference := _REFERENCE.fullmatch(str(value))):
            return reference[1] + option[len(path) :]
    return option


for _resolver in (cache_folder, job_name, row_names, sweep_group):
    OmegaConf.register_new_resolver(_resolver.__name__, _resolver, replace=True)
