"""The datamodule: who gets which rows in which order, and sizes that do not fit."""

import pytest
import torch

from simcse_pl.data import datamodule
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.errors import UserError


@pytest.fixture
def tokenizer(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls").tokenizer


@pytest.fixture
def make_data(tokenizer, tmp_path):
    def make(rows=10, columns=1, **options):
        path = tmp_path / f"rows{rows}x{columns}.tsv"
        lines = ["\t".join("the " * (r + 1) + "dogs" * (c + 1) for c in range(columns)) for r in range(rows)]
        path.write_text("\n".join(lines))
        data = SentenceDataModule(tokenizer, path, header=False, validation=["sample"], **options)
        data.setup()
        return data

    return make


def batches(data, epoch=0):
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return [[sentences(data, row) for row in batch["input_ids"]] for batch in loader]


def sentences(data, views):
    return tuple(data.tokenizer.decode(ids, skip_special_tokens=True) for ids in views)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_row_once_an_epoch_and_a_last_short_batch(make_data, workers):
    data = make_data(rows=10, batch_size=4, num_workers=workers)
    seen = batches(data)
    assert [len(batch) for batch in seen] == [4, 4, 2]
    assert len({row for batch in seen for row in batch}) == 10
    assert all(row[0] == row[1] for batch in seen for row in batch)


def test_order_is_the_seeds_and_the_epochs(make_data):
    orders = [batches(make_data(rows=10, seed=seed), epoch) for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert orders[0] != orders[3]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_share_the_very_batches_of_one_device(make_data, monkeypatch, ranks):
    alone = batches(make_data(rows=16, columns=3, batch_size=8))
    shares = []
    for number in range(ranks):
        monkeypatch.setattr(datamodule, "world_size", lambda: ranks)
        monkeypatch.setattr(datamodule, "rank", lambda number=number: number)
        data = make_data(rows=16, columns=3, batch_size=8)
        shares.append(batches(data))
        pairs = sum(len(batch["scores"]) for batch in data.val_dataloader())
        assert abs(pairs - len(data.tasks["dev"].pairs) / ranks) <= 1
    for i, batch in enumerate(alone):
        assert {row for share in shares for row in share[i]} == set(batch)


def test_fewer_rows_than_a_batch_are_one_batch(make_data):
    assert [len(batch) for batch in batches(make_data(rows=3, columns=2, batch_size=64))] == [3]


def test_one_row_is_enough_with_a_hard_negative(make_data):
    assert [len(batch) for batch in batches(make_data(rows=1, columns=3))] == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 1}, "has one row: a batch of one without hard negatives has nothing to contrast with"),
        ({"rows": 1, "columns": 2}, "has one row"),
        ({"batch_size": 1}, "data.batch_size=1: a batch of one"),
        ({"batch_size": 0}, "data.batch_size=0: it must be at least 1"),
        ({"max_length": 2}, "data.max_length=2: this model reads 3 to 64 tokens"),
        ({"max_length": 65}, "data.max_length=65: this model reads 3 to 64 tokens"),
    ],
)
def test_what_cannot_be_trained_on_is_told(make_data, options, message):
    with pytest.raises(UserError, match=message):
        make_data(**options)


def test_a_batch_that_ranks_cannot_share_is_told(make_data, monkeypatch):
    monkeypatch.setattr(datamodule, "world_size", lambda: 3)
    data = make_data()
    with pytest.raises(UserError, match="data.batch_size=64 cannot be shared by 3 devices evenly"):
        data.train_dataloader()


def test_validation_holds_each_pair_once(make_data):
    data = make_data()
    for split, loader in (("dev", data.val_dataloader()), ("test", data.test_dataloader())):
        scores = torch.cat([batch["scores"] for batch in loader])
        assert sorted(scores.tolist()) == pytest.approx(sorted(pair.score for pair in data.tasks[split].pairs))
