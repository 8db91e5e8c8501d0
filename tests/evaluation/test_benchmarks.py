"""Tasks of mteb with local data, measured by mteb itself, against scikit-learn and scipy."""

import json
from functools import partial

import pytest
import torch
from datasets import Dataset, DatasetDict
from mteb import TaskMetadata
from mteb.abstasks import AbsTaskClassification, AbsTaskRetrieval, AbsTaskSTS
from scipy.stats import spearmanr

from simcse_pl.evaluation import benchmarks
from simcse_pl.evaluation.suite import Suite, evaluate_suite
from simcse_pl.utils.errors import UserError

WORDS = [f"word{number}" for number in range(40)]
PAIRS = [(WORDS[i], WORDS[(7 * i + 3) % 40], i % 6) for i in range(40)]


def metadata(name, kind, score):
    where = {"path": "local/none", "revision": "1"}
    texts = {"name": name, "description": "Local data.", "type": kind, "main_score": score}
    return TaskMetadata(**texts, dataset=where, eval_langs=["eng-Latn"])


class LocalSts(AbsTaskSTS):
    metadata = metadata("LocalSts", "STS", "cosine_spearman")

    def load_data(self, **_):
        first, second, score = zip(*PAIRS, strict=True)
        rows = Dataset.from_dict({"sentence1": first, "sentence2": second, "score": score})
        self.dataset, self.data_loaded = DatasetDict(test=rows), True


class LocalClassification(AbsTaskClassification):
    metadata = metadata("LocalClassification", "Classification", "accuracy")

    def load_data(self, **_):
        rows = {"text": [f"{word} {'good' if i % 2 else 'bad'}" for i, word in enumerate(WORDS)]}
        rows = Dataset.from_dict(rows | {"label": [i % 2 for i in range(40)]})
        self.dataset, self.data_loaded = DatasetDict(train=rows, test=rows), True


class LocalRetrieval(AbsTaskRetrieval):
    metadata = metadata("LocalRetrieval", "Retrieval", "ndcg_at_10")

    def load_data(self, **_):
        ids = [str(number) for number in range(40)]
        data = {"queries": Dataset.from_dict({"id": ids, "text": [f"{word}?" for word in WORDS]})}
        data["corpus"] = Dataset.from_dict({"id": ids, "text": WORDS, "title": [""] * 40})
        data["relevant_docs"], data["top_ranked"] = {number: {number: 1} for number in ids}, None
        self.dataset, self.data_loaded = {"default": {"test": data}}, True


class Damaged(LocalSts):
    metadata = metadata("Damaged", "STS", "cosine_spearman")

    def load_data(self, **_):
        raise OSError("the hub is out of reach\nand more")


class Encoder:
    """Random vectors of words, the same with a question mark, and near each other with the same second word."""

    def __init__(self):
        self.seen = []

    def vector(self, text):
        words = text.rstrip("?").split()
        rows = [torch.randn(8, generator=torch.Generator().manual_seed(hash_of(word))) for word in words]
        return sum(3**place * row for place, row in enumerate(rows))

    def __call__(self, texts):
        self.seen += texts
        return torch.stack([self.vector(text) for text in texts])


def hash_of(word):
    return sum(ord(char) * 31**place for place, char in enumerate(word)) % 2**31


def suite(folder, *tasks, **options):
    how = {"folder": folder, "name": "mine", "revision": "one", **options}
    return Suite(
        benchmarks={f"mteb/{task.metadata.name}": partial(benchmarks.evaluate_task, task=task, **how) for task in tasks}
    )


def test_kinds_of_tasks_with_files_for_the_leaderboard_and_a_failure(tmp_path):
    encode = Encoder()
    tasks = [Damaged(), LocalSts(), LocalClassification(), LocalRetrieval()]
    results = evaluate_suite(encode, suite(tmp_path, *tasks))
    first, second, human = zip(*PAIRS, strict=True)
    cosines = torch.cosine_similarity(encode([*first]), encode([*second]))
    assert {
        task.task: (task.type, task.metric, pytest.approx(task.score, abs=1e-5)) for task in results.benchmarks
    } == {
        "LocalSts": ("STS", "cosine_spearman", spearmanr(cosines, human)[0]),
        "LocalClassification": ("Classification", "accuracy", 1),
        "LocalRetrieval": ("Retrieval", "ndcg_at_10", 1),
    }
    assert results.failed == {"mteb/Damaged": "mteb: the hub is out of reach"}
    written = json.loads((tmp_path / "results" / "simcse_pl__mine" / "one" / "LocalSts.json").read_text())
    assert written["scores"]["test"][0]["main_score"] == pytest.approx(spearmanr(cosines, human)[0], abs=1e-5)


def test_a_second_run_resumes_unless_the_revision_is_another(tmp_path):
    encode, again, other = Encoder(), Encoder(), Encoder()
    results = evaluate_suite(encode, suite(tmp_path, LocalSts()))
    resumed = evaluate_suite(again, suite(tmp_path, LocalSts(), LocalRetrieval()))
    assert resumed.benchmarks[0].score == pytest.approx(results.benchmarks[0].score, abs=1e-6)  # as written
    assert set(again.seen) == {*WORDS, *(f"{word}?" for word in WORDS)} and len(again.seen) == 80  # not the pairs
    evaluate_suite(other, suite(tmp_path, LocalSts(), revision="two"))
    assert len(other.seen) == len(encode.seen) == 80


def test_prompts_by_role_and_by_type_of_task(tmp_path):
    encode, prompts = Encoder(), {"query": "query: ", "document": "passage: ", "STS": "pair: "}
    benchmarks.check_prompts(prompts)
    evaluate_suite(encode, suite(tmp_path, LocalSts(), LocalRetrieval(), prompts=prompts))
    expected = [f"{prompt}: {word}" for prompt in ("pair", "passage") for word in WORDS]
    assert set(encode.seen) == {*expected, *(f"query: {word}?" for word in WORDS)}
    with pytest.raises(UserError, match="mteb.prompts: .*qery is not valid"), pytest.warns(match="qery is not valid"):
        benchmarks.check_prompts({"qery": "query: "})


def test_names_of_tasks_and_benchmarks():
    assert [*benchmarks.find_tasks(["STS22", "mteb/STS12"], ["eng"])] == ["mteb/STS22", "mteb/STS12"]
    assert {"mteb/NanoArguAnaRetrieval", "mteb/NanoSciFactRetrieval"} < benchmarks.find_tasks(["NanoBEIR"]).keys()
    assert benchmarks.find_tasks(["mteb"]).keys() == benchmarks.find_tasks(["MTEB(eng, v2)"]).keys()
    for name, message in (("NanoBIER", "did you mean NanoBEIR"), ("SICKR", "did you mean .*SICK-R")):
        with pytest.raises(UserError, match=f"tasks={name}: neither SentEval nor mteb has it; {message}"):
            benchmarks.find_tasks([name], other_names=["SICK-R"])
    with pytest.raises(UserError, match="mteb.languages=\\['jpn'\\]: STS22"):
        benchmarks.find_tasks(["STS22"], ["jpn"])
