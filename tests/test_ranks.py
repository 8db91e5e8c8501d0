"""A training step on two ranks: what it exchanges, and how a signal to one rank stops both."""

import signal
from collections import Counter

import pytest
import pytorch_lightning as pl
import torch

from simcse_pl.callbacks import SeedEveryStep
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.preemption import Preemption
from simcse_pl.run_metadata import RunMetadata
from simcse_pl.utils.errors import UserError
from tests.conftest import adamw, quiet_trainer

COUNTED = 2  # the last of the 4 steps of an epoch: before, DDP arranges its buckets


class Observer(pl.Callback):
    """Count the collectives of some steps, and then send this process SIGTERM if it is rank 1."""

    def __init__(self):
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 2:
            self.profile.start()
        if trainer.global_step == 2 + COUNTED:
            self.profile.stop()
            if trainer.global_rank:
                signal.raise_signal(signal.SIGTERM)


def _one_rank(number, results, folder, model, sentences, pairs):
    encoder = SentenceEncoder.from_pretrained(model, pooling="cls", num_layers=1)
    scored = {"evaluators": {"sts": ScoredPairs}, "validation": str(pairs)}
    data = SentenceDataModule(encoder.tokenizer, sentences, batch_size=2, max_length=8, **scored)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    observer = Observer()
    callbacks = [SeedEveryStep(1), observer, Preemption(folder / "last.ckpt")]
    how = {"strategy": "ddp", "devices": 2, "max_steps": 10, "limit_val_batches": 0, "default_root_dir": folder}
    trainer = quiet_trainer(callbacks=callbacks, use_distributed_sampler=False, **how)
    try:
        trainer.fit(module, data)
    except SystemExit as stopped:
        counts = Counter(event.name for event in observer.profile.events() if event.name.startswith("c10d::"))
        results[number] = stopped.code, trainer.global_step, dict(counts)


def test_a_step_has_four_collectives_and_a_signal_to_one_rank_stops_both(
    on_ranks, make_model, tmp_path, sentences, pairs
):
    results = on_ranks(_one_rank, 2, tmp_path, make_model("bert"), sentences, pairs)
    # the embeddings; their gradient; that of the weights, and the loss with the request to stop
    counts = {"c10d::_allgather_base_": COUNTED, "c10d::allreduce_": 3 * COUNTED}
    stopped_after = 2 + COUNTED + 1  # in its next step, rank 1 tells rank 0
    assert results == {0: (143, stopped_after, counts), 1: (0, stopped_after, counts)}
    assert (tmp_path / "last.ckpt").is_file()


def _one_of_different_ranks(number, results, options):
    with pytest.raises(UserError) as error:
        RunMetadata(options[number]).setup(quiet_trainer(max_steps=1 + len(options[number])), torch.nn.Module(), "fit")
    results[number] = str(error.value)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ([{"optimizer": {"lr": 0.1}}, {"optimizer": {"lr": 0.2}}], "optimizer.lr is 0.1 on rank 0, 0.2 on rank 1"),
        ([{}, {"trainer": {"max_steps": 2}}], "trainer.max_steps is 1 on rank 0, 2 on rank 1"),
    ],
)
def test_ranks_that_would_train_with_different_options_are_an_error_on_all(on_ranks, options, what):
    line = f"{what}: start all ranks with the same options and data"
    assert on_ranks(_one_of_different_ranks, 2, options) == {0: line, 1: line}
