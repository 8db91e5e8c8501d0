"""Translations are searched for in both directions; published test sets are read from the hub."""

import datasets
import numpy as np
import pytest
import torch

from simcse_pl.data.readers import sources
from simcse_pl.evaluation.bitext import Bitext
from simcse_pl.evaluation.evaluators import ScoredPairs
from tests.helpers import composed


def test_accuracies_and_f1_equal_a_loop(tmp_path):
    pairs = [(f"s{i % 11}", f"t{i % 9}") for i in range(12)]  # with repeated sentences and translations
    (tmp_path / "test.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in pairs))
    generator = torch.Generator().manual_seed(0)
    vectors = {text: torch.randn(3, generator=generator) for text in sorted({text for pair in pairs for text in pair})}
    metrics = Bitext(test=str(tmp_path / "test.tsv"))(lambda texts: torch.stack([vectors[x] for x in texts]), "test")

    def nearest(query, corpus):
        cosines = [float(torch.cosine_similarity(vectors[query], vectors[text], dim=0)) for text in corpus]
        return corpus[int(np.argmax(cosines))]

    first, second = zip(*pairs, strict=True)
    found = [nearest(query, second) for query in first]
    assert metrics["accuracy"] == np.mean([x == y for x, y in zip(found, second, strict=True)])
    assert metrics["reverse_accuracy"] == np.mean([nearest(y, first) == x for x, y in pairs])
    f1 = []
    for text in second:
        right = sum(x == y == text for x, y in zip(found, second, strict=True))
        f1.append(2 * right / (found.count(text) + second.count(text)))
    assert metrics["f1"] == pytest.approx(np.mean(f1))


def test_published_sets_are_read_in_their_own_splits_and_columns(monkeypatch):
    rows = [{"sentence1": f"하나 {score}", "sentence2": "둘", "score": score} for score in (1.0, 4.0)]
    nested = [{**row, "labels": {"label": row["score"], "binary-label": 0}} for row in rows]
    hub = {("mteb/KorSTS", "test"): rows, ("klue/klue:sts", "validation"): nested}
    monkeypatch.setattr(sources, "load_hub_dataset", lambda *place: datasets.Dataset.from_list(hub[place]))
    read = ScoredPairs(test=composed("test_sets=ko", "encoder=x", config="evaluate").data.test).sets["test"]
    assert list(read) == ["KorSTS", "KLUE-STS"]
    assert [pair.score for pairs in read.values() for pair in pairs] == [1.0, 4.0, 1.0, 4.0]
