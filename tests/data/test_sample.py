"""The sample: distinct sentences, and pairs of premises with their hypotheses."""

import pandas

from simcse_pl.data import sample


def test_labelled_pairs_have_the_columns_of_the_published_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pairs = pandas.read_csv(sample.nli_pairs(["entailment", "contradiction"]))
    rows = pandas.read_csv(sample.path("nli.csv"))
    assert list(pairs.columns) == ["text1", "text2", "label"] and len(pairs) == 1600
    for label, column in (("entailment", "sent1"), ("contradiction", "hard_neg")):
        own = pairs[pairs["label"] == label]
        assert own["text1"].tolist() == rows["sent0"].tolist() and own["text2"].tolist() == rows[column].tolist()
