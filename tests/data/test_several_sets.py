"""Several training sets: the batches of each, their order, and options that do not fit."""

import pytest

from simcse_pl.data import datamodule
from simcse_pl.utils.errors import UserError
from tests.data.conftest import TEXT, Shuffled, streams


@pytest.mark.parametrize("sampling", ["proportional", "round_robin", "concatenated"])
def test_each_batch_is_one_of_its_set_with_its_own_options(make_sets, sampling):
    data = make_sets(sampling)
    loader = data.train_dataloader()
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        seen = {name: [] for name in data.sets}
        for place, batch in enumerate(loader):
            name = batch["dataset"]
            own, rows = data.rows_of_batch(epoch, place)
            assert own is data.sets[name]
            expected = own.batch([(epoch, own.chosen.index(row)) for row in rows])
            assert batch.keys() == expected.keys() and batch["input_ids"].equal(expected["input_ids"])
            assert "labels" not in batch or batch["labels"].equal(expected["labels"])
            seen[name] += rows
            assert ("labels" in batch) == (name != "plain")
        if sampling != "round_robin":
            assert {name: sorted(rows) for name, rows in seen.items()} == {
                name: list(range(len(own.chosen))) for name, own in data.sets.items()
            }
    assert [own.batch_size for own in data.sets.values()] == [5, 3, 5]
    assert len(loader) == {"round_robin": 6}.get(sampling, 3 + 4 + 2)


def test_the_first_of_several_sets_draws_as_it_does_alone(make_sets, make_read):
    alone = streams(make_read("d.txt", TEXT, views=Shuffled(), batch_size=5))
    several = streams(make_sets("concatenated"))
    for own, epoch in zip(alone, several, strict=True):
        assert [{**batch, "dataset": "plain"} for batch in own] == epoch[:3]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: Input should be greater than 0"),
        ({"colums": "a"}, "colums=a: Unexpected keyword argument"),
        ({"label_column": 0, "score_column": 1}, "a row has a class or a score"),
    ],
)
def test_wrong_options_of_a_set_are_one_line(make_sets, option, message):
    with pytest.raises(UserError, match=f"^data.sets.a: {message}"):
        make_sets(sets=lambda own: {"a": own["plain"] | option})


def test_a_set_with_fewer_rows_than_ranks_is_named(make_sets, monkeypatch):
    monkeypatch.setattr(datamodule, "world_size", lambda: 4)
    with pytest.raises(UserError, match="^data.sets.nli: data.batch_size=3, 12 rows: both must be at least 4"):
        make_sets().train_dataloader()
