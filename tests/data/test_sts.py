"""Scored pairs of every layout, and files that are cut short."""

import logging

import pytest

from simcse_pl.data import sts
from simcse_pl.data.formats import Table
from simcse_pl.data.sts import ScoredPair, load_sample, load_senteval_tasks, load_stsb
from simcse_pl.errors import UserError


@pytest.fixture
def bundle(tmp_path):
    """A SentEval bundle with two pairs a file."""
    for year in range(12, 17):
        folder = tmp_path / "STS" / f"STS{year}-en-test"
        folder.mkdir(parents=True)
        for subset in ("b", "a"):
            (folder / f"STS.input.{subset}.txt").write_text(f"One {subset}.\tTwo.\nThree.\tFour.\textra\n\u0085x\ty\n")
            (folder / f"STS.gs.{subset}.txt").write_text("4.5\n\n0\n")
        (folder / "STS.output.a.txt").write_text("not read")
    benchmark = tmp_path / "STS" / "STSBenchmark"
    benchmark.mkdir()
    for split in ("dev", "test"):
        (benchmark / f"sts-{split}.csv").write_text(f'genre\tfile\tyear\t0001\t5.000\tA "{split}.\tB.\n')
    (tmp_path / "SICK").mkdir()
    lines = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment", "6\tA b\tC d\t3.3\tNEUTRAL"]
    (tmp_path / "SICK" / "SICK_test_annotated.txt").write_bytes("\r\n".join([*lines, ""]).encode())
    return tmp_path


def test_all_seven_tasks_in_the_papers_order(bundle):
    tasks = load_senteval_tasks(bundle)
    assert [task.name for task in tasks] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
    assert list(tasks[3].subsets) == ["a", "b"]
    assert tasks[3].subsets["a"] == [ScoredPair("One a.", "Two.", 4.5), ScoredPair("x", "y", 0.0)]
    assert len(tasks[3].pairs) == 4
    assert tasks[5].pairs == [ScoredPair('A "test.', "B.", 5.0)]
    assert tasks[6].pairs == [ScoredPair("A b", "C d", 3.3)]


def test_some_of_the_tasks(bundle):
    for path in (bundle / "STS" / "STS13-en-test").iterdir():
        path.unlink()
    (bundle / "SICK" / "SICK_test_annotated.txt").unlink()
    assert [task.name for task in load_senteval_tasks(bundle)] == ["STS12", "STS14", "STS15", "STS16", "STS-B"]


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        (
            "STS/STS12-en-test/STS.gs.a.txt",
            b"4.5\n",
            "STS.gs.a.txt has 1 lines and STS.input.a.txt 3: one of them is cut",
        ),
        (
            "STS/STS12-en-test/STS.gs.a.txt",
            b"4.5\nmany\n0\n",
            "STS.input.a.txt, line 2: the score is no number but 'many'",
        ),
        ("STS/STS12-en-test/STS.gs.a.txt", b"nan\n\n0\n", "line 1: the score is no number but 'nan'"),
        ("STS/STS12-en-test/STS.input.a.txt", b"One.\n\n\n", "line 1: one sentence where there should be two"),
        ("STS/STS12-en-test/STS.input.a.txt", b"One.\t\n\n\n", "line 1: a sentence is empty"),
        ("STS/STSBenchmark/sts-test.csv", b"a\tb\tc\n", "sts-test.csv, line 1: 3 columns, too few"),
        ("STS/STSBenchmark/sts-test.csv", b"", "sts-test.csv holds no pairs"),
        ("STS/STSBenchmark/sts-test.csv", b"g\tf\ty\t1\t5\tcaf\xe9\tb\n", "sts-test.csv, line 1: not UTF-8"),
        ("SICK/SICK_test_annotated.txt", b"pair_ID\tA\tB\tscore\n", "SICK_test_annotated.txt holds no pairs"),
    ],
)
def test_damaged_files_are_told_in_one_line(path, content, message, bundle):
    (bundle / path).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_senteval_tasks(bundle)
    assert "\n" not in str(error.value)


def test_gold_without_input_and_folders_without_tasks(bundle, tmp_path):
    (bundle / "STS" / "STS12-en-test" / "STS.gs.a.txt").unlink()
    with pytest.raises(UserError, match="no file .*STS.gs.a.txt"):
        load_senteval_tasks(bundle)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no STS task with a test split in"):
        load_senteval_tasks(tmp_path / "empty")
    with pytest.raises(UserError, match="senteval_dir: no folder"):
        load_senteval_tasks(tmp_path / "nowhere")


def test_stsb_comes_from_the_first_source_that_has_it(bundle, caplog):
    with caplog.at_level(logging.INFO):
        assert load_stsb(["senteval", "sample"], bundle, "dev").pairs[0].first == 'A "dev.'
        assert load_stsb(["senteval", "hub", "sample"], None, "dev").name == "sample"
    assert [record.getMessage() for record in caplog.records] == [
        f"dev: 1 scored pairs from STS-B in {bundle}/STS/STSBenchmark/sts-dev.csv",
        f"dev: {len(load_sample('dev').pairs)} scored pairs from the project's own sample, which is not STS-B",
    ]


def test_stsb_from_the_hub(monkeypatch):
    header = ["score", "sentence1", "sentence2"]
    asked = []

    def open_hub_dataset(name, split):
        asked.append((name, split))
        return Table(header, iter([("row 1", [3.0, "A.", "B."])]))

    monkeypatch.setattr(sts, "open_hub_dataset", open_hub_dataset)
    assert load_stsb(["hub"], None, "dev").pairs == [ScoredPair("A.", "B.", 3.0)]
    assert asked == [("mteb/stsbenchmark-sts", "validation")]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["web"], "unknown source web; choose among senteval, hub, sample"),
        (["senteval"], "no dev pairs \\(senteval_dir is not set\\)"),
        (["hub"], "no dev pairs \\(dataset mteb/stsbenchmark-sts"),
        ([], "no dev pairs"),
    ],
)
def test_no_stsb_at_all(sources, message):
    with pytest.raises(UserError, match=message):
        load_stsb(sources, None, "dev")


def test_a_senteval_dir_that_was_given_must_have_it(tmp_path):
    with pytest.raises(UserError, match="no file .*sts-dev.csv"):
        load_stsb(["senteval", "sample"], tmp_path, "dev")


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_sample_covers_the_whole_scale(split):
    pairs = load_sample(split).pairs
    assert len(pairs) >= 300
    bands = [sum(low <= pair.score < low + 1 for pair in pairs) for low in range(4)]
    assert min([*bands, sum(pair.score >= 4 for pair in pairs)]) >= 50
    assert sum(pair.score > 4 for pair in pairs) >= 30


def test_no_sample_sentence_stands_twice():
    pairs = load_sample("dev").pairs + load_sample("test").pairs
    sentences = [sentence for pair in pairs for sentence in (pair.first, pair.second)]
    assert len(set(sentences)) == len(sentences)


def test_dev_splits(bundle):
    (bundle / "SICK" / "SICK_trial.txt").write_text("pair_ID\tA\tB\tscore\tlabel\n1\tx\ty\t2\tNEUTRAL\n")
    tasks = load_senteval_tasks(bundle, "dev")
    assert [(task.name, task.pairs[0].first) for task in tasks] == [("STS-B", 'A "dev.'), ("SICK-R", "x")]
    with pytest.raises(UserError, match="split=train: choose one of dev, test"):
        load_senteval_tasks(bundle, "train")


def test_real_bundle(senteval_dir):
    tasks = {task.name: len(task.pairs) for task in load_senteval_tasks(senteval_dir)}
    assert tasks == {"STS12": 2358, "STS13": 1500, "STS14": 3750, "STS-B": 1379, "SICK-R": 4927}
