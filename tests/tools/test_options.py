"""--help of train and evaluate, and `simcse options`: every text comes from the comments in conf/."""

import argparse
import shlex

import pytest

from simcse_pl.__main__ import COMMANDS
from simcse_pl.cli import _for_hydra
from simcse_pl.tools.options import (
    HYDRA_COMMANDS,
    MOST_SET,
    Entry,
    _compose,
    entries,
    explain,
    group_files,
    help_text,
    run,
    search,
)
from simcse_pl.utils.errors import UserError

KNOWN = entries() + [Entry(f"simcse {name}", "", about, name) for name, about in COMMANDS.items()]


@pytest.mark.parametrize("command", HYDRA_COMMANDS)
def test_help_is_short_and_has_what_most_people_set(command):
    shown = help_text(command, [], everything=False)
    names = MOST_SET[command].split()
    assert len(names) == 10 and len(shown.splitlines()) <= 60
    assert all(f"\n  {name} " in shown for name in names)
    assert max(map(len, shown.splitlines())) <= 100
    said = " ".join(shown.split())  # the values of the sample are no defaults
    assert command == "evaluate" or "(default: 250; the sample: 13)" in said


def test_help_all_has_every_option_with_the_values_and_meanings_of_the_chosen_groups():
    shown = help_text("train", ["callbacks=early_stopping", "objective=matryoshka"], everything=True)
    assert "validations in a row without a better score that end the run (default: 5)" in " ".join(shown.split())
    assert "\n  objective.dims " in shown and "\n  objective=matryoshka " in shown and "objective.hardness" not in shown
    assert "\n  auxiliary.replaced_token_detection.weight" in help_text("train", ["method=diffcse"], everything=True)
    assert "objective.temperature" not in help_text("train", ["objective=cosine_mse"], everything=False)
    named = {entry.name for entry in entries() if entry.group == "train"} - {"local", *group_files()}
    assert not [name for name in named if f"\n  {name}" not in shown]


SOUGHT = {
    "early stopping": "callbacks=early_stopping",
    "patience": "callbacks.early_stopping.patience",
    "accumulation": "module.chunk_size",
    "gradient accumulation": "module.chunk_size",
    "output folder": "hydra.run.dir",
    "output_dir": "hydra.run.dir",
    "save": "hydra.run.dir",
    "checkpoint": "keep_checkpoints",
    "fp16": "trainer.precision",
    "bf16": "trainer.precision",
    "amp": "trainer.precision",
    "epochs": "trainer.max_epochs",
    "num_train_epochs": "trainer.max_epochs",
    "learning rate": "optimizer.lr",
    "warmup": "scheduler.num_warmup_steps",
    "warm up": "scheduler.num_warmup_steps",
    "seed": "seed",
    "max length": "data.max_length",
    "dev set": "data.validation",
    "several dev sets": "data.validation",
    "own loss": "objective",
    "custom loss": "objective",
    "push to hub": "simcse export",
    "wandb": "logger=wandb",
    "resume": "resume",
    "gpu": "trainer=gpu",
    "multi-gpu": "trainer.devices",
    "lora": "model/adapter=lora",
    "prompt": "model.prompts",
    "modle": "model",
    "bach_size": "data.batch_size",
    "batchsize": "data.batch_size",
    "temprature": "objective.temperature",
    "pooling": "model.pooling",
    "diffcse": "method=diffcse",
    "data=text": "data=text",
    "data": "data",
    "whitening": "postprocess=whitening",
}


@pytest.mark.parametrize("text", SOUGHT)
def test_words_and_misspelt_names_find_the_option(text):
    assert search(text, KNOWN)[0].name == SOUGHT[text]


def test_options_of_the_command_come_first():
    assert search("encodr", KNOWN, "evaluate")[0].name == "encoder"
    assert search("pooling", KNOWN, "evaluate")[0].name == "pooling"


EXPLAINED = {
    "data.batch_size": ["number of rows in a contrastive batch", "default: 64", "simcse train data.batch_size=128"],
    "patience": ["default: 5, with callbacks=early_stopping", "simcse train callbacks=early_stopping callbacks.early"],
    "callbacks": ["default: default", "\n    early_stopping ", "options: callbacks.", "train callbacks=early_stopping"],
    "sweep.row": ["name of a row", "a wrong name lists them", "simcse train sweep=table_3_dropout sweep.row=0.1"],
    "table_3_dropout": ["Table 3: dropout probabilities", "example: simcse train -m sweep=table_3_dropout"],
    "method=diffcse": ["DiffCSE (Chuang et al. 2022)", "example: simcse train method=diffcse"],
    "fit_on": ["the sentences that a post-processing is fitted on", "simcse evaluate encoder=FOLDER fit_on="],
    "push to hub": ["push it to the hub", "example: simcse export --help"],
}


@pytest.mark.parametrize("text", EXPLAINED)
def test_an_explanation_has_meaning_default_choices_and_an_example(text, capsys):
    run(argparse.Namespace(name=text.split(), yaml=False))
    shown = capsys.readouterr().out
    assert all(part in shown for part in EXPLAINED[text]), shown


def test_the_examples_compose():
    entries_of_options = [search(name, KNOWN)[0] for name in [*MOST_SET["train"].split(), "multi gpu"]]
    examples = [explain(entry, KNOWN).rpartition("example: simcse train ")[2] for entry in entries_of_options]
    given = [shlex.split(example)[0] for example in examples if "=VALUE" not in example]
    assert len(given) >= 8 and _compose("train", *map(_for_hydra, given)).trainer.devices == 2


def test_the_groups_are_listed_and_unknown_words_are_an_error(capsys):
    run(argparse.Namespace(name=[]))
    shown = capsys.readouterr().out
    assert "simcse evaluate:" in shown and "\n  model " in shown and "\n  postprocess " in shown
    with pytest.raises(UserError, match="^no option is about 'zzz': `simcse options` lists the groups, "):
        run(argparse.Namespace(name=["zzz"], yaml=False))


def test_a_printed_file_is_a_config_of_ones_own(command, tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(command("options", "experiment=overfit", "--yaml").out)
    own = command("train", "--config-dir", tmp_path, "experiment=mine", "--cfg", "job").out
    assert own == command("train", "experiment=overfit", "--cfg", "job").out != command("train", "--cfg", "job").out
    for wrong in ("experiment", "experiment=overfitting", "trainer.max_steps=3"):
        assert f"--yaml {wrong}: give a choice" in command("options", wrong, "--yaml", status=2).err


def test_every_entry_has_a_meaning():
    assert not [entry.name for entry in entries() if not entry.meaning]
