"""The config of an objective, auxiliary loss, view or post-processing has the arguments of its class."""

from inspect import Parameter, isfunction, signature

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from simcse_pl.data.views.view import View
from tests.helpers import composed
from tests.test_config import MISSING, of

KINDS = [(group, choice) for group in ("objective", "auxiliary", "views") for choice in of(group)]
KINDS += [("postprocess", choice) for choice in of("postprocess") if choice not in ("none", "saved")]
OTHER_VALUES = {  # than the default: those of a method, and of the whole config
    *(("mlm", "weight"), ("mlm", "anchors_only"), ("replaced_token_detection", "generator")),
    *(("ranking_distillation", "pooling"), ("next_3_sentences", "n"), ("synonym", "wordnet")),
    *(("flow", "seed"), ("flow", "progress")),
}


LEFT_OUT = {"auxiliary": {"anchors_only"}}


def kind_of(group, choice):
    """Return the class that a config names, and the arguments that it has."""
    command = "evaluate" if group == "postprocess" else "train"
    given = ["encoder=folder"] if command == "evaluate" else MISSING.get(choice, [])
    own = composed(f"{group}={choice}", *given, config=command)[group]
    values = OmegaConf.to_container(own[choice] if group in ("auxiliary", "views") else own, resolve=True)
    return get_class(values.pop("_target_")), values


def defaults_of(kind):
    """Return the arguments of a class with their defaults, and those of its base if it passes them on."""
    found = {}
    for own in kind.__mro__:
        parameters = signature(own).parameters.values()
        found = {one.name: one.default for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD} | found
        if all(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters):
            break
    return found


@pytest.mark.parametrize(("group", "choice"), KINDS)
def test_a_config_has_all_arguments_of_its_class_with_their_defaults(group, choice):
    kind, values = kind_of(group, choice)
    assert issubclass(kind, View) if group == "views" else getattr(kind, "name", choice) == choice
    defaults = defaults_of(kind)
    assert values.keys() == defaults.keys() - LEFT_OUT.get(group, set())
    for name, value in values.items():
        default = defaults[name]
        if isfunction(default):
            default = {"_target_": f"{default.__module__}.{default.__name__}", "_partial_": True}
        assert default in (Parameter.empty, value) or (choice, name) in OTHER_VALUES, name
