"""Write a file, and what the data modules of several tests have."""

import pytest

from simcse_pl.data.view import View
from simcse_pl.evaluation.evaluators import ScoredPairs

SAMPLE = {"evaluators": {"sts": ScoredPairs}, "validation": ["sample"]}


class Shuffled(View):
    """The words in a random order."""

    def __call__(self, inputs):
        words = [own.sentence.split() for own in inputs]
        return [" ".join(own.random.sample(w, len(w))) for own, w in zip(inputs, words, strict=True)]


@pytest.fixture
def write_file(tmp_path):
    """Write a file of text or bytes; return its path."""

    def write(name, content):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return write
