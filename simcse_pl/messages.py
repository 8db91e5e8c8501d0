"""Messages for errors of Hydra, and of the classes that it makes, which name options as the user writes them."""

import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from hydra.errors import HydraException, InstantiationException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simcse_pl.config import walk
from simcse_pl.option_checks import as_written
from simcse_pl.utils.code import optional
from simcse_pl.utils.errors import UserError, did_you_mean, exception_chain, first_line
from simcse_pl.utils.terminal import hydra_option

_CONFIG_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError)
_REPLACED = (  # options of earlier versions and of other libraries, as regular expressions
    (r"setting=mlm", "experiment=mlm"),
    (r"(?:trainer\.)?accumulate_grad_batches", "module.chunk_size"),
)


def message_of_class(error: Exception, config: DictConfig | None) -> str | None:
    """Return the message of an error of a class, with the full names of options; None for other errors."""
    cause, path = error.__cause__, str(error).rpartition("full_key: ")[2]
    if config is None and (first := next((each for each in exception_chain(error) if type(each) is UserError), None)):
        return str(first)  # from a resolver
    if config is not None and type(error) is UserError:
        return name_in_full(str(error), config)
    if config is not None and isinstance(cause, UserError):
        return name_in_full(str(cause), config, path)
    if isinstance(error, InstantiationException) and "'simcse_pl." not in first_line(error):
        return f"{path}: {first_line(cause or error)}"
    return None


def message_of_hydra(error: Exception, command: str, given: Sequence[str]) -> str | None:
    """Return a message for an option or a choice that Hydra does not know or cannot read; None for other errors."""
    if isinstance(error, InstantiationException) or not isinstance(error, _CONFIG_ERRORS):
        return None
    text = " ".join(str(error).split()).partition(" See https")[0].partition(" Config search path")[0]
    if isinstance(error, OverrideParseException):
        name, assigned, value = error.override.partition("=")
        if not assigned and Path(name).is_file():
            return f"{name}: to train on a file, write data=text data.train={name}"
        if not assigned:
            return f"'{name}' is no option, which is NAME=VALUE; if it is a variable of the shell, set it"
        return f"{text.partition(' See ')[0]}; if it is one text, write {hydra_option(name, value)}"
    if group := re.match(r"Error resolving interpolation '\${(\w+)}", text):
        return f"{group[1]}: give one choice, no list or null; without the option there is none"
    if lacking := re.match(r"Interpolation key '([\w.]+)' not found.* full_key: ([\w.]+)", text):
        return f"{lacking[2]}: it has the value of {lacking[1]}, which this run does not have: give {lacking[2]}=VALUE"
    if missing := re.search(r"Could not find '([\w/]+)/(\w+)' Available options in '\1': (.*)", text):
        option, names = f"{missing[1]}={missing[2]}", missing[3].split()
        hint = _replacement(option) or did_you_mean(missing[2], names)
        has = f"{missing[1]} has {', '.join(names)}; --config-dir FOLDER adds your own"
        return f"{option}: there is no such choice{hint} ({has})"
    if unknown := re.match(r"Could not override '([\w.]+)'", text):
        name, key = unknown[1], str(getattr(error.__cause__, "full_key", ""))
        name = key if key.startswith(f"{name}.") else name  # of a mapping that is given
        hint = _replacement(name) or optional("tools.options.instead")(name, command, given)
        return f"no option {name}{hint} (simcse options {name} finds more)"
    return text


def name_in_full(message: str, config: DictConfig, class_path: str = "") -> str:
    """Return the message of a class that begins with an option, with its full name: `model.pooling=` for `pooling=`.

    `class_path` is where the config has the class. If it is empty, the option of this name is meant, if only one class
    and not the whole config has it.
    """
    name = (re.match(r"\w*(?=[=:])", message) or [""])[0]
    options = [path for path, _ in walk(OmegaConf.to_container(config)) if path.endswith(f"{class_path}.{name}")]
    options = [path for path in options if not path.startswith(("sweep.", "search."))]
    if not name or len(options) != 1 or (not class_path and name in config):
        return message
    return as_written(config, options[0]) + message[len(name) :]


def _replacement(option: str) -> str:
    """Return what replaced an option, as the end of a message; empty if nothing did."""
    return next((f"; write {re.sub(old, new, option)}" for old, new in _REPLACED if re.fullmatch(old, option)), "")
