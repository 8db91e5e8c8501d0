"""The published scores of methods."""

from statistics import fmean

import pytest

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.reports.methods import methods_file, published_score, published_scores
from simcse_pl.reports.paper import named_row


def test_every_score_is_complete_once_and_its_average_is_over_its_tasks():
    for name, scores in published_scores().items():
        found = [(score.setting, score.model, score.variant) for score in scores]
        assert len(found) == len({*found}), name
        for score in scores:
            assert score.setting in methods_file()["baselines"] and score.source in methods_file()["sources"], name
            assert 60 < score.average < 95, name
            if score.scores:
                assert [*score.scores] == [*STS_TASKS, "Avg"] and score.average == score.scores["Avg"], name
                # some papers round their own averages differently
                mean = fmean(score.scores[task] for task in STS_TASKS)
                assert score.average == pytest.approx(mean, abs=0.04), name


def test_simcse_has_the_papers_scores():
    for setting, name in methods_file()["baselines"].items():
        of_paper = [score for score in published_scores()[name] if score.source == "paper"]
        assert len(of_paper) == 3
        for score in of_paper:
            assert score.scores == named_row("table_5_sts", f"{setting}/SimCSE-{score.model}").figures


def test_a_run_is_beside_the_score_of_its_setting_and_model():
    assert published_score("promptbert", "unsupervised", "bert").average == 78.54
    assert published_score("promptbert", "supervised", "bert").average == 81.97
    assert published_score("promptbert", "unsupervised", "minilm_cls").model == "BERT-base"
    assert published_score("rankcse", "unsupervised", "bert").variant == "ListMLE"
    assert published_score("cards", "unsupervised", "bert") is None  # published for RoBERTa only
