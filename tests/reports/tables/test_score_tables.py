"""The tables of scores."""

from statistics import fmean

import pytest

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.tables.score_tables import sts_table, subset_table, transfer_table
from simcse_pl.results.evaluation_results import Result


def rows(table):
    return table.frame.set_index("encoder").T.to_dict()


def test_sts_has_the_tasks_in_the_papers_order_and_their_average(make_result):
    result = make_result("one", sts=STS_TASKS[::-1])
    table = sts_table([result])
    assert list(table.frame) == ["encoder", *STS_TASKS, "Avg"]
    scores = {task: 100 * (0.5 + 0.03 * k) for k, task in enumerate(STS_TASKS)}
    assert rows(table) == {"one": pytest.approx({**scores, "Avg": fmean(scores.values())})}
    assert table.title == "STS, test: Spearman x 100, all pairs of a task at once, no regressor"
    assert table.name == "sts"
    assert table.notes[0].startswith("pairs: STS12 3108, STS13 1500")


@pytest.mark.parametrize(
    ("settings", "score", "words", "name"),
    [
        ({"aggregation": "mean"}, 0.5012345678901, "Spearman x 100, mean over a task's subsets, no regressor", "sts"),
        ({"aggregation": "wmean"}, 0.5024691357802, "Spearman x 100, mean over a task's subsets, weighted", "sts"),
        ({"metric": "pearson"}, 0.4, "Pearson x 100, all pairs of a task at once, no regressor", "sts_pearson"),
    ],
)
def test_the_title_names_the_aggregation_and_the_metric(make_result, settings, score, words, name):
    table = sts_table([make_result("one")], **settings)
    assert table.frame["STS12"].tolist() == pytest.approx([100 * score])
    assert words in table.title
    assert table.name == name


def test_the_papers_row_is_below_its_encoder(make_result, bert):
    table = sts_table([make_result("mine", **bert), make_result("other", seed=1)])
    labels = ["mine", "paper, Table 5: BERT-base (first-last avg.) (unsupervised)", "other"]
    assert table.frame["encoder"].tolist() == labels
    assert table.frame.iloc[1, 1:].tolist() == [39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70]
    assert "B.3" in sts_table([make_result("mine", **bert)], "wmean").frame["encoder"][1]
    assert len(sts_table([make_result("mine", **bert)], "mean").frame) == 1
    two = sts_table([make_result("a", **bert), make_result("b", seed=1, **bert)]).frame
    assert [label[:5] for label in two["encoder"]] == ["a", "b", "paper"]


def test_pearson_is_not_compared_with_the_paper(make_result, bert):
    assert sts_table([make_result("mine", **bert)], metric="pearson").frame["encoder"].tolist() == ["mine"]


def test_the_dev_split_is_named_and_not_compared_with_the_papers_test(make_result, bert):
    dev = make_result("mine", sts=("STS-B", "SICK-R"), split="dev", **bert)
    table = sts_table([dev])
    assert table.title.startswith("STS, dev: ")
    assert list(table.frame) == ["encoder", "STS-B dev", "SICK-R dev"]
    assert len(table.frame) == 1
    both = sts_table([dev, make_result("other", sts=("STS-B",))])
    assert both.title.startswith("STS, dev and test: ")
    assert both.frame.isna().sum().to_dict() == {"encoder": 0, "STS-B": 1, "STS-B dev": 1, "SICK-R dev": 1}


def test_averages_over_common_tasks_say_how_many(make_result, bert):
    few = make_result("few", sts=("STS12", "STS13", "STS-B"), **bert)
    table = sts_table([few])
    assert list(table.frame) == ["encoder", "STS12", "STS13", "STS-B", "Avg of 3"]
    assert table.frame["Avg of 3"].tolist() == pytest.approx([fmean((50, 53, 65)), fmean((39.70, 59.38, 53.87))])
    both = sts_table([few, make_result("all", seed=1)]).frame.set_index("encoder")
    assert both["Avg"].isna()["few"]
    assert both.loc["all", "Avg"] == pytest.approx(60)
    assert both.loc["all", "Avg of 3"] == pytest.approx(fmean((51, 54, 66)))
    assert list(sts_table([make_result("one", sts=("STS-B",))]).frame) == ["encoder", "STS-B"]


def test_failed_tasks_are_dashes(make_result):
    failed = {"STS15": "senteval_dir: no folder", "TREC": "cut short"}
    results = [make_result(label, sts=("STS12", "STS13"), failed=failed) for label in ("a", "b")]
    table = sts_table(results)
    assert list(table.frame) == ["encoder", "STS12", "STS13", "STS15", "Avg of 2"]
    assert table.frame["STS15"].isna().all()
    nothing = sts_table([make_result("a", sts=(), failed=failed)])
    assert nothing.frame.iloc[0].isna().to_dict() == {"encoder": False, "STS15": True}


def test_sizes_are_a_note_and_the_sample_has_no_average_and_no_row_of_the_paper(make_report, bert):
    report = make_report("one", sts=("STS12", "STS-B"))
    report["sts"][0]["pairs"] = 2358
    assert sts_table([Result.model_validate(report)]).notes == ["pairs: STS12 2358 (the original: 3108), STS-B 1379"]
    sample = [{"task": "sample", "split": "test", "pairs": 330, "all": {"spearman": 0.7}}]
    table = sts_table([Result.model_validate(make_report("mine", **bert) | {"sts": sample})])
    assert rows(table) == {"mine": {"sample": 70.0}}
    assert table.notes == ["pairs: sample 330"]


def test_subsets_are_above_their_aggregations(make_result):
    table = subset_table([make_result("a"), make_result("b", seed=1, sts=("STS13",))])
    assert list(table.frame) == ["task", "subset", "pairs", "a", "b"]
    assert table.frame["task"].tolist() == ["STS12"] * 5 + ["STS13"] * 5
    assert table.frame["subset"].tolist()[:5] == ["STS12_a", "STS12_b", "(all)", "(mean)", "(wmean)"]
    assert table.frame["pairs"].tolist()[:5] == [750, 750, 3108, 3108, 3108]
    assert table.frame["a"].tolist()[:3] == pytest.approx([52, 52, 50])
    assert table.frame["a"][3] == pytest.approx(50.12345678901)
    assert table.frame["b"].isna().tolist() == [True] * 5 + [False] * 5
    assert "| STS12 | STS12_a | 750 | 52.00 | – |" in " ".join(table.markdown().split())
    assert subset_table([make_result("a", sts=("STS-B",))]) is None


def test_transfer_has_accuracies_and_f1(make_result):
    table = transfer_table([make_result("one", transfer=TRANSFER_TASKS)])
    assert list(table.frame) == ["encoder", "classifier", *TRANSFER_TASKS, "MRPC F1", "Avg"]
    scores = rows(table)["one"]
    assert scores["MR"] == pytest.approx(70)
    assert scores["MRPC F1"] == pytest.approx(80)
    assert scores["Avg"] == pytest.approx(fmean(70 + 2 * k for k in range(7)))  # without F1
    assert "TREC, MRPC: test set given" in table.notes
    assert any(note.startswith("rows: MR 5000 (the original: 10662), CR 5000") for note in table.notes)


def test_the_papers_transfer_row_has_no_f1_and_each_row_names_its_classifier(make_report, bert):
    mean = bert | {"settings": bert["settings"] | {"pooling": "mean"}}
    first, second = (make_report(label, transfer=("MR", "MRPC"), **mean) for label in ("first", "second"))
    for task in second["transfer"]:
        task["classifier"] = "pytorch"
    frame = transfer_table([Result.model_validate(first), Result.model_validate(second)]).frame
    assert dict(zip(frame["encoder"], frame["classifier"], strict=True)) == {
        "first": "scikit-learn",
        "second": "pytorch",
        "paper, Table E.1: Avg. BERT embeddings (unsupervised)": "pytorch",
    }
    expected = [78.66, 69.54, float("nan"), fmean((78.66, 69.54))]
    assert frame.loc[2, "MR":].tolist() == pytest.approx(expected, nan_ok=True)
