"""The real commands against a hub on loopback: one that is well, and ones that answer garbage, slowly or not at all."""

import shutil

import pytest

from tests.conftest import SENTENCES, environment, tiny
from tests.forks import forks
from tests.hub_server import hub_server

TOKEN = "hf_a_token_that_nobody_may_see"
NO_COPY = "error: model me/model: no such folder, no copy in the local cache, and {}; give the folder of a checkpoint\n"
NOT_LOADED = "error: me/model/{} could not be downloaded: {}\n"
NO_WEIGHTS = "error: cannot load model me/model: not a local folder, and from the Hugging Face Hub: {}\n"
ODD = "the hub does not answer as it should"
LOG_IN = "if the name is right, log in with an account that may read it (`hf auth login`, or HF_TOKEN)"
PORTAL = "what answers at {} is not the hub (a page to log in to this network, perhaps)"
BROKEN_OFF = "the hub does not answer as it should (RemoteProtocolError)"

MODEL_FAULTS = [  # the fault, in what paths, and what is said
    ("dead", "", NO_COPY.format("the hub cannot be reached")),
    ("loop", "", NO_COPY.format("the hub cannot be reached")),
    ("404", "", NO_COPY.format("the hub has no such repository or file")),
    ("401", "", NO_COPY.format(f"the hub does not give it to you (401): {LOG_IN}")),
    ("403", "", NO_COPY.format(f"the hub does not give it to you (403): {LOG_IN}")),
    ("500", "", NO_COPY.format("the hub fails (status 500): try again later")),
    ("html", "", NO_COPY.format(PORTAL)),
    ("html", "config.json", NOT_LOADED.format("config.json", PORTAL)),
    ("403", "config.json", NOT_LOADED.format("config.json", f"the hub does not give it to you (403): {LOG_IN}")),
    ("loop", "model.safetensors", NO_WEIGHTS.format(f"{ODD} (TooManyRedirects)")),
    ("cut", "model.safetensors", NO_WEIGHTS.format(BROKEN_OFF)),
]


@pytest.fixture(scope="module")
def hub():
    with hub_server() as hub:
        yield hub


@pytest.fixture(scope="module")
def online_forks(tmp_path_factory):
    """Their process has read what of the environment the hub's library reads once."""
    with forks(tmp_path_factory.mktemp("online")) as one:
        yield one


@pytest.fixture
def command(hub, online_forks, make_model, tmp_path, tmp_path_factory):
    """Run a command with an empty cache of the hub, or with the one that there is."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("sentence\n" + "".join(f'"{sentence}"\n' for sentence in SENTENCES))
    hub.repositories = {"me/model": make_model("bert"), "me/data": tmp_path / "data"}
    home = tmp_path_factory.getbasetemp() / "hf"
    shutil.rmtree(home, ignore_errors=True)

    def run(*arguments, fault="", where="", status=0):
        hub.fault, hub.where, hub.asked = fault, where, []
        given = {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home), "HF_TOKEN": TOKEN}
        given |= {"HF_HUB_ETAG_TIMEOUT": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
        done = online_forks.run(*arguments, environment=environment(**given))
        assert done.returncode == status, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        return done

    return run


INFO = ("-m", "simcse_pl", "info", "me/model", "--pooling", "mean", "--json")


def test_a_model_is_loaded_from_a_hub_and_then_from_the_cache(command, hub, run_command, make_model):
    done = command(*INFO)
    assert any(path.endswith("/model.safetensors") for _, path, _ in hub.asked)
    assert all(token == f"Bearer {TOKEN}" for _, path, token in hub.asked if path.startswith("/me/model"))
    local = run_command(*INFO[:3], make_model("bert"), *INFO[4:])
    assert done.stdout.replace("me/model", "") == local.stdout.replace(str(make_model("bert")), "")
    assert command(*INFO, fault="dead").stdout == done.stdout
    assert command(*INFO, fault="500").stdout == done.stdout


FAST = [("dead", ""), ("401", ""), ("html", "")]  # one of each kind


@pytest.mark.parametrize(
    ("fault", "where", "line"),
    [pytest.param(*case, marks=[] if case[:2] in FAST else pytest.mark.slow) for case in MODEL_FAULTS],
)
def test_a_hub_that_fails_is_one_line_and_leaves_nothing_that_breaks_the_next_try(command, hub, fault, where, line):
    done = command(*INFO, fault=fault, where=where, status=2)
    assert done.stderr == line.format(hub.address)
    if fault == "cut":  # half a file is not kept
        command(*INFO)


def test_what_cannot_be_evaluated_writes_no_results(command, tmp_path):
    given = ("evaluate.py", "encoder=me/model", "pooling=mean", "tasks=[geometry]", f"hydra.run.dir={tmp_path}/run")
    assert command(*given, fault="500", status=2).stderr == NO_COPY.format(
        "the hub fails (status 500): try again later"
    )
    assert not (tmp_path / "run" / "results.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("file", ["", "/train.csv"])
def test_a_dataset_of_the_hub_is_trained_on(command, make_model, tmp_path, file):
    given = ["train.py", "data=text", f"data.train=hf://datasets/me/data{file}", *tiny(make_model("bert"))]
    given += ["logger=csv", "trainer=cpu", "trainer.max_steps=1", "data.batch_size=4", "data.validation=[sample]"]
    given += [f"+trainer.limit_{stage}_batches=1" for stage in ("val", "test")] + [f"hydra.run.dir={tmp_path}/run"]
    assert "8 rows of 1" in command(*given).stdout


@pytest.mark.parametrize(
    ("fault", "where", "written", "said"),
    [
        ("dead", "", False, "--push-to-hub me/new: the hub cannot be reached"),
        ("403", "/api/", True, f"the hub did not take it: the hub does not give it to you (403): {LOG_IN}"),
    ],
)
def test_what_a_hub_does_not_take_stays_in_its_folder(command, make_model, tmp_path, fault, where, written, said):
    export = ["-m", "simcse_pl", "export", make_model("bert"), "--pooling", "mean", tmp_path / "out"]
    done = command(*export, "--push-to-hub", "me/new", fault=fault, where=where, status=2)
    (line,) = (line for line in done.stderr.splitlines() if line.strip())
    assert line.startswith("error: ") and line.endswith(said)
    assert (tmp_path / "out" / "model.safetensors").exists() == written
