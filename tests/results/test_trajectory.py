"""Reading the path of a training run, and what is said of curves that are damaged."""

import pytest

from simcse_pl.results.evaluation_results import read
from simcse_pl.results.trajectory import TrainingTrajectory
from simcse_pl.utils.errors import UserError


def test_a_run_is_a_row_a_validation_with_the_steps_that_were_done(write_run):
    run = read(write_run("run", steps=(0, 4, 8, 12)))
    assert isinstance(run, TrainingTrajectory)
    assert run.label.endswith("/run")
    assert run.points["step"].tolist() == [0, 4, 8, 12]
    assert run.points["alignment"].tolist() == pytest.approx([0.3, 0.29, 0.28, 0.27])
    assert run.points["uniformity"].tolist() == pytest.approx([-1.5, -1.6, -1.7, -1.8])
    assert run.points["spearman"].tolist() == pytest.approx([0.7, 0.71, 0.72, 0.73])


def test_a_run_without_spearman_has_a_path_still(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,val/alignment,val/uniformity\n0,0.3,-1.5\n4,0.2,-1.6\n")
    run = read(tmp_path)
    assert run.points["step"].tolist() == [0, 4]
    assert run.points["spearman"].isna().all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is damaged"),
        ("step,loss\n1,2\n", "has no column val/alignment"),
        ("step,val/alignment,val/uniformity\n1,a,2\n", "is damaged"),
        ("step,val/alignment,val/uniformity\ninf,1,2\n", "is damaged: a step is beyond 1e"),
        ('step,val/alignment,val/uniformity\n1,"2', "is damaged"),
        ("step,val/alignment,val/uniformity\n1,,\n", "has no validation"),
    ],
)
def test_damaged_curves_are_told_in_one_line(tmp_path, content, message):
    (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises(UserError, match=f"metrics.csv {message}") as error:
        read(tmp_path)
    assert "\n" not in str(error.value)


def test_validations_that_came_apart_are_not_drawn(write_run):
    folder = write_run()
    with (folder / "metrics.csv").open("a") as file:
        file.write("0,15,,inf,0.5,-1\n0,19,,1e300,0.5,-1\n")
    assert read(folder).points["step"].tolist() == [0, 4, 8, 12]
