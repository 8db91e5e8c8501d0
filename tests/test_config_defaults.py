"""The config of an objective, auxiliary loss, view or post-processing has the arguments of its class."""

from inspect import Parameter, signature

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from simcse_pl.config.options import check_options
from simcse_pl.data.views.view import View
from simcse_pl.utils.errors import UserError
from tests.helpers import composed
from tests.test_config import MISSING, of

KINDS = [(group, choice) for group in ("objective", "auxiliary", "views") for choice in of(group)]
KINDS += [("postprocess", choice) for choice in of("postprocess") if choice not in ("none", "saved")]
OTHER_VALUES = {  # than the default: those of a method, and of the whole config
    *(
        ("mlm", "weight"),
        ("mlm", "anchors_only"),
        ("ranking_distillation", "pooling"),
        ("replaced_token_detection", "generator"),
    ),
    *(("next_3_sentences", "n"), ("synonym", "wordnet"), ("flow", "seed"), ("flow", "progress")),
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
        assert defaults[name] in (Parameter.empty, value) or (choice, name) in OTHER_VALUES, name


def test_each_objective_has_its_own_class():
    assert len({kind_of("objective", choice)[0] for choice in of("objective")}) == len(of("objective"))


@pytest.mark.parametrize(("group", "choice"), [own for own in KINDS if own[0] in ("objective", "auxiliary")])
def test_weights_and_margins_below_0_and_temperatures_of_0_are_errors_with_the_options_name(group, choice):
    kind, values = kind_of(group, choice)
    place = "objective" if group == "objective" else f"auxiliary.{choice}"
    for name in values:
        if name.endswith(("weight", "temperature", "margin")):
            value = 0 if name.endswith("temperature") else -1
            target = {"_target_": f"{kind.__module__}.{kind.__qualname__}"}
            config = OmegaConf.create({})
            OmegaConf.update(config, place, target | values | {name: value})
            with pytest.raises(UserError, match=f"^{place}.{name}={value}: it should be greater than "):
                check_options(config)
