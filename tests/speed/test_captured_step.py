"""A whole training step, recorded on one batch and replayed on others, is the eager step on them, to the bit."""

import random
from functools import partial

import pytest
import torch
from torch import Tensor

from benchmarks.gpu import correctness
from benchmarks.methods import built
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import Loss
from tests.support.recorded_step import NotRecordable, RecordedStep

CASES = correctness.cases()
NOT_RECORDED = {"method=whitenedcse": "_linalg_eigh"}  # it waits for a GPU; the loss is not `capturable`
ROWS, TOKENS = 6, 64  # of each batch


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    """Take the ways of a GPU where the code asks whether a tensor is on the CPU, such as in LengthGroups.split."""
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda _: False), raising=False)


def module_and_batches(case, folder):
    """Return the module of a case, with dropout, and batches of one shape."""
    config = correctness.config_of(CASES[case], folder)
    config.model.dropout, config.data.batch_size, config.data.max_length = 0.1, ROWS, 32
    module, data = built(config)
    data.templates.multiple_of = TOKENS
    data.setup()
    module.prepare(data.rows)
    if module.queue:  # eager steps fill it
        module.queue.size, module.queue.rows = ROWS, module.queue.rows[:ROWS]
    loader = iter(data.train_dataloader())
    return module.train(), [next(loader) for _ in range(3)]


class Training:
    """A module with an optimizer. Each step begins with the same weights, optimizer's state and random numbers."""

    def __init__(self, module, rows):
        self.module, self.rate = module, torch.tensor(1e-3)
        self.trained = [weight for weight in module.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=self.rate, fused=True)
        losses = (part for part in module.modules() if isinstance(part, Loss))
        self.drawn = {loss: value for loss in losses if (value := loss.draw(module.encoder)) is not None}
        self.progress = torch.tensor(0.5)
        self.step(rows)  # makes the optimizer's state, and fills a queue
        of_optimizer = [tensor for own in self.optimizer.state.values() for tensor in own.values()]
        self.tensors = [*module.parameters(), *module.buffers(), *of_optimizer]
        self.first = [tensor.detach().clone() for tensor in self.tensors]

    @torch.no_grad()
    def reset(self):
        for tensor, first in zip(self.tensors, self.first, strict=True):
            tensor.copy_(first)
        self.optimizer.zero_grad()
        torch.manual_seed(3)

    def step(self, rows):
        """Return the loss and the norm of the gradient, [2]."""
        _, loss = self.module.batch_and_loss(rows, self.progress, drawn=self.drawn)
        loss.backward()
        norm = torch.nn.utils.get_total_norm([weight.grad for weight in self.trained if weight.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(self.trained, 1.0, norm)
        self.optimizer.step()
        return torch.stack([loss.detach(), norm])

    def state(self, gradients):
        return [x.detach().clone() for x in [*self.tensors, *gradients] if x is not None]

    def gradients(self):
        return [weight.grad for weight in self.trained]


def is_equal_replayed(module, warm_up, recorded_on, rows):
    """Record a step on one batch; return whether its replay on another is the eager step on that."""
    training = Training(module, warm_up)
    static = {name: x.clone() if isinstance(x, Tensor) else x for name, x in recorded_on.items()}
    recorded = RecordedStep()
    training.reset()
    recorded.record(partial(training.step, static))
    gradients = training.gradients()
    training.rate.fill_(2e-3)
    training.progress.fill_(2 / 7)
    training.reset()
    expected = [training.step(rows), *training.state(training.gradients())]
    training.reset()
    for name, x in static.items():
        if isinstance(x, Tensor):
            x.copy_(rows[name])
    found = [recorded.replay().clone(), *training.state(gradients)]
    assert found[0].isfinite().all() and found[0].min() > 0 and len(found) == len(expected)
    return all(map(torch.equal, expected, found))


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_step_is_the_eager_step_on_any_batch(case, gpu_encoders):
    """Its loss, gradients, weights, optimizer's state and queue. The rate and `progress` change between them."""
    module, batches = module_and_batches(case, gpu_encoders)
    capturable = all(part.capturable for part in module.modules() if isinstance(part, Loss))
    assert capturable == (case not in NOT_RECORDED)
    if capturable:
        assert is_equal_replayed(module, *batches)
    else:
        with pytest.raises(NotRecordable, match=NOT_RECORDED[case]):
            is_equal_replayed(module, *batches)


def of_progress(loss, batch):
    return batch.progress * loss


def drawn_on_the_host(loss, batch):
    return random.random() * loss


def of_the_rows_numbers(loss, batch):
    return loss * float(batch.rows.sum())


def read_back(loss, batch):
    return loss * (2 if loss > 0 else 1)


def of_some_embeddings(loss, batch):
    return loss + batch.embeddings[batch.embeddings > 0].mean()


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (of_progress, True),
        (drawn_on_the_host, False),
        (of_the_rows_numbers, False),
        (read_back, NotRecordable),
        (of_some_embeddings, NotRecordable),
    ],
)
def test_a_loss_may_read_progress_but_no_other_value_of_the_host_and_none_of_the_device(changed, same, gpu_encoders):
    class Changed(ContrastiveLoss):
        def forward(self, batch):
            return changed(super().forward(batch), batch)

    module, batches = module_and_batches("method=simcse", gpu_encoders)
    module.objective = Changed()
    if same is NotRecordable:
        with pytest.raises(NotRecordable):
            is_equal_replayed(module, *batches)
    else:
        assert is_equal_replayed(module, *batches) == same
