"""The tables of scores."""

from statistics import fmean

import pytest

from simcse_pl.evaluation.results import TRANSFER_TASKS
from simcse_pl.evaluation.sts import STS_TASKS
from simcse_pl.lab.tables import benchmark_table, sts_table, transfer_table
from tests.lab.invented import BERT, make_result


def rows(table):
    return table.frame.set_index("encoder").T.to_dict()


def test_sts_has_the_tasks_in_the_papers_order_and_their_average():
    result = make_result("one", sts=STS_TASKS[::-1])
    table = sts_table([result])
    assert list(table.frame) == ["encoder", *STS_TASKS, "Avg"]
    scores = {task: 100 * (0.5 + 0.03 * k) for k, task in enumerate(STS_TASKS)}
    assert rows(table) == {"one": pytest.approx({**scores, "Avg": fmean(scores.values())})}
    for settings, score in (({"aggregation": "wmean"}, 50.24691357802), ({"metric": "pearson"}, 40)):
        assert sts_table([result], **settings).frame["STS12"].tolist() == pytest.approx([score])


def test_the_papers_row_is_below_its_encoder():
    table = sts_table([make_result("mine", **BERT), make_result("other", seed=1)])
    labels = ["mine", "paper, Table 5: BERT-base (first-last avg.) (unsupervised)", "other"]
    assert table.frame["encoder"].tolist() == labels
    assert table.frame.iloc[1, 1:].tolist() == [39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70]
    dev = sts_table([make_result("mine", sts=("STS-B", "SICK-R"), split="dev", **BERT)])
    assert dev.frame["encoder"].tolist() == ["mine"]  # the paper has no scores on dev
    assert sts_table([make_result("mine", **BERT)], metric="pearson").frame["encoder"].tolist() == ["mine"]


def test_averages_over_common_tasks_say_how_many():
    few = make_result("few", sts=("STS12", "STS13", "STS-B"), **BERT)
    table = sts_table([few])
    assert list(table.frame) == ["encoder", "STS12", "STS13", "STS-B", "Avg of 3"]
    assert table.frame["Avg of 3"].tolist() == pytest.approx([fmean((50, 53, 65)), fmean((39.70, 59.38, 53.87))])
    both = sts_table([few, make_result("all", seed=1)]).frame.set_index("encoder")
    assert both["Avg"].isna()["few"]
    assert both.loc["all", "Avg"] == pytest.approx(60)
    assert both.loc["all", "Avg of 3"] == pytest.approx(fmean((51, 54, 66)))


def test_transfer_has_accuracies_and_f1():
    table = transfer_table([make_result("one", transfer=TRANSFER_TASKS)])
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
    frame = benchmark_table([whole, part]).frame.set_index("task")
    assert frame["a"].to_dict() == pytest.approx(
        {"STS22": 0, "STS17": 10, "NanoNQ": 20, "mean of tasks": 10, "mean of types": (5 + 20) / 2}
    )
    assert frame["b"].isna().to_dict() == dict.fromkeys(frame.index, True) | {"STS17": False, "NanoNQ": False}
