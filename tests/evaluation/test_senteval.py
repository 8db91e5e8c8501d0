"""A small SentEval bundle with what is odd in its files; tests/fidelity compares scores with SentEval's own reader."""

import logging

import pytest

from simcse_pl.data import hub_datasets
from simcse_pl.evaluation.sts import STS_TASKS, NotInBundleError, ScoredPair, load_sts_task, load_stsb
from simcse_pl.lab.transfer import Example, load_transfer_task
from simcse_pl.utils.errors import UserError

SUBSET = "One {}.\tTwo.\nThree.\tFour.\textra\n\u0085x\ty\n"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
FILES = {
    **{f"STS/STS15-en-test/STS.input.{subset}.txt": SUBSET.format(subset) for subset in "ba"},
    **{f"STS/STS15-en-test/STS.gs.{subset}.txt": "4.5\n\n0\n" for subset in "ba"},
    "STS/STS15-en-test/STS.output.a.txt": "not read",
    **{f"STS/STSBenchmark/sts-{split}.csv": f'g\tf\ty\t1\t5.000\tA "{split}.\tB.\n' for split in ("dev", "test")},
    "MR/rt-polarity.pos": "a  good one \nfine\n",
    "MR/rt-polarity.neg": "caf\u00e9 \u0085 bad\nno\n".encode("latin-1"),
    "CR/custrev.pos": "works\n\nvery well\n",
    "CR/custrev.neg": "broke\n",
    **{f"SST/binary/sentiment-{split}": "great\t1\n" for split in ("train", "dev", "test")},
    "TREC/train_5500.label": "NUM:dist How far is it ?\nHUM:ind Who ?\n",
    "TREC/TREC_10.label": "LOC:city Where\t?\n",
    "MRPC/msr_paraphrase_train.txt": f"\ufeff{MRPC}\n1\t5\t6\tA b\tA  c\n",
    "MRPC/msr_paraphrase_test.txt": f'{MRPC}\n0\t5\t6\tHe said "x\ty\r\n',
}


@pytest.fixture
def bundle(tmp_path):
    """A bundle with one to three pairs or rows in each file."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


def test_pairs_without_a_score_are_left_out(bundle):
    task = load_sts_task(bundle, "STS15")
    assert list(task.subsets) == ["a", "b"] and len(task.pairs) == 4
    assert task.subsets["a"] == [ScoredPair("One a.", "Two.", 4.5), ScoredPair("x", "y", 0.0)]
    with pytest.raises(NotInBundleError):
        load_sts_task(bundle, "STS12")


def test_stsb_comes_from_the_first_source_that_has_it(bundle, caplog):
    with caplog.at_level(logging.INFO):
        assert load_stsb(["senteval", "sample"], bundle)["dev"].pairs[0].first == 'A "dev.'
        assert load_stsb(["senteval", "sample"], None)["test"].name == "sample"
    assert "which is not STS-B" in caplog.messages[-1]
    assert {record.levelname for record in caplog.records} == {"INFO"}
    with pytest.raises(NotInBundleError):
        load_stsb(["senteval", "sample"], bundle / "another")


def test_a_failure_of_the_hub_is_a_warning_and_the_sample_replaces_both_splits(monkeypatch, caplog):
    def load_hub_dataset(name, split):
        if split == "test":
            raise UserError("error 429")
        return [{"score": 3.0, "sentence1": "A.", "sentence2": "B."}]

    monkeypatch.setattr(hub_datasets, "load_hub_dataset", load_hub_dataset)
    assert [task.name for task in load_stsb(["senteval", "hub", "sample"], None).values()] == ["sample", "sample"]
    assert "hub is not available (error 429); in its place: the project's own sample" in caplog.text
    with pytest.raises(UserError, match="STS-B is not available .senteval_dir is not set; error 429.$"):
        load_stsb(["senteval", "hub"], None)


def test_an_empty_list_of_sources_is_an_error_with_their_names():
    with pytest.raises(UserError, match=r"^data.validation=\[\]: choose some of senteval, hub, sample$"):
        load_stsb([], None)


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


@pytest.mark.parametrize(
    ("task", "path", "content", "message"),
    [
        ("STS15", "STS.gs.a.txt", b"4.5\n", "STS.gs.a.txt has 1 lines and STS.input.a.txt 3: one of them is trunc"),
        ("STS-B", "sts-test.csv", b"\n", "sts-test.csv has no rows"),
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
