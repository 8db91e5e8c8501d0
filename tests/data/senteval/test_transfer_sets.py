"""Transfer tasks in SentEval's layouts and order, and damaged files."""

import pytest

from simcse_pl.data.senteval.bundle import NotInBundleError
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS, Example, load_transfer_task
from simcse_pl.utils.errors import UserError

FILES = {
    "MR/rt-polarity.pos": b"a  good one \nfine\n",
    "MR/rt-polarity.neg": "caf\u00e9 \u0085 bad\nno\n".encode("latin-1"),
    "CR/custrev.pos": b"works\n\nvery well\n",
    "CR/custrev.neg": b"broke\n",
    "SUBJ/subj.objective": b"he goes\n",
    "SUBJ/subj.subjective": b"lovely\n",
    "MPQA/mpqa.pos": b"peace\n",
    "MPQA/mpqa.neg": b"war\n",
    "SST/binary/sentiment-train": b"not so good\t0\ngood\t1\n",
    "SST/binary/sentiment-dev": b"bad\t0\n",
    "SST/binary/sentiment-test": b"great\t1\n",
    "TREC/train_5500.label": b"NUM:dist How far is it ?\nHUM:ind Who ?\n",
    "TREC/TREC_10.label": b"LOC:city Where\t?\n",
    "MRPC/msr_paraphrase_train.txt": b"\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t5\t6\tA b\tA  c\n",
    "MRPC/msr_paraphrase_test.txt": b'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t5\t6\tHe said "x\ty\r\n',
}


@pytest.fixture
def bundle(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


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


def test_a_tab_in_a_question_of_trec_is_white_space(bundle):
    (bundle / "TREC" / "TREC_10.label").write_text("HUM:ind Who\tis he ?\n")
    assert load_transfer_task(bundle, "TREC").splits["test"][0].sentences == ("Who is he ?",)


def test_a_blank_line_of_cr_is_an_empty_sentence_as_in_senteval(bundle):
    assert load_transfer_task(bundle, "CR").splits["all"][0] == Example(("",), 1)


@pytest.mark.parametrize(
    ("task", "path", "content", "message"),
    [
        ("MR", "MR/rt-polarity.pos", b"\n\n", "rt-polarity.pos has no sentences"),
        (
            "SST",
            "SST/binary/sentiment-dev",
            b"fine\t1\nbad\n",
            "sentiment-dev, line 2: 1 columns where there should be 2",
        ),
        (
            "SST",
            "SST/binary/sentiment-dev",
            b"fine\t2\n",
            "sentiment-dev, line 1: '2' is not a label; it should be one of 0",
        ),
        ("SST", "SST/binary/sentiment-dev", b" \t1\n", "sentiment-dev, line 1: a sentence is empty"),
        ("SST", "SST/binary/sentiment-dev", b"", "sentiment-dev has no rows"),
        ("TREC", "TREC/TREC_10.label", b"WHO:x Who ?\n", "TREC_10.label, line 1: 'WHO' is not a label"),
        ("TREC", "TREC/TREC_10.label", b"HUM:ind\n", "TREC_10.label, line 1: a sentence is empty"),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", b"h\n1\t2\t3\tA b", "msr_paraphrase_test.txt, line 2: 4 columns"),
    ],
)
def test_damaged_files_are_errors_of_one_line(task, path, content, message, bundle):
    (bundle / path).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_transfer_task(bundle, task)
    assert "\n" not in str(error.value)


def test_missing_tasks_and_files_are_errors(bundle, tmp_path):
    with pytest.raises(NotInBundleError, match="no folder .*MR"):
        load_transfer_task(tmp_path / "nowhere", "MR")
    (bundle / "TREC" / "TREC_10.label").unlink()
    with pytest.raises(UserError, match="no file .*TREC_10.label"):
        load_transfer_task(bundle, "TREC")


@pytest.mark.slow
def test_real_bundle(senteval_dir, caplog):
    sizes = {
        name: {split: len(examples) for split, examples in load_transfer_task(senteval_dir, name).splits.items()}
        for name in ("MR", "CR", "SUBJ", "SST", "MRPC")
    }
    assert sizes == {
        "MR": {"all": 10662},
        "CR": {"all": 3775},
        "SUBJ": {"all": 10000},
        "SST": {"train": 6920, "dev": 872, "test": 1821},
        "MRPC": {"train": 4076, "test": 1725},
    }
    assert not caplog.records
