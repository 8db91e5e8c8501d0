"""Reading the curves of a training run."""

import pytest

from simcse_pl.results.evaluation_results import read
from simcse_pl.results.trajectory import TrainingTrajectory


def test_a_run_is_one_row_per_finite_validation_with_optimizer_steps(write_run):
    folder = write_run("run", steps=(0, 4, 8, 12))
    with (folder / "metrics.csv").open("a") as file:
        file.write("0,15,,inf,0.5,-1\n")
    run = read(folder)
    assert isinstance(run, TrainingTrajectory)
    assert run.label.endswith("/run")
    assert run.points["step"].tolist() == [0, 4, 8, 12]
    assert run.points["alignment"].tolist() == pytest.approx([0.3, 0.29, 0.28, 0.27])
    assert run.points["uniformity"].tolist() == pytest.approx([-1.5, -1.6, -1.7, -1.8])
    assert run.points["score"].tolist() == pytest.approx([0.7, 0.71, 0.72, 0.73])
