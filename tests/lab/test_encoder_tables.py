"""The tables of scores, geometry, retrieval and own data."""

from statistics import fmean

import pytest

from simcse_pl.evaluation.results import TRANSFER_TASKS
from simcse_pl.evaluation.sts import STS_TASKS
from simcse_pl.lab import encoder_tables
from tests.lab.invented import BERT, make_result


def rows(table):
    return table.frame.set_index("encoder").T.to_dict()


def test_sts_has_the_tasks_in_the_papers_order_and_their_average():
    result = make_result("one", sts=STS_TASKS[::-1])
    table = encoder_tables.sts_table([result])
    assert list(table.frame) == ["encoder", *STS_TASKS, "Avg"]
    scores = {task: 100 * (0.5 + 0.03 * k) for k, task in enumerate(STS_TASKS)}
    assert rows(table) == {"one": pytest.approx({**scores, "Avg": fmean(scores.values())})}
    for settings, score in (({"aggregation": "wmean"}, 50.24691357802), ({"metric": "pearson"}, 40)):
        assert encoder_tables.sts_table([result], **settings).frame["STS12"].tolist() == pytest.approx([score])


def test_the_papers_row_is_below_its_encoder():
    table = encoder_tables.sts_table([make_result("mine", **BERT), make_result("other", seed=1)])
    labels = ["mine", "paper, Table 5: BERT-base (first-last avg.) (unsupervised)", "other"]
    assert table.frame["encoder"].tolist() == labels
    assert table.frame.iloc[1, 1:].tolist() == [39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70]
    dev = encoder_tables.sts_table([make_result("mine", sts=("STS-B", "SICK-R"), split="dev", **BERT)])
    assert dev.frame["encoder"].tolist() == ["mine"]  # the paper has no scores on dev
    pearson = encoder_tables.sts_table([make_result("mine", **BERT)], metric="pearson")
    assert pearson.frame["encoder"].tolist() == ["mine"]


def test_averages_over_common_tasks_say_how_many():
    few = make_result("few", sts=("STS12", "STS13", "STS-B"), **BERT)
    table = encoder_tables.sts_table([few])
    assert list(table.frame) == ["encoder", "STS12", "STS13", "STS-B", "Avg of 3"]
    assert table.frame["Avg of 3"].tolist() == pytest.approx([fmean((50, 53, 65)), fmean((39.70, 59.38, 53.87))])
    both = encoder_tables.sts_table([few, make_result("all", seed=1)]).frame.set_index("encoder")
    assert both["Avg"].isna()["few"]
    assert both.loc["all", "Avg"] == pytest.approx(60)
    assert both.loc["all", "Avg of 3"] == pytest.approx(fmean((51, 54, 66)))


def test_transfer_has_accuracies_and_f1():
    table = encoder_tables.transfer_table([make_result("one", transfer=TRANSFER_TASKS)])
    assert list(table.frame) == ["encoder", "classifier", *TRANSFER_TASKS, "MRPC F1", "Avg"]
    scores = rows(table)["one"]
    assert scores["MR"] == pytest.approx(70)
    assert scores["MRPC F1"] == pytest.approx(80)
    assert scores["Avg"] == pytest.approx(fmean(70 + 2 * k for k in range(7)))  # without F1


def test_benchmarks_have_a_row_per_task_and_the_leaderboards_means():
    kinds = {"STS22": "STS", "STS17": "STS", "NanoNQ": "Retrieval"}
    scores = [
        {"task": task, "type": kind, "metric": "m", "score": place / 10}
        for place, (task, kind) in enumerate(kinds.items())
    ]
    whole, part = make_result("a", benchmarks=scores), make_result("b", benchmarks=scores[1:])
    frame = encoder_tables.benchmark_table([whole, part]).frame.set_index("task")
    assert frame["a"].to_dict() == pytest.approx(
        {"STS22": 0, "STS17": 10, "NanoNQ": 20, "mean of tasks": 10, "mean of types": (5 + 20) / 2}
    )
    assert frame["b"].isna().to_dict() == dict.fromkeys(frame.index, True) | {"STS17": False, "NanoNQ": False}


def test_each_measure_is_a_column():
    results = [make_result("a"), make_result("b", seed=2), make_result("none", geometry=None)]
    frames = [table.frame.set_index("encoder") for table in encoder_tables.geometry_tables(results)]
    assert frames[0].index.tolist() == frames[1].index.tolist() == ["a", "b"]
    measured = frames[0].loc["b"].to_dict() | frames[1].loc["b"].to_dict()
    known = {"alignment": 0.2, "uniformity": -2.5 + 2 * 0.123456789012, "mean cosine": 0.2, "effective rank": 20.5}
    known |= {"Sum(WW^T)": 123456.7, "largest eigenvalue": 543.2, "trace": 2758.0}
    assert {name: measured[name] for name in known} == pytest.approx(known)


def test_retrieval_has_the_nearest_sentences_below_each_query():
    short = {"corpus": "other.txt", "queries": [{"query": "A dog runs.", "neighbours": [{"sentence": "found"}]}]}
    table = encoder_tables.retrieval_table([make_result("a"), make_result("b", retrieval=short)])
    assert table.frame[""].tolist() == ["query", "#1", "#2", "#3"] * 2
    assert table.frame["a"].tolist()[:2] == ["A man rides a boat.", "a A man rides a boat. 0"]
    assert table.shown()["b"].tolist() == ["–"] * 4 + ["A dog runs.", "found", "–", "–"]


def test_own_data_of_encoders_is_compared_and_other_data_is_a_note():
    first = make_result("one", own={"data": "de.tsv", "metrics": {"mrr": 0.5, "loss": 1.25}})
    second = make_result("two", own={"data": "en.tsv", "metrics": {"mrr": 0.75, "spearman": None}})
    table = encoder_tables.own_data_table([first, make_result("other"), second])
    assert table.shown().to_dict("list") == {
        "encoder": ["one", "two"], "mrr ↑": ["50.00", "75.00"], "loss ↓": ["1.250", "–"], "Spearman ↑": ["–", "–"],
    }  # fmt: skip
    assert table.notes == ["one on de.tsv", "two on en.tsv"]


def test_each_file_of_own_data_is_a_row():
    metrics = {"de/mrr": 0.5, "de/map": 0.4, "en/mrr": 0.7, "en/map": 0.6, "mrr": 0.6, "map": 0.5}
    results = [make_result(label, own={"data": "de, en", "metrics": metrics}) for label in ("one", "two")]
    scores = [["de", "50.00", "40.00"], ["en", "70.00", "60.00"], ["mean", "60.00", "50.00"]]
    rows = [[label, *row] for label in ("one", "two") for row in scores]
    assert encoder_tables.own_data_table(results).shown().to_numpy().tolist() == rows
