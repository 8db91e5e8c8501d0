"""Files of STS, of the transfer tasks and of NLI: they are read back, or an error of one line."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcse_pl.data.prepare.conversion import clean, has_words
from simcse_pl.data.prepare.nli import KINDS, LABELS, convert
from simcse_pl.data.readers.row_reader import iterate_rows, read_rows
from simcse_pl.data.senteval.sts_sets import load_sts_task
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS, load_transfer_task
from simcse_pl.utils.errors import UserError
from tests.properties.strategies import texts

BYTES = st.lists(st.binary(max_size=8) | st.sampled_from([b"\n", b"\t", b"1", b"a b", b"\xe9", b"NUM:x y"])).map(
    b"".join
)


@pytest.fixture(autouse=True, scope="module")
def _no_warnings_of_sizes():
    logging.getLogger("simcse_pl").setLevel(logging.ERROR)
    yield
    logging.getLogger("simcse_pl").setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Write the files of a SentEval bundle and return its path."""
    root = tmp_path_factory.mktemp("bundle")

    def write(**files):
        for path in root.rglob("*.*"):
            path.unlink()
        for name, content in files.items():
            path = root / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return root

    return write


def loaded_or_error(load, *arguments):
    """Return what is loaded, or None after an error of one line."""
    try:
        return load(*arguments)
    except UserError as error:
        message = str(error)
    assert "\n" not in message
    return None


FILES = {
    "STS12": ("STS__STS12-en-test__STS.input.a.txt", "STS__STS12-en-test__STS.gs.a.txt"),
    "STS-B": ("STS__STSBenchmark__sts-test.csv",),
    "SICK-R": ("SICK__SICK_test_annotated.txt",),
    "MR": ("MR__rt-polarity.pos", "MR__rt-polarity.neg"),
    "SST": tuple(f"SST__binary__sentiment-{split}" for split in ("train", "dev", "test")),
    "TREC": ("TREC__train_5500.label", "TREC__TREC_10.label"),
    "MRPC": ("MRPC__msr_paraphrase_train.txt", "MRPC__msr_paraphrase_test.txt"),
}


@given(task=st.sampled_from(list(FILES)), content=BYTES, other=BYTES)
def test_any_bytes_give_rows_or_an_error_of_one_line(bundle, task, content, other):
    root = bundle(**{name: other if i else content for i, name in enumerate(FILES[task])})
    loaded = loaded_or_error(load_transfer_task if task in TRANSFER_TASKS else load_sts_task, root, task)
    if loaded is not None and task not in TRANSFER_TASKS:
        assert all(pair.first.strip() and pair.second.strip() and pair.score < float("inf") for pair in loaded.pairs)


NLI_ROWS = st.lists(
    st.tuples(st.sampled_from(["A b.", "c\u2028d"]) | texts(), texts(), st.sampled_from([*LABELS, "-"])),
    min_size=1,
    max_size=12,
)


@given(rows=NLI_ROWS, kind=st.sampled_from(list(KINDS)), seed=st.integers(0, 9))
def test_rows_of_nli_are_those_of_the_file_and_each_has_one_outcome(tmp_path_factory, rows, kind, seed):
    folder = tmp_path_factory.mktemp("nli")
    objects = [dict(zip(("sentence1", "sentence2", "gold_label"), row, strict=True)) for row in rows]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in objects), encoding="utf-8")
    given = {}
    for premise, hypothesis, label in rows:
        if label != "-" and has_words(premise) and has_words(hypothesis):
            given.setdefault((clean(premise), clean(hypothesis)), label)
    if not (converted := loaded_or_error(convert, kind, [folder / "train.jsonl"], folder / "out.csv", seed)):
        assert not (folder / "out.csv").exists()
        return
    stats, written = converted
    assert stats.total() == len(rows)
    read = read_rows(folder / "out.csv")
    assert len(read) == written
    labels = KINDS[kind].hard_negatives
    for premise, hypothesis, *rest in read:
        assert given[premise, hypothesis] in KINDS[kind].labels
        drawn = [given[premise, negative] for negative in rest] if labels else rest
        assert drawn == (list(labels) if labels else [given[premise, hypothesis]] * KINDS[kind].labelled)
    if kind == "labelled":
        assert {(*pair, label) for pair, label in iterate_rows(folder / "out.csv", label_column="label")} == {
            (*pair, label) for pair, label in given.items()
        }
