"""Suites of tasks from a small bundle with random sentences: what is read, what is measured, and which tasks fail."""

import pytest
import torch

from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.evaluation.sts import StsTask, load_sample, load_sts_task
from simcse_pl.evaluation.suite import OwnDataTask, Suite, encode_once, evaluate_suite, load_suite
from simcse_pl.lab.evaluate import postprocessed
from simcse_pl.lab.geometry import GeometryTask
from simcse_pl.lab.transfer import load_transfer_task
from simcse_pl.postprocessing.linear import Whitening
from simcse_pl.utils.errors import UserError
from tests.support.helpers import random_vectors
from tests.support.senteval_bundle import write_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_bundle(tmp_path_factory.mktemp("bundle"))


def test_groups_are_the_tasks_in_the_bundle(bundle, caplog):
    suite = load_suite(["transfer", "geometry", "sts"], bundle)
    splits = {split: load_sts_task(bundle, "STS-B", split).pairs for split in ("train", "dev", "test")}
    geometry = GeometryTask(StsTask("STS-B", "train, dev and test", splits))
    sts = [load_sts_task(bundle, task) for task in ("STS12", "STS13", "STS-B", "SICK-R")]
    assert suite.tasks == [*(load_transfer_task(bundle, task) for task in ("MR", "SST", "MRPC")), geometry, *sts]
    assert suite.sts == sts and suite.failed == {}
    assert "CR is left out" in caplog.text and "STS16 is left out" in caplog.text


def test_tasks_by_name_are_in_the_given_order_without_duplicates_and_must_be_in_the_bundle(bundle):
    suite = load_suite(["MRPC", "SICK-R", "MR", "sts", "STS12", "STS14", "TREC", "MR"], bundle)
    assert [task.name for task in suite.tasks] == ["MRPC", "SICK-R", "MR", "STS12", "STS13", "STS-B"]
    assert suite.failed.keys() == {"STS14", "TREC"}


def test_the_sample_replaces_a_missing_bundle():
    dev, test = load_sample("dev"), load_sample("test")
    assert load_suite(["sts", "geometry"], "", "dev", geometry_split="dev") == Suite([dev, GeometryTask(dev)])
    assert load_suite(["geometry"], None).tasks[0].pairs_of.sentences == dev.sentences + test.sentences
    assert load_suite([], None) == Suite()
    with pytest.raises(UserError, match="^STS12 needs a SentEval bundle"):
        load_suite(["sts", "STS12"], None)


def test_an_unknown_task_is_an_error_with_the_names(bundle):
    for folder in (bundle, None):
        with pytest.raises(UserError, match="^test_tasks=STS17: no such task; choose among sts, transfer, .*, STS16"):
            load_suite(["sts", "STS17"], folder)


class Encoder:
    """A random encoder that records the sentences of each call."""

    def __init__(self):
        self.calls = []

    def __call__(self, sentences, *, prompt_name=None):
        self.calls.append(sentences)
        return random_vectors(sentences) + 1


def test_all_protocols_are_measured_with_one_encoding_per_task(bundle):
    suite = load_suite(["MRPC", "sts", "MR", "geometry"], bundle, classifier="pytorch")
    encode, alone = Encoder(), Encoder()
    results = evaluate_suite(encode, suite)
    first, *sts, second, geometry = (task(alone) for task in suite.tasks)
    assert (results.transfer, results.sts, results.geometry) == ([first, second], sts, geometry)
    assert first.classifier == "pytorch" and not results.failed
    assert sorted(encode.calls) == sorted(alone.calls)
    assert all(len(call) == len(set(call)) for call in encode.calls)


def test_own_data_is_encoded_with_the_tasks_and_post_processed(tmp_path):
    sample = load_sample("dev")
    file = tmp_path / "own.tsv"
    file.write_text("".join(f"{pair.first}\t{pair.second}\t{pair.score}\n" for pair in sample.pairs))
    suite = Suite([sample, OwnDataTask({"sts": ScoredPairs(test=str(file)), "unused": ScoredPairs()})])
    encode = Encoder()
    plain = evaluate_suite(encode_once(encode), suite)
    assert plain.own.data == "own.tsv" and plain.own.metrics["spearman"] == pytest.approx(plain.sts[0].all.spearman)
    assert [len(call) for call in encode.calls] == [len({*sample.sentences})]
    whitened = evaluate_suite(postprocessed(encode, Whitening()), suite)
    assert whitened.own.metrics["spearman"] == pytest.approx(whitened.sts[0].all.spearman)
    assert whitened.own.metrics["spearman"] != pytest.approx(plain.own.metrics["spearman"])


@pytest.mark.parametrize("prompts", [["query"], [None, "query"]])  # static embeddings have one of the name None
def test_a_sentence_is_encoded_once_with_each_prompt(prompts, monkeypatch):
    calls = []

    def encode(sentences, *, prompt_name=None):
        calls.append((prompt_name, sentences))
        return random_vectors([f"{prompt_name} {sentence}" for sentence in sentences])

    once = encode_once(encode, prompts)
    first, again = once(["a", "b"]), once(["b", "c", "b"])
    query, document = once(["b"], prompt_name="query"), once(["b"], prompt_name="document")
    assert calls == [(None, ["a", "b"]), (None, ["c"]), ("query", ["b"])]
    assert torch.equal(again, random_vectors(["None b", "None c", "None b"])) and torch.equal(first[1:], document)
    assert torch.equal(query, random_vectors(["query b"]))
    monkeypatch.setattr("simcse_pl.evaluation.suite._MOST_KEPT", 5)
    for _ in range(2):
        assert torch.equal(once(["a", "d", "e"])[:1], first[:1]) and calls.pop() == (None, ["a", "d", "e"])


def test_vectors_must_be_finite():
    def broken(sentences, *, prompt_name=None):
        return torch.tensor([[1.0, float("nan") if sentence == "b" else 0.0] for sentence in sentences])

    once = encode_once(broken)
    assert len(once(["a"])) == 1
    with pytest.raises(UserError, match="the encoder's vector of 'b' is not finite"):
        once(["c", "b"])


FIRST, SECOND = [str(n) for n in range(40)], [str(n) for n in range(40, 80)]


def test_only_a_postprocess_that_is_not_fitted_is_fitted_in_each_call():
    fitted, each_time = Whitening().fit(random_vectors(FIRST)), postprocessed(random_vectors, Whitening())
    assert torch.equal(postprocessed(random_vectors, fitted)(SECOND), fitted.transform(random_vectors(SECOND)))
    for sentences in (FIRST, SECOND):
        x = each_time(sentences).double()
        torch.testing.assert_close(torch.cov(x.T), torch.eye(6).double(), atol=1e-4, rtol=0)
