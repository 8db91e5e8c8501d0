"""The exit status and the line of a command that fails, and runs that start from Python."""

import contextlib
import gc
import json
import logging
import os
import random
import shlex
import signal
import sys
import tempfile
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import hydra
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf

import simcse_pl.train_job
from simcse_pl import __version__
from simcse_pl import cli as entry_point
from simcse_pl.data.rows import ReadOptions, iterate_rows, read_rows
from simcse_pl.utils.errors import SweepError, UserError, WriteError
from simcse_pl.utils.files import cached_rows
from tests.conftest import tiny

CONFIG = OmegaConf.create({"seed": 1, "debug": False})


@pytest.fixture
def job(monkeypatch):
    """Pretend that a command composes CONFIG and does something else than to train."""

    def job_(work, mode=RunMode.RUN, number=1, folder="nowhere"):
        one = SimpleNamespace(config_name="train", num=number)
        runtime = SimpleNamespace(mode=mode, job=one, overrides=SimpleNamespace(task=[]))
        monkeypatch.setattr(entry_point.HydraConfig, "get", lambda: runtime)
        monkeypatch.setattr(entry_point, "_run", lambda command, config: work())
        return entry_point._run_job(OmegaConf.merge(CONFIG, {"run_dir": str(folder)}))

    return job_


@pytest.fixture
def ends(monkeypatch, capsys):
    """Run a command; return the exit status and what it printed to standard error."""

    def ends_(work, *options):
        monkeypatch.setattr(sys, "argv", ["train.py", *options])
        monkeypatch.setattr(entry_point.hydra, "main", lambda **config: lambda task: work)
        with pytest.raises(SystemExit) as end:
            entry_point.main()
        return end.value.code, capsys.readouterr().err

    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    return ends_


def raise_(error, cause=None):
    raise error from cause


def test_an_error_is_one_line_or_a_traceback(ends):
    assert ends(lambda: raise_(RuntimeError("in a callback"), UserError("x=1: no"))) == (2, "error: x=1: no\n")
    status, printed = ends(lambda: raise_(UserError("x=1: no")), "debug=true")
    assert status == 2 and "Traceback" in printed
    assert ends(lambda: raise_(BrokenPipeError())) == (141, "")  # --help | head


def test_only_ranks_and_jobs_of_a_sweep_end_with_their_parent(ends, monkeypatch):
    ending = []
    monkeypatch.setattr(entry_point, "end_with_parent", lambda: ending.append(sys.argv[1:]))
    for options in ([], ["hydra.job.num=1"]):
        ends(lambda: raise_(UserError("stop here")), *options)
    assert ending == [["hydra.job.num=1"]]


def test_a_rank_of_torchrun_writes_to_a_new_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    for number in (1, 2):
        monkeypatch.setattr(sys, "argv", ["train.py"])
        entry_point.disable_hydra_output_on_other_ranks()
        folders = [*tmp_path.iterdir()]
        assert len(folders) == number and sys.argv[-1].removeprefix("hydra.run.dir=") in map(str, folders)
        assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def as_lightning_ends():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        sys.exit(1)


def test_ctrl_c_is_status_130(ends, job):
    assert ends(as_lightning_ends) == (130, "interrupted\n")
    assert ends(lambda: job(as_lightning_ends)) == (130, "interrupted\n")


@pytest.mark.parametrize(("error", "ends"), [(SweepError("another sweep's"), True), (UserError("of this job"), False)])
def test_only_a_sweep_error_ends_a_multirun(error, ends, job, capsys):
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext() as end:
        assert job(lambda: raise_(error), RunMode.MULTIRUN) is None
    assert capsys.readouterr().err == f"error: {error}\n" and (not ends or end.value.code == 2)


@pytest.mark.parametrize(("error", "trained"), [(UserError, False), (UserError, True), (WriteError, False)])
def test_a_mistake_that_the_first_job_finds_before_it_trains_ends_a_multirun(error, trained, job, tmp_path):
    if trained:
        (tmp_path / "metrics.csv").touch()
    ends = error is UserError and not trained
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext():
        assert job(lambda: raise_(error("no")), RunMode.MULTIRUN, 0, tmp_path) is None


def test_a_rank_whose_connection_breaks_names_another_one_as_the_cause(job, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as end:
        job(lambda: raise_(RuntimeError("[gloo/pair.cc:537] Read error: Connection reset by peer")))
    said = capsys.readouterr().err
    assert end.value.code == 1 and "another rank has ended; its own error" in said and "Read error" in said
    with pytest.raises(SystemExit):
        job(lambda: raise_(UserError("no file igloo.csv")))
    assert capsys.readouterr().err == "error: no file igloo.csv\n"


FLAGS = ["--config-dir", "mine", "-m", "--cfg", "job"]
COMMAND_LINES = [  # the command, what follows it, the options and the flags that Hydra gets
    ("train", "seed=1,2 --config-dir=mine -m ~queue --cfg job", ["seed=1,2", "~queue"], FLAGS),
    ("train", "views=[crop, dropout] seed=1", ["views=[crop, dropout]", "seed=1"], []),
    ("train", "data.train={a: x.txt, b: [y.txt , z.txt]} -m", ["data.train={a: x.txt, b: [y.txt , z.txt]}"], ["-m"]),
    ("train", "views=[crop, -m seed=1", ["views=[crop,", "seed=1"], ["-m"]),  # which is Hydra's to report
    ("train", "outputs/mine/encoder", [], ["outputs/mine/encoder"]),
    ("evaluate", "outputs/mine/encoder tasks=all", ["encoder=outputs/mine/encoder", "tasks=all"], []),
    ("evaluate", "--config-dir mine -m --cfg job me/mine", ["encoder=me/mine"], FLAGS),
]


@pytest.mark.parametrize(("command", "line", "options", "flags"), COMMAND_LINES)
def test_a_list_may_have_spaces_and_an_encoder_needs_no_name(command, line, options, flags):
    assert entry_point._options_and_flags(command, line.split()) == (options, flags)


def test_a_flag_that_hydra_lacks_names_the_option():
    hydra_flags = [name for action in get_args_parser()._actions for name in action.option_strings]
    entry_point._check_words("train", [], [*hydra_flags, "--help-all", "--config-dir", "--mine"[1:]])
    assert {*hydra_flags, "--help-all"} == {*entry_point._FLAGS}
    for given, meant in {"--lr 3e-5": "optimizer.lr=3e-5", "--seed": "seed=VALUE", "--zzzz -m": "NAME=VALUE"}.items():
        with pytest.raises(UserError, match=f"^{given.split()[0]}: options have no dashes: write {meant} "):
            entry_point._check_words("train", [], given.split())


def test_null_deselects_a_group():
    options = ["queue=null", "queue=momentum,null", "views=[null]", "model.dropout=null"]
    read = ["queue=[]", "queue=momentum,[]", "views=[]", "model.dropout=null"]
    assert [*map(entry_point._for_hydra, options)] == read


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("语料.txt", "语料.txt"),
        ("我的 语料=2.txt", "我的 语料=2.txt"),
        ("[语料.txt, b.txt]", ["语料.txt", "b.txt"]),
        ("{zh: 开发.tsv, en: dev.tsv}", {"zh": "开发.tsv", "en": "dev.tsv"}),
        ("'语,料.txt'", "语,料.txt"),
        ("${run_dir}/语料", "${run_dir}/语料"),
        ("pairs (1).csv", "pairs (1).csv"),
        ("a=b.txt", "a=b.txt"),
        ("a[1]{2}.txt", "a[1]{2}.txt"),
        ('it\'s "new".txt', 'it\'s "new".txt'),
        ("{zh: 开发(1).tsv, en: dev(1).tsv}", {"zh": "开发(1).tsv", "en": "dev(1).tsv"}),
        ("5", 5),
    ],
)
def test_names_need_no_quotation_marks_for_hydra(value, read):
    option = entry_point._for_hydra(f"data.train={value}")
    assert OverridesParser.create().parse_override(option).value() == read
    assert entry_point._for_hydra(option) == option  # the ranks get it again


@pytest.fixture
def built(monkeypatch):
    """Record how many modules of earlier jobs are left when a job builds its own; Python does not collect cycles."""
    build, modules, left = simcse_pl.train_job.build_module, weakref.WeakSet(), []

    def build_module(*parts):
        left.append(len(modules))
        modules.add(module := build(*parts))
        return module

    monkeypatch.setattr(simcse_pl.train_job, "build_module", build_module)
    gc.disable()
    yield left
    gc.enable()


def state_of_process():
    names = ("pytorch_lightning", "lightning_fabric", "lightning_fabric.strategies.launchers")
    levels = [logging.getLogger(name).level for name in names]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1)]
    drawn = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    seeds = [os.environ.get(name) for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")]
    others = torch.get_float32_matmul_precision(), list(warnings.filters), list(sys.argv), HydraConfig.initialized()
    return levels, handlers, drawn, seeds, others


def test_python_trains_and_evaluates_several_times_and_leaves_the_process_as_it_was(
    built, sentences, pairs, make_model, tmp_path
):
    """The first run is in a thread, the second gets the sentences themselves, and a Hydra app evaluates."""
    given = [*tiny(make_model("bert")), f"data.validation={pairs}", "queue=null", "seed=1"]
    given += ["logger=csv", "trainer.max_steps=2", "data.batch_size=4"]
    before = state_of_process()
    with ThreadPoolExecutor() as pool:
        of_file = [*given, "data=text", f"data.train={sentences}", f"hydra.run.dir={tmp_path}/1"]
        runs = [pool.submit(simcse_pl.train, of_file).result()]
    runs.append(simcse_pl.train([*given, f"hydra.run.dir={tmp_path}/2"], rows=sentences.read_text().splitlines()))
    assert built == [0, 0]
    assert runs[0]["best"] == runs[1]["best"] != runs[0]["before"]
    for name, run in enumerate(runs, 1):
        assert run["folder"] == tmp_path / str(name) and run["seed"] == 1
        results = json.loads((run["folder"] / "results.json").read_text())
        assert run["score"] == results["best"]["spearman"]
        assert {path.name for path in (run["folder"] / "config").iterdir()} >= {"config.yaml", "resolved.yaml"}
    assert "\nsimcse_pl.train(['model." in (tmp_path / "2" / "encoder" / "README.md").read_text()
    options = ["tasks=[]", f"data.test={pairs}", f"hydra.run.dir={tmp_path}/evaluated"]
    with hydra.initialize(version_base="1.3"):
        measured = simcse_pl.evaluate([f"encoder={tmp_path}/1/encoder", *options])
        assert hydra.compose(overrides=["+a=1"]) == {"a": 1}, "an app of the user's goes on"
    assert measured["folder"] == tmp_path / "evaluated" and measured["own"]["metrics"]["spearman"]
    assert state_of_process() == before


def test_rows_of_python_keep_their_columns_and_are_neither_a_path_nor_a_data_frame():
    file = cached_rows([("Yes \u2028\n", "nein", np.float32(0.5)), ["a", "b", np.int64(1)]])
    assert [*iterate_rows(file, ReadOptions(score_column=2))] == [(("Yes", "nein"), 0.5), (("a", "b"), 1.0)]
    assert read_rows(cached_rows([{"a": "Yes", "b": "no"}] * 2), ["b", "a"]) == [("no", "Yes")] * 2
    for rows in ("sentences.txt", pd.DataFrame({"a": ["Yes"], "b": ["nein"]})):
        with pytest.raises(UserError, match="rows: give a list"):
            simcse_pl.train(rows=rows)
    for row in (["a", Decimal("0.5")], {"day": date(2026, 1, 2)}, ["a", np.datetime64("2026-01-02")], None, 1):
        with pytest.raises(UserError, match=r"^rows: .* is a \w+: give a "):
            cached_rows([row])


MISTAKES = {  # the command's options, and what the line says
    "data=text": "data.train is missing: add data.train=VALUE",
    "objective.temperature=low": "objective.temperature=low: it should be ",
    "data.columns=[sent0,nothing]": "no column nothing in ",
    "data.train=[a]b.txt": """; if it is one text, write 'data.train="[a]b.txt"'""",
    "model.pooling=layers_1_99": "model.pooling=layers_1_99: the model has layers 1 to 6",
    "seed=-1": "seed=-1: it should be greater than or equal to 0",
    "'' model=minilm": "'' is no option, which is NAME=VALUE; if it is a variable of the shell, set it",
    "method=simsce": "method=simsce: there is no such choice; did you mean simcse or esimcse? (method has angle, ",
    "method=[simcse]": "method: give one choice, no list or null",
    "setting=mlm": "; write experiment=mlm (",
    "trainer.accumulate_grad_batches=4": "no option trainer.accumulate_grad_batches; write module.chunk_size (",
    "data.max_length=1024": "data.max_length=1024: it is 3 to 256, which is model.max_length",
    "per_device_train_batch_size=3": "; did you mean data.batch_size",
    "trainer.max_stpes=3": "no option trainer.max_stpes; did you mean trainer.max_steps",
    "'callbacks.best={mod: max}'": "no option callbacks.best.mod; did you mean callbacks.best.mode?",
    "objective=matryoshka objective.mask_duplicates=true": "; did you mean objective.objective.mask_duplicates? (",
    "objective.margin=1": "; objective=angular_margin or objective=gist has it, and is not chosen",
    "monitor=spearman": "monitor=spearman: it is not measured in validations, as val/spearman is",
    "objective=cosine_mse objective.max_score=inf": "objective.max_score=inf: it should be a finite number",
    "auxiliary=peer_network objective=mlm": "auxiliary.peer_network.temperature: it has the value of objective.temp",
    "data.test=''": "data.test: ",
    "README.md": "README.md: to train on a file, write data=text data.train=README.md",
    "--epochs 3": "--epochs: options have no dashes: write trainer.max_epochs=3 (",
    "data.train=my.csv data.columns=[a,b]": "data.train: it replaces the sample of data=nli_sample, ",
}


@pytest.mark.parametrize("options", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_no_results(options, command, tmp_path, monkeypatch):
    monkeypatch.delenv("SENTEVAL_DIR", raising=False)
    assert MISTAKES[options] in command("train", *shlex.split(options), f"hydra.run.dir={tmp_path}/run", status=2).err
    assert not (tmp_path / "run" / "results.json").exists()


@pytest.mark.parametrize(("file", "option"), [("temperature: 1", "objective.temperature"), ("", "+objective.margin")])
def test_a_misspelt_option_of_the_users_class_names_its_own(file, option, command, tmp_path, monkeypatch):
    code = """from simcse_pl import ContrastiveLoss
class Mine(ContrastiveLoss):
    def __init__(self, temperature=0.05, margin=0.1): pass
"""
    (tmp_path / "objective").mkdir()
    (tmp_path / "own_loss.py").write_text(code)
    (tmp_path / "objective" / "mine.yaml").write_text(f"_target_: own_loss.Mine\n{file}\n")
    monkeypatch.chdir(tmp_path)
    wrong = f"{option.lstrip('+')[:-3]}=1"
    line = command("train", "--config-dir", ".", "objective=mine", wrong, status=2).err
    assert f"no option {wrong[:-2]}; did you mean {option}" in line


def test_an_evaluation_needs_one_encoder(command):
    line = "error: encoder is missing: add encoder=VALUE (simcse options encoder explains it)\n"
    assert command("evaluate", "tasks=[]", status=2).err == line
    several = "error: evaluate measures one encoder: write -m encoder=runs/a,runs/b\n"
    assert command("evaluate", "runs/a", "runs/b", status=2).err == several  # a pattern of the shell


def test_the_printed_config_has_the_row_of_the_sweep_and_the_ranges_of_a_search(command):
    row = ["sweep=table_2_objective", "sweep.row='next sentence'", "encoders=two", "--cfg", "job"]
    printed = OmegaConf.create(command("train", *row).out)
    assert printed.views._target_.endswith("OneOfNextSentences") and printed.sweep.rows == {}
    assert printed.encoders == "two" and "hydra" not in printed
    assert yaml.safe_load(command("train", "--cfg", "job", "--resolve").out)["objective"]["temperature"] == 0.05
    searched = command("train", "sweep=search", "--cfg", "job", "--package", "optimizer.lr").out
    assert yaml.safe_load(searched) == {"low": 1e-5, "high": 5e-4, "log": True}
    assert "val_every: 13\n" in command("train", "-c", "job").out
    assert command("train", "-c", "job", "-p", "seed").out == "42\n"
    assert "'bert' is no option" in command("train", "bert", "--cfg", "job", "-p", "seed", status=2).err
    assert command("train", "--version").out == f"simcse_pl {__version__}\n"


def test_a_config_of_a_name_that_the_project_has_is_an_error(command, tmp_path):
    (tmp_path / "conf" / "method").mkdir(parents=True)
    (tmp_path / "conf" / "method" / "arccse.yaml").write_text("objective: {margin: 33.0}\n")
    given = ["--config-dir", tmp_path / "conf", f"hydra.run.dir={tmp_path}/run"]
    assert "the project has a config of this name" in command("train", *given, status=2).err


def test_early_stopping_counts_validations_across_a_resumption(short_run, tmp_path):
    """The weights do not move, so no validation improves the score of the first one, and a run ends after the third."""
    given = [*short_run, "optimizer.lr=1e-30", "val_every=1", "callbacks=early_stopping", "keep_checkpoints=true"]
    given += ["data.batch_size=2", "callbacks.early_stopping.patience=2"]
    first = simcse_pl.train([*given, "trainer.max_steps=2", f"hydra.run.dir={tmp_path}/first"])
    given += ["trainer.max_steps=9", f"hydra.run.dir={tmp_path}/second"]
    second = simcse_pl.train([*given, f"resume={tmp_path}/first/checkpoints/last.ckpt"])
    assert (first["steps"], second["steps"]) == (2, 3)
    (tmp_path / "second" / "results.json").unlink()  # the last file that it wrote, as if it was killed before
    again = simcse_pl.train([*given, "resume=auto"])
    assert (again["steps"], again["best"]) == (3, second["best"])
