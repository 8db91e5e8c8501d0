"""Reading the curves of a training run."""

import pytest

from simcse_pl.results.evaluation_results import read
from simcse_pl.results.trajectory import TrainingTrajectory
from simcse_pl.utils.errors import UserError


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


def test_a_run_without_alignment_has_no_points_and_damaged_curves_are_an_error(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,val/mrr\n0,0.3\n")
    assert read(tmp_path).points.empty
    (tmp_path / "metrics.csv").write_text("step,val/alignment,val/uniformity\n1,a,2\n")
    with pytest.raises(UserError, match=r"metrics.csv is damaged"):
        read(tmp_path)
