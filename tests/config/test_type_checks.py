"""Values of another type than what they are given to asks for."""

import pytest
from omegaconf import OmegaConf

from simcse_pl.config.type_checks import check_types, wrong_values
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.trainer import make_trainer
from simcse_pl.utils.errors import UserError

WHOLE, NUMBER, BOTH = "a whole number", "a number", "true or false"


@pytest.mark.parametrize(
    ("made", "name", "value", "said"),
    [
        (SentenceDataModule, "batch_size", "abc", WHOLE),
        (SentenceDataModule, "batch_size", "64", WHOLE),
        (SentenceDataModule, "batch_size", 4.5, WHOLE),
        (SentenceDataModule, "batch_size", True, WHOLE),
        (SentenceDataModule, "batch_size", None, WHOLE),
        (SentenceDataModule, "limit", "all", f"{WHOLE} or null"),
        (SentenceDataModule, "header", "no", f"{BOTH} or null"),
        (SentenceDataModule, "columns", "sent0", "a list or null"),
        (SentenceDataModule, "columns", [1.5], "a list or null"),
        (SentenceDataModule, "train", 3, "text (put numbers in quotes) or a path"),
        (SentenceEncoder.from_pretrained, "dropout", "low", f"{NUMBER} or null"),
        (SimCSEModule, "chunk_size", [3], f"{WHOLE} or null"),
        (make_trainer, "max_epochs", "three", f"{WHOLE} or null"),
        (make_trainer, "accelerator", 3, "text (put numbers in quotes)"),
    ],
)
def test_a_value_of_another_type_is_told_in_words(made, name, value, said):
    assert list(wrong_values(made, {name: value})) == [(name, said)]


@pytest.mark.parametrize(
    ("made", "values"),
    [
        (SentenceDataModule, {"batch_size": 64, "limit": None, "columns": ["sent0", 1], "header": False}),
        (SentenceDataModule, {"train": None, "view": {"_target_": "x"}, "nothing": object()}),
        (SentenceEncoder.from_pretrained, {"dropout": 0, "max_length": 32}),
        (make_trainer, {"devices": [0, 1], "precision": "bf16-mixed", "max_epochs": None}),
        (make_trainer, {"devices": "auto", "strategy": "ddp", "gradient_clip_val": 1}),
    ],
)
def test_values_that_fit_and_what_yaml_has_no_values_of_are_left_alone(made, values):
    assert list(wrong_values(made, values)) == []


def test_an_option_is_called_what_the_user_calls_it():
    """Where a value is a reference, the option that it refers to."""
    node = {"_target_": "simcse_pl.training.callbacks.SeedEveryStep", "seed": "${seed}"}
    with pytest.raises(UserError, match="^seed=abc: it must be a whole number$"):
        check_types(OmegaConf.create({"seed": "abc", "callbacks": {"seeds": node}}))
    lists = {"plugins": [{"_target_": "simcse_pl.training.callbacks.SeedEveryStep", "seed": "abc"}]}
    with pytest.raises(UserError, match="^trainer.plugins.0.seed=abc: it must be a whole number$"):
        check_types(OmegaConf.create({"trainer": lists}))
