"""The check of all options of a run: each exists, and fits the annotation of the class or function that takes it."""

import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from simcse_pl.config import CONF, walk
from simcse_pl.utils.code import expected_instead, locate
from simcse_pl.utils.errors import UserError, did_you_mean, first_line

log = logging.getLogger(__name__)
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def check_options(config: DictConfig) -> None:
    """Raise UserError unless each option of a class or function exists and fits its annotation.

    An option without a value is an error too. See `check_arguments` for the rest.
    """
    if missing := sorted(name for name, value in walk(OmegaConf.to_container(config)) if value == "???"):
        raise UserError(f"{missing[0]} is missing: add {missing[0]}=VALUE (simcse options {missing[0]} explains it)")
    if HydraConfig.initialized():
        _check_sources(HydraConfig.get())
        data = str(HydraConfig.get().runtime.choices.get("data"))
        if data in ("nli_sample", "wiki_sample") and config.data.train != config.sample:
            raise UserError(
                f"data.train: it replaces the sample of data={data}, but not its other options: add data=text"
            )
    if config.get("auxiliary") and "_target_" in config.auxiliary:
        raise UserError("auxiliary: its file must begin with `# @package auxiliary.NAME`, as losses are added by name")
    values = OmegaConf.to_container(config, resolve=True)
    types = types_without_taker()
    for path, value in walk(values):
        if path in types and (expected := expected_instead(value, types[path])):
            raise UserError(f"{path}={value!r}: it should be {expected}")
        if isinstance(value, dict) and "_target_" in value:
            check_arguments(_located(path, value["_target_"]), value, path, functools.partial(as_written, config))


def types_without_taker() -> dict[str, Any]:
    """Return the annotations of the options that no class or function takes."""
    from pydantic import NonNegativeInt, PositiveInt  # slow, and not for --help

    shared = {
        "debug": bool,
        "monitor": str,
        "seed": NonNegativeInt,
        "senteval_dir": str | None,
        "transfer.classifier": Literal["scikit-learn", "pytorch", "pytorch_fast"],
    }
    train_only = {
        "encoders": Literal["one", "two"],
        "jobs": PositiveInt | None,
        "keep_checkpoints": bool,
        "resume": str | None,
        "run_name": str | int,
        "test_tasks": str | list[str],
        "val_every": PositiveInt,
    }
    evaluate_only = {
        "aggregation": Literal["all", "mean", "wmean"],
        "batch_size": PositiveInt | None,
        "bf16": bool,
        "data.test": str | list[Any] | dict[str, Any] | None,
        "dims": list[PositiveInt],
        "fit_columns": int | str | list[int | str] | None,
        "fit_limit": PositiveInt | None,
        "fit_on": str,
        "geometry.split": Literal["all", "dev", "test"],
        "label": str | int | None,
        "mteb.languages": list[str] | None,
        "mteb.prompts": dict[str, str] | None,
        "nli": str,
        "paper": dict[Literal["table", "row"], str] | None,
        "prompt_name": str | None,
        "split": Literal["dev", "test"],
        "tasks": str | list[str] | None,
    }
    return shared | train_only | evaluate_only


def check_arguments(
    taker: Callable[..., Any], values: Mapping[str, Any], path: str, as_written: Callable[[str], str] = str
) -> None:
    """Raise UserError unless a class or function takes these values of the options at a path of the config.

    Pydantic checks them by the annotations, including ranges such as `PositiveFloat`. Annotations that YAML has no
    values for, such as an encoder, are not checked. `Annotated[Any, taker]` is the annotation of options that another
    class or function takes; of `**options`, the base class takes them otherwise, or the class that is returned.
    """
    try:
        parameters = _parameters(taker)
    except ValueError:  # a class written in C, such as datetime.timedelta
        return
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    for name in (name for name in values if not name.startswith("_")):
        if name in parameters:
            option, value, annotation = f"{path}.{name}", values[name], parameters[name].annotation
            given = value is not None or parameters[name].default is not Parameter.empty  # the command may set it
            if given and (expected := expected_instead(value, annotation, taker)):
                raise UserError(f"{as_written(option)}={value}: it should be {expected}")
            for nested in _passed_on(annotation, value, option):
                check_arguments(*nested, as_written)
        elif not takes_any:
            raise UserError(_unknown(path, name, taker, parameters, values.get("_target_")))


def _located(path: str, name: str) -> Callable[..., Any]:
    """Return the class or function of a `_target_`."""
    option = f"{path}._target_={name}"
    try:
        target = locate(name)
    except Exception as error:  # any code of the user's
        near = did_you_mean(str(error.name), dir(error.obj)) if isinstance(error, AttributeError) else ""
        raise UserError(f"{option}: {type(error).__name__}: {first_line(error)}{near}") from error
    if not callable(target):
        raise UserError(f"{option}: it must be a class or a function")
    return target  # type: ignore[no-any-return]


def _parameters(target: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters by name, with those of what takes `**options`.

    Lightning's strategies give them to torch, so any are allowed.
    """
    try:
        signature = inspect.signature(target, eval_str=True)
    except Exception:  # an annotation whose class is not imported at runtime
        signature = inspect.signature(target)
    parameters = dict(signature.parameters)
    rest = next((parameter for parameter in parameters.values() if parameter.kind is Parameter.VAR_KEYWORD), None)
    if rest is None or target.__module__.startswith("pytorch_lightning."):
        return parameters
    base = target.__mro__[1] if isinstance(target, type) else signature.return_annotation
    taker = _taker(rest.annotation) or (base if isinstance(base, type) and base is not object else None)
    if taker and (taken := _parameters(taker)):
        del parameters[rest.name]
        return taken | parameters
    return parameters


def _taker(annotation: Any) -> Callable[..., Any] | None:
    """Return the class or function of `Annotated[Any, taker]`."""
    return next(filter(callable, getattr(annotation, "__metadata__", ())), None)


def _passed_on(annotation: Any, value: Any, path: str) -> Iterator[tuple[Callable[..., Any], Any, str]]:
    """Yield the taker, the values and the path of options in a value, which may be a mapping of them."""
    if not isinstance(value, Mapping):
        return
    if taker := _taker(annotation):
        yield taker, value, path
    elif get_origin(annotation) is Mapping:
        for name, options in value.items():
            yield from _passed_on(get_args(annotation)[1], options, f"{path}.{name}")
    else:  # perhaps `Mapping | None`
        for one in get_args(annotation):
            yield from _passed_on(one, value, path)


def _unknown(path: str, name: str, taker: Any, parameters: Mapping[str, Parameter], target: str | None) -> str:
    """Say that a class does not take an option, which the user misspelt, or which another class has left behind."""
    hydra = HydraConfig.get() if HydraConfig.initialized() else None
    group = path.partition(".")[0]
    file = f"{group}/{hydra.runtime.choices.get(group)}.yaml" if hydra else ""
    text = (CONF / file).read_text("utf-8") if (CONF / file).is_file() else ""
    if (usual := re.search(r"^_target_: (\S+)", text, re.M)) and target not in (None, usual[1]):
        return (
            f"{path}._target_={target}: it has no option {name}, which is left from conf/{file}: write the options of "
            f"your class to my_conf/{group}/NAME.yaml, and choose it by --config-dir my_conf {group}=NAME"
        )
    near = did_you_mean(name, parameters) or f" of {target or taker.__qualname__}"
    return f"no option {path}.{name}{near} (simcse options {path})"


def _check_sources(hydra: Any) -> None:
    """Raise UserError if Hydra would silently ignore an option that + adds, or a file in --config-dir."""
    choices, given = hydra.runtime.choices, [option.partition("=")[0] for option in hydra.overrides.task]
    if choices.get("setting") and choices.data == "nli_sample" and "data" not in given:
        hint = "add data=wiki, data=nli or data=text data.train=FILE; in a config, override /data, too"
        raise UserError(f"setting={choices.setting}: no data is chosen: {hint}")
    model_options = [name for name in given if name.startswith(("model", "method", "experiment"))]
    if model_options == ["model.name"] and choices.model != "checkpoint":
        warning = f"model.name: its pooling and length are those of model={choices.model}: add model=checkpoint"
        log.warning(warning)
    if choices.get("data") == "nli" and choices.get("setting") == "unsupervised" and "setting" not in given:
        values = "setting=supervised sets those of pairs, except for what the method sets itself"
        log.warning(f"data=nli: the values are those of unsupervised training: {values}")
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


def as_written(config: DictConfig, option: str) -> str:
    """Return the name of an option, or of the option that its value refers to: val_every, data.batch_size."""
    for path, value in walk(OmegaConf.to_container(config)):
        if f"{option}.".startswith(f"{path}.") and (reference := _REFERENCE.fullmatch(str(value))):
            return reference[1] + option[len(path) :]
    return option
