"""Tasks of mteb with local data, measured by mteb itself."""

import json

import pytest
import torch
from datasets import Dataset, DatasetDict
from mteb import TaskMetadata
from mteb.abstasks import AbsTaskRetrieval, AbsTaskSTS
from scipy.stats import spearmanr

from simcse_pl.evaluation.suite import Suite, evaluate_suite
from simcse_pl.lab.mteb_tasks import MtebTask, find_tasks
from simcse_pl.utils.errors import UserError
from tests.support.helpers import random_vectors

WORDS = [f"word{number}" for number in range(40)]
PAIRS = [(WORDS[i], WORDS[(7 * i + 3) % 40], i % 6) for i in range(40)]


def metadata(name, kind, score):
    given = {"name": name, "description": "Local data.", "type": kind, "main_score": score}
    return TaskMetadata(**given, dataset={"path": "local/none", "revision": "1"}, eval_langs=["eng-Latn"])


class LocalSts(AbsTaskSTS):
    metadata = metadata("LocalSts", "STS", "cosine_spearman")

    def load_data(self, **_):
        columns = dict(zip(("sentence1", "sentence2", "score"), zip(*PAIRS, strict=True), strict=True))
        self.dataset, self.data_loaded = DatasetDict(test=Dataset.from_dict(columns)), True


class LocalRetrieval(AbsTaskRetrieval):
    metadata = metadata("LocalRetrieval", "Retrieval", "ndcg_at_10")

    def load_data(self, **_):
        queries = Dataset.from_dict({"id": WORDS, "text": [f"{word}?" for word in WORDS]})
        corpus = Dataset.from_dict({"id": WORDS, "text": WORDS, "title": [""] * 40})
        data = {"queries": queries, "corpus": corpus, "relevant_docs": {word: {word: 1} for word in WORDS}}
        self.dataset, self.data_loaded = {"default": {"test": data | {"top_ranked": None}}}, True


class Damaged(LocalSts):
    metadata = metadata("Damaged", "STS", "cosine_spearman")

    def load_data(self, **_):
        raise OSError("the hub is out of reach\nand more")


class Encoder:
    """Random vectors, the same with and without a question mark; it keeps what it has seen."""

    def __init__(self):
        self.seen = []

    def __call__(self, texts, prompt_name=None):
        self.seen += texts
        return random_vectors(text.rstrip("?") for text in texts)


def measure(encode, folder, *tasks, **options):
    how = {"folder": folder, "model": "mine", "revision": "one", **options}
    return evaluate_suite(encode, Suite([MtebTask(f"mteb/{task.metadata.name}", task, **how) for task in tasks]))


def test_kinds_of_tasks_with_a_failure_and_resuming(tmp_path):
    encode, again, other = Encoder(), Encoder(), Encoder()
    results = measure(encode, tmp_path, Damaged(), LocalSts())
    first, second, human = zip(*PAIRS, strict=True)
    expected = spearmanr(torch.cosine_similarity(encode([*first]), encode([*second])), human)[0]
    assert results.failed == {"mteb/Damaged": "mteb: the hub is out of reach"}
    assert [task.score for task in results.benchmarks] == pytest.approx([expected], abs=1e-5)
    written = json.loads((tmp_path / "results" / "simcse_pl__mine" / "one" / "LocalSts.json").read_text())
    assert written["scores"]["test"][0]["main_score"] == pytest.approx(expected, abs=1e-5)

    resumed = measure(again, tmp_path, LocalSts(), LocalRetrieval())
    assert [task.score for task in resumed.benchmarks] == pytest.approx([expected, 1], abs=1e-5)
    assert sorted(again.seen) == sorted([*WORDS, *(f"{word}?" for word in WORDS)])  # without those of the pairs
    measure(other, tmp_path, LocalSts(), revision="two")
    assert len(other.seen) == 80


def test_prompts_by_role_and_by_type_of_task(tmp_path):
    encode, prompts = Encoder(), {"query": "query: ", "document": "passage: ", "STS": "pair: "}
    measure(encode, tmp_path, LocalSts(), LocalRetrieval(), prompts=prompts)
    expected = {f"{prompt}: {word}" for prompt in ("pair", "passage") for word in WORDS}
    assert set(encode.seen) == expected | {f"query: {word}?" for word in WORDS}


def test_the_encoders_prompts_are_the_default(tmp_path):
    encode = Encoder()
    measure(lambda texts, prompt_name: encode([f"{prompt_name}: {text}" for text in texts]), tmp_path, LocalRetrieval())
    assert set(encode.seen) == {f"document: {word}" for word in WORDS} | {f"query: {word}?" for word in WORDS}


def test_names_of_tasks_and_benchmarks():
    assert [*find_tasks(["STS22", "mteb/STS12"], ["eng"])] == ["mteb/STS22", "mteb/STS12"]
    assert {"mteb/NanoArguAnaRetrieval", "mteb/NanoSciFactRetrieval"} < find_tasks(["NanoBEIR"]).keys()
    assert find_tasks(["mteb"]).keys() == find_tasks(["MTEB(eng, v2)"]).keys()
    with pytest.raises(UserError, match="tasks=NanoBIER: neither SentEval nor mteb has it; did you mean NanoBEIR"):
        find_tasks(["NanoBIER"])
    with pytest.raises(UserError, match="STS22 has none of them"):
        find_tasks(["STS22"], ["jpn"])
