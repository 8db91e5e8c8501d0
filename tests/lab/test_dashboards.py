"""W&B runs and reports: their contents, read from the files of offline runs; their mode, and how they end."""

import json
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import wandb
import yaml
from PIL import Image
from safetensors.torch import save_file

from simcse_pl.evaluation.results import Result
from simcse_pl.evaluation.sts import load_sample
from simcse_pl.evaluation.suite import Suite, evaluate_suite
from simcse_pl.lab.dashboards import Dashboard, log_evaluation, remembered_run, start_run, sweep_report, where_to_look
from simcse_pl.lab.encoder_tables import encoder_tables
from simcse_pl.lab.geometry import GeometryTask
from simcse_pl.lab.seed_groups import read_sweeps
from simcse_pl.lab.sweep_tables import sweep_table
from simcse_pl.loggers import closing_run
from simcse_pl.results import TrainingRun
from simcse_pl.utils.errors import Stopped, UserError
from tests.lab.invented import job
from tests.support.offline_wandb import offline_runs

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
    "overrides": [],
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
    return evaluate_suite(encode, Suite([task, GeometryTask(task)]))


def test_results_have_tables_figures_scores_and_the_encoder(tmp_path, measured):
    (tmp_path / "encoder").mkdir()
    save_file({"weight": torch.ones(2)}, tmp_path / "encoder" / "model.safetensors")
    columns = "step,val/spearman,val/alignment,val/uniformity\n"
    (tmp_path / "metrics.csv").write_text(f"{columns}0,0.25,0.125,-0.25\n2,0.75,0.375,-0.75\n")
    logger = start(tmp_path, artifact=True)
    validate(logger, 4, 0.25)
    logger.log_results(TrainingRun(**RESULTS), measured)
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
    expected = {name: value for name, value in RESULTS.items() if name != "overrides"}
    assert json.loads(model.metadata) == expected | {"test": {"spearman": None}}


def test_a_home_where_no_table_can_be_written_is_an_error_before_training(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("WANDB_DATA_DIR", f"{tmp_path}/file/data")
    with pytest.raises(PermissionError, match="set WANDB_DATA_DIR to a directory"):
        start(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert start_run(tmp_path).disabled


def test_variables_of_the_library_are_stronger_than_the_names_of_a_sweep(tmp_path, monkeypatch):
    for variable, value in {"NAME": "mine", "RUN_GROUP": "ours", "TAGS": "a,b", "JOB_TYPE": "dry"}.items():
        monkeypatch.setenv(f"WANDB_{variable}", value)
    run = start_run(tmp_path, name="job", group="sweep", tags=[], job_type="train", project="p")
    assert (run.name, run.group, run.tags, run.job_type, run.project) == ("mine", "ours", ("a", "b"), "dry", "p")
    run.finish()


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


def test_each_folder_has_one_run_which_is_continued(tmp_path):
    for step, folder in enumerate(["first", "second", "first"]):
        (tmp_path / folder).mkdir(exist_ok=True)
        given = {"project": f"project {folder}", "name": folder, "group": "g", "tags": ["t"]}
        with closing_run():
            run = start_run(tmp_path / folder, "offline", **given)
            assert where_to_look(run) == f"wandb sync {tmp_path / folder}/wandb"
            run.log({"step": step})
        offline_runs(tmp_path / folder)  # waits until the run has ended
    before, after = offline_runs(tmp_path / "first")
    (other,) = offline_runs(tmp_path / "second")
    assert before.started.run_id == after.started.run_id != other.started.run_id
    assert before.started.project == after.started.project == "project first"
    assert after.started.resume  # `wandb sync` appends it to the first part
    assert (before.started.display_name, before.started.run_group, list(before.started.tags)) == ("first", "g", ["t"])
    assert (before.exit, after.exit) == (0, 0) and after.curve("step") == [2]
    assert remembered_run(tmp_path / "first")["id"] == before.started.run_id


@pytest.mark.parametrize(("error", "preempted"), [(ValueError("no"), False), (Stopped(15), True)])
def test_an_exception_marks_the_run_as_failed_and_stopped_as_preempted(tmp_path, error, preempted):
    def fail():
        start_run(tmp_path, "offline")
        raise error

    with pytest.raises(type(error)), closing_run():
        fail()
    (run,) = offline_runs(tmp_path)
    assert (run.exit, run.preempting) == (1, preempted)
    assert wandb.run is None


@pytest.mark.parametrize("error", [None, ValueError])
def test_a_run_of_the_user_goes_on(tmp_path, error):
    run = start_run(tmp_path, "offline")
    with pytest.raises(error) if error else nullcontext(), closing_run():
        if error:
            raise error
    assert wandb.run is run


@pytest.mark.parametrize("error", [wandb.errors.CommError, wandb.errors.AuthenticationError])
def test_a_run_is_offline_if_the_server_does_not_answer_or_rejects_the_key(error, monkeypatch, tmp_path, caplog):
    def init(mode, **options):
        if mode == "online":
            raise error("Run initialization has timed out\nsee ...")
        return SimpleNamespace(disabled=True, mode=mode)

    monkeypatch.setattr(wandb, "login", lambda prompt, verify: True)
    monkeypatch.setattr(wandb, "init", init)
    assert start_run(tmp_path, mode="online").mode == "offline"
    assert "so this run is offline: Run initialization has timed out" in caplog.text


def test_a_report_has_the_table_and_plots_of_the_runs_in_the_groups(write_sweep):
    grid = [(0.7, 0, "1e-5", "mlp"), (0.8, 1, "3e-5", "mlp"), (0.6, 0, "3e-5", "none")]
    jobs = [
        job(dev, seed=seed, options={"optimizer.lr": lr, "model/adapter": name}, choices={"model/adapter": name})
        for dev, seed, lr, name in grid
    ]
    alone, with_csv = (job(0.5, options={"optimizer.lr": "2e-5"}) for _ in range(2))
    folder = write_sweep("grid", alone, *jobs, with_csv, job(options={"optimizer.lr": "1"}))
    (sweep,) = read_sweeps({"my grid": folder})
    with pytest.raises(UserError, match="no job of my grid has a W&B run"):
        sweep_report(sweep)
    groups = [None, "group 0", "group 0", "group 1"]
    for number, group in enumerate(groups):
        config = {"logger": {"wandb": {"group": group}}}
        (folder / f"{number}/config/resolved.yaml").write_text(yaml.safe_dump(config))
        run = {"id": f"run{number}", "project": "mine", "entity": "team", "summary": {}}
        (folder / f"{number}/wandb_run.json").write_text(json.dumps(run))
    (folder / "4/config/resolved.yaml").write_text(yaml.safe_dump({"logger": {"csv": {}}}))
    report = sweep_report(sweep)._to_model().model_dump(mode="json", by_alias=True)
    assert report["project"] | {"name": "mine", "entityName": "team"} == report["project"]
    assert report["displayName"] == "my grid"
    _, table, grid, _ = report["spec"]["blocks"]
    assert table["content"] == sweep_table(sweep).markdown()
    (runset,) = grid["metadata"]["runSets"]
    (chosen,) = runset["filters"]["filters"]
    assert (chosen["key"]["name"], chosen["op"], chosen["value"]) == ("group", "IN", ["group 0", "group 1"])
    curves, options = (panel["config"] for panel in grid["metadata"]["panelBankSectionConfig"]["panels"])
    assert (curves["xAxis"], curves["metrics"]) == ("trainer/global_step", ["val/spearman"])
    axes = ["config:optimizer.value.lr", "config:choices.value.model/adapter", "summary:val/spearman"]
    assert [column["accessor"] for column in options["columns"]] == axes
