"""Transfer tasks in SentEval's layouts and order, and damaged files."""

from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS, Example, load_transfer_task


def test_every_task(bundle):
    tasks = {name: load_transfer_task(bundle, name).splits for name in TRANSFER_TASKS}
    assert tasks["MPQA"] == {"all": [Example(("war",), 0), Example(("peace",), 1)]}
    assert tasks["SUBJ"] == {"all": [Example(("lovely",), 0), Example(("he goes",), 1)]}
    assert list(tasks["SST"]) == ["train", "dev", "test"]
    assert tasks["SST"]["train"] == [Example(("good",), 1), Example(("not so good",), 0)]
    assert tasks["TREC"] == {
        "train": [Example(("Who ?",), 3), Example(("How far is it ?",), 5)],
        "test": [Example(("Where ?",), 4)],
    }
    assert tasks["MRPC"] == {"train": [Example(("A b", "A c"), 1)], "test": [Example(('He said "x', "y"), 0)]}


def test_sentevals_order_and_odd_characters(bundle):
    examples = load_transfer_task(bundle, "MR").splits["all"]
    assert [(example.sentences[0], example.label) for example in examples] == [
        ("no", 0),  # by words, then by label
        ("fine", 1),
        ("café bad", 0),
        ("a good one", 1),
    ]
