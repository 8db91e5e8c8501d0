"""Contents of W&B runs, read from the files of offline runs."""

import json
import math

import pytest
import torch
import wandb
from PIL import Image
from safetensors.torch import save_file

from simcse_pl.evaluation.sts import load_sample
from simcse_pl.evaluation.suite import Suite, evaluate_suite
from simcse_pl.lab.dashboards import Dashboard, log_evaluation
from simcse_pl.lab.tables import encoder_tables
from simcse_pl.results import Result
from tests.offline_wandb import offline_runs

SPEED = "speed/sentences_per_second"


@pytest.fixture(autouse=True)
def _finish():
    yield
    wandb.finish()


def start(folder, **given):
    return Dashboard(folder, "my run", mode="offline", **given)


def validate(logger, step, spearman):
    metrics = {"val/spearman": spearman, "val/alignment": spearman / 2, "val/uniformity": -spearman}
    logger.log_metrics(metrics | {"geometry/trace": 10.0 + step, "epoch": 0}, step)


RESULTS = {
    "choices": {"model": "bert"},
    "seed": 3,
    "validation": "sample",
    "best_step": 2,
    "best": {"spearman": 0.75, "trace": 12.0},
    "test": {"spearman": math.nan},
}


@pytest.fixture(scope="module")
def measured():
    def encode(sentences):
        return torch.tensor([[len(text), text.count("e") + 1.0, text.count("a"), 5.0] for text in sentences])

    task = load_sample("test")
    return evaluate_suite(encode, Suite(sts=[task], geometry=task))


def test_results_have_tables_figures_scores_and_the_encoder(tmp_path, measured):
    (tmp_path / "encoder").mkdir()
    save_file({"weight": torch.ones(2)}, tmp_path / "encoder" / "model.safetensors")
    columns = "step,val/spearman,val/alignment,val/uniformity\n"
    (tmp_path / "metrics.csv").write_text(f"{columns}0,0.25,0.125,-0.25\n2,0.75,0.375,-0.75\n")
    logger = start(tmp_path, artifact=True)
    validate(logger, 4, 0.25)
    logger.log_results(RESULTS, measured)
    wandb.finish()
    (run,) = offline_runs(tmp_path)
    best = {"val/spearman": 0.75, "geometry/trace": 12, "best_step": 2}  # not of the last validation
    assert best.items() <= run.summary.items()
    assert run.metrics["*"].step_metric == run.metrics[SPEED].step_metric == "trainer/global_step"
    spearman = measured.sts[0].all.spearman
    table = run.table("evaluation/sts")
    assert table["columns"] == ["encoder", "sample"] and table["data"] == [["my run", pytest.approx(100 * spearman)]]
    assert run.summary["evaluation/sample test"] == pytest.approx(spearman)
    for figure in ("training_paths", "spectra", "similarities"):
        with Image.open(run.image(f"evaluation/{figure}")) as image:
            assert min(image.size) > 300 and len(image.convert("L").getcolors()) > 10, figure
    (model,) = [own for own in run.artifacts if own.type == "model"]
    assert [file.path for file in model.manifest.contents] == ["model.safetensors"]
    assert json.loads(model.metadata) == RESULTS | {"test": {"spearman": None}}


@pytest.mark.parametrize("encoder", ["run/checkpoints/best.ckpt", "elsewhere/encoder"])
def test_an_evaluation_is_logged_to_the_run_that_trained_the_encoder(encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("run/encoder", "run/checkpoints", "elsewhere/encoder", "evaluation"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "best.ckpt").touch()
    start(tmp_path / "run", project="mine")
    wandb.finish()
    offline_runs(tmp_path / "run")
    report = {"label": "small", "encoder": encoder, "settings": {"pooling": "cls"}}
    report["sts"] = [{"task": "STS-B", "all": {"spearman": 0.75}}]
    result = Result(**report)
    log_evaluation(result, encoder_tables([result]), tmp_path / "evaluation", mode="offline", project="other")
    (trained, *parts), own = offline_runs(tmp_path / "run"), offline_runs(tmp_path / "evaluation")
    belongs = encoder.startswith("run/")
    (run,) = parts if belongs else own
    assert (run.started.run_id == trained.started.run_id) == belongs and len(own) == (not belongs)
    assert run.started.project == ("mine" if belongs else "other")
    assert run.table("evaluation/sts")["data"] == [["small", 75.0]]
    assert run.summary["evaluation/STS-B test"] == 0.75
    assert run.config["evaluation"] == {"encoder": encoder, "pooling": "cls"}
    folder = tmp_path / ("run" if belongs else "evaluation")
    assert f"wandb sync {folder}/wandb" in capsys.readouterr().out and run.exit == 0
