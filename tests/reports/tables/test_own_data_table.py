"""The table of own data."""

from simcse_pl.reports.tables.own_data_table import own_data_table


def test_encoders_are_compared_and_other_data_is_a_note(make_result):
    first = make_result("one", own={"data": "de.tsv", "metrics": {"mrr": 0.5, "loss": 1.25}})
    second = make_result("two", own={"data": "de.tsv", "metrics": {"mrr": 0.75, "spearman": None}})
    table = own_data_table([first, make_result("other"), second])
    assert table.title == "Own data on de.tsv (mrr, Spearman x 100)" and not table.notes
    assert table.shown().to_dict("list") == {
        "encoder": ["one", "two"], "mrr ↑": ["50.00", "75.00"], "loss ↓": ["1.250", "–"], "Spearman ↑": ["–", "–"],
    }  # fmt: skip
    other = make_result("three", own={"data": "en.tsv", "metrics": {"mrr": 0.5}})
    assert own_data_table([first, other]).notes == ["one on de.tsv", "three on en.tsv"]
    assert own_data_table([make_result("other")]) is None
    loss = make_result("four", own={"data": "en.tsv", "metrics": {"loss": 1.25}})
    assert own_data_table([loss]).title == "Own data on en.tsv"
