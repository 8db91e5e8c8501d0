"""Evaluators on files: their metrics against loops, their errors, and their sentences on several devices."""

import math
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from simcse_pl import datamodule
from simcse_pl.data import hub_datasets
from simcse_pl.datamodule import EvaluationSentences
from simcse_pl.evaluation.evaluators import ScoredPairs, make_evaluators, measure, source_of
from simcse_pl.evaluation.ranking import BinaryPairs, Bitext, Retrieval
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.templates import Templates
from simcse_pl.results import TEST, VALIDATION
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.support.helpers import composed
from tests.support.helpers import random_vectors as encode


def cosine(first, second):
    a, b = encode([first])[0].double(), encode([second])[0].double()
    return float(a @ b / (a.norm() * b.norm()))


SCORED = [("a b", "c d", 4.5), ("e f", "g h", 0.5), ("a b", "g h", 3.0), ("i", "k", 5.0), ("l m n", "o", 2.0)]


def test_scored_pairs_have_the_papers_metrics(write):
    file = write(*SCORED)
    evaluator = ScoredPairs(file)
    assert set(evaluator.sentences(VALIDATION)) == {one for row in SCORED for one in row[:2]}
    assert not evaluator.sentences(TEST) and evaluator.name(VALIDATION) == "dev.tsv"
    metrics = evaluator(encode, VALIDATION)
    cosines = [cosine(first, second) for first, second, _ in SCORED]
    assert metrics["spearman"] == pytest.approx(spearmanr(cosines, [score for *_, score in SCORED]).statistic)
    positives = [2 - 2 * cosine(first, second) for first, second, score in SCORED if score > 4]
    assert metrics["alignment"] == pytest.approx(np.mean(positives), abs=1e-5)
    every = [one for first, second, _ in SCORED for one in (first, second)]
    potentials = [math.exp(-2 * (2 - 2 * cosine(a, b))) for i, a in enumerate(every) for b in every[:i]]
    assert metrics["uniformity"] == pytest.approx(math.log(np.mean(potentials)), abs=1e-5)


def test_a_test_set_takes_the_place_of_the_sources_own(write):
    assert not ScoredPairs("sample", None).sets[TEST].keys() - {""}
    given = ScoredPairs("sample", write(*SCORED))
    assert [*given.stsb] == ["dev"] and [pair.first for pair in given.sets[TEST][""]] == [row[0] for row in SCORED]


def test_a_test_set_that_is_the_validation_set_is_a_warning(write, caplog):
    dev, part, test = write(*SCORED), write(*SCORED[:3], name="a.tsv"), write(*SCORED[:3], ("x", "y", 1), name="b.tsv")
    for files, warned in (((dev, dev), True), ((dev, {"x": part}), True), ((part, test), False), ((dev, None), False)):
        caplog.clear()
        make_evaluators({"sts": ScoredPairs}, validation=files[0], test=files[1])
        assert any("data.validation has all its sentences too" in message for message in caplog.messages) == warned


def test_files_with_names_have_their_own_metrics_and_a_mean(write):
    files = {"de": write(*SCORED, name="de.tsv"), "en": write(*SCORED[::-1], ("x", "y", 1.0), name="en.tsv")}
    metrics = ScoredPairs(test=files)(encode, TEST)
    assert len(metrics) == 9
    for name, file in files.items():
        assert metrics[f"{name}/spearman"] == ScoredPairs(file)(encode, VALIDATION)["spearman"]
    assert metrics["spearman"] == pytest.approx((metrics["de/spearman"] + metrics["en/spearman"]) / 2)
    with pytest.raises(UserError, match="^data.test.mean: this is the name of the mean over files"):
        ScoredPairs(test=files | {"mean": files["de"]})


def test_binary_pairs_are_ranked_and_separated(write):
    cosines = {"x": 1.0, "a": 0.9, "b": 0.8, "c": 0.8, "d": 0.7, "e": 0.1}
    file = write(("x", "a", 1), ("x", "b", 0), ("x", "c", 1), ("x", "d", 1), ("x", "e", 0))

    def circle(sentences):
        return torch.tensor([[cosines[one], (1 - cosines[one] ** 2) ** 0.5] for one in sentences])

    metrics = BinaryPairs(file)(circle, VALIDATION)
    # Of equal cosines, all or none are above the threshold: 1 of 1, 2 of 3, 3 of 4.
    assert metrics == pytest.approx({"average_precision": (1 + 2 / 3 + 3 / 4) / 3, "accuracy": 4 / 5})


def test_translations_found_in_both_directions_equal_a_loop(tmp_path):
    pairs = [(f"s{i % 11}", f"t{i % 9}") for i in range(12)]  # with repeated sentences and translations
    (tmp_path / "test.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in pairs))
    generator = torch.Generator().manual_seed(0)
    vectors = {f"t{i}": torch.randn(3, generator=generator) for i in range(9)}
    vectors |= {f"s{i}": vectors[f"t{i % 9}"] + torch.randn(3, generator=generator) for i in range(11)}
    metrics = Bitext(test=str(tmp_path / "test.tsv"))(lambda texts: torch.stack([vectors[x] for x in texts]), "test")

    def nearest(query, corpus):
        cosines = [float(torch.cosine_similarity(vectors[query], vectors[text], dim=0)) for text in corpus]
        return corpus[int(np.argmax(cosines))]

    first, second = zip(*pairs, strict=True)
    found = [nearest(query, second) for query in first]
    assert metrics["accuracy"] == np.mean([x == y for x, y in zip(found, second, strict=True)])
    assert metrics["reverse_accuracy"] == np.mean([nearest(y, first) == x for x, y in pairs])
    # As in MTEB, the label of a row is its number: of equal translations, the first is found, and the others never are.
    rows = [second.index(text) for text in found]
    f1 = [2 * (rows[i] == i) / (rows.count(i) + 1) for i in range(len(pairs))]
    assert metrics["f1"] == pytest.approx(np.mean(f1)) and 0 < metrics["f1"] < metrics["accuracy"]


@pytest.mark.parametrize("make", [Bitext, Retrieval])
def test_a_column_of_ids_is_not_measured(make, write):
    rows = [(f"T-{i}", f"How is {i}?", f"Wie ist {i}?") for i in range(20)]
    file, option = write(("ticket", "en", "de"), *rows), r"'evaluators.mine.columns=\[NAME,NAME\]'"
    with pytest.raises(UserError, match=f"^data.test: .*column ticket has ids, not sentences: .* by {option}$"):
        make_evaluators({"mine": make}, test=file)
    assert {*make(test=file, columns=["en", "de"]).sentences(TEST)} == {text for row in rows for text in row[1:]}


def test_published_sets_are_read_in_their_own_splits_and_columns(monkeypatch):
    rows = [{"sentence1": f"하나 {score}", "sentence2": "둘", "score": score} for score in (1.0, 4.0)]
    nested = [{**row, "labels": {"label": row["score"], "binary-label": 0}} for row in rows]
    hub = {("mteb/KorSTS", "test"): rows, ("klue/klue:sts", "validation"): nested}
    monkeypatch.setattr(hub_datasets, "load_hub_dataset", lambda *place: datasets.Dataset.from_list(hub[place]))
    read = ScoredPairs(test=composed("test_sets=ko", "encoder=x", config="evaluate").data.test).sets["test"]
    assert list(read) == ["KorSTS", "KLUE-STS"]
    assert [pair.score for pairs in read.values() for pair in pairs] == [1.0, 4.0, 1.0, 4.0]


def test_columns_are_chosen_by_name_or_position(write):
    rows = [(number, score, first, "a topic", second) for number, (first, second, score) in enumerate(SCORED)]
    rows[-1] += ("rows may differ in other columns",)
    named = write(("id", "wert", "satz1", "thema", "satz2"), *rows, name="named.tsv")
    expected = ScoredPairs(write(*SCORED)).sets
    assert ScoredPairs(named, columns=["satz1", "satz2", "wert"]).sets == expected
    assert ScoredPairs(named, columns=[2, 4, 1]).sets == expected, "the header is guessed"
    files = {"a": write(*SCORED), "b": {"file": named, "columns": [2, 4, 1], "header": True}}
    assert ScoredPairs(files).sets[VALIDATION] == dict.fromkeys(files, expected[VALIDATION][""])
    assert ScoredPairs(files["b"]).sets == expected and ScoredPairs(files["b"]).name(VALIDATION) == "named.tsv"
    found = Retrieval(named, columns=["satz1", "satz2"]).sets[VALIDATION][""]
    assert dict(found.qrels)["a b"].keys() == {"c d", "g h"} and len(found.queries) == 4
    with pytest.raises(UserError, match="no column satz in .*named.tsv"):
        ScoredPairs(named, columns=["satz1", "satz", "wert"])
    with pytest.raises(UserError, match="name two of sentences and one of scores"):
        ScoredPairs(named, columns=["satz1", "satz2"])


@pytest.mark.parametrize(
    ("kind", "rows", "message"),
    [
        (ScoredPairs, [("a.", "b.", 3), ("c", "d", 3)], "all rows have the number 3; different ones"),
        (ScoredPairs, [SCORED[0], ("", "d", 1)], "line 2: column 0 is empty"),
        (BinaryPairs, [("a.", "b.", 1), ("c", "d", 2)], "it has the label 2, and labels should be 0 or 1"),
        (Retrieval, [("a b.", "c d.", 4), ("e f.", "g h.", 2)], "column 2 has numbers, not sentences"),
        (ScoredPairs, [("s1", "s2", "year", "score"), ("a.", "b.", 1999, 3), ("c.", "d.", 2001, 4)], "column year: "),
        (ScoredPairs, [("s1", "s2", "idx", "score"), ("a b.", "c d.", 0, 5), ("e f.", "g h.", 1, 2)], "column idx: "),
        (ScoredPairs, [("score", "first", "second"), (3, "a.", "b."), (4, "c.", "d.")], "would be column second: name"),
        (ScoredPairs, [("a b", "c d"), ("e", "f")], "it has 2 columns .*: name two of sentences .* .evaluators=retr"),
        (Retrieval, [("query", "positive", "negative"), ("a b.", "c d.", "e")], "has negatives: name the query and"),
        (Retrieval, [("answer", "question"), ("a b.", "c d.")], "answer, question would be read as anchor"),
        (Retrieval, [('{"a": "a b.", "b": "c d."}',), ("no object",)], "line 2: not a JSON object"),
        (Retrieval, [("a b.", "c d."), ("e f.", "e f.")], "the query 'e f.' needs a positive other than itself$"),
    ],
)
def test_bad_files_are_errors(kind, rows, message, write):
    with pytest.raises(UserError, match=f"^data.validation: .*{message}"):
        kind(write(*rows))


def test_the_data_in_a_config_come_first(tmp_path):
    (tmp_path / "own.tsv").write_text("a.\tb.\n")
    makers = {"queries": partial(Retrieval, validation=str(tmp_path / "own.tsv"), top_k=[2])}
    made = make_evaluators(makers, validation="missing.tsv", test=None)["queries"]
    assert made.sentences(VALIDATION) == ["a.", "b."] and made.sentences(TEST) == [] and made.top_k == [2]


def test_metrics_that_several_evaluators_have_are_named_by_them(pairs):
    class Own(ScoredPairs):
        def measure(self, encode, data):
            return {"spearman": 0.5, "own": 1.0}

    made = make_evaluators({"sts": ScoredPairs, "other": Own, "left out": None}, validation=pairs, test=None)
    measured = measure(made, lambda given: torch.randn(len(given), 3), VALIDATION)
    assert measured.keys() == {"sts/spearman", "other/spearman", "own", "alignment", "uniformity"}
    assert measured["other/spearman"] == 0.5
    assert source_of(made, VALIDATION) == "pairs.tsv" and source_of(made, TEST) == ""
    elsewhere = SimpleNamespace(metrics=["spearman"], sentences=lambda split: [])  # the names are those of each split
    assert "own/spearman" in measure({"own": made["other"], "elsewhere": elsewhere}, len, VALIDATION)
    named = {"other": Own({"a": pairs, "b": pairs}), "a": Own(pairs)}
    with pytest.raises(UserError, match="one is named like a file of another"):
        measure(named, len, VALIDATION)


@pytest.mark.parametrize("returned", [None, 0.5, {"own": None}, {"own": "high"}])
def test_an_evaluator_that_returns_no_numbers_by_name_is_an_error(returned, pairs):
    class Own(ScoredPairs):
        def __call__(self, encode, split):
            return returned

        def sentences(self, split):
            return np.array(super().sentences(split))  # as some evaluators have them

    with pytest.raises(UserError, match="^evaluators.own returned .*: return a number for each metric, by name"):
        measure({"own": Own(pairs)}, len, VALIDATION)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_distinct_sentence_is_on_one_device_and_gets_its_own_vector(tokenizer, monkeypatch, ranks):
    sentences = EvaluationSentences([(None, [*SENTENCES, *SENTENCES[:3]])], Templates(tokenizer))
    assert len(sentences) == len(SENTENCES) and sorted(sentences.sentences) == sorted(SENTENCES)
    monkeypatch.setattr(datamodule, "world_size", lambda: ranks)
    vectors, counts = [], []
    for number in range(ranks):
        monkeypatch.setattr(datamodule, "rank", lambda number=number: number)
        batches = list(sentences.loader())
        vectors += [batch["input_ids"].sum(dim=1, keepdim=True) for batch in batches]  # [PAD] has the id 0
        counts.append(sum(len(batch["input_ids"]) for batch in batches))
    assert max(counts) - min(counts) <= 1 and sum(counts) == len(SENTENCES)
    encode = sentences.encode(torch.cat(vectors))
    wanted = [SENTENCES[5], SENTENCES[0], SENTENCES[5]]
    assert encode(wanted).flatten().tolist() == [sum(tokenizer(sentence)["input_ids"]) for sentence in wanted]
    with pytest.raises(UserError, match="one encodes 'unknown', which its `sentences` do not have"):
        encode(["unknown"])


def test_queries_and_positives_have_their_prompts_in_validation(make_model, tmp_path):
    """One of them has the text of a query; the metrics are those of vectors with the prompts."""
    rows = [*pairwise(SENTENCES[:6])]
    (tmp_path / "rows.tsv").write_text("".join(f"{query}\t{positive}\n" for query, positive in rows))
    prompts = {"query": "dogs ", "document": "dogs in the snow ", "other": "a "}
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", max_length=7, prompts=prompts)
    retrieval = Retrieval(str(tmp_path / "rows.tsv"), header=False)
    sentences = EvaluationSentences(retrieval.by_prompt(VALIDATION).items(), encoder.templates)
    vectors = torch.cat([encoder.eval()(batch) for batch in sentences.loader()])
    looked_up = sentences.encode(vectors.detach())
    for name, texts in retrieval.by_prompt(VALIDATION).items():
        found = looked_up(texts, prompt_name=name)
        torch.testing.assert_close(found, encoder.encode([f"{prompts[name]}{text}" for text in texts]))
    assert retrieval(looked_up, VALIDATION) == retrieval(encoder.encode, VALIDATION)
