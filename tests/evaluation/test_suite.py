"""Which tasks are read from a made-up bundle, damaged or not; each is measured whatever befalls the others."""

import random
import shutil

import pytest
import torch

from simcse_pl.data.senteval.sts_sets import load_sample, load_sts_task
from simcse_pl.data.senteval.transfer_sets import load_transfer_task
from simcse_pl.evaluation.geometry import evaluate_geometry
from simcse_pl.evaluation.regressor import evaluate_with_regressor
from simcse_pl.evaluation.sts import evaluate_sts
from simcse_pl.evaluation.suite import Suite, evaluate_suite, load_suite
from simcse_pl.evaluation.transfer import evaluate_transfer
from simcse_pl.utils.errors import UserError

WORDS = ["a", "the", "man", "dog", "guitar", "snow", "plays", "runs", "in", "on", "street", "prices", "moon", "never"]


def write_bundle(folder):
    """A SentEval bundle of STS12, STS13, STS-B, SICK-R, MR, SST and MRPC: the other tasks are not in it."""
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


@pytest.fixture
def own_bundle(bundle, tmp_path):
    """A copy, to be damaged."""
    return shutil.copytree(bundle, tmp_path / "bundle")


def names(tasks):
    return [task.name for task in tasks]


def warnings_of(caplog):
    return [message for message in caplog.messages if "of the original's" not in message]


def test_groups_stand_for_the_tasks_that_the_bundle_has(bundle, caplog):
    suite = load_suite(["transfer", "geometry", "sts"], bundle)
    assert suite.sts == [load_sts_task(bundle, task) for task in ("STS12", "STS13", "STS-B", "SICK-R")]
    assert suite.transfer == [load_transfer_task(bundle, task) for task in ("MR", "SST", "MRPC")]
    assert (suite.relatedness, suite.failed) == ({}, {})
    assert [message.partition(": no ")[0] for message in warnings_of(caplog)] == [
        *(f"{task} is left out" for task in ("CR", "SUBJ", "MPQA", "TREC", "STS14", "STS15", "STS16")),
    ]
    assert f"TREC is left out: no folder {bundle}/TREC" in caplog.text


def test_geometry_is_measured_on_all_of_stsb_or_on_a_split(bundle):
    splits = {split: load_sts_task(bundle, "STS-B", split).pairs for split in ("train", "dev", "test")}
    whole = load_suite("geometry", bundle).geometry
    assert whole.subsets == splits and len(whole.pairs) == 40 + 16 + 24
    result = evaluate_geometry(encode, whole)
    assert (result.data, result.sentences) == ("STS-B train, dev and test", 160)
    assert load_suite("geometry", bundle, geometry_split="test").geometry == load_sts_task(bundle, "STS-B")
    assert load_suite("geometry", bundle, geometry_split="dev").geometry.pairs == splits["dev"]
    assert load_suite("geometry", None).geometry.pairs == load_sample("dev").pairs + load_sample("test").pairs


def test_the_classifier_of_transfer_tasks_is_chosen_and_recorded(bundle):
    suite = load_suite("SST", bundle, classifier="pytorch")
    (result,) = evaluate_suite(encode, suite).transfer
    assert result == evaluate_transfer(encode, suite.transfer[0], classifier="pytorch")
    assert (result.classifier, evaluate_transfer(encode, suite.transfer[0]).classifier) == ("pytorch", "scikit-learn")


def test_tasks_by_name_come_in_the_order_asked_for_and_once(bundle):
    suite = load_suite(["MRPC", "STS-B", "MR", "STS12", "STS-B", "MR"], bundle)
    assert (names(suite.sts), names(suite.transfer), suite.geometry) == (["STS-B", "STS12"], ["MRPC", "MR"], None)
    suite = load_suite(["SICK-R", "sts", "sts", "STS12"], bundle)
    assert names(suite.sts) == ["SICK-R", "STS12", "STS13", "STS-B"]


def test_a_task_asked_for_by_its_own_name_must_be_there(bundle, caplog):
    suite = load_suite(["sts", "STS14", "TREC"], bundle)
    assert names(suite.sts) == ["STS12", "STS13", "STS-B", "SICK-R"]
    assert suite.failed == {
        "STS14": f"no STS.input files in {bundle}/STS/STS14-en-test",
        "TREC": f"no folder {bundle}/TREC",
    }
    assert [message.split()[0] for message in warnings_of(caplog)] == ["STS15", "STS16"]


@pytest.mark.parametrize(
    ("task", "path", "content", "why"),
    [
        ("STS12", "STS/STS12-en-test/STS.gs.SMT.txt", b"1.0\n", "has 1 lines and STS.input.SMT.txt 20: one of them is"),
        (
            "STS13",
            "STS/STS13-en-test/STS.gs.FNWN.txt",
            b"many\n" * 15,
            "FNWN.txt, line 1: the score is no number",
        ),
        (
            "SICK-R",
            "SICK/SICK_test_annotated.txt",
            b"h\n1\tA man",
            "SICK_test_annotated.txt, line 2: 2 columns, too few",
        ),
        ("MR", "MR/rt-polarity.neg", b"", "rt-polarity.neg holds no sentences"),
        (
            "SST",
            "SST/binary/sentiment-dev",
            b"fine\t1\nbad",
            "sentiment-dev, line 2: 1 columns where there should be 2",
        ),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", None, "MRPC/msr_paraphrase_test.txt"),
    ],
)
def test_a_damaged_task_has_failed_and_all_others_are_read(task, path, content, why, own_bundle, caplog):
    if content is None:
        (own_bundle / path).unlink()
    else:
        (own_bundle / path).write_bytes(content)
    suite = load_suite(["sts", "transfer", "geometry"], own_bundle)
    assert list(suite.failed) == [task]
    assert why in suite.failed[task] and "\n" not in suite.failed[task]
    read = ["STS12", "STS13", "STS-B", "SICK-R", "MR", "SST", "MRPC"]
    assert names(suite.sts + suite.transfer) == [name for name in read if name != task]
    assert suite.geometry is not None
    assert f"{task} is left out" not in caplog.text


def test_geometry_without_stsb_has_failed(own_bundle):
    (own_bundle / "STS" / "STSBenchmark" / "sts-test.csv").unlink()
    suite = load_suite(["sts", "geometry"], own_bundle)
    assert names(suite.sts) == ["STS12", "STS13", "SICK-R"] and suite.geometry is None
    assert suite.failed == {"geometry": f"no file {own_bundle}/STS/STSBenchmark/sts-test.csv"}


def test_the_dev_split(bundle, caplog):
    suite = load_suite(["sts", "geometry", "MR"], bundle, split="dev")
    assert [(task.name, task.split, len(task.pairs)) for task in suite.sts] == [
        ("STS-B", "dev", 16),
        ("SICK-R", "dev", 16),
    ]
    assert names(suite.transfer) == ["MR"]
    assert not warnings_of(caplog)
    suite = load_suite(["STS12", "STS-B"], bundle, split="dev")
    assert names(suite.sts) == ["STS-B"]
    assert suite.failed == {"STS12": f"no STS.input files in {bundle}/STS/STS12-en-dev"}


def test_a_regressor_has_all_splits_of_the_two_tasks_that_have_them(bundle):
    suite = load_suite(["sts", "MR"], bundle, regressor=True)
    assert {task: list(splits) for task, splits in suite.relatedness.items()} == {
        "STS-B": ["train", "dev", "test"],
        "SICK-R": ["train", "dev", "test"],
    }
    for task, splits in suite.relatedness.items():
        assert splits == {split: load_sts_task(bundle, task, split) for split in ("train", "dev", "test")}
    assert not suite.failed


def test_a_regressor_that_lacks_a_split_keeps_nothing_else_from_being_read(own_bundle, caplog):
    (own_bundle / "SICK" / "SICK_train.txt").unlink()
    (own_bundle / "STS" / "STSBenchmark" / "sts-dev.csv").write_text("cut\tshort\n")
    suite = load_suite(["sts"], own_bundle, regressor=True)
    assert names(suite.sts) == ["STS12", "STS13", "STS-B", "SICK-R"] and not suite.relatedness
    assert suite.failed == {
        "STS-B regressor": f"{own_bundle}/STS/STSBenchmark/sts-dev.csv, line 1: 2 columns, too few",
        "SICK-R regressor": f"no file {own_bundle}/SICK/SICK_train.txt",
    }
    assert "STS-B is left out" not in caplog.text and "SICK-R is left out" not in caplog.text


@pytest.mark.parametrize("senteval_dir", [None, ""])
def test_without_a_bundle_the_sample_stands_in_for_sts(senteval_dir):
    dev = load_sample("dev")
    assert load_suite(["sts", "geometry"], senteval_dir, "dev", geometry_split="dev") == Suite(sts=[dev], geometry=dev)
    assert load_suite(["geometry"], senteval_dir, geometry_split="test") == Suite(geometry=load_sample("test"))
    assert load_suite([], senteval_dir) == Suite()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["sts", "STS17"]}, "^tasks: no task STS17; choose among sts, transfer, geometry, STS12, .*, MRPC$"),
        ({"names": ["sts"], "split": "train"}, "^split=train: choose one of dev, test$"),
        ({"names": ["sts"], "geometry_split": "x"}, "^geometry.split=x: choose one of all, dev, test$"),
        ({"names": ["sts"], "classifier": "svm"}, "^transfer.classifier=svm: choose one of scikit-learn, pytorch$"),
        ({"names": ["sts"], "split": "dev", "regressor": True}, "^regressor=true: it is trained with the dev split"),
        ({"names": ["STS12"], "regressor": True}, "^regressor=true: it is for STS-B and SICK-R; add one to tasks$"),
        ({"names": ["sts"], "senteval_dir": "nowhere"}, "^senteval_dir: no folder nowhere$"),
        ({"names": ["sts", "MR"], "senteval_dir": None}, "^tasks: MR needs a SentEval bundle, and senteval_dir is not"),
        ({"names": ["STS-B"], "senteval_dir": None}, "^tasks: STS-B needs a SentEval bundle"),
        ({"names": ["transfer"], "senteval_dir": None}, "^tasks: transfer needs a SentEval bundle"),
        ({"names": ["sts"], "senteval_dir": None, "regressor": True}, "^regressor=true needs a SentEval bundle"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(arguments, message, bundle):
    with pytest.raises(UserError, match=message) as error:
        load_suite(**{"senteval_dir": bundle, **arguments})
    assert "\n" not in str(error.value)


def test_nothing_that_could_be_read(tmp_path, caplog):
    with pytest.raises(UserError, match=f"^senteval_dir: {tmp_path} has none of the tasks$"):
        load_suite(["sts", "transfer"], tmp_path)
    with pytest.raises(UserError, match=r"none of the tasks \(STS13: no STS.input files in .*; MR: no folder .*MR\)$"):
        load_suite(["STS13", "MR"], tmp_path)
    assert load_suite([], tmp_path) == Suite()


def vector(sentence):
    return torch.randn(6, generator=torch.Generator().manual_seed(sum(map(ord, sentence)) * 100 + len(sentence)))


def encode(sentences):
    return torch.stack([vector(sentence) for sentence in sentences])


class Remembering:
    """Remembers what it is asked, and cannot encode the sentences of some tasks."""

    def __init__(self, *not_encodable):
        self.asked = []
        self.not_encodable = [set(sentences) for sentences in not_encodable]

    def __call__(self, sentences):
        self.asked.append(list(sentences))
        if set(sentences) in self.not_encodable:
            raise UserError("these sentences cannot be encoded")
        return encode(sentences)


def sentences_of(*tasks):
    return {sentence for task in tasks for pair in task.pairs for sentence in (pair.first, pair.second)}


def examples_of(task):
    return {sentence for split in task.splits.values() for example in split for sentence in example.sentences}


def test_all_protocols_are_measured_in_order_as_by_themselves(bundle):
    suite = load_suite(["MRPC", "sts", "MR", "geometry"], bundle, regressor=True)
    results = evaluate_suite(encode, suite)
    assert [result.task for result in results.sts] == ["STS12", "STS13", "STS-B", "SICK-R"]
    for result, task in zip(results.sts, suite.sts, strict=True):
        alone = evaluate_sts(encode, task)
        assert (result.all, result.mean, result.wmean, result.subsets) == (
            alone.all,
            alone.mean,
            alone.wmean,
            alone.subsets,
        )
        splits = suite.relatedness.get(task.name)
        assert result.regressor == (splits and evaluate_with_regressor(encode, splits)), task.name
    assert [result.regressor is None for result in results.sts] == [True, True, False, False]
    assert results.transfer == [evaluate_transfer(encode, task) for task in suite.transfer]
    assert results.geometry == evaluate_geometry(encode, suite.geometry)
    assert not results.failed


def test_encode_is_given_each_tasks_own_sentences_once(bundle):
    suite = load_suite(["STS12", "STS-B", "MR", "geometry"], bundle, regressor=True)
    remembering = Remembering()
    evaluate_suite(remembering, suite)
    expected = [
        sentences_of(suite.sts[0]),
        sentences_of(suite.sts[1]),
        sentences_of(*suite.relatedness["STS-B"].values()),
        examples_of(suite.transfer[0]),
        sentences_of(suite.geometry),
    ]
    assert sorted(map(sorted, remembering.asked)) == sorted(map(sorted, expected))
    assert suite.sentences() == sorted(set().union(*expected))


def test_a_task_that_cannot_be_measured_keeps_no_other_from_being_measured(own_bundle):
    (own_bundle / "MR" / "rt-polarity.pos").write_text("too few\n" * 5)
    (own_bundle / "SST" / "binary" / "sentiment-dev").unlink()
    suite = load_suite(["STS12", "STS-B", "SICK-R", "MR", "SST", "MRPC", "geometry"], own_bundle, regressor=True)
    broken = [sentences_of(suite.sts[0]), sentences_of(*suite.relatedness["SICK-R"].values())]
    results = evaluate_suite(Remembering(*broken), suite)
    assert [(result.task, result.regressor is None) for result in results.sts] == [("STS-B", False), ("SICK-R", True)]
    assert [result.task for result in results.transfer] == ["MRPC"]
    assert results.geometry is not None
    assert list(results.failed) == ["SST", "STS12", "SICK-R regressor", "MR"]
    assert results.failed["STS12"] == "these sentences cannot be encoded"
    assert "10 folds need classes of 10 examples or more each" in results.failed["MR"]
    assert list(suite.failed) == ["SST"]


def test_geometry_that_cannot_be_measured(bundle):
    suite = load_suite(["STS12", "geometry"], bundle)
    results = evaluate_suite(Remembering(sentences_of(suite.geometry)), suite)
    assert results.geometry is None and list(results.failed) == ["geometry"] and len(results.sts) == 1


def test_a_defect_is_not_taken_for_a_task_that_failed(bundle):
    def broken(sentences):
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        evaluate_suite(broken, load_suite(["STS12"], bundle))


def test_an_empty_suite_has_no_results():
    results = evaluate_suite(encode, Suite())
    assert (results.sts, results.transfer, results.geometry, results.failed) == ([], [], None, {})
