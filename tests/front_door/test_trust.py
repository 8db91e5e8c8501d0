"""Configs of strangers: what they would run is not run, and what they would read is not told."""

import json

import pytest
import torch
from omegaconf import OmegaConf

from simcse_pl.checkpoint import ENTRY
from simcse_pl.errors import UserError
from simcse_pl.front_door.trust import check_trust, classes_of_conf
from tests.conftest import environment, tiny

TOUCH = {"_target_": "pathlib.Path.touch", "self": {"_target_": "pathlib.Path", "_args_": ["touched"]}}
FACTORY = {"version": 1, "formatters": {"x": {"()": "pathlib.Path.touch", "self": "touched"}}}

HOSTILE = {
    "a callback": ({"callbacks": {"x": TOUCH}}, "callbacks.x._target_"),
    "a view": ({"data": {"view": TOUCH}}, "data.view._target_"),
    "a part of a list": ({"trainer": {"plugins": [TOUCH]}}, "trainer.plugins.0._target_"),
    "by a module of Lightning's": (
        {"callbacks": {"x": {"_target_": "pytorch_lightning.callbacks.timer.os.system"}}},
        "callbacks.x._target_",
    ),
    "by a reference": ({"callbacks": {"x": {"_target_": "${name}"}}, "name": "os.system"}, "callbacks.x._target_"),
    "a callback of Hydra's": ({"hydra": {"callbacks": {"x": TOUCH}}}, "hydra.callbacks.x._target_"),
    "a log's formatter": ({"hydra": {"job_logging": FACTORY}}, "hydra.job_logging.formatters.x.()"),
    "a log's handler": (
        {"hydra": {"hydra_logging": {"handlers": {"x": {"class": "logging.handlers.SocketHandler"}}}}},
        "hydra.hydra_logging.handlers.x.class",
    ),
    "a log's stream": (
        {"hydra": {"job_logging": {"handlers": {"x": {"stream": "ext://antigravity"}}}}},
        "hydra.job_logging.handlers.x.stream",
    ),
    "the environment set": ({"hydra": {"job": {"env_set": {"LD_PRELOAD": "x.so"}}}}, "hydra.job.env_set.LD_PRELOAD"),
    "the environment copied": ({"hydra": {"job": {"env_copy": ["SECRET"]}}}, "hydra.job.env_copy.0"),
    "allowing itself": ({"allow_classes": ["pathlib.Path.touch"], "x": TOUCH}, "x._target_"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_not_of_this_project_is_refused(case):
    config, option = HOSTILE[case]
    with pytest.raises(UserError) as error:
        check_trust(OmegaConf.create(config), [], [])
    assert str(error.value).startswith(f"{option}: a config may not ") and "\n" not in str(error.value)


def test_what_the_command_line_names_is_allowed():
    config = OmegaConf.create({"x": TOUCH, "hydra": {"job": {"env_set": {"A": "b"}}}})
    check_trust(config, ["hydra.job.env_set={A:b}"], ["pathlib.Path.touch", "pathlib.Path"])


def test_lightnings_callbacks_and_loggers_and_all_of_conf_are_allowed():
    names = ["pytorch_lightning.callbacks.Timer", "pytorch_lightning.loggers.CSVLogger", *classes_of_conf()]
    assert len(names) > 40
    check_trust(OmegaConf.create({"x": [{"_target_": name} for name in names]}), [], [])


@pytest.mark.parametrize("case", ["a callback", "a callback of Hydra's", "a log's formatter", "allowing itself"])
def test_a_config_of_a_stranger_runs_nothing(case, run_command, tmp_path):
    """By the real command; Hydra would build callbacks and logs of its own before any line of ours."""
    config, option = HOSTILE[case]
    text = OmegaConf.to_yaml(OmegaConf.create(config)).replace("touched", f"{tmp_path}/touched")
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "theirs.yaml").write_text(f"# @package _global_\n{text}")
    given = ["--config-dir", tmp_path / "conf", "experiment=theirs", f"hydra.run.dir={tmp_path}/run"]
    done = run_command("train.py", *given, status=2)
    assert done.stderr.startswith(f"error: {option}: a config may not build ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "touched").exists()


SECRET = "planted-5ecret"
ASKS_FOR_IT = "${oc.env:HUB_TOKEN}"


@pytest.fixture
def with_secrets(forks_of_session, tmp_path):
    """Run a command with secrets in its environment; what it prints is kept beside what it writes."""
    secrets = {"HUB_TOKEN": SECRET, "WANDB_API_KEY": f"{SECRET:x<40}", "HF_TOKEN": SECRET, "WANDB_MODE": "offline"}
    own = environment(**secrets, NETRC=str(tmp_path / "netrc"))

    def run(*arguments, status=0):
        done = forks_of_session.run(*arguments, environment=own)
        assert done.returncode == status, done.stdout + done.stderr
        with (tmp_path / "printed").open("a") as file:
            file.write(done.stdout + done.stderr)
        return done

    return run


def files_with_the_secret(folder):
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 15
    return [file for file in files if SECRET.encode() in file.read_bytes()]


def test_a_secret_of_the_environment_is_in_nothing_that_is_written(with_secrets, sentences, make_model, tmp_path):
    """A config that reads it is refused; and no run, and nothing that is made of one, writes the environment down."""
    theirs = tmp_path / "conf" / "experiment" / "theirs.yaml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(f"# @package _global_\nrun_name: {ASKS_FOR_IT}\n")
    given = ["train.py", "--config-dir", tmp_path / "conf", f"hydra.run.dir={tmp_path}/run", *tiny(make_model("bert"))]
    given += ["data=text", f"data.train={sentences}", "data.batch_size=4", "data.validation=[sample]"]
    given += ["+trainer.limit_val_batches=1", "+trainer.limit_test_batches=1"]
    refused = with_secrets(*given, "experiment=theirs", status=2)
    assert "a config reads HUB_TOKEN of the environment: it may be a secret" in refused.stderr
    with_secrets(*given)
    assert not files_with_the_secret(tmp_path)

    config, last = tmp_path / "run" / "config" / "config.yaml", tmp_path / "run" / "checkpoints" / "last.ckpt"
    config.write_text(config.read_text().replace(f"train: {sentences}", f"train: {ASKS_FOR_IT}"))
    planted = torch.load(last, weights_only=True)
    files = planted[ENTRY]["files"]
    for file, name in (("config.json", "_name_or_path"), ("tokenizer_config.json", "name_or_path")):
        files[file] = json.dumps(json.loads(files[file]) | {name: ASKS_FOR_IT, "note": ASKS_FOR_IT})
    planted["callbacks"]["run"]["before"][f"val/{ASKS_FOR_IT}"] = 0.5
    torch.save(planted, last)
    assert ASKS_FOR_IT in config.read_text() and ASKS_FOR_IT.encode() in last.read_bytes()
    with_secrets(*given, f"resume={last}", "trainer.max_epochs=4", f"hydra.run.dir={tmp_path}/resumed")
    with_secrets("evaluate.py", f"encoder={last}", f"hydra.run.dir={tmp_path}/evaluated")
    with_secrets("-m", "simcse_pl", "export", tmp_path / "run" / "encoder", tmp_path / "exported")
    assert not files_with_the_secret(tmp_path)


def test_hydras_pickled_configs_are_refused(run_command, tmp_path):
    done = run_command("train.py", "--experimental-rerun", tmp_path / "config.pickle", status=2)
    assert done.stderr == "error: --experimental-rerun would run whatever code the file holds; give the options again\n"
