"""A W&B report of a sweep: its table, and plots of its runs."""

from omegaconf import OmegaConf
from wandb_workspaces.reports import v2 as wr

from simcse_pl.lab.dashboards import LONGEST_NAME, STEP, remembered_run
from simcse_pl.lab.seed_groups import Sweep
from simcse_pl.lab.sweep_results import differing
from simcse_pl.lab.sweep_tables import sweep_table
from simcse_pl.runs import RESOLVED_CONFIG
from simcse_pl.utils.errors import UserError


def sweep_report(sweep: Sweep) -> wr.Report:
    """Return the report of a sweep, which its method `save` creates in the W&B project of the runs.

    The plots have all runs of the sweep's W&B groups: the monitored metric on dev at each step, and that of the best
    checkpoint against the options that differ.

    Raises:
        UserError: the first job has no W&B run.
    """
    jobs = [job for job in sweep.jobs if job.run]
    run = remembered_run(jobs[0].folder)
    if run is None:
        raise UserError(f"{jobs[0].folder} has no W&B run: train with logger=wandb")
    groups = {OmegaConf.load(job.folder / RESOLVED_CONFIG).logger.wandb.group for job in jobs}
    runset = wr.Runset(name=sweep.label, filters=f"Group in {sorted(groups)}")
    choices, metric = sweep.results[0].choices, f"val/{sweep.results[0].monitor}"
    options = [f"choices.{name}" if name in choices else name for name in differing(jobs) if name != "seed"]
    axes = [*map(wr.Config, options), wr.SummaryMetric(metric)]
    of_options = wr.ParallelCoordinatesPlot([wr.ParallelCoordinatesPlotColumn(axis) for axis in axes])
    plots = wr.PanelGrid(runsets=[runset], panels=[wr.LinePlot(x=STEP, y=[metric]), of_options])
    entity = {"entity": run["entity"]} if run["entity"] else {}  # otherwise the default one of the user
    table = wr.MarkdownBlock(sweep_table(sweep).markdown())
    return wr.Report(run["project"], title=sweep.title[:LONGEST_NAME], blocks=[table, plots], **entity)
