"""The sentences of validation and test sets on one and on several devices."""

import pytest
import torch

from simcse_pl.data import evaluation_sentences
from simcse_pl.data.evaluation_sentences import EvaluationSentences
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_distinct_sentence_is_on_one_device_and_gets_its_own_vector(make_model, monkeypatch, ranks):
    tokenizer = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls").tokenizer
    sentences = EvaluationSentences([*SENTENCES, *SENTENCES[:3]], tokenizer)
    assert len(sentences) == len(SENTENCES) and sorted(sentences.sentences) == sorted(SENTENCES)
    monkeypatch.setattr(evaluation_sentences, "world_size", lambda: ranks)
    vectors, counts = [], []
    for number in range(ranks):
        monkeypatch.setattr(evaluation_sentences, "rank", lambda number=number: number)
        batches = list(sentences.loader())
        vectors += [batch["input_ids"].sum(dim=1, keepdim=True) for batch in batches]  # [PAD] has the id 0
        counts.append(sum(len(batch["input_ids"]) for batch in batches))
    assert max(counts) - min(counts) <= 1 and sum(counts) == len(SENTENCES)
    encode = sentences.encode(torch.cat(vectors))
    wanted = [SENTENCES[5], SENTENCES[0], SENTENCES[5]]
    assert encode(wanted).flatten().tolist() == [sum(tokenizer(sentence)["input_ids"]) for sentence in wanted]


def test_more_devices_than_sentences_are_an_error(make_model, monkeypatch):
    tokenizer = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls").tokenizer
    sentences = EvaluationSentences(["a", "b", "a"], tokenizer)
    monkeypatch.setattr(evaluation_sentences, "world_size", lambda: 3)
    with pytest.raises(UserError, match=r"^trainer.devices: .* of 2 distinct sentences is too small for 3 devices"):
        sentences.loader()
