"""Files of STS, of the transfer tasks and of NLI: they are read back, or an error of one line."""

import csv
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcse_pl.data.prepare.conversion import ConversionStats, clean, has_words, write_csv
from simcse_pl.data.prepare.nli import KINDS, LABELS, convert
from simcse_pl.data.readers.row_reader import iterate_rows, read_rows
from simcse_pl.data.senteval.sts_sets import ScoredPair, load_sts_task
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS, load_transfer_task
from simcse_pl.utils.errors import UserError
from tests.properties.strategies import sentences, texts

CELLS = sentences(without="\n\t")
SCORES = st.floats(0, 5) | st.integers(0, 5)
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


def lines(rows, end="\n"):
    return "".join("\t".join(map(str, row)) + end for row in rows).encode()


def loaded_or_error(load, *arguments):
    """Return what is loaded, or None after an error of one line."""
    try:
        return load(*arguments)
    except UserError as error:
        message = str(error)
    assert "\n" not in message
    return None


@given(rows=st.lists(st.tuples(CELLS, CELLS, SCORES), min_size=1, max_size=6), end=st.sampled_from(["\n", "\r\n"]))
def test_scored_pairs_are_read_back(bundle, rows, end):
    expected = [ScoredPair(first, second, float(score)) for first, second, score in rows]
    header = [("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")]
    sick = lines(header + [(i, first, second, score, "-") for i, (first, second, score) in enumerate(rows)], end)
    benchmark = lines([("g", "f", "y", i, score, first, second) for i, (first, second, score) in enumerate(rows)], end)
    root = bundle(SICK__SICK_trial=b"", STS__STSBenchmark__none=b"")
    (root / "SICK" / "SICK_test_annotated.txt").write_bytes(sick)
    (root / "STS" / "STSBenchmark" / "sts-dev.csv").write_bytes(benchmark)
    assert load_sts_task(root, "SICK-R").pairs == load_sts_task(root, "STS-B", "dev").pairs == expected


@given(
    subsets=st.lists(
        st.lists(st.tuples(CELLS, CELLS, SCORES | st.sampled_from(["", " ", "\x1c"])), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    )
)
def test_scored_pairs_of_the_yearly_tasks_are_read_back(bundle, subsets):
    root = bundle(**{"STS__STS12-en-test__none.txt": b""})
    for i, rows in enumerate(subsets):
        folder = root / "STS" / "STS12-en-test"
        (folder / f"STS.input.{i}.txt").write_bytes(b"\xef\xbb\xbf" + lines([row[:2] for row in rows]))
        (folder / f"STS.gs.{i}.txt").write_bytes(lines([row[2:] for row in rows]))
    scored = {
        str(i): [ScoredPair(a, b, float(score)) for a, b, score in rows if str(score).strip()]
        for i, rows in enumerate(subsets)
    }
    assert load_sts_task(root, "STS12").subsets == scored


@given(
    positive=st.lists(texts(without="\n"), min_size=1, max_size=5).filter(lambda some: any(map(str.strip, some))),
    negative=st.lists(sentences(without="\n"), min_size=1, max_size=5),
)
def test_sentences_of_each_class_are_read_back_in_sentevals_order(bundle, positive, negative):
    root = bundle(**{"MR__rt-polarity.pos": "\ufeff".encode() + lines(zip(positive, strict=True))})
    (root / "MR" / "rt-polarity.neg").write_bytes("\ufeff".encode() + lines(zip(negative, strict=True)))
    examples = load_transfer_task(root, "MR").splits["all"]
    read = [(" ".join(line.split()), 1) for line in positive] + [(" ".join(line.split()), 0) for line in negative]
    assert [(*example.sentences, example.label) for example in examples] == sorted(
        read, key=lambda example: (len(example[0].split()), example[1])
    )


@given(rows=st.lists(st.tuples(st.sampled_from("01"), CELLS, CELLS), min_size=1, max_size=5))
def test_paraphrases_are_read_back(bundle, rows):
    content = lines([("Quality", 1, 2, 3, 4), *((label, 1, 2, *pair) for label, *pair in rows)])
    root = bundle(**{f"MRPC__msr_paraphrase_{split}.txt": content for split in ("train", "test")})
    examples = load_transfer_task(root, "MRPC").splits["test"]
    read = {(clean(first), clean(second), int(label)) for label, first, second in rows}
    assert {(*example.sentences, example.label) for example in examples} == read and len(examples) == len(rows)


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


@given(
    rows=st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[sentences().map(clean)] * n), min_size=1, max_size=6))
)
def test_written_rows_are_read_back(tmp_path_factory, rows):
    out = tmp_path_factory.mktemp("conversion") / "out.csv"
    names = [f"column {i}" for i in range(len(rows[0]))]
    assert write_csv(out, names, rows, ConversionStats()) == len(rows)
    assert read_rows(out) == rows
    with open(out, encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == len(file.read().splitlines()) + len(rows) + 1


@given(text=texts())
def test_a_clean_sentence_has_one_line_and_the_same_words(text):
    assert clean(text).split() == text.split() and clean(clean(text)) == clean(text)
    assert len(clean(text).splitlines()) <= 1
    if has_words(text):
        assert clean(text)
