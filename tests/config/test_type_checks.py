"""Options against the type annotations of the code that takes them."""

import re

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

from simcse_pl.config import CONF
from simcse_pl.config.type_checks import _hints, check_types, source_hints
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.trainer import make_trainer
from simcse_pl.utils.errors import UserError

INTEGER = "a valid integer"


def part(taker, **values):
    """Return a config with a part that this class or function takes."""
    return OmegaConf.create({"part": {"_target_": f"{taker.__module__}.{taker.__qualname__}", **values}})


@pytest.mark.parametrize(
    ("taker", "name", "value", "needed"),
    [
        (TrainingSet, "batch_size", "64", INTEGER),
        (TrainingSet, "batch_size", True, INTEGER),
        (TrainingSet, "batch_size", None, INTEGER),
        (TrainingSet, "columns", "sent0", "a list"),
        (TrainingSet, "columns", [1.5], f"{INTEGER} or a valid string"),
        (SentenceDataModule, "train", 3, "a valid string"),
        (SentenceEncoder.from_pretrained, "max_length", "low", INTEGER),
        (make_trainer, "max_epochs", "three", INTEGER),
        (make_trainer, "accelerator", 3, "a valid string"),  # an argument of the class that it returns
    ],
)
def test_a_value_of_another_type_is_an_error(taker, name, value, needed):
    with pytest.raises(UserError) as error:
        check_types(part(taker, **{name: value}))
    assert str(error.value) == f"part.{name}={value}: it must be {needed}"


@pytest.mark.parametrize(
    ("taker", "values"),
    [
        (TrainingSet, {"train": "a", "batch_size": 64, "limit": None, "columns": ["sent0", 1], "header": False}),
        (TrainingSet, {"train": "a", "views": {"_target_": "simcse_pl.data.views.sentences.Dropout"}}),
        (SentenceEncoder.from_pretrained, {"dropout": 0, "max_length": 32}),
        (make_trainer, {"devices": [0, 1], "precision": "bf16-mixed", "max_epochs": None}),
        (make_trainer, {"devices": "auto", "strategy": "ddp", "gradient_clip_val": 1}),
    ],
)
def test_values_that_fit_or_cannot_be_checked_pass(taker, values):
    check_types(part(taker, **values))


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("targets.losses.MyLos", "targets.losses has no MyLos; did you mean MyLoss?"),
        ("targets.loses.MyLoss", "targets has no loses; did you mean losses?"),
        ("targets.losses.Other", "targets.losses has no Other"),
        ("targets.losses.MyLoss.made", "it cannot be imported: type object 'MyLoss' has no attribute 'made'"),
        ("targets.broken.MyLoss", "it cannot be imported: No module named 'json.missing'"),
        ("target.losses.MyLoss", "it cannot be imported: No module named 'target'"),
        ("targets.losses", "it must be a class or a function"),
    ],
)
def test_a_target_that_does_not_exist_is_an_error_with_the_nearest_name(target, why, tmp_path, monkeypatch):
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "losses.py").write_text("class MyLoss: pass\n")
    (tmp_path / "targets" / "broken.py").write_text("import json.missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as error:
        check_types(OmegaConf.create({"part": {"_target_": target}}))
    assert str(error.value) == f"part._target_={target}: {why}"


SEEDS = {"_target_": "simcse_pl.training.callbacks.SeedEveryStep"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"views": {"a": SEEDS | {"seed": "b"}}, "data": {"views": "${views}"}},
            "views.a.seed=b: it must be a valid integer",
        ),
        ({"seed": "abc", "callbacks": {"seeds": SEEDS | {"seed": "${seed}"}}}, "seed=abc: it must be a valid integer"),
        ({"plugins": [SEEDS | {"seed": "abc"}]}, "plugins.0.seed=abc: it must be a valid integer"),
        (
            {"objective": {"_target_": "simcse_pl.losses.negatives.GaussianNegatives", "mask_duplicates": "x"}},
            "objective.mask_duplicates=x: it must be true or false",
        ),
        (
            {"objective": {"_target_": "simcse_pl.losses.negatives.GaussianNegatives", "temprature": 1}},
            r"no option objective.temprature; did you mean temperature\? \(--help lists all\)",
        ),
    ],
)
def test_a_message_names_the_option_as_the_user_writes_it(config, message):
    with pytest.raises(UserError, match=f"^{message}$"):
        check_types(OmegaConf.create(config))


def test_annotations_read_from_the_source_are_those_of_the_imported_class():
    texts = [path.read_text(encoding="utf-8") for path in CONF.rglob("*.yaml")]
    targets = {target for text in texts for target in re.findall(r"_target_: (simcse_pl[\w.]+)", text)}
    read = {target: source_hints(target) for target in targets}
    assert len(targets) > 60 and sum(map(bool, read.values())) > 40
    for target, found in read.items():
        hints = _hints(get_object(target))
        assert found == {name: hints.get(name) for name in found}, target
    assert source_hints("torch.optim.AdamW") == source_hints("simcse_pl.nothing") == source_hints("simcse_pl") == {}
