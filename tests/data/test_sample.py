"""The sample: distinct sentences, and pairs of premises with their hypotheses."""

import pandas
import pytest

from simcse_pl.data import sample

ROWS = pandas.read_csv(sample.path("nli.csv"))


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_scored_pairs_have_the_columns_of_the_published_file():
    pairs = pandas.read_csv(sample.nli_pairs(["entailment", "contradiction"], scored=True))
    assert list(pairs.columns) == ["text1", "text2", "label"] and len(pairs) == 1600
    for score, column in ((1.0, "sent1"), (0.0, "hard_neg")):
        own = pairs[pairs["label"] == score]
        assert own["text1"].tolist() == ROWS["sent0"].tolist() and own["text2"].tolist() == ROWS[column].tolist()
    assert set(pandas.read_csv(sample.nli_pairs(["neutral"], scored=True))["label"]) == {0.5}
