"""The datamodule: rows and views of one or several sets, their order on each rank and after a resume, wrong options."""

from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DistributedSampler

from simcse_pl.data import datamodule
from simcse_pl.data.collator import ViewCollator
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.evaluator import TEST, VALIDATION
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.data.views.sentences import Dropout
from simcse_pl.models.roles import default_roles
from simcse_pl.utils.errors import UserError
from tests.conftest import quiet_trainer
from tests.data.conftest import LABELS, NLI, SAMPLE, TEXT, Shuffled, streams


@pytest.fixture
def make_data(tokenizer, tmp_path):
    def make(rows=10, columns=1, **options):
        path = tmp_path / f"rows{rows}x{columns}.tsv"
        lines = ["\t".join("the " * (r + 1) + "dogs" * (c + 1) for c in range(columns)) for r in range(rows)]
        path.write_text("\n".join(lines))
        data = SentenceDataModule(tokenizer, path, header=False, **SAMPLE, **options)
        data.setup()
        return data

    return make


def sentences(data, views):
    return tuple(data.tokenizer.decode(ids, skip_special_tokens=True) for ids in views)


def test_all_ranks_validate_on_the_sentences_of_rank_0(make_data, tokenizer, monkeypatch):
    first = make_data()
    monkeypatch.setattr(datamodule, "is_first_process", lambda: False)
    train = first.sets[""].train
    other = SentenceDataModule(tokenizer, train, header=False, evaluators={"sts": None})  # may find no data
    other.setup()
    assert len(other.sets[""].chosen) == 10 and not other.sentences
    other.trainer = SimpleNamespace(strategy=SimpleNamespace(broadcast=lambda own: own or first.evaluators))
    other.setup("validate")
    assert other.evaluators == first.evaluators
    assert other.sentences[VALIDATION].sentences == first.sentences[VALIDATION].sentences


@pytest.mark.parametrize("view", [None, Dropout()])
@pytest.mark.parametrize("columns", [1, 3])
def test_without_a_view_and_with_dropout_batches_are_the_rows_in_pytorchs_order(make_data, view, columns):
    data = make_data(rows=10, columns=columns, batch_size=4, seed=3, views=view)
    collate = ViewCollator(data.tokenizer, data.max_length)
    rows = [tuple("the " * (r + 1) + "dogs" * (c + 1) for c in range(columns)) for r in range(10)]
    order = DistributedSampler(rows, 1, 0, shuffle=True, seed=3)
    for epoch, batches in enumerate(streams(data)):
        order.set_epoch(epoch)
        drawn = [rows[i] for i in order]
        expected = [collate(drawn[start : start + 4]) for start in (0, 4, 8)]
        tensors = [{name: x.tolist() for name, x in batch.items()} for batch in expected]
        further = {"roles": default_roles(max(2, columns))}
        places = torch.tensor(list(order)).split(4)
        of_batches = [{"counts": (len(rows),), "rows": rows.tolist()} for rows in places]
        assert batches == [x | further | own for x, own in zip(tensors, of_batches, strict=True)]


@pytest.mark.parametrize("workers", [0, 1])
def test_each_row_has_its_label_in_the_batch(make_read, workers):
    data = make_read("d.csv", NLI, label_column="label", batch_size=5, num_workers=workers)
    assert list(data.sets[""].classes) == ["contradiction", "entailment", "neutral"]
    seen = {}
    for batch in data.train_dataloader():
        assert batch["labels"].dtype == torch.int64 and batch["labels"].shape == batch["input_ids"].shape[:1]
        for row, label in zip(batch["input_ids"], batch["labels"].tolist(), strict=True):
            seen[sentences(data, row)[0]] = list(data.sets[""].classes)[label]
    assert {sentence.replace(" ", ""): label for sentence, label in seen.items()} == LABELS


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
@pytest.mark.parametrize(
    ("several", "workers", "max_steps"),
    [(False, 0, 8), (True, 0, -1), (True, 1, 8)],
)
def test_a_run_resumed_at_any_step_sees_the_remaining_batches(
    make_read, make_sets, tmp_path, several, workers, max_steps
):
    def make(num_workers=0):
        if several:
            return make_sets(num_workers=num_workers)
        return make_read("sentences.txt", TEXT, views=Shuffled(), batch_size=5, num_workers=num_workers)

    def trained(resume=None):
        data = make(workers)
        recorder = Recorder(tmp_path / "resumed" if resume else tmp_path)
        validated = {"val_check_interval": 2, "check_val_every_n_epoch": None}
        trainer = quiet_trainer(max_epochs=3, max_steps=max_steps, use_distributed_sampler=False, **validated)
        trainer.fit(recorder, data, ckpt_path=resume and tmp_path / resume)
        return recorder.seen

    whole = trained()
    order = [(epoch, batch["input_ids"]) for epoch, own in enumerate(streams(make(), 3)) for batch in own]
    assert whole == order[: max_steps if max_steps > 0 else None]
    steps = range(1, len(whole), 5 if several else 3 if workers else 1)
    for kind in [f"{step}" for step in steps] + [f"{step}-validated" for step in steps if step % 2 == 0]:
        assert trained(f"{kind}.ckpt") == whole[int(kind.split("-")[0]) :], kind


def test_training_sentences_in_an_evaluation_set_are_a_warning(make_read, caplog):
    pairs = {split: load_sample(split).pairs for split in ("dev", "test")}
    text = "\n".join([pairs["dev"][0].first, "This is in no pair.", pairs["test"][0].first, pairs["test"][1].second])
    data = make_read("d.txt", text)
    messages = [message for message in caplog.messages if "too high" in message]
    for message, count, split in zip(messages, (1, 2), (VALIDATION, TEST), strict=True):
        assert f"{count} sentences of {data.sets[''].train} are in the {split} set" in message


@pytest.mark.parametrize("sampling", ["proportional", "round_robin", "concatenated"])
def test_each_batch_is_one_of_its_set_with_its_own_options(make_sets, sampling):
    data = make_sets(sampling)
    loader = data.train_dataloader()
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        seen = {name: [] for name in data.sets}
        for batch in loader:
            name, rows = batch["dataset"], batch["rows"].tolist()
            own = data.sets[name]
            expected = own.batch([(epoch, own.chosen.index(row)) for row in rows])
            assert batch.keys() == {*expected, "counts"} and batch["input_ids"].equal(expected["input_ids"])
            assert "labels" not in batch or batch["labels"].equal(expected["labels"])
            seen[name] += rows
            assert ("labels" in batch) == (name != "plain")
        if sampling != "round_robin":
            assert {name: sorted(rows) for name, rows in seen.items()} == {
                name: list(range(len(own.chosen))) for name, own in data.sets.items()
            }
    assert [own.batch_size for own in data.sets.values()] == [5, 3, 5]
    assert len(loader) == {"round_robin": 6}.get(sampling, 3 + 4 + 2)


def test_a_set_with_fewer_rows_than_ranks_is_named(make_sets, monkeypatch):
    monkeypatch.setattr(datamodule, "world_size", lambda: 4)
    with pytest.raises(UserError, match="^data.sets.nli: data.batch_size=3, 12 rows: both must be at least 4"):
        make_sets().train_dataloader()
