"""metrics.csv continues where it ends."""

import pandas

from simcse_pl.tracking.csv_logger import CurvesLogger


def curves(folder):
    return CurvesLogger(folder, name="", version="")


def test_an_existing_file_is_continued(tmp_path):
    first = curves(tmp_path)
    first.log_metrics({"train/loss": 0.1 + 0.2}, step=0)
    first.finalize("failed")
    second = curves(tmp_path)
    second.log_metrics({"train/loss": 0.25, "train/new": 1.0}, step=1)
    second.finalize("success")
    rows = pandas.read_csv(tmp_path / "metrics.csv")
    assert rows["step"].tolist() == [1, 2] and rows["train/loss"].tolist() == [0.1 + 0.2, 0.25]
    assert rows["train/new"].isna().tolist() == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_a_validation_is_saved_immediately(tmp_path):
    logger = curves(tmp_path)
    logger.log_metrics({"train/loss": 0.5}, step=0)
    assert not (tmp_path / "metrics.csv").exists()
    logger.log_metrics({"val/spearman": 0.75}, step=0)
    assert pandas.read_csv(tmp_path / "metrics.csv")["val/spearman"].dropna().tolist() == [0.75]
