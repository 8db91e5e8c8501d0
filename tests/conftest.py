"""Fixtures: tiny models, files, commands in processes of their own, configs, and where real data is."""

import copy
import functools
import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has commands ignore it
os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks a hub; huggingface_hub reads this when it is imported
os.environ["WANDB_MODE"] = "offline"
if "PYTEST_XDIST_WORKER" in os.environ:  # a core is a worker's, and its commands'
    os.environ.setdefault("OMP_NUM_THREADS", "1")

_CACHE = tempfile.TemporaryDirectory(prefix="simcse_pl-tests-")
for _sample in Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").glob("simcse_pl/wiki_sample-*.txt"):
    (Path(_CACHE.name) / "simcse_pl").mkdir(exist_ok=True)  # slow to extract; the tests' own tokens are not kept
    shutil.copy(_sample, Path(_CACHE.name) / "simcse_pl")
os.environ["XDG_CACHE_HOME"] = _CACHE.name
os.environ["WANDB_DATA_DIR"] = f"{_CACHE.name}/wandb"  # where it puts tables until they are synced

import logging

import pytest

# Fixtures import libraries where they use them: pytest-xdist's first process needs none.
from tests.support.forks import ROOT, SECONDS, Forks, forks

if TYPE_CHECKING:
    from omegaconf import DictConfig

SENTENCES = [
    "A man is playing a guitar on the street.",
    "Two dogs run through the snow.",
    "Prices rose faster than anyone had expected this year!",
    "Why does the moon look larger near the horizon?",
    "Mix the flour with cold butter.",
    "The committee will meet again on Thursday, if all members can come to the hall in time.",
    "Nobody answered.",
    "She has lived in Lagos since 1998.",
]


def adamw(lr=5e-5, **options):
    """Return what makes the optimizer of conf/optimizer/adamw.yaml."""
    import torch

    return functools.partial(torch.optim.AdamW, lr=lr, **({"weight_decay": 0.0} | options))


def linear(num_warmup_steps=0):
    """Return what makes the schedule of conf/scheduler/linear.yaml."""
    import transformers

    return functools.partial(transformers.get_linear_schedule_with_warmup, num_warmup_steps=num_warmup_steps)


def quiet_trainer(**options):
    """Return a trainer on the CPU that prints and writes nothing, unless the options say so."""
    import pytorch_lightning as pl

    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return pl.Trainer(**{"accelerator": "cpu", "num_sanity_val_steps": 0, **off, **options})


def ready_data(encoder, evaluator, train=None):
    """Return a datamodule with one evaluator and a loader of training batches."""
    from simcse_pl.datamodule import SentenceDataModule

    class Data(SentenceDataModule):
        def train_dataloader(self):
            return train

    data = Data(encoder.tokenizer, "unused", max_length=16, evaluators={"sts": lambda **files: evaluator})
    data.sets.clear()  # there is no file
    return data


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with tests of minutes, so that none runs alone at the end; keep libraries' objects from the collector."""
    items.sort(key=lambda item: item.path.name not in ("test_claims.py", "test_gpu.py", "test_tour.py"))
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a folder with a model of an architecture, random weights and a trained tokenizer."""
    from tests.support.tiny_models import save_model

    @functools.cache
    def make(architecture: str, **settings: object) -> Path:
        folder = tmp_path_factory.mktemp(architecture)
        save_model(folder, architecture, SENTENCES, **settings)
        return folder

    return make


@pytest.fixture(scope="session")
def make_masked_language_model(make_model, tmp_path_factory):
    """Make the folder of a masked language model in which no two weights are equal."""
    from tests.support.tiny_models import save_masked_language_model

    @functools.cache
    def make(architecture, **settings):
        folder = tmp_path_factory.mktemp(f"{architecture}-mlm")
        save_masked_language_model(folder, make_model(architecture, **settings))
        return folder

    return make


@pytest.fixture(scope="session")
def teacher(make_model, tmp_path_factory):
    """The folder of a saved encoder that normalizes, with large random weights."""
    import torch

    from simcse_pl.models.encoder import SentenceEncoder

    folder = tmp_path_factory.mktemp("teacher")
    with torch.random.fork_rng():
        torch.manual_seed(7)
        encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", normalize=True)
        torch.nn.init.normal_(encoder.backbone.embeddings.word_embeddings.weight)
    encoder.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def cross_encoder(make_model, tmp_path_factory):
    """The folder of a sequence classifier with one logit and large random weights."""
    import torch
    import transformers

    folder, source = tmp_path_factory.mktemp("cross_encoder"), make_model("bert")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(source, num_labels=1)
        torch.nn.init.normal_(model.bert.embeddings.word_embeddings.weight)
        torch.nn.init.normal_(model.classifier.weight)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def gpu_encoders(tmp_path_factory):
    """The folder of the encoders that the cases of `make gpu` need."""
    import torch

    from benchmarks.gpu import correctness

    folder = tmp_path_factory.mktemp("gpu_encoders")
    with torch.random.fork_rng():
        correctness.prepare(folder)
    return folder


@pytest.fixture(scope="session")
def senteval_dir() -> Path:
    """A SentEval bundle with real data."""
    folder = os.environ.get("SENTEVAL_DIR")
    if not folder:
        pytest.skip("SENTEVAL_DIR is not set: the real evaluation data is not here")
    return Path(folder)


@pytest.fixture(autouse=True, scope="session")
def _configs_composed_quickly() -> None:
    """Let Hydra read each file of conf/ once, and list all choices only for files that refer to one.

    A config has 40 files, of which one has a line such as `setting/model: ${setting}`, and tests compose hundreds.
    """
    from hydra._internal import defaults_list
    from hydra._internal.config_repository import ConfigRepository

    load, kept, list_choices = ConfigRepository.load_config, {}, defaults_list._create_interpolation_map

    def load_config(self: ConfigRepository, config_path: str) -> Any:
        if {source.path for source in self.sources if source.scheme() == "file"} != {str(ROOT / "conf")}:
            return load(self, config_path)
        if config_path not in kept:
            kept[config_path] = load(self, config_path)
        return copy.deepcopy(kept[config_path])

    def choices(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
        refers = any(default.is_interpolation() for default in defaults)
        return list_choices(overrides, defaults, self_added) if refers else None

    ConfigRepository.load_config = load_config  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = choices


@pytest.fixture(autouse=True)
def _quiet_and_seeded() -> Iterator[None]:
    import torch
    import transformers
    from hydra.core.hydra_config import HydraConfig

    transformers.utils.logging.disable_progress_bar()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        yield
    HydraConfig.instance().cfg = None


def environment(**given: str) -> dict[str, str]:
    """Return the environment of a command, without the user's settings and this process's part of W&B."""
    left_out = ("SENTEVAL_DIR", "WANDB_API_KEY", "WANDB_MODE", "WANDB_SERVICE")
    return {name: value for name, value in os.environ.items() if name not in left_out} | given


@pytest.fixture(scope="session")
def forks_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """The process that forks the commands of `run_command`."""
    with forks(tmp_path_factory.mktemp("forks")) as one:
        yield one


@pytest.fixture
def run_command(tmp_path: Path, forks_of_session: Forks) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python in a process of its own, with its output folders under tmp_path.

    The process has the libraries from the start, unless an option of Python comes first, such as `-X importtime`.
    """

    def run(*arguments: str | Path, status: int = 0, **given: str) -> subprocess.CompletedProcess[str]:
        own = environment(**{"NETRC": str(tmp_path / "netrc")} | given)
        if arguments[0] == "-X":
            command = [sys.executable, *map(str, arguments)]
            done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=SECONDS)
        else:
            done = forks_of_session.run(*arguments, environment=own)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def on_ranks(forks_of_session: Forks) -> Callable[..., dict[Any, Any]]:
    """Call a function in several processes, as Forks.on_ranks does."""
    return forks_of_session.on_ranks


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """A file of SENTENCES."""
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(SENTENCES))
    return path


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write rows to a tsv file; return its path."""

    def write(*rows: tuple[Any, ...], name: str = "dev.tsv") -> str:
        path = tmp_path / name
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A file of 28 pairs of SENTENCES with scores, for validations that take no time."""
    path = tmp_path / "pairs.tsv"
    both = itertools.combinations(SENTENCES, 2)
    path.write_text("".join(f"{first}\t{second}\t{number % 6}\n" for number, (first, second) in enumerate(both)))
    return path


@pytest.fixture
def train(run_command: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run train.py for 4 steps on whatever is given; returns the process and the run's folder."""

    def run(*arguments: str, status: int = 0, folder: str = "run", **how: Any) -> Any:
        given = {argument.partition("=")[0] for argument in arguments}
        small = {"data.batch_size": 4, "log_every": 1, "val_every": 3, "trainer.max_epochs": 2}
        small["data.validation"] = "[sample]"
        defaults = [f"{name}={value}" for name, value in small.items() if name not in given]
        where = ["hydra.sweep.dir" if "-m" in arguments else "hydra.run.dir", str(tmp_path / folder)]
        done = run_command("train.py", *arguments, *defaults, "=".join(where), status=status, **how)
        return done, tmp_path / folder

    return run


def compose_config(command: str, *overrides: str) -> "DictConfig":
    """Return the config of a command with that of Hydra, which is set."""
    from hydra import compose, initialize_config_dir
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import read_write

    import simcse_pl.config  # noqa: F401  the config uses them

    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose(command, [*overrides], return_hydra_config=True)
    with read_write(config.hydra.runtime):
        config.hydra.runtime.output_dir = "/tmp/run"
    HydraConfig.instance().set_config(config)
    return config


def tiny(folder: Path) -> list[str]:
    """The options for a model of make_model."""
    return [f"model.name={folder}", "model.num_layers=2", "model.max_length=null"]


@pytest.fixture
def short_run(sentences: Path, pairs: Path, make_model: Callable[..., Path]) -> list[str]:
    """The options of a run of a tiny model on 8 sentences, for as many steps as a test wants."""
    files = ["data=text", f"data.train={sentences}", f"data.validation={pairs}", "data.batch_size=4", "logger=csv"]
    return [*files, *tiny(make_model("bert"))]


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `simcse` in this process, and return its output and errors; status 2 prints one line."""
    from simcse_pl.__main__ import main

    handlers, own = logging.root.handlers[:], logging.getLogger("simcse_pl")
    levels = logging.root.level, own.level

    def run(*arguments, status=0):
        monkeypatch.setattr(sys, "argv", ["simcse", *map(str, arguments)])
        if status == 0:
            main()
            return capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        assert exit_.value.code == status and (not printed.out or arguments[0] == "train")  # which logs there
        assert printed.err.lstrip().startswith("error: ") and "\n" not in printed.err.strip()
        return printed

    yield run
    logging.root.handlers[:] = handlers
    logging.root.setLevel(levels[0])
    own.setLevel(levels[1])


@pytest.fixture
def encoder(make_model):
    """Arguments that select a small encoder."""
    return [make_model("bert"), "--pooling", "mean", "--device", "cpu"]


@pytest.fixture
def tokenizer(make_model):
    from simcse_pl.models.encoder import SentenceEncoder

    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls").tokenizer
