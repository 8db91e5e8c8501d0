"""Making evaluators from a config, the metrics of several, and their sentences on several devices."""

from functools import partial
from itertools import pairwise

import pytest
import torch

from simcse_pl import datamodule
from simcse_pl.datamodule import EvaluationSentences
from simcse_pl.evaluation.evaluators import TEST, VALIDATION, ScoredPairs, make_evaluators, measure, source_of
from simcse_pl.evaluation.ranking import Retrieval
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.templates import Templates
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import PromptedEncode, with_prompt
from tests.conftest import SENTENCES


def test_the_data_in_a_config_come_first(tmp_path):
    (tmp_path / "own.tsv").write_text("a.\tb.\n")
    makers = {"queries": partial(Retrieval, validation=str(tmp_path / "own.tsv"), top_k=[2])}
    made = make_evaluators(makers, validation="missing.tsv", test=None)["queries"]
    assert made.sentences(VALIDATION) == ["a.", "b."] and made.sentences(TEST) == [] and made.top_k == [2]


def test_evaluators_with_a_metric_of_the_same_name_are_an_error(pairs):
    both = make_evaluators({"sts": ScoredPairs, "other": ScoredPairs}, validation=str(pairs), test=None)
    with pytest.raises(UserError, match="^evaluators.other: another evaluator has a metric alignment too; rename one$"):
        measure(both, lambda given: torch.randn(len(given), 3), VALIDATION)
    assert source_of(both, VALIDATION) == "pairs.tsv" and source_of(both, TEST) == ""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_distinct_sentence_is_on_one_device_and_gets_its_own_vector(tokenizer, monkeypatch, ranks):
    sentences = EvaluationSentences([(None, [*SENTENCES, *SENTENCES[:3]])], Templates(tokenizer))
    assert len(sentences) == len(SENTENCES) and sorted(sentences.sentences) == sorted(SENTENCES)
    monkeypatch.setattr(datamodule, "world_size", lambda: ranks)
    vectors, counts = [], []
    for number in range(ranks):
        monkeypatch.setattr(datamodule, "rank", lambda number=number: number)
        batches = list(sentences.loader())
        vectors += [batch["input_ids"].sum(dim=1, keepdim=True) for batch in batches]  # [PAD] has the id 0
        counts.append(sum(len(batch["input_ids"]) for batch in batches))
    assert max(counts) - min(counts) <= 1 and sum(counts) == len(SENTENCES)
    encode = sentences.encode(torch.cat(vectors))
    wanted = [SENTENCES[5], SENTENCES[0], SENTENCES[5]]
    assert encode(wanted).flatten().tolist() == [sum(tokenizer(sentence)["input_ids"]) for sentence in wanted]


def test_queries_and_positives_have_their_prompts_in_validation(make_model, tmp_path):
    """One of them has the text of a query; the metrics are those of vectors with the prompts."""
    rows = [*pairwise(SENTENCES[:6])]
    (tmp_path / "rows.tsv").write_text("".join(f"{query}\t{positive}\n" for query, positive in rows))
    prompts = {"query": "dogs ", "document": "snow ", "other": "a "}
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", prompts=prompts)
    retrieval = Retrieval(str(tmp_path / "rows.tsv"), header=False)
    sentences = EvaluationSentences(retrieval.by_prompt(VALIDATION).items(), encoder.templates)
    vectors = torch.cat([encoder.eval()(batch) for batch in sentences.loader()])
    looked_up = sentences.encode(vectors.detach())
    encode = PromptedEncode(lambda name: partial(encoder.encode, prompt_name=name), prompts)
    for name, texts in retrieval.by_prompt(VALIDATION).items():
        found = with_prompt(looked_up, name)(texts)
        torch.testing.assert_close(found, encoder.encode([f"{prompts[name]}{text}" for text in texts]))
    assert retrieval(looked_up, VALIDATION) == retrieval(encode, VALIDATION)
