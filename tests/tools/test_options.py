"""--help of train and evaluate, and `simcse options`: every text comes from the comments in conf/."""

import argparse

import pytest

from simcse_pl.tools.options import HYDRA_COMMANDS, MOST_SET, entries, group_files, help_text, run, search
from simcse_pl.utils.errors import UserError


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
    named = {name for name, own in entries().items() if own[0].group == "train"} - {"local", *group_files()}
    assert not [name for name in named if f"\n  {name}" not in shown]


SOUGHT = {
    "early stopping": "callbacks=early_stopping",
    "gradient accumulation": "module.chunk_size",
    "output folder": "hydra.run.dir",
    "checkpoints": "keep_checkpoints",
    "bf16": "bf16",
    "fp16": "trainer.precision",
    "learning rate": "optimizer.lr",
    "num_train_epochs": "trainer.max_epochs",
    "warm up": "scheduler.num_warmup_steps",
    "max length": "data.max_length",
    "several dev sets": "data.validation",
    "custom loss": "objective",
    "wandb": "logger=wandb",
    "multi-gpu": "trainer.devices",
    "prompt": "model.prompts",
    "temprature": "objective.temperature",
    "pooling": "pooling",
    "data": "data",
}


@pytest.mark.parametrize("text", SOUGHT)
def test_words_and_misspelt_names_find_the_option(text):
    assert search(text)[0] == SOUGHT[text]


def test_options_of_a_command_alone_are_sought():
    assert search("encodr", "evaluate")[0] == "encoder"
    assert [search("pooling", command)[0] for command in HYDRA_COMMANDS] == ["model.pooling", "pooling"]


EXPLAINED = {
    "data.batch_size": ["number of rows in a contrastive batch", "default: 64", "simcse train data.batch_size=VALUE"],
    "val_every": ["default: 250; the sample: 13"],
    "patience": ["default: 5, with callbacks=early_stopping", "simcse train callbacks=early_stopping callbacks.early"],
    "callbacks": ["default: default", "\n    early_stopping ", "options: callbacks.", "train callbacks=VALUE"],
    "sweep.rows": ["sweep.rows\n  options of each row", "default: {}, with sweep=table_3_dropout"],
    "sweep.row": ["name of a row", "a wrong name lists them", "simcse train -m sweep=table_3_dropout sweep.row=VALUE"],
    "table_3_dropout": ["Table 3: dropout probabilities", "example: simcse train -m sweep=table_3_dropout"],
    "method=diffcse": ["DiffCSE (Chuang et al. 2022)", "example: simcse train method=diffcse"],
    "fit_on": ["the sentences that a post-processing is fitted on", "simcse evaluate fit_on=VALUE"],
}


@pytest.mark.parametrize("text", EXPLAINED)
def test_an_explanation_has_meaning_default_choices_and_an_example(text, capsys):
    run(argparse.Namespace(name=text.split(), yaml=False))
    shown = capsys.readouterr().out
    assert all(part in shown for part in EXPLAINED[text]), shown


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
    assert not [entry.name for own in entries().values() for entry in own if not entry.meaning]
