"""Log runs to Weights & Biases: curves, the best validation as the summary, tables, figures and the encoder.

docs/dashboards.md explains each panel.
"""

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import PIL.Image
import wandb
from matplotlib.figure import Figure
from pytorch_lightning.loggers import WandbLogger

from simcse_pl.reports.evaluation_report import encoder_figures, encoder_tables
from simcse_pl.reports.figures.style import figure_files
from simcse_pl.results.evaluation_results import Result, SuiteResults
from simcse_pl.results.metrics import CURVES
from simcse_pl.results.run_files import read_run
from simcse_pl.tracking.csv_logger import StepsDone
from simcse_pl.tracking.wandb_runs import Mode, closing_run, remembered_run, start_run, where_to_look
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import without_nan
from simcse_pl.utils.ranks import is_first_process
from simcse_pl.utils.tables import Table

STEP = "trainer/global_step"


class Dashboard(StepsDone, WandbLogger):
    """Lightning's W&B logger, whose x-axis is the number of optimizer steps done.

    After training, the validation metrics in the run's summary are those of the best checkpoint.

    Args:
        save_dir: folder of the training run.
        name: name of the run in W&B, and of the encoder in its tables and figures.
        artifact: upload the encoder to W&B at the end.
        mode, run: see `wandb_runs.start_run`. Rank 0 starts or continues the W&B run.
    """

    def __init__(
        self, save_dir: str | Path, name: str, artifact: bool = False, mode: Mode = "auto", **run: Any
    ) -> None:
        started = start_run(save_dir, mode, name=name, job_type="train", **run) if is_first_process() else None
        super().__init__(experiment=started, save_dir=save_dir)
        self.folder, self.label, self.artifact = Path(save_dir), name, artifact
        if started is None:
            return
        for metric in (STEP, "epoch"):
            started.define_metric(metric, hidden=True)
        started.define_metric("*", step_metric=STEP, step_sync=True)
        for metric in ("speed/sentences_per_second", "speed/waiting_for_data"):
            started.define_metric(metric, step_metric=STEP, summary="mean")

    @property
    def place(self) -> str:
        """The URL of the run, or the command that uploads an offline run; rank 0 only."""
        return where_to_look(self.experiment)

    def log_results(self, results: Mapping[str, Any], measured: SuiteResults | None) -> None:
        """Log the results of a run: tables, figures, one score per task, and with `artifact` the encoder.

        `results` is the content of results.json, `measured` the evaluation of the saved encoder.
        """
        run = self.experiment
        result = Result(label=self.label, encoder=str(self.folder / "encoder"), **dict(measured or SuiteResults()))
        paths = []
        with suppress(UserError):  # metrics.csv is not written
            paths.append(replace(read_run(self.folder), label=self.label))
        _log_panels(run, result, encoder_tables([result]), encoder_figures([result], paths))
        best = {f"{'geometry' if name in CURVES else 'val'}/{name}": score for name, score in results["best"].items()}
        run.summary.update(without_nan(best) | {"best_step": results["best_step"]})
        if self.artifact:
            metadata = {name: results[name] for name in ("choices", "seed", "validation", "best_step", "best", "test")}
            encoder = wandb.Artifact(f"encoder-{run.id}", type="model", metadata=without_nan(metadata))
            encoder.add_dir(str(self.folder / "encoder"), policy="immutable")  # W&B makes no second copy
            run.log_artifact(encoder, aliases=["best"])


def log_evaluation(
    result: Result, tables: Sequence[Table], folder: str | Path, mode: Mode | None = None, **run: Any
) -> None:
    """Log an evaluation to the W&B run that trained the encoder, or to a new run.

    A run has trained the encoder if the encoder is in the folder of the run.

    Args:
        result, tables: the scores, and the printed tables.
        folder: folder of the evaluation.
        mode, run: see `wandb_runs.start_run`; mode None logs nothing.
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


def _log_panels(run: wandb.Run, result: Result, tables: Sequence[Table], figures: Mapping[str, Figure]) -> None:
    panels: dict[str, Any] = {}
    for table in tables:
        frame = table.frame.astype(object)
        rows = frame.where(frame.notna(), None).to_numpy().tolist()
        panels[f"evaluation/{table.name}"] = wandb.Table([str(column) for column in frame], rows)
    for name, figure in figures.items():
        if name != "alignment_uniformity":  # it would have a single point
            image = PIL.Image.open(io.BytesIO(figure_files("", figure)[".png"]))
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
