"""Transfer tasks with odd characters and rows, in SentEval's order."""

import pytest

from simcse_pl.data.senteval.sts_sets import NotInBundleError
from simcse_pl.data.senteval.transfer_sets import Example, load_transfer_task


def test_classes_are_numbered_and_pairs_are_read(bundle):
    assert load_transfer_task(bundle, "TREC").splits == {
        "train": [Example(("Who ?",), 3), Example(("How far is it ?",), 5)],
        "test": [Example(("Where ?",), 4)],
    }
    pairs = load_transfer_task(bundle, "MRPC").splits
    assert pairs == {"train": [Example(("A b", "A c"), 1)], "test": [Example(('He said "x', "y"), 0)]}


def test_sentevals_order_and_odd_characters(bundle):
    examples = load_transfer_task(bundle, "MR").splits["all"]
    assert [(example.sentences[0], example.label) for example in examples] == [
        ("no", 0),  # by words, then by label
        ("fine", 1),
        ("café bad", 0),
        ("a good one", 1),
    ]
    assert load_transfer_task(bundle, "CR").splits["all"][0] == Example(("",), 1)  # a blank line


def test_probing_tasks_are_beside_the_bundle(tmp_path):
    (tmp_path / "probing").mkdir()
    (tmp_path / "probing" / "past_present.txt").write_text(
        "tr\tPRES\tHe sees it now .\ntr\tPAST\tHe saw .\nva\tPAST\tIt was .\nte\tPRES\tIt is .\nte\tPRES\tGo !\n"
    )
    task = load_transfer_task(tmp_path / "downstream", "Tense")
    assert task.splits == {
        "train": [Example(("He saw .",), 0), Example(("He sees it now .",), 1)],  # classes in alphabetical order
        "dev": [Example(("It was .",), 0)],
        "test": [Example(("Go !",), 1), Example(("It is .",), 1)],
    }
    with pytest.raises(NotInBundleError, match="no file .*probing/tree_depth.txt"):
        load_transfer_task(tmp_path / "downstream", "Depth")
