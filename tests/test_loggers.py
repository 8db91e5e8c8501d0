"""metrics.csv continues where it ends, and TensorBoard has one file."""

import pandas
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from simcse_pl.loggers import CurvesLogger, TensorBoardCurves, read_curve_rows
from simcse_pl.results import TrainingRun


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


def test_the_test_has_no_epoch_which_depends_on_whether_the_run_was_resumed(tmp_path):
    logger = curves(tmp_path)
    logger.log_metrics({"val/spearman": 0.5, "epoch": 2}, step=5)
    logger.log_metrics({"test/spearman": 0.25, "epoch": 3}, step=5)
    logger.save()
    assert pandas.read_csv(tmp_path / "metrics.csv")["epoch"].fillna(-1).tolist() == [2, -1]


def test_a_last_row_that_a_full_disk_has_cut_is_left_out(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,train/loss,epoch\n1,0.5,0\n2,0.2")
    assert read_curve_rows(tmp_path / "metrics.csv") == [{"step": "1", "train/loss": "0.5", "epoch": "0"}]


def test_tensorboard_has_one_file_with_the_options_and_the_best_scores(tmp_path):
    logger = TensorBoardCurves(tmp_path, name="", version="", default_hp_metric=False)
    logger.log_hyperparams({"seed": 3, "optimizer": {"lr": 0.1}})
    for step in range(3):  # before training, in training, and after it
        logger.log_metrics({"val/mrr": step / 10}, step)
        logger.finalize("success")
    best = {"best": {"mrr": 0.5}, "test": {"mrr": 0.25}, "best_step": 2}
    logger.log_results(TrainingRun(choices={}, overrides=[], monitor="mrr", **best))
    (file,) = tmp_path.glob("events*")
    events = [(event.step, value) for event in EventFileLoader(str(file)).Load() for value in event.summary.value]
    values = [value for _, value in events]
    scores = {value.tag: (step, value.tensor.float_val[0]) for step, value in events if value.tensor.float_val}
    assert scores == {"val/mrr": (2, pytest.approx(0.2)), "best/dev": (2, 0.5), "best/test": (2, 0.25)}
    (start,) = [value.metadata.plugin_data.content for value in values if value.tag.endswith("session_start_info")]
    options = HParamsPluginData.FromString(start).session_start_info.hparams
    assert options["optimizer/lr"].number_value == 0.1 and options["seed"].number_value == 3
