"""Scored pairs of each layout, damaged files, and the sources of STS-B."""

import logging

import pytest

from simcse_pl.data.senteval import sts_sets as sts
from simcse_pl.data.senteval.sts_sets import (
    STS_TASKS,
    NotInBundleError,
    ScoredPair,
    load_sts_task,
    load_stsb,
)
from simcse_pl.data.senteval.transfer_sets import load_transfer_task
from simcse_pl.utils.errors import UserError


def test_pairs_without_a_score_are_left_out(bundle):
    task = load_sts_task(bundle, "STS15")
    assert list(task.subsets) == ["a", "b"] and len(task.pairs) == 4
    assert task.subsets["a"] == [ScoredPair("One a.", "Two.", 4.5), ScoredPair("x", "y", 0.0)]


def test_stsb_comes_from_the_first_source_that_has_it(bundle, caplog):
    with caplog.at_level(logging.INFO):
        assert load_stsb(["senteval", "sample"], bundle)["dev"].pairs[0].first == 'A "dev.'
        assert load_stsb(["senteval", "sample"], None)["test"].name == "sample"
    assert "which is not STS-B" in caplog.messages[-1]


HUB_ROWS = [{"score": 3.0, "sentence1": "A.", "sentence2": "B."}]


def test_a_failure_of_the_hub_is_a_warning_and_the_sample_replaces_both_splits(monkeypatch, caplog):
    def load_hub_dataset(name, split):
        if split == "test":
            raise UserError("error 429")
        return HUB_ROWS

    monkeypatch.setattr(sts, "load_hub_dataset", load_hub_dataset)
    assert [task.name for task in load_stsb(["senteval", "hub", "sample"], None).values()] == ["sample", "sample"]
    assert "STS-B from the hub is not available: error 429" in caplog.text
    with pytest.raises(UserError, match="STS-B is not available .senteval_dir is not set; error 429.$"):
        load_stsb(["senteval", "hub"], None)


@pytest.mark.parametrize(
    ("task", "path", "content", "message"),
    [
        ("STS15", "STS.gs.a.txt", b"4.5\n", "STS.gs.a.txt has 1 lines and STS.input.a.txt 3: one of them is trunc"),
        ("STS15", "STS.gs.a.txt", b"4.5\n\n-1\n", "STS.input.a.txt, line 3: .* a score from 0 to 5"),
        ("STS-B", "sts-test.csv", b"a\tb\tc\n", "sts-test.csv, line 1: it should have two sentences"),
        ("SST", "sentiment-dev", b"fine\t2\n", "sentiment-dev, line 1: .* one of the labels 0, 1"),
    ],
)
def test_damaged_files_are_errors(task, path, content, message, bundle):
    damaged = next(bundle.rglob(path))
    damaged.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        (load_sts_task if task in STS_TASKS else load_transfer_task)(bundle, task)
    assert not isinstance(error.value, NotInBundleError)
