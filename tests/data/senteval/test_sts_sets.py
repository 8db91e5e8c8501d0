"""Scored pairs of each layout, damaged files, and the sources of STS-B."""

import logging

import pytest

from simcse_pl.data.senteval import sts_sets as sts
from simcse_pl.data.senteval.sts_sets import (
    SPLITS,
    STS_TASKS,
    NotInBundleError,
    ScoredPair,
    load_sample,
    load_sts_task,
    load_stsb,
)
from simcse_pl.data.senteval.transfer_sets import load_transfer_task
from simcse_pl.utils.errors import UserError


def test_every_task(bundle):
    tasks = [load_sts_task(bundle, name) for name in STS_TASKS]
    assert [task.name for task in tasks] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
    assert list(tasks[3].subsets) == ["a", "b"]
    assert tasks[3].subsets["a"] == [ScoredPair("One a.", "Two.", 4.5), ScoredPair("x", "y", 0.0)]
    assert len(tasks[3].pairs) == 4
    assert tasks[5].pairs == [ScoredPair('A "test.', "B.", 5.0)]
    assert tasks[6].pairs == [ScoredPair("A b", "C d", 3.3)]


def test_stsb_comes_from_the_first_source_that_has_it(bundle, caplog):
    with caplog.at_level(logging.INFO):
        assert load_stsb(["senteval", "sample"], bundle)["dev"].pairs[0].first == 'A "dev.'
        assert load_stsb(["senteval", "sample"], None)["test"].name == "sample"
    assert caplog.messages == [
        *(f"{split}: 1 scored pairs from STS-B in {bundle}" for split in SPLITS),
        *(
            f"{split}: {len(load_sample(split).pairs)} scored pairs from the project's own sample, which is not STS-B"
            for split in SPLITS
        ),
    ]


HUB_ROWS = [{"score": 3.0, "sentence1": "A.", "sentence2": "B."}]


def test_a_failure_of_the_hub_is_a_warning_and_the_sample_replaces_both_splits(monkeypatch, caplog):
    def load_hub_dataset(name, split):
        if split == "test":
            raise UserError("error 429")
        return HUB_ROWS

    monkeypatch.setattr(sts, "load_hub_dataset", load_hub_dataset)
    assert [task.name for task in load_stsb(["senteval", "hub", "sample"], None).values()] == ["sample", "sample"]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning == "data.validation: STS-B from the hub is not available: error 429"
    with pytest.raises(UserError, match="STS-B is not available .senteval_dir is not set; error 429.$"):
        load_stsb(["senteval", "hub"], None)


def load(bundle, task):
    return (load_sts_task if task in STS_TASKS else load_transfer_task)(bundle, task)


@pytest.mark.parametrize(
    ("task", "path", "content", "message"),
    [
        ("STS12", "STS.gs.a.txt", b"4.5\n", "STS.gs.a.txt has 1 lines and STS.input.a.txt 3: one of them is trunc"),
        ("STS12", "STS.gs.a.txt", b"4.5\nmany\n0\n", "STS.input.a.txt, line 2: it should have two sentences and"),
        ("STS12", "STS.gs.a.txt", b"4.5\n\n-1\n", "STS.input.a.txt, line 3: .* a score from 0 to 5"),
        ("STS12", "STS.input.a.txt", b"One.\n\n\n", "line 1: it should have two sentences"),
        ("STS-B", "sts-test.csv", b"a\tb\tc\n", "sts-test.csv, line 1: it should have two sentences"),
        ("SST", "sentiment-dev", b"fine\t2\n", "sentiment-dev, line 1: .* one of the labels 0, 1"),
        ("TREC", "TREC_10.label", b"HUM:ind\n", "TREC_10.label, line 1: it should have a sentence"),
        ("MRPC", "msr_paraphrase_test.txt", b"h\n1\t2\t3", "msr_paraphrase_test.txt, line 2: it should have a"),
    ],
)
def test_damaged_files_are_errors(task, path, content, message, bundle):
    damaged = next(bundle.rglob(f"STS12*/{path}" if task == "STS12" else path))
    damaged.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load(bundle, task)
    assert not isinstance(error.value, NotInBundleError)
