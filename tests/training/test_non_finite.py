"""Steps whose loss or gradient is not finite: the run ends, or skips them."""

import json

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.curves import BatchCurves
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, quiet_trainer, tiny

DIVERGES = ["optimizer.lr=1e30", "data=text", "val_every=100", "logger=csv"]


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step_and_rows(train, make_model, sentences):
    given = [*tiny(make_model("bert")), f"data.train={sentences}", *DIVERGES]
    done, folder = train(*given, status=2)
    (line,) = map(json.loads, (folder / "non_finite.jsonl").read_text().splitlines())
    rows = ", ".join(map(str, line["rows"]))
    assert done.stderr.splitlines()[-1] == (
        f"error: step 2: the loss is nan and its gradient's norm nan, in rows {rows} of {sentences}: "
        "lower optimizer.lr, check these rows, or set module.on_non_finite=skip"
    )
    assert line["step"] == 2 and len(line["rows"]) == 4
    assert line["sentences"] == [[SENTENCES[row - 1]] for row in line["rows"]]
    assert not (folder / "results.json").exists()


class BadAt(ContrastiveLoss):
    """A loss that is nan in some steps, or only its gradient."""

    def __init__(self, steps, gradient_alone=False):
        super().__init__()
        self.steps, self.gradient_alone, self.step = steps, gradient_alone, 0

    def forward(self, encoder, batch):
        self.step += 1
        loss = super().forward(encoder, batch)
        if self.step not in self.steps:
            return loss
        return loss + (batch.embeddings.sum() * 0).sqrt() if self.gradient_alone else loss * torch.nan


def fit(folder, make_model, objective, **options):
    """Return the weights of one layer and the number of skipped steps after each of 4 steps."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "cls", num_layers=1)
    module = SimCSEModule(encoder, objective, adamw(lr=1e-3), **options)
    module.prepare()
    objective.step = 0
    batch = ViewCollator(encoder.tokenizer, 16)([(sentence,) for sentence in SENTENCES])
    weights, skipped = [], []

    def record(trainer, *_):
        weights.append(encoder.backbone.get_input_embeddings().weight.detach().clone())
        skipped.append(trainer.callback_metrics.get("train/skipped_steps"))

    callbacks = [BatchCurves(), pl.callbacks.LambdaCallback(on_train_batch_end=record)]
    trainer = quiet_trainer(max_epochs=1, default_root_dir=folder, callbacks=callbacks, log_every_n_steps=1)
    trainer.fit(module, DataLoader([batch] * 4, batch_size=None))
    return weights, skipped


@pytest.mark.parametrize("gradient_alone", [False, True])
def test_skipped_steps_are_counted_and_reported_once(tmp_path, make_model, caplog, gradient_alone):
    objective, queue = BadAt({2, 3}, gradient_alone), MomentumQueue(size=16)
    (first, second, third, fourth), skipped = fit(tmp_path, make_model, objective, on_non_finite="skip", queue=queue)
    assert torch.equal(first, second) and torch.equal(second, third), "skipped steps leave the weights alone"
    assert not torch.equal(third, fourth) and fourth.isfinite().all(), "and their optimizer's moments"
    assert [int(count) for count in skipped] == [0, 1, 2, 2]
    assert queue.negatives().isfinite().all() and len(queue.negatives())
    warnings = [record.getMessage() for record in caplog.records if record.name == "simcse_pl.training.non_finite"]
    assert len(warnings) == 1 and warnings[0].startswith("step 2: the loss is ")


def test_a_gradient_that_is_not_finite_ends_the_run(tmp_path, make_model):
    with pytest.raises(UserError, match="^step 2: the loss is .* and its gradient's norm nan, in unknown rows"):
        fit(tmp_path, make_model, BadAt({2}, gradient_alone=True))
