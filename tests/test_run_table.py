"""The table and the lines at the end of a run."""

import pytest

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.results import TrainingRun
from simcse_pl.run_table import run_paths, run_table


def test_each_file_is_a_row_and_the_metric_that_chose_the_checkpoint_is_first():
    best = {"de/map": 0.25, "en/map": 0.75, "map": 0.5, "de/mrr": 0.5, "en/mrr": 0.5, "mrr": 0.5}
    stages = {"before": {"de/loss": 1.5, "mrr": 0.5}, "best": best, "test": {}, "test_before": {}}
    about = {"choices": {}, "overrides": [], "monitor": "de/mrr", "best_step": 2, "steps": 3, "validation": "de, en"}
    of_run = run_table(TrainingRun(**about, **stages, warnings=["9 sentences are in the validation set"]))
    assert of_run.notes == ["warning: 9 sentences are in the validation set"]
    table = of_run.shown()
    assert list(table) == ["", "split", "file", "mrr ↑", "loss ↓", "map ↑"]
    assert table.to_numpy().tolist() == [
        ["before training", "dev", "de", "–", "1.500", "–"],
        ["before training", "dev", "", "50.00", "–", "–"],
        ["best, step 2 of 3", "dev", "de", "50.00", "–", "25.00"],
        ["best, step 2 of 3", "dev", "en", "50.00", "–", "75.00"],
        ["best, step 2 of 3", "dev", "mean", "50.00", "–", "50.00"],
    ]


@pytest.mark.parametrize(
    ("validation", "test_set", "expected"),
    [
        ("sample", "sample", "sample, in English"),
        ("STS-B", "own", "STS-B, in English, tested on own"),
        ("dev_zh.csv", "", "dev_zh.csv"),
    ],
)
def test_the_title_names_the_language_of_the_default_pairs(validation, test_set, expected):
    about = {"choices": {}, "overrides": [], "monitor": "perplexity", "best_step": 2, "steps": 3}
    stages = {"before": {}, "best": {"perplexity": 9.5, "spearman": 0.5}, "test": {}, "test_before": {}}
    run = TrainingRun(**about, **stages, validation=validation, test_set=test_set)
    assert run_table(run).title == f"{expected} (Spearman x 100)"


def last_state(states, inputs):
    return states[-1][:, -1]


@pytest.mark.parametrize("pooling", ["cls", f"{last_state.__module__}.last_state"])
def test_the_last_line_of_a_run_is_code_that_uses_its_encoder(pooling, make_model, tmp_path):
    SentenceEncoder.from_pretrained(make_model("bert"), pooling).save_pretrained(tmp_path / "encoder")
    metrics = {name: {} for name in ("before", "test_before", "best", "test")}
    about = {"choices": {}, "overrides": [], "monitor": "spearman", "best_step": 2, "steps": 3, "validation": ""}
    run = TrainingRun(**about, **metrics, settings={"pooling": pooling})
    first, second, last = str(run_paths(tmp_path, run, 3725.2)).splitlines()
    assert (first.split(), second.split()) == (["time", "1:02:05"], ["encoder", f"{tmp_path}/encoder"])
    exec(last.removeprefix("use").strip(), names := {})
    assert names["vectors"].shape == (1, 32)
