"""The datamodule: rows, their order and their views on each rank and after a resume, and options that do not fit."""

import logging
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DistributedSampler

from simcse_pl.data import datamodule
from simcse_pl.data.collators import ViewCollator
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.evaluation_sentences import TEST, VALIDATION
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.data.views.sentences import Dropout, OneOfNextSentences
from simcse_pl.data.views.view import View
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError

SAMPLE = {"evaluators": {"sts": ScoredPairs}, "validation": ["sample"]}


class Shuffled(View):
    """The words in a random order."""

    def __call__(self, inputs):
        words = [own.sentence.split() for own in inputs]
        return [" ".join(own.random.sample(w, len(w))) for own, w in zip(inputs, words, strict=True)]


@pytest.fixture
def tokenizer(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls").tokenizer


@pytest.fixture
def make_data(tokenizer, tmp_path):
    def make(rows=10, columns=1, **options):
        path = tmp_path / f"rows{rows}x{columns}.tsv"
        lines = ["\t".join("the " * (r + 1) + "dogs" * (c + 1) for c in range(columns)) for r in range(rows)]
        path.write_text("\n".join(lines))
        data = SentenceDataModule(tokenizer, path, header=False, **SAMPLE, **options)
        data.setup()
        return data

    return make


def batches(data, epoch=0):
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return [[sentences(data, row) for row in batch["input_ids"]] for batch in loader]


def streams(data, epochs=2):
    """Return the tensors of several epochs from one loader with persistent workers."""
    loader = data.train_dataloader()
    epochs_seen = []
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        epochs_seen.append([{name: tensor.tolist() for name, tensor in batch.items()} for batch in loader])
    return epochs_seen


def sentences(data, views):
    return tuple(data.tokenizer.decode(ids, skip_special_tokens=True) for ids in views)


@pytest.fixture
def make_read(tokenizer, tmp_path):
    def make(name, text, **options):
        (tmp_path / name).write_text(text)
        data = SentenceDataModule(tokenizer, tmp_path / name, **SAMPLE, **options)
        data.setup()
        return data

    return make


TEXT = "".join(f"a man is playing a guitar on the street{' !' * i}\n" for i in range(12))  # all in the vocabulary
LABELS = {"!" * (i + 1): label for i, label in enumerate(["neutral", "entailment", "contradiction"] * 4)}
NLI = "first,label,second\n" + "".join(f"{marks},{label},a man {marks}\n" for marks, label in LABELS.items())
NEXT = OneOfNextSentences(1)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_have_the_batches_of_one_device(make_data, monkeypatch, ranks):
    alone = batches(make_data(rows=16, columns=3, batch_size=8))
    shares = []
    for number in range(ranks):
        monkeypatch.setattr(datamodule, "world_size", lambda: ranks)
        monkeypatch.setattr(datamodule, "rank", lambda number=number: number)
        data = make_data(rows=16, columns=3, batch_size=8)
        shares.append(batches(data))
    for i, batch in enumerate(alone):
        assert {row for share in shares for row in share[i]} == set(batch)


def test_one_row_is_enough_with_a_hard_negative(make_data):
    assert [len(batch) for batch in batches(make_data(rows=1, columns=3))] == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 1}, "has one row to train on: a batch of one row without hard negatives has no negatives"),
        ({"limit": 1}, "has one row to train on"),
        ({"columns": 2, "view": Shuffled()}, "has rows of 2 sentences, with positives of their own: set views=dropout"),
        ({"view": NEXT}, "rows10x1.tsv does not show which sentences follow each other in a document"),
        ({"batch_size": 1}, "data.batch_size=1: a batch of one"),
        ({"batch_size": 0}, "data.batch_size=0: it must be at least 1"),
        ({"max_length": 2}, "data.max_length=2: this model reads 3 to 64 tokens"),
        ({"max_length": 65}, "data.max_length=65: this model reads 3 to 64 tokens"),
    ],
)
def test_data_without_a_contrast_and_values_out_of_range_are_errors(make_data, options, message):
    with pytest.raises(UserError, match=message) as error:
        make_data(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("d.txt", "a\nb\n", {"view": NEXT, "columns": [0]}, "^data.columns: this view uses the next sentences"),
        ("d.csv", NLI, {"view": NEXT, "label_column": 1}, "^data.label_column: this view uses the next sentences"),
        ("d.csv", NLI, {"label_column": 1, "view": Shuffled()}, "d.csv has rows of 2 sentences"),
    ],
)
def test_columns_that_do_not_fit_the_view_are_an_error(make_read, name, text, options, message):
    with pytest.raises(UserError, match=message) as error:
        make_read(name, text, **options)
    assert "\n" not in str(error.value)


def test_all_ranks_validate_on_the_sentences_of_rank_0(make_data, tokenizer, monkeypatch):
    first = make_data()
    monkeypatch.setattr(datamodule, "is_first_process", lambda: False)
    other = SentenceDataModule(tokenizer, first.train, header=False, evaluators={"sts": None})  # may find no data
    other.setup()
    assert len(other.rows) == 10 and not other.sentences
    other.trainer = SimpleNamespace(strategy=SimpleNamespace(broadcast=lambda own: own or first.evaluators))
    other.setup("validate")
    assert other.evaluators == first.evaluators
    assert other.sentences[VALIDATION].sentences == first.sentences[VALIDATION].sentences


def test_validation_has_each_sentence_once(make_data):
    data = make_data()
    for split, loader, own in ((VALIDATION, data.val_dataloader(), "dev"), (TEST, data.test_dataloader(), "test")):
        sentences = data.sentences[split].sentences
        assert sorted(sentences) == sorted({*load_sample(own).sentences})
        embedded = [ids for batch in loader for ids in batch["input_ids"].tolist()]
        expected = data.tokenizer(sentences, truncation=True)["input_ids"]
        assert [[x for x in ids if x != data.tokenizer.pad_token_id] for ids in embedded] == expected


def test_data_without_validation_are_an_error(tokenizer, sentences):
    with pytest.raises(UserError, match="^data.validation is not set: give a file, or the sources of STS-B$"):
        SentenceDataModule(tokenizer, sentences, evaluators={"sts": ScoredPairs}).setup()


def test_evaluators_with_a_metric_of_the_same_name_are_an_error(tokenizer, sentences, pairs):
    both = {"sts": ScoredPairs, "other": ScoredPairs}
    data = SentenceDataModule(tokenizer, sentences, evaluators=both, validation=str(pairs))
    data.setup()
    with pytest.raises(UserError, match="^evaluators.other: another evaluator has a metric alignment too; rename one$"):
        data.measure(lambda given: torch.randn(len(given), 3), VALIDATION)
    assert data.source_of(VALIDATION) == "pairs.tsv, pairs.tsv" and data.source_of(TEST) == ""


@pytest.mark.parametrize("view", [None, Dropout()])
@pytest.mark.parametrize("columns", [1, 3])
def test_without_a_view_and_with_dropout_batches_are_the_rows_in_pytorchs_order(make_data, view, columns):
    data = make_data(rows=10, columns=columns, batch_size=4, seed=3, view=view)
    collate = ViewCollator(data.tokenizer, data.max_length)
    rows = [tuple("the " * (r + 1) + "dogs" * (c + 1) for c in range(columns)) for r in range(10)]
    order = DistributedSampler(rows, 1, 0, shuffle=True, seed=3)
    for epoch, batches in enumerate(streams(data)):
        order.set_epoch(epoch)
        drawn = [rows[i] for i in order]
        expected = [collate(drawn[start : start + 4]) for start in (0, 4, 8)]
        assert batches == [{name: tensor.tolist() for name, tensor in batch.items()} for batch in expected]


@pytest.mark.parametrize(
    ("view", "columns", "expected"), [(Dropout(), 1, []), (Dropout(), 2, []), (Shuffled(), 1, [4])]
)
def test_only_positives_of_a_view_are_tokenized_in_training(make_data, monkeypatch, view, columns, expected):
    data = make_data(rows=4, columns=columns, batch_size=4, view=view)
    counts = []
    tokenizer = type(data.tokenizer)
    tokenize = tokenizer.__call__
    monkeypatch.setattr(
        tokenizer, "__call__", lambda self, text, **how: counts.append(len(text)) or tokenize(self, text, **how)
    )
    (batch,) = data.train_dataloader()
    list(data.val_dataloader())
    assert batch["input_ids"].shape[:2] == (4, 2)
    assert counts == expected


@pytest.mark.parametrize("view", [Shuffled(), OneOfNextSentences(3)])
def test_the_stream_is_the_same_with_any_number_of_workers(make_read, view):
    alone, *others = (streams(make_read("d.txt", TEXT, view=view, batch_size=4, num_workers=n)) for n in (0, 1, 2))
    assert others == [alone, alone]
    assert alone[0] != alone[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_each_row_has_its_label_in_the_batch(make_read, caplog, workers):
    with caplog.at_level(logging.INFO):
        data = make_read("d.csv", NLI, label_column="label", batch_size=5, num_workers=workers)
    assert data.labels == ["contradiction", "entailment", "neutral"]
    assert "labels: 3, contradiction, entailment, neutral" in caplog.text
    seen = {}
    for batch in data.train_dataloader():
        assert batch["labels"].dtype == torch.int64 and batch["labels"].shape == batch["input_ids"].shape[:1]
        for row, label in zip(batch["input_ids"], batch["labels"].tolist(), strict=True):
            seen[sentences(data, row)[0]] = data.labels[label]
    assert {sentence.replace(" ", ""): label for sentence, label in seen.items()} == LABELS


def test_a_batch_may_be_one_labeled_pair(make_read):
    data = make_read("d.csv", NLI, label_column="label", batch_size=1)
    assert [len(batch["labels"]) for batch in data.train_dataloader()] == [1] * 12


def test_positives_are_next_sentences_of_the_document(make_read, caplog):
    with caplog.at_level(logging.INFO):
        data = make_read("d.txt", "a man .\nsnow .\nflour .\n\nbutter .\n\nthe hall .\ntime .\n", view=NEXT)
    assert "train: 3 of 6 sentences are left out, the last of their documents" in caplog.text
    assert "train: 3 rows of 1 from" in caplog.text
    (batch,) = batches(data)
    assert sorted(batch) == [("a man .", "snow ."), ("snow .", "flour ."), ("the hall .", "time .")]


class Recorder(pl.LightningModule):
    """Trains one number; records its batches, and saves a checkpoint of every step and validation."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append((self.current_epoch, batch["input_ids"].tolist()))
        return self.weight.square()

    def validation_step(self, batch, batch_idx):
        pass

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.trainer.save_checkpoint(self.folder / f"{self.trainer.global_step}.ckpt", weights_only=False)

    def on_validation_end(self):
        self.trainer.save_checkpoint(self.folder / f"{self.trainer.global_step}-validated.ckpt", weights_only=False)

    def configure_optimizers(self):
        assert self.trainer.estimated_stepping_batches  # makes the loader, as SimCSEModule's schedule does
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("workers", "max_steps"), [(0, -1), (0, 8), (1, 8)])
def test_a_run_resumed_at_any_step_sees_the_remaining_batches(make_read, tmp_path, workers, max_steps):
    def trained(resume=None):
        data = make_read("sentences.txt", TEXT, view=Shuffled(), batch_size=5, num_workers=workers)
        recorder = Recorder(tmp_path / "resumed" if resume else tmp_path)
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=3,
            max_steps=max_steps,
            val_check_interval=2,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            **quiet,
        )
        trainer.fit(recorder, data, ckpt_path=resume and tmp_path / resume)
        return recorder.seen

    whole = trained()
    assert [epoch for epoch, _ in whole] == [0, 0, 0, 1, 1, 1, 2, 2, 2][: max_steps if max_steps > 0 else None]
    assert [[batch for number, batch in whole if number == epoch] for epoch in range(2)] == [
        [batch["input_ids"] for batch in epoch]
        for epoch in streams(make_read("sentences.txt", TEXT, view=Shuffled(), batch_size=5))
    ]
    steps = range(1, len(whole), 1 if workers == 0 else 3)
    for kind in [f"{step}" for step in steps] + [f"{step}-validated" for step in steps if step % 2 == 0]:
        assert trained(f"{kind}.ckpt") == whole[int(kind.split("-")[0]) :], kind


def test_training_sentences_in_an_evaluation_set_are_a_warning(make_read, caplog):
    pairs = {split: load_sample(split).pairs for split in ("dev", "test")}
    text = "\n".join([pairs["dev"][0].first, "This is in no pair.", pairs["test"][0].first, pairs["test"][1].second])
    data = make_read("d.txt", text)
    assert [message for message in caplog.messages if "too high" in message] == [
        f"{count} sentences of {data.train} are in the {split} set: scores may be too high"
        for split, count in ((VALIDATION, 1), (TEST, 2))
    ]
