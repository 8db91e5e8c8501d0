"""The paper's numbers, the rows that results match, and the published scores of methods."""

from statistics import fmean

import pytest

from simcse_pl.evaluation.results import TRANSFER_TASKS
from simcse_pl.evaluation.sts import STS_TASKS
from simcse_pl.lab.published import (
    ablation,
    find_row,
    methods_file,
    named_row,
    paper_file,
    published_score,
    published_scores,
    row_of_run,
)
from simcse_pl.postprocessing.flow import Flow
from simcse_pl.results import TrainingRun
from simcse_pl.utils.errors import UserError
from tests.lab.invented import make_result

NLI = "nli_for_simcse.csv"


# rows of the paper whose printed average is not that of their numbers
MISPRINTED = {
    ("table_5_sts", "supervised/SBERT-base"): 74.86,
    ("table_b2_all", "SBERT (reported)"): 74.86,
    ("table_e1_transfer", "unsupervised/Avg. BERT embeddings"): 84.95,
}


def test_every_row_is_complete_and_its_average_is_over_its_tasks():
    assert {table: len(content["rows"]) for table, content in paper_file()["encoders"].items()} == {
        **{"table_5_sts": 23, "table_c1_postprocessing": 8, "table_b3_sts_wmean": 12},
        **{"table_b2_all": 4, "table_b2_wmean": 5, "table_e1_transfer": 21},
    }
    for table, content in paper_file()["encoders"].items():
        tasks = {"sts": STS_TASKS, "transfer": TRANSFER_TASKS}[content["protocol"]]
        for row in content["rows"]:
            figures = named_row(table, row).figures
            assert [*figures] == [*tasks, "Avg"]
            average = MISPRINTED.get((table, row), figures["Avg"])
            assert average == pytest.approx(fmean(figures[task] for task in tasks), abs=0.0051), row


OF_THE_PAPER = {
    **{"best": {}, "test": {}},
    "choices": {"model": "bert", "data": "nli", "setting": "supervised", "views": "dropout", "method": "sup_simcse"},
    **{"settings": {"objective": "simcse"}, "sweep": None, "overrides": ["model=bert", "data=nli"]},
}


@pytest.mark.parametrize(
    "other",
    [
        {"model": "modernbert"},
        {"model": "bert_large"},  # Table 5 does not have it
        {"setting": "unsupervised"},
        {"data": "text"},
        {"views": "crop"},
        {"views": None},  # a list, or null
        {"method": "promptbert"},
        {"experiment": "mine"},
    ],
)
def test_the_row_of_a_run_is_that_of_its_model_and_setting_if_all_else_is_the_papers(other):
    def row(**changes):
        return row_of_run(TrainingRun(**OF_THE_PAPER | changes))

    assert row() == {"table": "table_5_sts", "row": "supervised/SimCSE-BERT-base"}
    assert row(choices=OF_THE_PAPER["choices"] | other) is None
    for further in ({"sweep": {"table": "seeds"}}, {"settings": {"objective": "simcse, mlm"}}):
        assert row(**further) is None
    allowed = "model=bert", "data.train=copy.csv", "trainer=ddp", "trainer.devices=2", "seed=1", "+logger.csv.flush=9"
    assert row(overrides=[*allowed]) == row()
    options = "model.name=mine", "optimizer.lr=1", "+model.head=none", "trainer.max_steps=10", "data.limit=9"
    options += "monitor=val/uniformity", "callbacks=early_stopping", "+callbacks.mine._target_=mine.Class", "size=mini"
    groups = "optimizer=sgd", "scheduler=linear", "data/sampler=clusters", "model/adapter=lora", "trainer=mine"
    for changed in (*options, *groups, "encoders=two"):
        assert row(overrides=["model=bert", changed]) is None


def test_every_match_is_a_row_of_a_table():
    for match in paper_file()["matches"]:
        assert all(named_row(table, row).figures for table, row in match["rows"].items())


def test_every_ablation_is_complete_except_for_four_cells_of_table_4():
    without = []
    for name in paper_file()["ablation_tables"]:
        table = ablation(name)
        for row, figures in table.rows.items():
            assert all(40 < figure < 90 for figure in figures.values())
            without += [(row, column) for column in (table.settings or table.scores) if column not in figures]
    assert without == [
        ("unsupervised SimCSE (1m)", "134k pairs"),
        ("SNLI+MNLI entailment + hard negatives", "134k pairs"),
        ("the same + ANLI (52k)", "134k pairs"),
        ("dual encoder, entailment + hard negatives", "134k pairs"),
    ]


def test_a_row_of_two_settings_needs_its_setting():
    assert named_row("table_5_sts", "BERT-base-flow").figures["Avg"] == 66.55
    assert named_row("table_5_sts", "supervised/SimCSE-BERT-base").figures["Avg"] == 81.57
    with pytest.raises(UserError, match="choose one of unsupervised/SimCSE-BERT-base, supervised/SimCSE-BERT-base"):
        named_row("table_5_sts", "SimCSE-BERT-base")


BERT, FIRST_LAST = "bert-base-uncased", "5: BERT-base (first-last avg.) (unsupervised)"
WHITENING = {"name": "whitening", "fit_on": "nli", "nli": NLI}
FLOW = {"name": "flow", "fit_on": "target", **Flow(seed=3).options}
SBERT = "sentence-transformers/bert-base-nli-mean-tokens"
RELEASED = "princeton-nlp/unsup-simcse-bert-base-uncased"
NO_POOLING = {"pooling": None}
TRANSFER = {"pooling": "cls", "protocol": "transfer", "aggregation": None}


@pytest.mark.parametrize(
    ("encoder", "settings", "expected"),
    [
        (BERT, {}, FIRST_LAST),
        (BERT, {"aggregation": "wmean"}, "B.3: BERT-base (first-last avg.)"),
        (BERT, {"aggregation": "mean"}, None),
        (BERT, {"num_layers": 3}, None),
        (BERT, {"max_length": None, "bf16": True, "dim": 768}, FIRST_LAST),
        (BERT, {"pretrained": False}, None),
        (BERT, {"dropout": 0.5}, None),
        (BERT, {"_target_": "mine.load"}, None),
        (f"models/{BERT}-mine", {}, None),
        (BERT, {"postprocess": WHITENING | {"fit_seed": 7}}, "5: BERT-base-whitening (unsupervised)"),
        (BERT, {"postprocess": WHITENING | {"dim": 256}}, None),
        (BERT, {"postprocess": {"name": "whitening", "fit_on": "released"}}, "C.1: BERT-whitening (target)"),
        (BERT, {"postprocess": FLOW}, "C.1: BERT-flow (target)"),
        (SBERT, {"aggregation": "wmean"}, "B.3: SBERT-base (first-last avg.)"),
        (SBERT, {"pooling": "mean", "aggregation": "wmean"}, "B.2: SBERT (wmean)"),
        (SBERT, {"postprocess": WHITENING}, "5: SBERT-base-whitening (supervised)"),
        (SBERT, {"postprocess": FLOW}, "C.1: SBERT-flow (target)"),
        (SBERT, {"postprocess": FLOW, "aggregation": "wmean"}, "B.3: SBERT-base-flow (target)"),
        ("princeton-nlp/sup-simcse-roberta-large", NO_POOLING, "5: SimCSE-RoBERTa-large (supervised)"),
        ("princeton-nlp/sup-simcse-roberta-large", {"pooling": "cls"}, None),  # without the released head
        (RELEASED, TRANSFER, "E.1: SimCSE-BERT-base (unsupervised)"),
        ("vectors/glove.840B.300d.txt", NO_POOLING | {"dim": 300}, "5: GloVe (avg.) (unsupervised)"),
    ],
)  # fmt: skip
def test_a_result_matches_the_papers_row_only_if_certain(encoder, settings, expected):
    given = {"pooling": "first_last", "num_layers": None, "split": "test", "postprocess": None} | settings
    protocol, aggregation = given.pop("protocol", "sts"), given.pop("aggregation", "all")
    row = find_row(make_result(encoder=encoder, settings=given), protocol, aggregation)
    assert (row and row.label.removeprefix("paper, Table ")) == expected


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
