"""Runs and reports in Weights & Biases: one run per folder, offline unless the user is logged in, without prompts.

Curves, the best validation as the summary, tables, figures and the encoder; docs/dashboards.md explains each panel.
"""

import io
import json
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import PIL.Image
import wandb
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from pytorch_lightning.loggers import WandbLogger
from wandb.errors import CommError

from simcse_pl.evaluation.results import Result, SuiteResults
from simcse_pl.lab.encoder_tables import encoder_tables
from simcse_pl.lab.figures import encoder_figures
from simcse_pl.lab.read_runs import Run, differing
from simcse_pl.lab.seed_groups import Sweep
from simcse_pl.lab.style import png
from simcse_pl.lab.sweep_tables import sweep_table
from simcse_pl.loggers import StepsDone, closing_run
from simcse_pl.results import TrainingRun, logged
from simcse_pl.run_folder import CURVES_FILE, RESOLVED_CONFIG, WANDB_FILE
from simcse_pl.utils.errors import UserError, first_line, reraise_as
from simcse_pl.utils.files import without_nan, write_text
from simcse_pl.utils.private import make_wandb_staging, summary_of, wandb_settings
from simcse_pl.utils.processes import is_first_process
from simcse_pl.utils.tables import Table

log = logging.getLogger(__name__)
Mode = Literal["auto", "online", "offline"]
_IDENTITY = ("id", "project", "entity")
_LONGEST_NAME = 128  # characters; the W&B server rejects longer names
_STEP = "trainer/global_step"
_VARIABLES = {  # of W&B, which `wandb.init` reads only if it gets no argument
    "name": "WANDB_NAME",
    "project": "WANDB_PROJECT",
    "group": "WANDB_RUN_GROUP",
    "job_type": "WANDB_JOB_TYPE",
    "tags": "WANDB_TAGS",
}


def start_run(folder: str | Path, mode: Mode = "auto", name: str | None = None, **new: Any) -> wandb.Run:
    """Continue the W&B run of a folder, or start a new one.

    If W&B does not answer or rejects the key, the run is offline.

    Args:
        folder: the run's folder; W&B's files go to its subfolder `wandb`, and the run's id to a file.
        mode: `online`, `offline` or `auto`. `auto` follows WANDB_MODE and `wandb offline`; without them it is online
            if the user is logged in.
        name, new: arguments of `wandb.init` for a new run, such as project, group, job_type and tags. W&B's
            variables, such as WANDB_RUN_GROUP, replace them.
    """
    folder = Path(folder)
    resolved = _mode(mode)
    if resolved != "disabled":
        make_wandb_staging()
    before = remembered_run(folder)
    if name and len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 1]}…"
    of_user: dict[str, Any] = {
        option: os.environ[variable] for option, variable in _VARIABLES.items() if os.environ.get(variable)
    }
    if tags := of_user.get("tags"):
        of_user["tags"] = tags.split(",")
    settings = wandb_settings(silent=True, init_timeout=30, finish_timeout=600)
    options = {name: before[name] for name in _IDENTITY} if before else {"name": name, **new, **of_user}
    options |= {"dir": folder, "resume": "allow", "settings": settings}  # `wandb sync` concatenates offline parts
    try:
        run = wandb.init(mode=resolved, **options)
    except CommError as error:  # no answer, or a rejected key
        log.warning("W&B does not answer, so this run is offline: %s", first_line(error))
        run = wandb.init(mode="offline", **options)
    if before:
        run.summary.update(before["summary"])  # `wandb sync` keeps only the summary of the last part
    _remember(run)
    return run


def _mode(asked: str) -> Any:
    default = os.environ.get("WANDB_MODE") or wandb.setup().settings.mode  # the settings file of `wandb offline`
    if asked == "offline":
        return asked
    if asked == "auto" and default != "online":
        return default
    logged_in = wandb.login(prompt=False, verify=False)
    if asked == "online" and not logged_in:
        raise UserError("W&B: mode=online needs a login: run `wandb login`, or set WANDB_API_KEY")
    return "online" if logged_in else "offline"


def _remember(run: wandb.Run) -> None:
    """Save a run's id and summary in its folder."""
    if run.disabled:
        return
    identity = {"id": run.id, "project": run.project, "entity": run.entity or None}
    content = identity | {"summary": summary_of(run)}
    write_text(Path(run.settings.root_dir) / WANDB_FILE, json.dumps(content, indent=2) + "\n")


def remembered_run(folder: Path) -> dict[str, Any] | None:
    """Return `id`, `project`, `entity` and `summary` of a folder's W&B run; None if it has no run."""
    path = folder / WANDB_FILE
    if not path.is_file():
        return None
    with reraise_as(f"{path} is damaged, remove it to start a new W&B run"):
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return saved | {"summary": dict(saved["summary"])}


def where_to_look(run: wandb.Run) -> str:
    """Return the URL of a run, or the command that uploads an offline run."""
    if run.disabled:
        return "disabled"
    return f"wandb sync {shlex.quote(str(Path(run.dir).parents[1]))}" if run.offline or run.url is None else run.url


class Dashboard(StepsDone, WandbLogger):
    """Lightning's W&B logger, whose x-axis is the number of optimizer steps done.

    After training, the validation metrics in the run's summary are those of the best checkpoint.

    Args:
        save_dir: folder of the training run.
        name: name of the run in W&B, and of the encoder in its tables and figures.
        artifact: upload the encoder to W&B at the end.
        mode, run: see `start_run`. Rank 0 starts or continues the W&B run.
    """

    def __init__(
        self, save_dir: str | Path, name: str, artifact: bool = False, mode: Mode = "auto", **run: Any
    ) -> None:
        started = start_run(save_dir, mode, name=name, job_type="train", **run) if is_first_process() else None
        super().__init__(experiment=started, save_dir=save_dir)
        self.folder, self.label, self.artifact = Path(save_dir), name, artifact
        if started is None:
            return
        for metric in (_STEP, "epoch"):
            started.define_metric(metric, hidden=True)
        started.define_metric("*", step_metric=_STEP, step_sync=True)
        for metric in ("speed/sentences_per_second", "speed/waiting_for_data"):
            started.define_metric(metric, step_metric=_STEP, summary="mean")

    @property
    def address(self) -> str:
        """The URL of the run, or the command that uploads an offline run; rank 0 only."""
        return where_to_look(self.experiment)

    def log_results(self, trained: TrainingRun, measured: SuiteResults | None) -> None:
        """Log the results of a run and of its saved encoder: tables, figures, scores, and maybe the encoder."""
        run = self.experiment
        result = Result(label=self.label, encoder=str(self.folder / "encoder"), **dict(measured or SuiteResults()))
        runs = [Run(self.label, self.folder, trained)] if (self.folder / CURVES_FILE).is_file() else []
        _log_panels(run, result, encoder_tables([result]), encoder_figures([result], runs))
        best = {logged(metric): score for metric, score in trained.best.items()}
        run.summary.update(without_nan(best) | {"best_step": trained.best_step})
        if self.artifact:
            metadata = trained.model_dump(include={"choices", "seed", "validation", "best_step", "best", "test"})
            encoder = wandb.Artifact(f"encoder-{run.id}", type="model", metadata=without_nan(metadata))
            encoder.add_dir(str(self.folder / "encoder"), policy="immutable")  # W&B makes no second copy
            run.log_artifact(encoder, aliases=["best"])
        _remember(run)


def log_evaluation(
    result: Result, tables: Sequence[Table], folder: str | Path, mode: Mode | None = None, **run: Any
) -> None:
    """Log an evaluation to the W&B run that trained the encoder, or to a new run.

    A run has trained the encoder if the encoder is in the folder of the run. `tables` are those that were printed,
    `folder` is that of the evaluation, and `mode` and `run` are arguments of `start_run`; mode None logs nothing.
    """
    if mode is None:
        return
    above = Path(result.encoder).absolute().parents[:2] if Path(result.encoder).exists() else []
    trained = next((run_folder for run_folder in above if remembered_run(run_folder)), None)
    with closing_run():
        started = start_run(trained or folder, mode, name=result.label, job_type="evaluate", **run)
        started.config.update({"evaluation": {"encoder": result.encoder, **result.settings}}, allow_val_change=True)
        _log_panels(started, result, tables, encoder_figures([result]))
        print(f"W&B      {where_to_look(started)}")
        _remember(started)


def _log_panels(run: wandb.Run, result: Result, tables: Sequence[Table], figures: Mapping[str, Figure]) -> None:
    panels: dict[str, Any] = {}
    for table in tables:
        frame = table.frame.astype(object)
        rows = frame.where(frame.notna(), None).to_numpy().tolist()
        panels[f"evaluation/{table.name}"] = wandb.Table([str(column) for column in frame], rows)
    for name, figure in figures.items():
        if name != "alignment_uniformity":  # it would have a single point
            image = PIL.Image.open(io.BytesIO(png(figure)))
            panels[f"evaluation/{name}"] = wandb.Image(image, caption=result.label)
    run.log(panels)
    postprocess = result.settings.get("postprocess")
    after = f", {postprocess['name']} ({postprocess['fit_on']})" if postprocess else ""
    scores = {f"{task.task} {task.split}": task.all.spearman for task in result.sts}
    scores |= {f"{task.task} ({task.classifier})": task.accuracy for task in result.transfer}
    scores |= {f"{task.task} {task.metric}": task.score for task in result.benchmarks}
    if result.own:
        scores |= {f"{result.own.data} {metric}": score for metric, score in result.own.metrics.items()}
    run.summary.update({f"evaluation/{name}{after}": score for name, score in without_nan(scores).items()})


def sweep_report(sweep: Sweep) -> Any:
    """Return the report of a sweep, which its method `save` creates in the W&B project of the runs.

    The plots have all runs of the sweep's W&B groups: the monitored metric on dev at each step, and that of the best
    checkpoint against the options that differ. They leave out jobs without a group.
    """
    from wandb_workspaces.reports import v2 as wr  # an extra

    groups = {job.folder: group for job in sweep.jobs if job.results and (group := _group(job.folder))}
    jobs = [job for job in sweep.jobs if job.folder in groups]
    run = remembered_run(jobs[0].folder) if jobs else None
    if run is None:
        raise UserError(f"no job of {sweep.label} has a W&B run of a sweep: train with logger=wandb")
    runset = wr.Runset(name=sweep.label, filters=f"Group in {sorted(set(groups.values()))}")
    choices, metric = {name for run in sweep.results for name in run.choices}, logged(jobs[-1].monitor)
    options = [f"choices.{name}" if name in choices else name for name in differing(jobs) if name != "seed"]
    axes = [*map(wr.Config, options), wr.SummaryMetric(metric)]
    coordinates = wr.ParallelCoordinatesPlot([wr.ParallelCoordinatesPlotColumn(axis) for axis in axes])
    plots = wr.PanelGrid(runsets=[runset], panels=[wr.LinePlot(x=_STEP, y=[metric]), coordinates])
    entity = {"entity": run["entity"]} if run["entity"] else {}  # otherwise the default one of the user
    table = wr.MarkdownBlock(sweep_table(sweep).markdown())
    return wr.Report(run["project"], title=sweep.title[:_LONGEST_NAME], blocks=[table, plots], **entity)


def _group(folder: Path) -> str | None:
    """Return the W&B group of a training run; None without one, as outside a sweep, or without a W&B run."""
    if remembered_run(folder) is None:
        return None
    group: str | None = OmegaConf.select(OmegaConf.load(folder / RESOLVED_CONFIG), "logger.wandb.group")
    return group
