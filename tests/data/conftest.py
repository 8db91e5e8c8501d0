"""Data modules of one and of several files."""

import pytest

from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.views.view import View
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.models.encoder import SentenceEncoder

SAMPLE = {"evaluators": {"sts": ScoredPairs}, "validation": ["sample"]}
TEXT = "".join(f"a man is playing a guitar on the street{' !' * i}\n" for i in range(12))  # all in the vocabulary
LABELS = {"!" * (i + 1): label for i, label in enumerate(["neutral", "entailment", "contradiction"] * 4)}
NLI = "first,label,second\n" + "".join(f"{marks},{label},a man {marks}\n" for marks, label in LABELS.items())


class Shuffled(View):
    """The words in a random order."""

    def __call__(self, inputs):
        words = [own.sentence.split() for own in inputs]
        return [" ".join(own.random.sample(w, len(w))) for own, w in zip(inputs, words, strict=True)]


def streams(data, epochs=2):
    """Return the batches of several epochs, as lists, from one loader with persistent workers."""
    loader = data.train_dataloader()
    epochs_seen = []
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        batches = [{name: getattr(x, "tolist", lambda x=x: x)() for name, x in batch.items()} for batch in loader]
        epochs_seen.append(batches)
    return epochs_seen


@pytest.fixture
def tokenizer(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls").tokenizer


@pytest.fixture
def make_read(tokenizer, tmp_path):
    """Make the data of a file, from its text."""

    def make(name, text, **options):
        (tmp_path / name).write_text(text)
        data = SentenceDataModule(tokenizer, tmp_path / name, **SAMPLE, **options)
        data.setup()
        return data

    return make


@pytest.fixture
def make_sets(tokenizer, tmp_path):
    """Make the data of three sets: sentences with a view, labeled pairs and scored pairs."""

    def make(sampling="proportional", views=None, sets=None, **options):
        (tmp_path / "plain.txt").write_text(TEXT)
        (tmp_path / "nli.csv").write_text(NLI)
        scored = "".join(f"a man {'!' * i}\ton the street\t{i / 10}\n" for i in range(7))
        (tmp_path / "scored.tsv").write_text(scored)
        own = {
            "plain": {"train": str(tmp_path / "plain.txt"), "views": {"shuffled": Shuffled()}},
            "nli": {"train": str(tmp_path / "nli.csv"), "label_column": "label", "batch_size": 3},
            "scored": {"train": str(tmp_path / "scored.tsv"), "header": False, "score_column": 2},
        }
        given = {"batch_size": 5, "views": views, "sampling": sampling, **SAMPLE, **options}
        data = SentenceDataModule(tokenizer, sets=own if sets is None else sets(own), **given)
        data.setup()
        return data

    return make
