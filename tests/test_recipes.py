"""Recipes have the published values, which recipes.yaml records."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from simcse_pl.config import CONF
from simcse_pl.config.options import check_options
from tests.conftest import ROOT
from tests.helpers import composed

RECORDED = yaml.safe_load(Path(__file__).with_name("recipes.yaml").read_text())
MODELS, SHARED = RECORDED.pop("models"), RECORDED.pop("shared")
RECIPES = [(method, model) for method, recorded in RECORDED.items() for model in recorded if model in MODELS]
SETTINGS = [("unsup", "bert_base"), ("sup", "bert_base"), ("sup", "roberta_base")]


def assert_has_published_values(config, method, model):
    of_method, of_model = RECORDED[method].get("all", {}), RECORDED[method][model]
    expected = {"model.name": MODELS[model]} | SHARED | of_method | of_model
    for option, value in expected.items():
        assert OmegaConf.select(config, option) == value, option
    auxiliary = {option.split(".")[1] for option in expected if option.startswith("auxiliary.")}
    assert {*config.get("auxiliary", {})} == auxiliary


@pytest.mark.parametrize(("method", "model"), RECIPES, ids="_".join)
def test_a_recipe_has_the_published_values(method, model):
    """The recipe of the smallest model is the method itself."""
    options = [f"experiment={method}_{model}"]
    if not (CONF / "experiment" / f"{method}_{model}.yaml").exists():
        options = [f"method={method.removesuffix('_nli')}", f"model={model.removesuffix('_base')}"]
    config = composed(*options)
    assert_has_published_values(config, method, model)
    check_options(config)


@pytest.mark.parametrize(("setting", "model"), SETTINGS)
def test_settings_have_the_values_of_base_models(setting, model):
    config = composed(f"setting={setting}ervised", f"model={model.removesuffix('_base')}")
    assert_has_published_values(config, setting, model)


def test_a_sweep_of_an_experiment_has_its_values():
    config = composed("sweep=table_3_dropout", "experiment=unsup_roberta_large")
    assert_has_published_values(config, "unsup", "roberta_large")


@pytest.mark.parametrize("options", ["experiment=prompteol_opt_125m", "method=promptbert model=bert"])
def test_the_prompt_of_a_recipe_is_in_the_documentation(options):
    text = (ROOT / "docs" / "prompts.md").read_text()
    printed = [shlex.split(option)[0] for option in re.findall(r"'model\.template=[^']*'", text)]
    values = [override.value() for override in OverridesParser.create().parse_overrides(printed)]
    assert composed(*options.split()).model.template in values


def test_sncse_parses_sentences_in_its_recipes_only():
    parsing = {"views": {"negation": {"spacy_model": "en_core_web_sm"}}, "data": {"num_workers": 4}}
    assert OmegaConf.merge(composed("method=sncse", "model=bert"), parsing) == composed("experiment=sncse_bert_base")
