"""Scored pairs of each layout, damaged files, and the sources of STS-B."""

import logging

import pytest

from simcse_pl.data.readers.formats import OpenedTable
from simcse_pl.data.senteval import sts_sets as sts
from simcse_pl.data.senteval.bundle import NotInBundleError
from simcse_pl.data.senteval.sts_sets import SPLITS, STS_TASKS, ScoredPair, load_sample, load_sts_task, load_stsb
from simcse_pl.utils.errors import UserError


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


def test_every_task(bundle):
    tasks = [load_sts_task(bundle, name) for name in STS_TASKS]
    assert [task.name for task in tasks] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
    assert list(tasks[3].subsets) == ["a", "b"]
    assert tasks[3].subsets["a"] == [ScoredPair("One a.", "Two.", 4.5), ScoredPair("x", "y", 0.0)]
    assert len(tasks[3].pairs) == 4
    assert tasks[5].pairs == [ScoredPair('A "test.', "B.", 5.0)]
    assert tasks[6].pairs == [ScoredPair("A b", "C d", 3.3)]


def test_other_splits(bundle):
    (bundle / "SICK" / "SICK_trial.txt").write_text("pair_ID\tA\tB\tscore\tlabel\n1\tx\ty\t2\tNEUTRAL\n")
    (bundle / "STS" / "STSBenchmark" / "sts-train.csv").write_text("g\tf\ty\t1\t2.5\tA train.\tB.\n")
    tasks = [load_sts_task(bundle, "STS-B", "dev"), load_sts_task(bundle, "SICK-R", "dev")]
    assert [(task.split, task.pairs[0].first) for task in tasks] == [("dev", 'A "dev.'), ("dev", "x")]
    assert load_sts_task(bundle, "STS-B", "train").pairs == [ScoredPair("A train.", "B.", 2.5)]


@pytest.mark.parametrize("name", ["STS13", "STS-B", "SICK-R"])
def test_a_task_that_is_not_in_the_bundle(name, tmp_path):
    with pytest.raises(NotInBundleError, match="^no (file|STS.input files in) "):
        load_sts_task(tmp_path, name)


def test_fewer_pairs_than_the_original_are_a_warning(bundle, caplog):
    load_sts_task(bundle, "STS12")
    load_sts_task(bundle, "SICK-R")
    assert [record.getMessage() for record in caplog.records] == [
        "STS12 test: 4 of the original's 3108, so its score is not comparable with published ones",
        "SICK-R test: 1 of the original's 4927, so its score is not comparable with published ones",
    ]


@pytest.mark.parametrize(
    ("task", "path", "content", "message"),
    [
        ("STS12", "STS.gs.a.txt", b"4.5\n", "STS.gs.a.txt has 1 lines and STS.input.a.txt 3: one of them is trunc"),
        ("STS12", "STS.gs.a.txt", b"4.5\nmany\n0\n", "STS.input.a.txt, line 2: the score is 'many', not a number"),
        ("STS12", "STS.gs.a.txt", b"nan\n\n0\n", "line 1: the score is 'nan', not a number"),
        (
            "STS12",
            "STS.gs.a.txt",
            b"4.5\n\n-1\n",
            "STS.input.a.txt, line 3: the score is -1, and scores are from 0 to 5",
        ),
        ("STS12", "STS.gs.a.txt", b"5.5\n\n0\n", "line 1: the score is 5.5, and scores are from 0 to 5"),
        ("STS12", "STS.input.a.txt", b"One.\n\n\n", "line 1: one sentence where there should be two"),
        ("STS12", "STS.input.a.txt", b"One.\t\n\n\n", "line 1: a sentence is empty"),
        ("STS-B", "sts-test.csv", b"a\tb\tc\n", "sts-test.csv, line 1: 3 columns where there should be 7"),
        ("STS-B", "sts-test.csv", b"", "sts-test.csv has no rows"),
        ("STS-B", "sts-test.csv", b"g\tf\ty\t1\t5\tcaf\xe9\tb\n", "sts-test.csv, line 1: not UTF-8"),
        ("SICK-R", "SICK_test_annotated.txt", b"pair_ID\tA\tB\tscore\n", "SICK_test_annotated.txt has no rows"),
    ],
)
def test_damaged_files_are_errors_of_one_line(task, path, content, message, bundle):
    folder = {"STS12": "STS/STS12-en-test", "STS-B": "STS/STSBenchmark", "SICK-R": "SICK"}[task]
    (bundle / folder / path).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_sts_task(bundle, task)
    assert "\n" not in str(error.value) and not isinstance(error.value, NotInBundleError)


def test_a_missing_file_of_scores_is_an_error(bundle):
    (bundle / "STS" / "STS12-en-test" / "STS.gs.a.txt").unlink()
    with pytest.raises(UserError, match="no file .*STS.gs.a.txt") as error:
        load_sts_task(bundle, "STS12")
    assert not isinstance(error.value, NotInBundleError)


def test_stsb_comes_from_the_first_source_that_has_it(bundle, caplog):
    with caplog.at_level(logging.INFO):
        assert load_stsb(["senteval", "sample"], bundle)["dev"].pairs[0].first == 'A "dev.'
        assert load_stsb(["senteval", "sample"], None)["test"].name == "sample"
    assert [record.getMessage() for record in caplog.records if record.levelname == "INFO"] == [
        *(f"{split}: 1 scored pairs from STS-B in {bundle}" for split in SPLITS),
        *(
            f"{split}: {len(load_sample(split).pairs)} scored pairs from the project's own sample, which is not STS-B"
            for split in SPLITS
        ),
    ]
    assert all("of the original's" in record.getMessage() for record in caplog.records if record.levelname != "INFO")


def test_a_failure_of_the_hub_is_a_warning_and_the_sample_replaces_both_splits(monkeypatch, caplog):
    def open_hub_dataset(name, split):
        if split == "test":
            raise UserError("error 429")
        return OpenedTable(iter([("row 1", [3.0, "A.", "B."])]), 3, ["score", "sentence1", "sentence2"])

    monkeypatch.setattr(sts, "open_hub_dataset", open_hub_dataset)
    assert [task.name for task in load_stsb(["senteval", "hub", "sample"], None).values()] == ["sample", "sample"]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning == "data.validation: STS-B from the hub is not available: error 429"
    with pytest.raises(UserError, match="no STS-B .senteval_dir is not set; error 429.$"):
        load_stsb(["senteval", "hub"], None)


def test_stsb_from_the_hub(monkeypatch):
    calls = []

    def open_hub_dataset(name, split):
        calls.append((name, split))
        return OpenedTable(iter([("row 1", [3.0, "A.", "B."])]), 3, ["score", "sentence1", "sentence2"])

    monkeypatch.setattr(sts, "open_hub_dataset", open_hub_dataset)
    assert load_stsb(["hub"], None)["dev"].pairs == [ScoredPair("A.", "B.", 3.0)]
    assert calls == [("mteb/stsbenchmark-sts", "validation"), ("mteb/stsbenchmark-sts", "test")]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["web"], "unknown source web; choose among senteval, hub, sample"),
        (["senteval"], "no STS-B \\(senteval_dir is not set\\)"),
        (["hub"], "no STS-B \\(dataset mteb/stsbenchmark-sts"),
        ([], "data.validation is empty: name some of senteval, hub, sample"),
    ],
)
def test_no_source_of_stsb_is_an_error(sources, message):
    with pytest.raises(UserError, match=message):
        load_stsb(sources, None)


def test_a_given_senteval_dir_must_have_stsb(tmp_path):
    with pytest.raises(UserError, match="no file .*sts-dev.csv"):
        load_stsb(["senteval", "sample"], tmp_path)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_sample_covers_the_whole_scale(split):
    pairs = load_sample(split).pairs
    assert len(pairs) >= 300
    bands = [sum(low <= pair.score < low + 1 for pair in pairs) for low in range(4)]
    assert min([*bands, sum(pair.score >= 4 for pair in pairs)]) >= 50
    assert sum(pair.score > 4 for pair in pairs) >= 30


def test_sentences_of_the_sample_are_distinct():
    pairs = load_sample("dev").pairs + load_sample("test").pairs
    sentences = [sentence for pair in pairs for sentence in (pair.first, pair.second)]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.slow
def test_real_bundle(senteval_dir):
    names = ("STS12", "STS13", "STS14", "STS-B", "SICK-R")
    pairs = {name: len(load_sts_task(senteval_dir, name).pairs) for name in names}
    assert pairs == {"STS12": 2358, "STS13": 1500, "STS14": 3750, "STS-B": 1379, "SICK-R": 4927}
