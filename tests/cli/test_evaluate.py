"""evaluate.py: every kind of encoder and post-processing, and damaged data."""

import json
import shutil
from functools import partial

import pandas
import pytest
import torch

from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed, sentences_to_fit_on
from simcse_pl.evaluation.retrieval import RetrievalTask
from simcse_pl.evaluation.suite import evaluate_suite, load_suite
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import load_encoder
from simcse_pl.postprocessing.post_process import load
from simcse_pl.postprocessing.whitening import Whitening
from tests.conftest import SENTENCES
from tests.models.test_lightning_checkpoint import save
from tests.senteval_bundle import WORDS, write_bundle

QUERIES = ["A man plays a guitar.", "Dogs run"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture
def sentences(tmp_path):
    path = tmp_path / "sentences.csv"
    frame = pandas.DataFrame(
        {"id": range(16), "left": SENTENCES * 2, "right": [f"{text} Yes!" for text in SENTENCES] * 2}
    )
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def word_vectors(tmp_path):
    """Vectors of the bundle's words, and their counts."""
    path = tmp_path / "vectors.txt"
    numbers = torch.randn(len(WORDS), 8, generator=torch.Generator().manual_seed(0)).tolist()
    path.write_text("".join(f"{word} {' '.join(map(str, own))}\n" for word, own in zip(WORDS, numbers, strict=True)))
    (tmp_path / "counts.txt").write_text("".join(f"{word} {i * i + 1}\n" for i, word in enumerate(WORDS)))
    return path


@pytest.fixture
def checkpoint(tmp_path, make_model):
    """A checkpoint of train.py."""
    path = tmp_path / "best.ckpt"
    save(SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp_train_only", max_length=24), path)
    return path


@pytest.fixture
def evaluate(run_command, tmp_path):
    """Run evaluate.py; returns what it printed, and the folder that it wrote."""

    def run(*arguments, folder="run", status=0, **environment):
        where = "hydra.sweep.dir" if "-m" in arguments else "hydra.run.dir"
        done = run_command("evaluate.py", *arguments, f"{where}={tmp_path}/{folder}", status=status, **environment)
        assert "Traceback" not in done.stderr and "Warning" not in done.stderr, done.stderr
        return done, tmp_path / folder

    return run


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def measured(encode, suite, postprocess=None):
    """Return the results of evaluate.py's parts in this process."""
    once = EncodeOnce(encode, suite.sentences())
    results = evaluate_suite(Postprocessed(once, postprocess) if postprocess else once, suite).model_dump()
    return {name: own for name, own in results.items() if name != "retrieval" or suite.retrieval}


def flat(value, name=""):
    """Return the leaves of nested results by their place."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {place: leaf for key, own in items for place, leaf in flat(own, f"{name}.{key}").items()}
    return {name: value}


def assert_same(results, expected):
    """Compare numbers to within 1e-5, and anything else exactly."""
    mine, theirs = flat({name: results[name] for name in expected}), flat(expected)
    assert mine.keys() == theirs.keys()
    for place, value in theirs.items():
        close = pytest.approx(value, rel=1e-5, abs=1e-5) if isinstance(value, float) else value
        assert mine[place] == close, place


def assert_table(folder, printed, name, numbers):
    """Compare the numbers, x 100 and by column, with the first row of a table and with the output."""
    row = json.loads((folder / f"{name}.json").read_text())["rows"][0]
    assert {column: row[column] for column in numbers} == pytest.approx(numbers, abs=1e-3)
    assert all(f"{number:.2f}" in printed for number in numbers.values())


def test_the_sample_replaces_a_missing_bundle(evaluate, tmp_path, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=20)
    encoder.save_pretrained(tmp_path / "encoder")
    done, folder = evaluate(
        f"encoder={tmp_path}/encoder", "split=dev", "label=mine", "bf16=true", "dims=[8,3]", SENTEVAL_DIR=""
    )
    assert "senteval_dir is not set: measuring on the project's own sample\n" in done.stdout
    assert not done.stderr.strip() and f"results  {folder}\n" in done.stdout
    results = results_of(folder)
    assert_same(results, measured(partial(encoder.encode, bf16=True), load_suite(["sts", "geometry"], None, "dev")))
    for dim in (8, 3):
        sts = evaluate_suite(
            lambda texts, dim=dim: encoder.encode(texts, bf16=True)[:, :dim], load_suite(["sts"], None, "dev")
        )
        assert_same(results["dims"][str(dim)], {"sts": sts.model_dump()["sts"], "geometry": None})
    rows = json.loads((folder / "sts.json").read_text())["rows"]
    assert [row["encoder"] for row in rows] == ["mine", "mine, 8 dimensions", "mine, 3 dimensions"]
    assert (results["sts"][0]["task"], results["geometry"]["data"]) == ("sample", "sample dev and test")
    assert (results["label"], results["encoder"]) == ("mine", f"{tmp_path}/encoder")
    assert (results["paper"], results["retrieval"]) == (None, None)
    assert (results["settings"]["split"], results["settings"]["bf16"]) == ("dev", True)
    assert_table(folder, done.stdout, "sts", {"sample dev": 100 * results["sts"][0]["all"]["spearman"]})
    tables = ("sts", "sts_pearson", "geometry", "spectrum")
    files = {f"{table}.{ending}" for table in tables for ending in ("md", "csv", "json", "tex")}
    files |= {"dimensions.png", "dimensions.svg"}
    assert {path.name for path in folder.iterdir()} == {"config", "evaluate.log", "results.json"} | files


def test_every_protocol_on_a_bundle(evaluate, bundle, make_model, tmp_path, sentences):
    arguments = [f"encoder={make_model('roberta')}", "pooling=cls", "num_layers=1", f"senteval_dir={bundle}"]
    done, folder = evaluate(
        *[*arguments, "tasks=[sts,transfer,geometry]", "aggregation=wmean"],
        *[f"retrieval.corpus={sentences}", "retrieval.column=left", f"retrieval.queries=[{','.join(QUERIES)}]"],
        r"paper={table: table_b3_sts_wmean, row: BERT-base-flow \(NLI\)}",
    )
    encoder = load_encoder(str(make_model("roberta")), pooling="cls", num_layers=1)
    results = results_of(folder)
    assert_same(results, measured(encoder.encode, load_suite(["sts", "transfer", "geometry"], bundle)))
    assert_same(results, {"retrieval": RetrievalTask(sentences, QUERIES, column="left")(encoder.encode).model_dump()})
    assert results["label"] == f"{make_model('roberta')}, cls, first 1 layers"
    assert results["settings"].items() >= {"pooling": "cls", "num_layers": 1, "postprocess": None, "dim": 32}.items()
    tasks = {score["task"]: score for score in results["sts"]}
    assert list(tasks) == ["STS12", "STS13", "STS-B", "SICK-R"]
    assert_table(folder, done.stdout, "sts", {task: 100 * own["wmean"]["spearman"] for task, own in tasks.items()})
    accuracies = {score["task"]: 100 * score["accuracy"] for score in results["transfer"]}
    assert list(accuracies) == ["MR", "SST", "MRPC"]
    assert_table(folder, done.stdout, "transfer", accuracies | {"MRPC F1": 100 * results["transfer"][2]["f1"]})
    assert f"{results['geometry']['uniformity']:.3f}" in (folder / "geometry.md").read_text()
    assert "paper, Table B.3: BERT-base-flow (NLI)" in (folder / "sts.md").read_text()
    assert "STS14 is left out: no STS.input files in" in done.stdout and not done.stderr.strip()


def test_damaged_tasks_are_reported_and_the_others_measured(evaluate, bundle, word_vectors, tmp_path):
    damaged = shutil.copytree(bundle, tmp_path / "damaged")
    (damaged / "STS" / "STS13-en-test" / "STS.gs.FNWN.txt").write_text("1.0\n")
    (damaged / "MR" / "rt-polarity.pos").write_text("too few\n" * 3)
    (damaged / "sentences.txt").write_text("a dog runs\n")
    done, folder = evaluate(
        *[f"encoder={word_vectors}", f"word_counts={tmp_path}/counts.txt", f"senteval_dir={damaged}"],
        *["postprocess=remove_components", "postprocess.count=1", "postprocess.center=false"],
        "tasks=[sts,STS14,MR,SST,geometry]",
        status=2,
    )
    results = results_of(folder)
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    assert [error.partition(": ")[2].partition(": ")[0] for error in errors[:3]] == ["STS13", "STS14", "MR"]
    assert "STS.gs.FNWN.txt has 1 lines and STS.input.FNWN.txt 15: one of them is truncated" in errors[0]
    assert errors[1] == f"error: STS14: no STS.input files in {damaged}/STS/STS14-en-test"
    assert "10 folds need at least 10 examples of each class" in errors[2]
    assert errors[3:] == ["error: not measured: STS13, STS14, MR; everything else was measured"]
    assert {f"error: {task}: {why}" for task, why in results["failed"].items()} == set(errors[:3])
    assert [score["task"] for score in results["sts"]] == ["STS12", "STS-B", "SICK-R"]
    assert [score["task"] for score in results["transfer"]] == ["SST"]
    assert results["settings"]["word_counts"] == f"{tmp_path}/counts.txt"
    options = {"name": "remove_components", "fit_on": "target", "count": 1, "center": False}
    assert results["settings"]["postprocess"].items() >= options.items()
    assert results["label"] == f"{word_vectors}, remove_components (target)"
    assert not (folder / "postprocess").exists()


def test_a_postprocess_fitted_on_a_file_is_kept_and_used_again(evaluate, bundle, make_model, sentences):
    common = [f"encoder={make_model('bert')}", "pooling=mean", f"senteval_dir={bundle}", "tasks=STS-B"]
    search = [f"retrieval.corpus={sentences}", "retrieval.column=left", f"retrieval.queries=[{','.join(QUERIES)}]"]
    fit = ["postprocess=whitening", "postprocess.dim=5", "fit_on=nli", f"nli={sentences}"]
    fit += ["fit_columns=[left,right]", "fit_limit=12"]
    done, first = evaluate(*common, *fit, *search, folder="first")
    encoder = load_encoder(str(make_model("bert")), pooling="mean")
    fitted_on = sentences_to_fit_on(sentences, ["left", "right"], limit=12)
    assert len(fitted_on) == 12 and f"on 12 sentences of {sentences}" in done.stdout
    whitening = Whitening(dim=5).fit(encoder.encode(fitted_on))
    torch.testing.assert_close(load(first / "postprocess").matrix, whitening.matrix)
    results = results_of(first)
    assert_same(results, measured(encoder.encode, load_suite(["STS-B"], bundle), whitening))
    found = RetrievalTask(sentences, QUERIES, column="left")(Postprocessed(encoder.encode, whitening))
    assert_same(results, {"retrieval": found.model_dump()})
    fit = {"fit_columns": ["left", "right"], "fit_limit": 12, "nli": str(sentences), "fit_seed": 42}
    assert results["settings"]["postprocess"] == {"name": "whitening", "fit_on": "nli", "dim": 5, **fit}

    saved = ["postprocess=saved", f"postprocess.folder={first}/postprocess"]
    _, second = evaluate(*common, *saved, *search, folder="second")
    again = results_of(second)
    assert_same(again, {name: results[name] for name in ("sts", "retrieval")})
    assert again["settings"]["postprocess"] == {"name": "whitening", "fit_on": f"{first}/postprocess", "dim": 5}
    assert not (second / "postprocess").exists()


def test_a_multirun_ends_with_all_encoders_in_one_table(evaluate, bundle, checkpoint, word_vectors):
    options = ["postprocess=whitening", "aggregation=mean", "tasks=[STS12,STS-B]", f"senteval_dir={bundle}"]
    done, folder = evaluate("-m", f"encoder=nowhere.ckpt,{checkpoint},{word_vectors}", *options, status=1)
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    assert errors == ["error: no file nowhere.ckpt", "error: 1 of 3 jobs failed: 0"]
    assert [(folder / str(job) / "results.json").is_file() for job in range(3)] == [False, True, True]
    together = done.stdout.rpartition("results  ")[2]
    for job, name in enumerate((checkpoint, word_vectors), 1):
        results = results_of(folder / str(job))
        assert_same(
            results, measured(load_encoder(str(name)).encode, load_suite(["STS12", "STS-B"], bundle), Whitening())
        )
        assert results["label"] == f"{name}, whitening (target)"
        for score in results["sts"]:
            assert f"{100 * score['mean']['spearman']:.2f}" in together
    assert together.count("┃ encoder") == 2  # Spearman's and Pearson's table
