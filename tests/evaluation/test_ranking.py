"""Rankings of a corpus: the metrics against trec_eval and a loop, BEIR's layout, candidates and triplets."""

import json
import logging
import math
from itertools import permutations, product

import numpy as np
import pytest
import pytrec_eval
import torch

from simcse_pl.evaluation import ranking
from simcse_pl.evaluation.ranking import Reranking, Retrieval, Triplets, ranking_metric
from simcse_pl.results import TEST, VALIDATION
from simcse_pl.utils.errors import UserError
from tests.support.helpers import random_vectors

CUTS = (1, 3, 10, 100)
NAMES = [f"{kind}@{k}" for kind, k in product(("accuracy", "map", "mrr", "ndcg", "recall"), CUTS)]
IN_TREC_EVAL = {"ndcg": "ndcg_cut", "recall": "recall", "accuracy": "success"}


@pytest.fixture
def beir(tmp_path):
    """A folder in BEIR's layout with repeated documents and grades 0 to 3, and its content."""
    rng = np.random.default_rng(0)
    corpus = {f"d{i:03}": f"title {rng.integers(60)}" for i in range(120)}
    queries = {f"q{i}": f"query {i}" for i in range(20)}
    grades = {query: {name: int(rng.integers(4)) for name in rng.choice([*corpus], size=9)} for query in queries}
    documents = [{"_id": name, "title": text, "text": "and text", "metadata": {}} for name, text in corpus.items()]
    rows = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{grade}" for q in grades for d, grade in grades[q].items())]
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    (tmp_path / "set" / "qrels" / "test.tsv").write_text("\n".join(rows))
    others = [{"_id": query, "text": text} for query, text in {**queries, "of_train": "not measured"}.items()]
    for name, lines in (("corpus", documents), ("queries", others)):
        (tmp_path / "set" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path / "set", {name: f"{text} and text" for name, text in corpus.items()}, queries, grades


def signs(texts, prompt_name=None):
    """Return vectors with few different cosines, all exact."""
    return random_vectors(texts, 4).sign()


@pytest.mark.parametrize("cosines_at_once", [2**26, 250, 1])
def test_a_folder_of_beir_has_the_metrics_of_trec_eval_with_ties_and_grades(beir, monkeypatch, cosines_at_once):
    folder, corpus, queries, grades = beir
    monkeypatch.setattr(ranking, "_COSINES", cosines_at_once)
    evaluator = Retrieval(test=str(folder), metrics=[*NAMES, "map", "ndcg"])
    assert set(evaluator.sentences(TEST)) == {*corpus.values(), *queries.values()}
    metrics = evaluator(signs, TEST)
    # Of documents with equal scores, trec_eval puts the last id first, and we the first of the corpus.
    reverse = dict(zip(corpus, sorted(corpus, reverse=True), strict=True))
    vectors = {text: signs([text])[0] for text in (*corpus.values(), *queries.values())}
    run = {q: {reverse[d]: float(vectors[queries[q]] @ vectors[corpus[d]]) for d in corpus} for q in queries}
    judged = {q: {reverse[d]: grade for d, grade in grades[q].items()} for q in queries}
    wanted = {"recip_rank", "map", "ndcg"} | {f"{name}.1,3,10,100" for name in IN_TREC_EVAL.values()}
    measured = pytrec_eval.RelevanceEvaluator(judged, wanted).evaluate(run)
    expected = {"mrr": "recip_rank", "map": "map", "ndcg": "ndcg"}
    expected |= {f"{name}@{k}": f"{theirs}_{k}" for name, theirs in IN_TREC_EVAL.items() for k in CUTS}
    for name, theirs in expected.items():
        assert metrics[name] == pytest.approx(np.mean([of_query[theirs] for of_query in measured.values()])), name


def test_metrics_of_the_first_documents_equal_a_loop():
    """The average precision is divided by what is reachable, as in sentence-transformers."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        relevant = {int(rank) for rank in rng.choice(30, size=rng.integers(1, 9), replace=False) + 1}
        lost = [math.inf] * int(rng.integers(3))
        ranks = np.array([*relevant, *lost])
        for k in CUTS:
            hits, precisions, first = 0, 0.0, 0.0
            for rank in range(1, k + 1):
                if rank in relevant:
                    hits, first = hits + 1, first or 1 / rank
                    precisions += hits / rank
            values = {"accuracy": float(hits > 0), "recall": hits / len(ranks), "mrr": first}
            values["map"] = precisions / min(k, len(ranks))
            for name, value in values.items():
                assert ranking_metric(f"{name}@{k}", ranks, np.ones(len(ranks))) == pytest.approx(value), (name, k)


def test_a_document_that_is_the_query_is_not_ranked(beir):
    """It has the query's id and text; ids alone may be numbers that mean nothing, also if the text has the query."""
    folder = beir[0]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td000\t1\n")
    documents, ranks = (folder / "corpus.jsonl").read_text(), []
    for first in ({}, {"text": "it is query 0"}, {"text": "another"}, {"text": "query 0 and more"}):
        own = json.dumps({"_id": "q0", "title": "", "metadata": {}, **first}) + "\n" if first else ""
        (folder / "corpus.jsonl").write_text(own + documents)
        near = dict.fromkeys(("it is query 0", "another", "query 0 and more"), "query 0")
        encode = lambda texts, prompt_name: random_vectors([near.get(text, text) for text in texts])  # noqa: B023, E731
        ranks.append(round(1 / Retrieval(test=str(folder))(encode, TEST)["mrr"]))
    assert ranks == [ranks[0], ranks[0], ranks[0] + 1, ranks[0] + 1]


def test_a_corpus_is_ranked_beside_the_positives(write, tmp_path, caplog):
    queries = write(("a b", "c d"), ("e", "f g", "c d"))
    lines = ["c d", "h i", "a b", "j k", "l m", "f g"]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    cells = ["key,title,text", *(f"{line},{line.replace(' ', ',')}" for line in lines)]
    (tmp_path / "corpus.csv").write_text("\n".join(cells))
    whole = Retrieval(queries, corpus=str(tmp_path / "corpus.txt"), top_k=[1, 2])
    assert whole.name(VALIDATION) == "dev.tsv (6 candidates)"
    assert Retrieval({"a": queries, "b": queries}).name(VALIDATION) == "a (2 candidates), b (2 candidates)"
    cosines = {text: signs([text])[0] for text in ("a b", "e", *lines)}
    ranks = []
    for query, positives in (("a b", ["c d"]), ("e", ["f g", "c d"])):
        ranked = sorted({*lines} - {query}, key=lambda one: (-float(cosines[one] @ cosines[query]), lines.index(one)))
        ranks.append(min(ranked.index(one) + 1 for one in positives))
    metrics = whole(signs, VALIDATION)
    assert metrics["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks])) and "ndcg@2" in metrics
    joined = {"file": str(tmp_path / "corpus.csv"), "columns": ["title", "text"]}
    assert Retrieval({"x": {"file": queries, "corpus": joined}}, top_k=[2])(signs, VALIDATION)["mrr"] == metrics["mrr"]
    assert "lacks" not in caplog.text
    (tmp_path / "part.txt").write_text("h i\nc d\n")
    part = Retrieval(queries, corpus=[str(tmp_path / "part.txt"), str(tmp_path / "part.txt")])
    assert [*part.sets[VALIDATION][""].corpus] == ["h i", "c d", "f g"]
    assert "the corpus lacks 1 positives" in caplog.text and "are its columns those of the texts" not in caplog.text
    (tmp_path / "part.csv").write_text("key,text\nk l,c d\nm,\nn o,f g\n")
    assert [
        *Retrieval(queries, corpus={"file": str(tmp_path / "part.csv"), "columns": ["text"]})
        .sets[VALIDATION][""]
        .corpus
    ] == ["c d", "f g"]
    assert "part.csv: 1 invalid rows dropped, the first at line 3: no sentence" in caplog.text
    Retrieval(queries, corpus={"file": str(tmp_path / "part.csv"), "columns": ["key"]})
    assert "part.csv has no positive of" in caplog.text


def test_a_relevant_document_that_the_corpus_lacks_is_never_found(beir, caplog):
    folder = beir[0]
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tnone\t1\nq1\td000\t2\nq2\td000\t0\n")
    with caplog.at_level(logging.WARNING):
        metrics = Retrieval(str(folder), metrics=["recall"])(signs, VALIDATION)
    assert metrics["recall"] == 0.5 and "the corpus lacks 1 of its documents" in caplog.text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("q1\td000\t0\n", "no query has a relevant document"),
        ("q1\td000\thigh\n", "q1, d000, high: no query in queries.jsonl, or no score"),
        ("q99\td000\t1\n", "q99, d000, 1: no query in queries.jsonl, or no score"),
        ("q1\td000\n", "line 2: 2 columns where there should be 3"),
    ],
)
def test_a_bad_folder_is_an_error(beir, rows, message):
    (beir[0] / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    with pytest.raises(UserError, match=f"^data.test: .*test.tsv.*{message}"):
        Retrieval(test=str(beir[0]))
    with pytest.raises(UserError, match="^data.validation: no file .*dev.tsv"):
        Retrieval(str(beir[0]))
    with (beir[0] / "corpus.jsonl").open("a") as file:
        file.write('\n{"_id": "d000", "title": "", "text": "Another one."}\n')
    with pytest.raises(UserError, match="corpus.jsonl: the id d000 has two texts"):
        Retrieval(test=str(beir[0]))


def test_candidates_of_each_query_are_ranked(write):
    from sklearn.metrics import average_precision_score, ndcg_score

    rows = [(f"query {i % 5}", f"document {i % 13}", (i * 7) % 3) for i in range(45)]
    rows += [("only relevant", "document 1", 1), ("not relevant", "document 2", 0)]
    metrics = Reranking(write(*rows))(random_vectors, VALIDATION)
    scores = {name: [] for name in ("map", "mrr@10", "ndcg@10")}
    for query in {query for query, *_ in rows[:45]}:
        grades = {document: grade for own, document, grade in rows if own == query}
        cosines = torch.cosine_similarity(random_vectors([*grades]).double(), random_vectors([query]).double()).numpy()
        relevant = np.array([*grades.values()]) > 0
        scores["map"].append(average_precision_score(relevant, cosines))
        scores["mrr@10"].append(1 / (1 + np.argmax(relevant[np.argsort(-cosines)])))
        scores["ndcg@10"].append(ndcg_score([[*grades.values()]], [cosines], k=10))
    assert metrics == pytest.approx({name: np.mean(values) for name, values in scores.items()})
    twice = Reranking(write(("a b", "b c", 1), ("a b", "b c", 0), ("a b", "c d", 0)))
    assert twice.sets[VALIDATION][""].qrels == [("a b", {"b c": 1.0, "c d": 0.0})]
    with pytest.raises(UserError, match="no query has a relevant document"):
        Reranking(write(("a", "b", 1), ("c", "d", 0)))


def test_equal_cosines_count_against_the_relevant_candidates(write):
    def constant(texts, prompt_name=None):
        return torch.ones(len(texts), 3)

    rows = [("query", "first", 0), ("query", "relevant", 1), ("query", "also relevant", 1), ("query", "last", 0)]
    assert Reranking(write(*rows))(constant, VALIDATION)["map"] == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert Triplets(write(("a.", "b.", "c.")))(constant, VALIDATION) == {"accuracy@1": 0}


def test_cosines_that_differ_by_rounding_are_equal(write):
    """The words of a positive in another order have its mean, but for rounding."""
    drawn = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    vectors = dict(zip("abcdefgh", drawn, strict=True))
    encode = lambda texts, prompt_name=None: torch.stack([sum(map(vectors.get, text.split())) for text in texts])  # noqa: E731
    rows = [("a b h", " ".join(words), " ".join(words[::-1])) for words in permutations("cdefg")]
    assert Triplets(write(*rows))(encode, VALIDATION) == {"accuracy@1": 0}


def test_triplets_are_right_if_the_positive_is_nearest(write):
    rows = [(f"anchor {i % 9}.", f"positive {i}.", f"first {i}.", f"second {i}." * (i % 2)) for i in range(40)]
    right = []
    for anchor, *others in rows:
        cosines = torch.cosine_similarity(random_vectors([anchor]), random_vectors([one for one in others if one]))
        right.append(int(cosines.argmax()) == 0)
    assert Triplets(write(*rows))(random_vectors, VALIDATION) == {"accuracy@1": pytest.approx(np.mean(right))}
    with pytest.raises(UserError, match="the anchor 'b c' needs a positive and a negative"):
        Triplets(write(("a.", "b.", "c d."), ("b c", "c", "")))
