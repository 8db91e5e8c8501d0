"""The curves of runs, read back from the axes."""

import numpy as np
import pandas as pd
from matplotlib.image import imread

from simcse_pl.lab.curves import curves_figure, save_curves
from simcse_pl.lab.read_runs import Run
from simcse_pl.results import TrainingRun
from tests.lab.invented import job


def trained(**more):
    about, scores = job(0.7, **more)
    return TrainingRun(**about | {"sweep": None} | scores)


def drawn(folder, label, rows, results):
    """Return a run whose metrics.csv has these rows."""
    rows.to_csv(folder / "metrics.csv", index=False)
    return Run(label, folder, results)


def test_a_run_draws_what_it_logged_and_marks_its_checkpoint(write_run):
    folder = write_run()
    rows = pd.read_csv(folder / "metrics.csv")
    rows.loc[len(rows)] = {"step": 14, "train/loss": np.inf}
    run = trained().model_copy(update={"best_step": 8})
    figure = curves_figure([drawn(folder, "mine", rows, run)])
    labels = ["training loss", "dev (Spearman x 100)", "dev (alignment, lower is better)"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == [*labels, "dev (uniformity, lower is better)"]
    loss, score, alignment, _ = ([line.get_xydata() for line in axes.lines] for axes in figure.axes)
    np.testing.assert_allclose(loss, [[[step, 1.25] for step in (1, 5, 9, 13)]])
    np.testing.assert_allclose(score[0], [[0, 70], [4, 71], [8, 72], [12, 73]])
    np.testing.assert_allclose(score[1], [[8, 72]])
    np.testing.assert_allclose(alignment[0][-1], [12, 0.27])
    save_curves(folder, run)
    height, width, _ = imread(folder / "curves.png").shape
    assert width == 1100 and height > 500
    assert curves_figure([drawn(folder, "mine", rows[["step"]], run)]) is None


def test_several_runs_share_the_panels_of_their_metrics(write_run):
    other = pd.DataFrame({"step": [0, 4], "train/loss": [2.0, 1.0], "val/mrr": [0.5, 0.6]})
    of_other = trained(monitor="mrr", best={"mrr": 0.6}, before={"mrr": 0.5}, test={})
    figure = curves_figure([Run("a", write_run("a"), trained()), drawn(write_run("b"), "b", other, of_other)])
    assert [axes.get_title(loc="left") for axes in figure.axes][1:3] == ["dev (Spearman x 100)", "dev (mrr x 100)"]
    np.testing.assert_allclose(figure.axes[2].lines[-2].get_ydata(), [50, 60])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "", "step", "step"]
