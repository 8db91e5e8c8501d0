"""Streamed rows: their order, the shares of ranks and workers, what a resumed run sees, and what is refused."""

from itertools import islice

import datasets
import pytest

from simcse_pl import datamodule
from simcse_pl.data import streaming
from simcse_pl.data.streaming import StreamedBatches
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.losses.labelled_pairs import CosineMSELoss
from simcse_pl.utils.errors import UserError
from tests.conftest import quiet_trainer
from tests.data.conftest import SAMPLE, Shuffled
from tests.test_datamodule import Recorder

FILES, ROWS = 4, 16  # of each file


@pytest.fixture
def make(tokenizer, tmp_path):
    """Make data of scored pairs in several files. The score is the row's number, and the first column tells it too."""
    for file in range(FILES):
        rows = [f"a man{' !' * (row + 1)}\tthe street\t{file * ROWS + row}\n" for row in range(ROWS)]
        (tmp_path / f"{file}.tsv").write_text("".join(rows))

    def make(files="*", **options):
        given = {"header": False, "score_column": 2, "shuffled_rows": 20, "batch_size": 4}
        data = SentenceDataModule(
            tokenizer, str(tmp_path / f"{files}.tsv"), streaming=True, **SAMPLE, **given | options
        )
        data.setup()
        return data

    return make


def batches(data, count, start=0):
    """Return the numbers of the rows of batches."""
    data._start = (0, start)
    drawn = list(islice(iter(data.train_dataloader()), count))
    for batch in drawn:
        assert (batch["attention_mask"][:, 0].sum(dim=-1) - 5 == batch["labels"] % ROWS).all()
    return [batch["labels"].tolist() for batch in drawn]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("files", ["*", "[0-2]"])  # shares of files, and of the rows of all files
def test_each_pass_has_each_row_once_in_a_new_order_and_a_resumed_run_continues(make, workers, files):
    data = make(files, num_workers=workers)
    a_pass = (4 if files == "*" else 3) * ROWS // 4
    drawn = batches(data, 2 * a_pass)
    for seen in (drawn[:a_pass], drawn[a_pass:]):
        flat = [row for batch in seen for row in batch]
        assert len(set(flat)) == len(flat) == 4 * a_pass
    assert drawn[0] != drawn[a_pass] and drawn[0] != sorted(drawn[0])
    assert batches(make(files, num_workers=workers), 3, start=7) == drawn[7:10]


def test_ranks_share_the_rows_of_a_batch(make, monkeypatch):
    monkeypatch.setattr(datamodule, "world_size", lambda: 4)
    seen = []
    for rank in range(4):
        monkeypatch.setattr(datamodule, "rank", lambda rank=rank: rank)
        drawn = batches(make(num_workers=1, batch_size=6), 5)
        assert {len(batch) for batch in drawn} == {(1, 2, 1, 2)[rank]}
        seen += [number for batch in drawn for number in batch]
    assert len(set(seen)) == 5 * 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_resumed_at_any_step_sees_the_remaining_batches(make, tmp_path, workers):
    def trained(resume=None):
        recorder = Recorder(tmp_path / "resumed" if resume else tmp_path)
        trainer = quiet_trainer(max_epochs=-1, max_steps=20, use_distributed_sampler=False, limit_val_batches=0)
        trainer.fit(recorder, make(views=Shuffled(), num_workers=workers), ckpt_path=resume and tmp_path / resume)
        return recorder.seen

    whole = trained()
    assert len(whole) == 20
    for step in (3, 18):  # in the first and in the second pass
        assert trained(f"{step}.ckpt") == whole[step:]
    workers += 1
    with pytest.raises(UserError, match=f"needs {workers - 1} data.num_workers, as before, not {workers}"):
        trained("3.ckpt")


def test_labels_of_a_data_set_on_the_hub_are_words(tokenizer, monkeypatch):
    kinds = datasets.Features({"text": datasets.Value("string"), "y": datasets.ClassLabel(names=["no", "yes"])})
    rows = datasets.Dataset.from_dict({"text": ["a dog", "a man", "a street", "dogs"], "y": [1, 0, 1, 0]}, kinds)
    stream = rows.to_iterable_dataset(num_shards=2)
    monkeypatch.setattr(streaming, "load_hub_dataset", lambda name, split, streaming: stream)
    data = TrainingSet("hf://datasets/a/b", label_column="y", label_names=["no", "yes"], streaming=True)
    read = data.read(tokenizer, 16)
    drawn = list(islice(read.stream.share(1, 2), 2)) + list(islice(read.stream.share(0, 2), 2))
    assert sorted(drawn) == [(("a dog",), "yes"), (("a man",), "no"), (("a street",), "yes"), (("dogs",), "no")]
    (batch,) = islice(StreamedBatches(read, 4), 1)
    assert sorted(batch["labels"].tolist()) == [0, 0, 1, 1]


@pytest.mark.parametrize("options", [{"limit": 3}, {"hold_out": 0.1}, {"label_column": 2, "score_column": None}])
def test_what_needs_all_rows_is_refused(make, options):
    with pytest.raises(UserError, match="streaming=true: not all rows are known"):
        make(**options)


def test_the_first_rows_tell_the_range_of_the_scores(make):
    with pytest.raises(UserError, match="max_score=5: the rows have scores 0 to 63: set it to the largest"):
        CosineMSELoss(max_score=5).check_rows(make().rows[""])


@pytest.mark.filterwarnings("ignore")
def test_a_run_without_a_number_of_steps_is_refused(make, tmp_path):
    with pytest.raises(UserError, match="streaming=true: the rows have no end: set trainer.max_steps"):
        quiet_trainer(max_epochs=1).fit(Recorder(tmp_path), make())
