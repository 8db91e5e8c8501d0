"""What a config may do: it may come from a stranger, and names classes to build and variables to read."""

import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simcse_pl.errors import UserError

CONF = Path(__file__).parents[2] / "conf"
ALLOW = "allow_classes"

_OF_LIGHTNING = re.compile(r"pytorch_lightning\.(callbacks|loggers)\.[A-Z]\w*")
_OF_LOGGING = {"logging.FileHandler", "logging.Formatter", "logging.NullHandler", "logging.StreamHandler"}
_STREAMS = {"ext://sys.stdout", "ext://sys.stderr"}
_PLUGINS = {"hydra.launcher._target_", "hydra.sweeper._target_"}  # Hydra builds what is registered with it alone
_LOGGING = ("hydra.job_logging.", "hydra.hydra_logging.")
_ENVIRONMENT = ("hydra.job.env_set.", "hydra.job.env_copy.")
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


@cache
def classes_of_conf() -> frozenset[str]:
    """What the project's own configs build."""
    texts = (file.read_text(encoding="utf-8") for file in CONF.rglob("*.yaml"))
    return frozenset(name for text in texts for name in re.findall(r"_target_: *([\w.]+)", text))


def check_trust(config: DictConfig, asked_for: Collection[str], allowed: Collection[str]) -> None:
    """Refuse a config that would do more than this project's own do.

    Args:
        config: whole, Hydra's part included; nothing of it has been resolved or built.
        asked_for: the options of the command line, which are the user's own words.
        allowed: classes that the command line names in `allow_classes`.

    Raises:
        UserError: it builds what is neither of conf/, nor a callback or logger of Lightning's, nor allowed; or it sets
            variables of the environment, or copies them.
    """
    for option, value in _leaves(OmegaConf.to_container(config, resolve=False)):
        if option.startswith(_ENVIRONMENT) and not any(own.startswith("hydra.job.env_") for own in asked_for):
            raise UserError(f"{option}: a config may not set or copy the environment; say it on the command line")
        if _names_code(option, value) and not _may_be_built(option, str(value), allowed):
            raise UserError(
                f"{option}: a config may not build {value}; if you trust it, add {ALLOW}=[{value}] to the command line"
            )


def _names_code(option: str, value: Any) -> bool:
    """Whether something is looked up by this name, and called: by Hydra, or by Python's logging."""
    last = option.rpartition(".")[2]
    of_logging = option.startswith(_LOGGING) and (last in ("()", "class") or str(value).startswith("ext:"))
    return last == "_target_" or of_logging


def _may_be_built(option: str, name: str, allowed: Collection[str]) -> bool:
    if option.startswith(_LOGGING) and name in _OF_LOGGING | _STREAMS:
        return True
    own = name in classes_of_conf() or _OF_LIGHTNING.fullmatch(name) is not None
    return own or name in allowed or option in _PLUGINS


def _leaves(node: Any, option: str = "") -> Iterator[tuple[str, Any]]:
    """All values under their dotted names."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else None
    if items is None:
        yield option, node
        return
    for key, value in items:
        yield from _leaves(value, f"{option}.{key}" if option else str(key))


def keep_secrets() -> None:
    """Have `${oc.env:NAME}` refuse a variable whose name is that of a key, a token or a password.

    What a config reads goes into logs and saved options; W&B and the hub read theirs by themselves.
    """

    def read(name: str, *default: str | None) -> str | None:
        if _SECRET.search(name):
            raise UserError(f"a config reads {name} of the environment: it may be a secret, and would be saved")
        if name not in os.environ and not default:
            raise UserError(f"a config reads {name} of the environment, which is not set")
        return os.environ.get(name, *default)

    OmegaConf.register_new_resolver("oc.env", read, replace=True)
