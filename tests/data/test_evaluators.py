"""Making evaluators from a config, and the metrics of several."""

from functools import partial

import pytest
import torch

from simcse_pl.data.evaluators import TEST, VALIDATION, make_evaluators, measure, source_of
from simcse_pl.evaluation.evaluators import Retrieval, ScoredPairs
from simcse_pl.utils.errors import UserError


class OneFile:
    """An evaluator without the argument `test`."""

    def __init__(self, validation):
        self.validation = validation


def test_the_data_in_a_config_come_first(tmp_path):
    (tmp_path / "own.tsv").write_text("a.\tb.\n")
    makers = {"queries": partial(Retrieval, validation=str(tmp_path / "own.tsv"), top_k=[2])}
    made = make_evaluators(makers, validation="missing.tsv", test=None)["queries"]
    assert made.sentences(VALIDATION) == ["a.", "b."] and made.sentences(TEST) == [] and made.top_k == [2]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (ScoredPairs(), "missing a required argument: 'encode'; its config needs `_partial_: true`"),
        ({"top_k": [1]}, ".* is not a callable object; its config needs `_partial_: true`"),
        (partial(OneFile), "got an unexpected keyword argument 'test'"),
        (partial(ScoredPairs, heder=True), "got an unexpected keyword argument 'heder'"),
        (partial(dict), "no signature found for builtin type .*"),
    ],
)
def test_what_makes_no_evaluator_is_an_error_in_one_line(make, problem):
    with pytest.raises(UserError, match=f"^evaluators.mine: {problem}$"):
        make_evaluators({"mine": make}, validation=None, test=None)


def test_evaluators_with_a_metric_of_the_same_name_are_an_error(pairs):
    both = make_evaluators({"sts": ScoredPairs, "other": ScoredPairs}, validation=str(pairs), test=None)
    with pytest.raises(UserError, match="^evaluators.other: another evaluator has a metric alignment too; rename one$"):
        measure(both, lambda given: torch.randn(len(given), 3), VALIDATION)
    assert source_of(both, VALIDATION) == "pairs.tsv" and source_of(both, TEST) == ""
