"""Suites of tasks from a small bundle with random sentences: what is read, what is measured, and which tasks fail."""

import random
import shutil

import pytest
import torch

from simcse_pl.data.senteval.sts_sets import StsTask, load_sample, load_sts_task
from simcse_pl.data.senteval.transfer_sets import load_transfer_task
from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.evaluation.geometry import evaluate_geometry
from simcse_pl.evaluation.regressor import evaluate_with_regressor
from simcse_pl.evaluation.sts import evaluate_sts
from simcse_pl.evaluation.suite import Suite, evaluate_suite, load_suite
from simcse_pl.evaluation.transfer import evaluate_transfer
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError

WORDS = ["a", "the", "man", "dog", "guitar", "snow", "plays", "runs", "in", "on", "street", "prices", "moon", "never"]


def write_bundle(folder):
    """Write a SentEval bundle of STS12, STS13, STS-B, SICK-R, MR, SST and MRPC."""
    generator = random.Random(0)

    def sentence(first=""):
        return " ".join([first, *generator.choices(WORDS, k=generator.randint(3, 9))]).strip()

    def pairs(count):
        return [(sentence(), sentence(), f"{generator.uniform(0, 5):.1f}") for _ in range(count)]

    files = {}
    for task, subset, count in (("STS12", "MSRpar", 12), ("STS12", "SMT", 20), ("STS13", "FNWN", 15)):
        rows = pairs(count)
        files[f"STS/{task}-en-test/STS.input.{subset}.txt"] = [f"{first}\t{second}" for first, second, _ in rows]
        files[f"STS/{task}-en-test/STS.gs.{subset}.txt"] = [score for _, _, score in rows]
    for split, sick, count in (("train", "train", 40), ("dev", "trial", 16), ("test", "test_annotated", 24)):
        rows = [f"g\tf\ty\t{i}\t{score}\t{first}\t{second}" for i, (first, second, score) in enumerate(pairs(count))]
        files[f"STS/STSBenchmark/sts-{split}.csv"] = rows
        rows = [f"{i}\t{first}\t{second}\t{score}\tNEUTRAL" for i, (first, second, score) in enumerate(pairs(count))]
        files[f"SICK/SICK_{sick}.txt"] = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tjudgment", *rows]
    for ending, first in (("pos", "guitar moon"), ("neg", "prices never")):
        files[f"MR/rt-polarity.{ending}"] = [sentence(first) for _ in range(30)]
    for split, count in (("train", 40), ("dev", 16), ("test", 24)):
        files[f"SST/binary/sentiment-{split}"] = [f"{sentence()}\t{i % 2}" for i in range(count)]
    for split, count in (("train", 40), ("test", 24)):
        rows = [f"{i % 2}\t1\t2\t{sentence()}\t{sentence()}" for i in range(count)]
        files[f"MRPC/msr_paraphrase_{split}.txt"] = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows]
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_bundle(tmp_path_factory.mktemp("bundle"))


def names(tasks):
    return [task.name for task in tasks]


def left_out(caplog):
    return [message.split()[0] for message in caplog.messages if "is left out: no" in message]


def test_groups_are_the_tasks_in_the_bundle(bundle, caplog):
    suite = load_suite(["transfer", "geometry", "sts"], bundle)
    assert suite.sts == [load_sts_task(bundle, task) for task in ("STS12", "STS13", "STS-B", "SICK-R")]
    assert suite.transfer == [load_transfer_task(bundle, task) for task in ("MR", "SST", "MRPC")]
    assert (suite.regression, suite.failed) == ({}, {})
    assert left_out(caplog) == ["CR", "SUBJ", "MPQA", "TREC", "STS14", "STS15", "STS16"]
    assert f"TREC is left out: no folder {bundle}/TREC" in caplog.text


def test_tasks_by_name_are_in_the_given_order_without_duplicates_and_must_be_in_the_bundle(bundle, caplog):
    suite = load_suite(["MRPC", "SICK-R", "MR", "sts", "STS12", "STS14", "TREC", "MR"], bundle)
    assert (names(suite.sts), names(suite.transfer)) == (["SICK-R", "STS12", "STS13", "STS-B"], ["MRPC", "MR"])
    missing = {"STS14": f"no STS.input files in {bundle}/STS/STS14-en-test", "TREC": f"no folder {bundle}/TREC"}
    assert suite.failed == missing and suite.geometry is None
    assert left_out(caplog) == ["STS15", "STS16"]


def test_geometry_is_measured_on_one_or_all_splits_of_stsb(bundle):
    splits = {split: load_sts_task(bundle, "STS-B", split).pairs for split in ("train", "dev", "test")}
    assert load_suite("geometry", bundle).geometry == StsTask("STS-B", "train, dev and test", splits)
    assert load_suite("geometry", bundle, geometry_split="test").geometry == load_sts_task(bundle, "STS-B")


def test_the_sample_replaces_a_missing_bundle():
    dev, test = load_sample("dev"), load_sample("test")
    assert load_suite(["sts", "geometry"], "", "dev", geometry_split="dev") == Suite(sts=[dev], geometry=dev)
    assert load_suite("geometry", None).geometry.pairs == dev.pairs + test.pairs
    assert load_suite([], None) == Suite()


def test_the_dev_split_has_stsb_and_sickr(bundle, caplog):
    suite = load_suite(["sts", "MR", "STS12"], bundle, split="dev")
    assert [(task.name, task.split) for task in suite.sts] == [("STS-B", "dev"), ("SICK-R", "dev")]
    assert names(suite.transfer) == ["MR"] and not left_out(caplog)
    assert suite.failed == {"STS12": f"no STS.input files in {bundle}/STS/STS12-en-dev"}


def test_a_regressor_needs_all_splits(bundle, tmp_path):
    splits = ("train", "dev", "test")
    expected = {task: {split: load_sts_task(bundle, task, split) for split in splits} for task in ("STS-B", "SICK-R")}
    assert load_suite(["sts", "MR"], bundle, regressor=True).regression == expected
    without = shutil.copytree(bundle, tmp_path / "bundle")
    (without / "SICK" / "SICK_train.txt").unlink()
    suite = load_suite(["sts"], without, regressor=True)
    assert names(suite.sts) == ["STS12", "STS13", "STS-B", "SICK-R"] and list(suite.regression) == ["STS-B"]
    assert suite.failed == {"SICK-R regressor": f"no file {without}/SICK/SICK_train.txt"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["sts"], "geometry_split": "x"}, "^geometry.split=x: choose one of all, dev, test$"),
        ({"names": ["sts"], "classifier": "svm"}, "^transfer.classifier=svm: choose one of scikit-learn, pytorch$"),
        ({"names": ["sts"], "split": "dev", "regressor": True}, "^regressor=true: it is trained with the dev split"),
        ({"names": ["sts"], "senteval_dir": "nowhere"}, "^senteval_dir: no folder nowhere$"),
        ({"names": ["sts", "MR"], "senteval_dir": None}, "^tasks: MR needs a SentEval bundle, and senteval_dir is not"),
    ],
)
def test_invalid_arguments(arguments, message, bundle):
    with pytest.raises(UserError, match=message):
        load_suite(**{"senteval_dir": bundle, **arguments})


class Encoder:
    """A random encoder that records the sentences of each call."""

    def __init__(self):
        self.calls = []

    def __call__(self, sentences):
        self.calls.append(sentences)
        seeds = [sum(map(ord, sentence)) * 100 + len(sentence) for sentence in sentences]
        return torch.stack([torch.randn(6, generator=torch.Generator().manual_seed(seed)) for seed in seeds]) + 1


def test_all_protocols_are_measured_with_one_encoding_per_task(bundle):
    suite = load_suite(["MRPC", "sts", "MR", "geometry"], bundle, regressor=True, classifier="pytorch")
    encode, alone = Encoder(), Encoder()
    results = evaluate_suite(encode, suite)
    for result, task in zip(results.sts, suite.sts, strict=True):
        splits = suite.regression.get(task.name)
        regressor = evaluate_with_regressor(alone, splits) if splits else None
        assert result == evaluate_sts(alone, task).model_copy(update={"regressor": regressor})
    assert results.transfer == [evaluate_transfer(alone, task, classifier="pytorch") for task in suite.transfer]
    assert results.geometry == evaluate_geometry(alone, suite.geometry)
    assert not results.failed
    assert sorted(encode.calls) == sorted(alone.calls)
    assert all(len(call) == len(set(call)) for call in encode.calls)
    assert suite.sentences() == sorted(set().union(*encode.calls))


def test_own_data_is_encoded_with_the_tasks_and_post_processed(tmp_path):
    sample = load_sample("dev")
    file = tmp_path / "own.tsv"
    file.write_text("".join(f"{pair.first}\t{pair.second}\t{pair.score}\n" for pair in sample.pairs))
    suite = Suite(sts=[sample], evaluators={"sts": ScoredPairs(test=str(file)), "unused": ScoredPairs()})
    encode = Encoder()
    plain = evaluate_suite(EncodeOnce(encode, suite.sentences()), suite)
    assert plain.own.data == "own.tsv" and plain.own.metrics["spearman"] == pytest.approx(plain.sts[0].all.spearman)
    assert [len(call) for call in encode.calls] == [len(sample.sentences)]
    whitened = evaluate_suite(Postprocessed(encode, Whitening()), suite)
    assert whitened.own.metrics["spearman"] == pytest.approx(whitened.sts[0].all.spearman)
    assert whitened.own.metrics["spearman"] != pytest.approx(plain.own.metrics["spearman"])
    assert evaluate_suite(encode, Suite(sts=[sample])).own is None
