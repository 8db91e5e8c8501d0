"""Every config composes, and every recipe has the values of the paper's Table A.1."""

import tomllib

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf, open_dict
from packaging.requirements import Requirement

import simcse_pl.sweeps.resolvers  # noqa: F401  the config uses them
from simcse_pl.config import CONF
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import ROOT

CHOICES = [(file.parent.name, file.stem) for file in sorted(CONF.glob("*/*.yaml")) if file.parent.name != "sweep"]
MISSING = {  # what a choice leaves to the user
    "checkpoint": "model.name=folder",
    "text": "data.train=file.txt",
    "saved": "postprocess.folder=folder",
}

# Table A.1: batch size and learning rate; 1 epoch unsupervised, 3 supervised
TABLE_A1 = {
    "unsup_bert_base": ("bert-base-uncased", 64, 3e-5, 1),
    "unsup_bert_large": ("bert-large-uncased", 64, 1e-5, 1),
    "unsup_roberta_base": ("roberta-base", 512, 1e-5, 1),
    "unsup_roberta_large": ("roberta-large", 512, 3e-5, 1),
    "sup_bert_base": ("bert-base-uncased", 512, 5e-5, 3),
    "sup_bert_large": ("bert-large-uncased", 512, 1e-5, 3),
    "sup_roberta_base": ("roberta-base", 512, 5e-5, 3),
    "sup_roberta_large": ("roberta-large", 512, 1e-5, 3),
}
EXPERIMENTS = sorted((CONF / "experiment").glob("*.yaml"))


def composed(*overrides, config="train"):
    given = [*overrides, "run_name=test", "run_dir=/tmp/test"] if config == "train" else overrides
    with initialize_config_dir(str(CONF), version_base="1.3"):
        whole = compose(config, given, return_hydra_config=True)
    HydraConfig.instance().set_config(whole)
    with open_dict(whole):
        del whole["hydra"]
    return whole


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_composes(group, choice):
    given = [f"{group}={choice}", *([MISSING[choice]] if choice in MISSING else [])]
    command, needed = ("evaluate", ["encoder=folder"]) if group == "postprocess" else ("train", [])
    config = composed(*given, *needed, config=command)
    OmegaConf.resolve(config)
    assert not OmegaConf.missing_keys(config)


def assert_is_row_of_table_a1(config, recipe):
    setting, _ = recipe.split("_", 1)
    name, batch_size, lr, epochs = TABLE_A1[recipe]
    assert (config.model.name, config.data.batch_size, config.optimizer.lr) == (name, batch_size, lr)
    assert (config.trainer.max_epochs, config.trainer.max_steps) == (epochs, -1)
    assert (config.data.max_length, config.objective.temperature, config.val_every) == (32, 0.05, 250)
    assert config.model.pooling == "cls"
    assert config.model.head == {"sup": "mlp", "unsup": "mlp_train_only"}[setting]
    assert config.data.train.endswith({"sup": "nli_for_simcse.csv", "unsup": "wiki1m_for_simcse.txt"}[setting])
    assert config.data.validation == "senteval, hub"  # never the sample in place of STS-B


@pytest.mark.parametrize("recipe", TABLE_A1)
def test_experiments_have_the_values_of_table_a1(recipe):
    assert_is_row_of_table_a1(composed(f"experiment={recipe}"), recipe)


@pytest.mark.parametrize("recipe", ["unsup_bert_base", "sup_bert_base", "sup_roberta_base"])
def test_settings_have_the_values_of_base_models(recipe):
    setting, model, _ = recipe.split("_")
    assert_is_row_of_table_a1(composed(f"setting={setting}ervised", f"model={model}"), recipe)


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_an_experiment_states_its_command_and_its_numbers(file):
    text = file.read_text()
    assert text.startswith(f"# @package _global_\n# python train.py experiment={file.stem}\n")
    config = yaml.safe_load(text)
    options = {f"{group}.{name}" for group, own in config.items() if isinstance(own, dict) for name in own}
    assert options >= {"model.head", "optimizer.lr", "data.batch_size", "data.max_length", "objective.temperature"}
    assert options & {"trainer.max_epochs", "trainer.max_steps"} and "val_every" in config
    assert "${" not in text


def test_a_sweep_of_an_experiment_has_its_values():
    config = composed("sweep=table_3_dropout", "experiment=unsup_roberta_large")
    assert_is_row_of_table_a1(config, "unsup_roberta_large")


@pytest.mark.parametrize(("setting", "head"), [("unsupervised", "mlp_train_only"), ("supervised", "mlp")])
def test_a_setting_brings_its_head_for_any_encoder(setting, head):
    assert composed(f"setting={setting}", "model=checkpoint", "model.name=folder").model.head == head


@pytest.mark.parametrize("options", [["experiment=unsup_minilm"], ["setting=unsupervised", "data=wiki_sample"]])
def test_unsupervised_training_uses_all_layers_of_the_packaged_encoder(options):
    config = composed(*options)
    assert (config.model.num_layers, config.model.pooling, config.model.head) == (6, "cls", "mlp_train_only")
    assert (config.data.batch_size, config.optimizer.lr) == (64, 3e-5)
    assert config.data.train._target_ == "simcse_pl.data.prepare.wikipedia.gensim_sample"


def test_size_mini_has_the_values_that_the_scores_in_the_documentation_were_measured_with():
    unsupervised, supervised = (
        composed(f"sweep={own}", "size=mini") for own in ("table_3_dropout", "table_7_hard_negative")
    )
    for config, expected in ((unsupervised, (6, "cls", 3e-5)), (supervised, (3, "mean", 2e-4))):
        assert (config.model.num_layers, config.model.pooling, config.optimizer.lr) == expected


def test_every_logger_keeps_the_csv():
    assert all("csv" in composed(f"logger={choice}").logger for choice in ("csv", "wandb", "tensorboard"))


def test_every_file_says_what_it_is():
    for file in CONF.rglob("*.yaml"):
        lines = [line for line in file.read_text().splitlines() if line != "# @package _global_"]
        assert lines[0].startswith("# "), file


def test_model_options_are_the_encoders_arguments():
    own = yaml.safe_load((CONF / "model" / "checkpoint.yaml").read_text()).keys() - {"_target_"}
    code = SentenceEncoder.from_pretrained.__func__.__code__
    assert own == set(code.co_varnames[1 : code.co_argcount]) - {"pooler"}  # for the released tool's interface


def test_pins_satisfy_the_package():
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    pins = {pin.name: str(pin.specifier).removeprefix("==") for pin in map(Requirement, filter(None, lines))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in project["dependencies"]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(pins[requirement.name]), line


def test_a_job_of_slurm_has_the_trainers_nodes_and_devices():
    options = ["hydra/launcher=submitit_slurm", "trainer=ddp", "trainer.num_nodes=2", "trainer.devices=8"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        launcher = compose("train", [*options, "hydra.launcher.partition=gpu"], return_hydra_config=True).hydra.launcher
    assert (launcher.nodes, launcher.tasks_per_node, launcher.gpus_per_node, launcher.partition) == (2, 8, 8, "gpu")
