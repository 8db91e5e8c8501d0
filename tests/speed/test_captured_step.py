"""A whole training step, recorded on one batch and replayed on others, is the eager step on them, to the bit."""

import copy
import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu import correctness
from benchmarks.methods import built
from simcse_pl.losses.loss import Loss
from simcse_pl.speed.captured import CapturedSteps
from tests.support.recorded_step import NotRecordable, RecordedGraph

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


class Repeated:
    """A graph whose replay is another eager step."""

    def __init__(self, optimizer, function, pool):
        self._optimizer, self._function = optimizer, function

    def replay(self):
        self._optimizer.zero_grad()
        self.results = self._function()


def trained(module, batches, graph=None):
    """Return losses, norms and the state after steps with dropout, of which a graph makes those after the first."""
    optimizer = torch.optim.AdamW([own for own in module.parameters() if own.requires_grad], lr=1e-3, fused=True)
    clip = {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "norm"}
    module.trainer = SimpleNamespace(optimizers=[optimizer], global_step=0, **clip)
    eager, drawn, found = partial(Repeated, optimizer), None, []
    torch.manual_seed(0)  # what losses draw on the host
    for make, rows_of in ((eager, batches[:1] * 2), (graph or eager, batches)):
        steps = CapturedSteps(module, make)
        drawn = drawn or steps.draw()
        for number, rows in enumerate(rows_of):
            torch.manual_seed(number)
            optimizer.param_groups[0]["lr"] = 1e-3 / (1 + number)
            if step := steps.step(rows, number / 7, drawn):
                found += [step.loss.clone(), step.norm.clone()]
    assert len(found) == 6 and torch.stack(found).isfinite().all() and min(found) > 0
    state = [x for own in optimizer.state.values() for x in own.values()]
    return [*found, *module.parameters(), *module.buffers(), *state]


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_step_is_the_eager_step_on_any_batch(case, gpu_encoders):
    """Its loss, gradients, weights, optimizer's state and queue. The rate and `progress` change between them."""
    module, batches = module_and_batches(case, gpu_encoders)
    capturable = all(part.capturable for part in module.modules() if isinstance(part, Loss))
    assert capturable == (case not in NOT_RECORDED)
    if capturable:
        eager = trained(copy.deepcopy(module), batches)
        assert all(map(torch.equal, eager, trained(module, batches, RecordedGraph)))
    else:
        with pytest.raises(NotRecordable, match=NOT_RECORDED[case]):
            trained(module, batches, RecordedGraph)


class DrawnOnTheHost(Loss):
    capturable = True

    def forward(self, batch):
        return random.Random(torch.initial_seed()).random() * batch.embeddings.mean()


def test_a_draw_on_the_host_is_seen(gpu_encoders):
    """A replay repeats the number that the recorded step drew."""
    module, batches = module_and_batches("method=simcse", gpu_encoders)
    module.auxiliary["drawn"] = DrawnOnTheHost()
    eager = trained(copy.deepcopy(module), batches)
    assert not all(map(torch.equal, eager, trained(module, batches, RecordedGraph)))
