"""A tokenizer, and what the data modules of several tests have."""

import pytest

from simcse_pl.data.views.view import View
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.models.encoder import SentenceEncoder

SAMPLE = {"evaluators": {"sts": ScoredPairs}, "validation": ["sample"]}


class Shuffled(View):
    """The words in a random order."""

    def __call__(self, inputs):
        words = [own.sentence.split() for own in inputs]
        return [" ".join(own.random.sample(w, len(w))) for own, w in zip(inputs, words, strict=True)]


@pytest.fixture
def tokenizer(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls").tokenizer
