"""The LightningDataModule: training batches of views, validation and test pairs of STS."""

import logging
from collections.abc import Sequence
from pathlib import Path

from pytorch_lightning import LightningDataModule
from torch.utils.data import DataLoader, DistributedSampler
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.batches import PairCollator, ViewCollator
from simcse_pl.data.readers import Row, read_rows
from simcse_pl.data.sts import ScoredPair, StsTask, load_stsb
from simcse_pl.distributed import rank, world_size
from simcse_pl.errors import UserError

log = logging.getLogger(__name__)

_VALIDATION_BATCH = 128


class SentenceDataModule(LightningDataModule):
    """Sentences or rows of sentences to train on, and STS-B to validate and test on.

    Args:
        tokenizer: the encoder's.
        train: what to train on (see readers.read_rows).
        columns, on_bad_row, header, split: how to read it (see readers.read_rows).
        batch_size: rows of a contrastive batch, over all devices together.
        max_length: tokens read of a training sentence, special tokens included.
        validation: where STS-B comes from, in the order of trying (see sts.load_stsb).
        senteval_dir: a SentEval bundle.
        num_workers: processes that prepare batches; 0 does it in the training process.
        seed: fixes the order of rows, epoch by epoch.

    Raises:
        UserError: a value out of range; from `setup`, data that cannot be read or trained on.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        train: str | Path,
        columns: Sequence[int | str] | None = None,
        on_bad_row: str = "error",
        header: bool = True,
        split: str = "train",
        batch_size: int = 64,
        max_length: int = 32,
        validation: Sequence[str] = ("senteval", "hub", "sample"),
        senteval_dir: str | Path | None = None,
        num_workers: int = 0,
        seed: int = 42,
    ) -> None:
        super().__init__()
        shortest = tokenizer.num_special_tokens_to_add() + 1
        if not shortest <= max_length <= tokenizer.model_max_length:
            longest = tokenizer.model_max_length
            raise UserError(f"data.max_length={max_length}: this model reads {shortest} to {longest} tokens")
        if batch_size < 1:
            raise UserError(f"data.batch_size={batch_size}: it must be at least 1")
        self.tokenizer = tokenizer
        self.train = train
        self.columns, self.on_bad_row, self.header, self.split = columns, on_bad_row, header, split
        self.batch_size = batch_size
        self.max_length = max_length
        self.validation = validation
        self.senteval_dir = senteval_dir
        self.num_workers = num_workers
        self.seed = seed
        self.rows: list[Row] = []
        self.tasks: dict[str, StsTask] = {}

    def setup(self, stage: str | None = None) -> None:
        """Read everything, once; the trainer calls this on every rank."""
        if self.rows:
            return
        self.tasks = {split: load_stsb(self.validation, self.senteval_dir, split) for split in ("dev", "test")}
        self.rows = read_rows(self.train, self.columns, self.on_bad_row, self.header, self.split)
        log.info("train: %d rows of %d from %s", len(self.rows), len(self.rows[0]), self.train)
        if min(len(self.rows), self.batch_size) == 1 and len(self.rows[0]) < 3:
            cause = "data.batch_size=1" if self.batch_size == 1 else f"{self.train} has one row"
            raise UserError(f"{cause}: a batch of one without hard negatives has nothing to contrast with")

    def train_dataloader(self) -> DataLoader[Row]:
        """Batches of views, [batch, views, tokens]; each rank gets its share of every contrastive batch."""
        ranks = world_size()
        if self.batch_size % ranks:
            raise UserError(f"data.batch_size={self.batch_size} cannot be shared by {ranks} devices evenly")
        return DataLoader(
            self.rows,  # type: ignore[arg-type]
            batch_size=self.batch_size // ranks,
            sampler=DistributedSampler(self.rows, ranks, rank(), shuffle=True, seed=self.seed),  # type: ignore[arg-type]
            collate_fn=ViewCollator(self.tokenizer, self.max_length),
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )

    def val_dataloader(self) -> DataLoader[ScoredPair]:
        """STS-B's development pairs."""
        return self._pair_loader("dev")

    def test_dataloader(self) -> DataLoader[ScoredPair]:
        """STS-B's test pairs."""
        return self._pair_loader("test")

    def _pair_loader(self, split: str) -> DataLoader[ScoredPair]:
        """This rank's share of the pairs, each of them on one rank only, like lengths together."""
        pairs = sorted(self.tasks[split].pairs, key=lambda pair: -max(len(pair.first), len(pair.second)))
        return DataLoader(
            pairs[rank() :: world_size()],  # type: ignore[arg-type]
            batch_size=_VALIDATION_BATCH,
            collate_fn=PairCollator(self.tokenizer),
        )
