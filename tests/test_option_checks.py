"""Options against the signatures of the classes that take them, and their names in messages."""

import re
from typing import Annotated, Any, Literal

import pytest
import torch
from omegaconf import OmegaConf
from pydantic import Field, PositiveFloat

from simcse_pl.config import walk
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.messages import name_in_full
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.option_checks import check_options, types_without_taker
from simcse_pl.trainer import make_trainer
from simcse_pl.utils.errors import UserError
from tests.support.helpers import composed


class Loss:
    def __init__(
        self,
        temperature: PositiveFloat = 0.05,
        share: Annotated[float, Field(ge=0, le=1)] = 0.5,
        kind: Literal["mse", "cosine"] = "mse",
        encoder: SentenceEncoder | None = None,
    ) -> None: ...


class Further(Loss):
    def __init__(self, size: int, **further: Any) -> None: ...


class AnyClass:
    def __init__(
        self,
        tensor: torch.Tensor,
        unknown: "Missing | None" = None,  # noqa: F821
        losses: dict[str, Loss | str] | None = None,
    ) -> None: ...


def part(taker, **values):
    """Return a config with a part that this class or function takes."""
    return OmegaConf.create({"part": {"_target_": f"{taker.__module__}.{taker.__qualname__}", **values}})


@pytest.mark.parametrize(
    ("taker", "name", "value"),
    [
        (Loss, "temperature", -1),
        (Further, "temperature", 0),  # an argument of the base class
        (SentenceEncoder.from_pretrained, "max_length", "long"),
        (SentenceEncoder.from_pretrained, "num_layers", 0),  # an option of load_backbone
        (SentenceDataModule, "batch_size", 0),  # of TrainingSet
        (SentenceDataModule, "max_length", [64, 0]),
    ],
)
def test_a_value_of_another_type_or_range_is_an_error(taker, name, value):
    with pytest.raises(UserError, match=rf"^part\.{name}={re.escape(str(value))}: it should be \S[^\n]*$"):
        check_options(part(taker, **{name: value}))


@pytest.mark.parametrize(
    ("taker", "values"),
    [
        (Loss, {"temperature": 1, "encoder": None}),
        (Further, {"size": None, "share": 0.1}),  # the command sets it
        (SentenceDataModule, {"views": {"_target_": "simcse_pl.data.view.Dropout"}}),
        (AnyClass, {"tensor": [1.0], "unknown": 1, "losses": {"a": {"_target_": f"{__name__}.Loss"}}}),
        (make_trainer, {"devices": [0, 1], "precision": "bf16-mixed", "max_epochs": None}),
    ],
)
def test_values_that_fit_or_cannot_be_checked_pass(taker, values):
    check_options(part(taker, **values))


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("targets.losses.MyLos", "AttributeError: "),
        ("targets.broken.MyLoss", "ModuleNotFoundError: "),
        ("targets.losses", "it must be a class or a function"),
    ],
)
def test_a_target_that_does_not_exist_is_an_error(target, why, tmp_path, monkeypatch):
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "losses.py").write_text("class MyLoss: pass\n")
    (tmp_path / "targets" / "broken.py").write_text("import json.missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as error:
        check_options(OmegaConf.create({"part": {"_target_": target}}))
    assert str(error.value).startswith(f"part._target_={target}: {why}")


@pytest.mark.parametrize("taker", [Loss, Further])
def test_an_unknown_option_is_an_error_with_the_nearest_name(taker):
    message = r"^no option part.temprature; did you mean temperature\? \(simcse options part\)$"
    with pytest.raises(UserError, match=message):
        check_options(part(taker, temprature=1))


def test_the_options_of_each_training_set_are_checked():
    check_options(part(SentenceDataModule, sets={"a": {"train": "a.txt", "batch_size": 2}, "b": {"train": "b.txt"}}))
    with pytest.raises(UserError, match=r"^no option part\.sets\.a\.colums; did you mean columns\?"):
        check_options(part(SentenceDataModule, sets={"a": {"train": "a.txt", "colums": [0]}}))
    with pytest.raises(UserError, match=r"^part\.sets\.b\.batch_size=0: it should be greater than 0$"):
        check_options(part(SentenceDataModule, sets={"b": {"train": "b.txt", "batch_size": 0}}))


def test_the_options_of_another_class_are_left():
    given = f"objective._target_={__name__}.Loss"
    with pytest.raises(UserError, match=f"^{given}: it has no option .* my_conf/objective/NAME.yaml"):
        check_options(composed(given))


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_every_option_has_a_type(command):
    """It is an argument of a class or function, or refers to one; or it has an entry in the table of the others."""
    every = dict(walk(OmegaConf.to_container(composed(config=command))))
    taken = {name for name, value in every.items() if isinstance(value, dict) and "_target_" in value}
    referred = {name for value in every.values() for name in re.findall(r"\$\{([\w.]+)\}", str(value))}
    checked = taken | referred | types_without_taker().keys()
    for name, value in every.items():
        whole = [".".join(name.split(".")[:end]) for end in range(1, name.count(".") + 2)]
        assert isinstance(value, dict | list) or not checked.isdisjoint(whole), name


def test_a_new_option_at_the_top_of_the_config_is_an_error():
    check_options(composed("+trainer.limit_val_batches=1.0"))
    with pytest.raises(UserError, match=r"^\+lr=1: no code reads lr"):
        check_options(composed("+lr=1"))
    with pytest.raises(UserError, match="^run_dir=x: run_dir follows hydra.run.dir: set hydra.run.dir=x"):
        check_options(composed("run_dir=x"))


@pytest.mark.parametrize(("more", "count"), [([], 1), (["model.pooling=cls"], 0), (["model=checkpoint"], 0)])
def test_a_model_of_another_kind_with_the_options_of_the_default_is_warned_of(more, count, caplog):
    check_options(composed("model.name=mine", *more))
    what = "model.name: its pooling and length are those of model=minilm_cls: add model=checkpoint"
    assert [record.message for record in caplog.records if record.name == "simcse_pl.option_checks"] == [what] * count


NAMES = {
    "val_every": 3,
    "trainer": {"interval": "${val_every}"},
    "objective": {"temperature": 1, "groups": 2, "queue": 3},
    "auxiliary": {"mlm": {"temperature": 2}},
    "sweep": {"rows": {"5 groups": {"objective": {"groups": 5}}}},
}


@pytest.mark.parametrize(
    ("message", "place", "expected"),
    [
        ("temperature=1: no", "objective", "objective.temperature=1: no"),
        ("temperature=1: no", "auxiliary.mlm", "auxiliary.mlm.temperature=1: no"),
        ("a.txt: no", "objective", "a.txt: no"),
        ("temperature=1: no", "", "temperature=1: no"),  # two classes have it
        ("groups=5: set groups=2", "", "objective.groups=5: set groups=2"),
        ("interval: no", "", "val_every: no"),
    ],
)
def test_a_message_has_the_full_names_of_options(message, place, expected):
    assert name_in_full(message, OmegaConf.create(NAMES), place) == expected
