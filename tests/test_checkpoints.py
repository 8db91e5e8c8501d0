"""Runs that are killed and resumed have the weights, curves and scores of an uninterrupted run."""

import contextlib
import functools
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pandas
import peft
import pytest
import torch
from omegaconf import OmegaConf

from simcse_pl.checkpoints import LAST_CHECKPOINT, RunMetadata, Start, _scores_of, find_start, prepare_folder
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.methods.distillation import EmbeddingDistillation
from simcse_pl.models.adapters import add_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.run_folder import WANDB_FILE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import locked
from tests.conftest import SENTENCES, adamw, environment, tiny
from tests.support.helpers import assert_same_run, composed, everything_of
from tests.support.offline_wandb import offline_runs

STEPS = 12  # 4 epochs of 3 batches


@pytest.fixture
def forked(tmp_path, make_model, pairs, forks_of_session):
    """Run train.py several times, with dropout, a view, a queue, MLM and epochs that end within a batch."""
    (tmp_path / "sentences.txt").write_text("\n".join(SENTENCES))
    given = ["data=text", f"data.train={tmp_path}/sentences.txt", "views=word_deletion", *tiny(make_model("bert"))]
    given += ["queue=momentum", "queue.size=5", "auxiliary=[mlm]", "auxiliary.mlm.head=new", "logger=csv"]
    given += ["data.batch_size=3", "val_every=2", "log_every=1", "trainer.max_epochs=4", "module.chunk_size=2"]
    given += [f"data.validation={pairs}", f"data.test={pairs}", "trainer=cpu"]

    def run(*runs):
        ended = []
        for folder, options, fault in runs:
            arguments = ["train.py", *given, *options, f"hydra.run.dir={tmp_path}/{folder}"]
            done = forks_of_session.run(*arguments, environment=environment(WANDB_MODE="offline"), fault=fault)
            ended.append((done.returncode, done.stderr))
        return ended

    return run


def test_a_killed_or_terminated_run_is_resumed_to_the_bit(forked, tmp_path):
    """Terminate right after a validation, and in the next step; kill while a checkpoint is written."""
    faults = [["terminate_in_step", 2], ["terminate_in_step", 1], ["kill_while_saving", 2], None]
    runs = [("whole", [], None), *(("resumed", ["resume=auto"], fault) for fault in faults)]
    expected = {"terminate_in_step": 143, "kill_while_saving": -9}
    for (_, _, fault), (status, errors) in zip(runs, forked(*runs), strict=True):
        assert status == (expected[fault[0]] if fault else 0), (fault, errors)
        assert (status == 143) == ("stopped after step " in errors)
    whole = everything_of(tmp_path / "whole")
    assert whole[1]["steps"] == STEPS and whole[0]["train/loss"].count() == STEPS
    assert_same_run(tmp_path / "resumed", whole)


@pytest.mark.slow
def test_a_resumed_run_continues_its_wandb_run(forked, tmp_path):
    """Kill after a checkpoint, terminate, and finish; resume in another folder too."""
    first, other = ["resume=auto", "logger=wandb"], ["logger=wandb", f"resume={tmp_path}/run/checkpoints/last.ckpt"]
    kills = [["kill_in_step", 6], ["terminate_in_step", 3], None]
    forked(*[("run", first, kill) for kill in kills], ("other", other, None))
    killed, terminated, last = offline_runs(tmp_path / "run", killed=1)
    (apart,) = offline_runs(tmp_path / "other")
    assert killed.started.run_id == terminated.started.run_id == last.started.run_id != apart.started.run_id
    assert [(run.exit, run.preempting) for run in (killed, terminated, last)] == [(None, False), (1, True), (0, False)]
    curves = pandas.read_csv(tmp_path / "run" / "metrics.csv")
    for name in ("train/loss", "val/spearman"):
        expected = curves.loc[curves["step"] > 4, ["step", name]].dropna()  # where the checkpoint was written
        points = [[row["trainer/global_step"], row[name]] for row in terminated.history + last.history if name in row]
        assert points == expected.to_numpy().tolist(), name
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    best = killed.summary | terminated.summary | last.summary  # as W&B merges them
    assert best["val/spearman"] == results["best"]["spearman"] and best["best_step"] == results["best_step"]


def test_a_run_can_be_resumed_in_another_folder_and_a_finished_one_has_no_steps_left(forked, tmp_path):
    checkpoint = tmp_path / "first" / "checkpoints" / "last.ckpt"
    shorter, resumed = ["trainer.max_epochs=2"], [f"resume={checkpoint}"]
    options = {"first": shorter, "second": resumed, "apart": shorter + resumed}
    first, second, apart = forked(*((name, options[name], None) for name in options))
    assert (first[0], second[0], apart[0]) == (0, 0, 2)
    assert apart[1].endswith("error: no steps to train: increase trainer.max_epochs or trainer.max_steps\n")
    curves = pandas.read_csv(tmp_path / "second" / "metrics.csv")
    assert curves["train/loss"].count() == STEPS // 2 and curves["step"].min() == STEPS // 2 + 1
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("first", "second")]
    assert results[0]["before"] == results[1]["before"] and results[1]["steps"] == STEPS


def write_run(folder, steps=4):
    record = RunMetadata()
    record.before = {"val/spearman": 0.5}
    (folder / "checkpoints").mkdir(parents=True)
    content = {"global_step": steps, "callbacks": {record.state_key: record.state_dict()}}
    torch.save(content, folder / "checkpoints" / "last.ckpt")
    (folder / "metrics.csv").write_text("step,train/loss\n1,0.5\n4,0.25\n5,0.125\n7,0.1\n")


def test_all_sentences_of_an_evaluator_are_compared_also_in_an_array():
    def record(changed):
        sentences = np.array([f"sentence {number}" for number in range(2000)])
        sentences[1000] = changed
        evaluators, record = {"mine": SimpleNamespace(by_prompt=lambda split: {None: sentences})}, RunMetadata()
        record.setup(SimpleNamespace(datamodule=SimpleNamespace(evaluators=evaluators)), torch.nn.Module(), "fit")
        return record

    with pytest.raises(UserError, match="the content of data.validation is"):
        record("another").load_state_dict(record("one").state_dict())


@functools.cache
def resolved(*options):
    return OmegaConf.to_container(composed(*options), resolve=True)


def test_scores_and_grades_are_compared_and_data_of_other_kinds_are_not(pairs, tmp_path):
    (tmp_path / "changed.tsv").write_text(pairs.read_text().replace("\t0\n", "\t0.5\n", 1))
    evaluator = ScoredPairs(str(pairs))
    written = _scores_of(evaluator)
    assert _scores_of(ScoredPairs(str(pairs))) == written != _scores_of(ScoredPairs(str(tmp_path / "changed.tsv")))
    evaluator.sets = {"validation": {"": object()}}  # its text has an address
    assert _scores_of(evaluator) is None


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("optimizer.lr=0.1", "optimizer.lr is 0.1, and was 5e-05"),
        ("model.head=mlp", "model.head is mlp, and was none"),
        ("data.train=other", "the content of data.train is other content, and was"),
        ("trainer.max_steps=9", None),
        ("trainer.gradient_clip_val=0.5", "trainer.gradient_clip_val is 0.5, and was 1.0"),
        ("views.mlm.name=other", "data.views.mlm.name is other, and was bert-base-uncased"),
        ("model.name=other", None),
        ("data.validation=other", "the content of data.validation is "),
        ("data.test=other", "the scores of data.validation and data.test is "),
        ("monitor=val/uniformity", "monitor is val/uniformity, and was val/spearman"),
        ("segmenter=icu", "data.views.mlm.segment._target_ is simcse_pl.data.words.icu"),
        ("data.num_workers=2", None),
        ("module.compile=true", None),
        ("+views.mlm.test=2", "data.views.mlm.test is 2, and was None"),  # of a class of the user's
    ],
)
def test_what_decides_the_weights_must_be_that_of_the_checkpoint(option, message):
    def record(*options):
        config = resolved("data=text", "data.train=one", "views=mlm", *options)
        record = RunMetadata(config)
        cache = SimpleNamespace(fingerprint=f"{config['data']['train']} content")
        rows = SimpleNamespace(cache=cache, collate=SimpleNamespace(prompts=()))
        dev = SimpleNamespace(by_prompt=lambda split: {None: [str(config["data"][split])]}, sets=config["data"]["test"])
        data = SimpleNamespace(rows={"": rows}, evaluators={"dev": dev})
        record.setup(SimpleNamespace(datamodule=data), torch.nn.Module(), "fit")
        return record

    written = record().state_dict()
    with pytest.raises(UserError, match=f"^resume: {message}") if message else contextlib.nullcontext():
        record(option).load_state_dict(written)
    without_new = {name: value for name, value in written["trained_with"].items() if name != "data.negatives"}
    record().load_state_dict(written | {"trained_with": without_new})  # of a version without this option, which is null


def test_a_resumed_run_has_the_same_tokenizer_and_base_of_an_adapter(make_model):
    def record(folder, adapter, words=None):
        encoder, record = SentenceEncoder.from_pretrained(folder, "cls"), RunMetadata()
        encoder.tokenizer.get_vocab = lambda: words or {"dog": 0}
        if adapter:
            add_adapter(encoder.backbone, peft.LoraConfig(r=2, target_modules=["query"]))
        module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
        record.setup(SimpleNamespace(), module, "validate")
        for weight in encoder.backbone.parameters():  # after the first stage, other ranks may have them
            weight.data = torch.empty(0)
        record.setup(SimpleNamespace(), module, "fit")
        return record

    folder, other = make_model("bert"), make_model("bert", initializer_range=0.3)
    written = record(folder, adapter=True).state_dict()
    record(folder, adapter=True).load_state_dict(written)  # another draw of the adapter
    with pytest.raises(UserError, match="resume: the content of the base model is .*, and was "):
        record(other, adapter=True).load_state_dict(written)
    written = record(folder, adapter=False).state_dict()
    record(other, adapter=False).load_state_dict(written)  # checkpoints have its weights
    with pytest.raises(UserError, match="resume: the content of the tokenizer is "):
        record(folder, adapter=False, words={"cat": 0}).load_state_dict(written)


def test_a_resumed_run_has_the_same_teacher(teacher, tmp_path):
    def record(path):
        record, module = RunMetadata(), torch.nn.Module()
        module.objective = EmbeddingDistillation(path)
        record.setup(SimpleNamespace(), module, "fit")
        return record

    folder, file = tmp_path / "teacher", tmp_path / "vectors.npy"
    shutil.copytree(teacher, folder)
    np.save(file, np.eye(4, dtype=np.float32))
    before = [record(path).state_dict() for path in (folder, file)]
    for path, state in zip((folder, file), before, strict=True):
        record(path).load_state_dict(state)
    np.save(file, np.eye(4, dtype=np.float32)[::-1])
    encoder = SentenceEncoder.from_pretrained(folder)
    encoder.normalize = False
    encoder.save_pretrained(folder)
    for path, state in zip((folder, file), before, strict=True):
        with pytest.raises(UserError, match="^resume: the content of objective.teacher is .*, and was .*"):
            record(path).load_state_dict(state)


def test_a_job_of_a_sweep_continues_its_folder_and_the_log_says_why(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("simcse_pl.checkpoints.in_sweep", lambda: True)
    write_run(tmp_path)
    (tmp_path / WANDB_FILE).write_text("{}")
    with caplog.at_level("INFO"):
        start = find_start(None, tmp_path)
    checkpoint = tmp_path / "checkpoints" / "last.ckpt"
    assert start == Start(checkpoint, step=4, continues=True)
    why = "this is a job of a sweep, where resume=auto is the default"
    assert caplog.messages == [f"resuming from step 4, because {why}: {checkpoint}"]
    prepare_folder(tmp_path, start)
    assert (tmp_path / "metrics.csv").read_text() == "step,train/loss\n1,0.5\n4,0.25\n"
    assert checkpoint.exists() and (tmp_path / WANDB_FILE).exists(), "the run of W&B continues too"


@pytest.mark.parametrize("finished", [False, True])
def test_a_folder_with_anything_of_a_run_is_not_used_again(tmp_path, finished):
    write_run(tmp_path)
    if finished:
        (tmp_path / "results.json").touch()
    curves = (tmp_path / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match="already holds a run"):
        find_start(f"{tmp_path}/checkpoints/last.ckpt" if finished else None, tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes() == curves


def test_a_folder_is_locked_by_one_run(tmp_path):
    with locked(tmp_path), pytest.raises(UserError, match="another command is writing to it"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("search", [False, True])
def test_without_a_checkpoint_and_in_a_search_a_run_starts_anew(tmp_path, search):
    assert find_start("auto", tmp_path, search) == Start()
    if search:
        write_run(tmp_path)
    (tmp_path / "metrics.csv").write_text("step,train/loss\n0,0.5\n")
    (tmp_path / WANDB_FILE).write_text("{}")
    prepare_folder(tmp_path, find_start("auto", tmp_path, search), search)
    assert (tmp_path / "metrics.csv").read_text() == "step,train/loss\n" and not (tmp_path / WANDB_FILE).exists()
    assert not (tmp_path / LAST_CHECKPOINT).exists(), "Lightning would give the new one another name"


@pytest.mark.parametrize(
    "content",
    [
        b"PK half",
        {"state_dict": {}},
        {"global_step": torch.ones(2), "callbacks": {"run": {"before": {"val/spearman": 0.5}, "trained_with": {}}}},
    ],
)
def test_a_file_that_is_no_checkpoint_is_an_error(tmp_path, content):
    path = tmp_path / "checkpoints" / "last.ckpt"
    path.parent.mkdir()
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(UserError, match="last.ckpt is no(t a)? checkpoint"):
        find_start("auto", tmp_path)
