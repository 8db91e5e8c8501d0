"""A training set of rows and tokens that are given, not read."""

from types import SimpleNamespace

import pytest

from simcse_pl.data import training_set
from simcse_pl.models.backbone import load_tokenizer


@pytest.fixture
def tokenizer(make_model):
    return load_tokenizer(str(make_model("bert")))


@pytest.fixture
def given_rows(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "given.tsv"
    path.touch()

    def make(rows, tokens, views=(), names=None, seed=42, **options):
        cache = SimpleNamespace(sentences=rows, tokens=tokens, names=names)
        monkeypatch.setattr(training_set, "open_token_cache", lambda *_: cache)
        own = training_set.TrainingSet(path, views=dict(enumerate(views)), **options)
        own.read(tokenizer, 16, seed)
        return own

    return make
