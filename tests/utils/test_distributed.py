"""Three ranks against one process with the whole batch; tests/losses/test_all_losses.py has every loss on two ranks."""

import pytest
import torch

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.utils.distributed import BatchSplit, mean_over_ranks, rank, split_batch, world_size
from simcse_pl.utils.types import RowKind, default_roles
from tests.conftest import adamw

ROWS = 7  # an odd number: ranks hold different numbers of rows
BOUNDS = (0, 2, 4, 7)
CASES = {  # the head, the precision, and the tolerance
    "float64": ("mlp", torch.float64, 1e-10),
    "float32": ("mlp", torch.float32, 1e-6),
    "bfloat16": ("mlp", torch.bfloat16, 2e-2),
    "batch normalization": ("batch_norm_train_only", torch.float64, 1e-10),
}


def _batch():
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 60, (ROWS, 3, 9), generator=generator)
    mask = (torch.arange(9) < torch.randint(4, 10, (ROWS, 3, 1), generator=generator)).long()
    return {"input_ids": ids * mask, "attention_mask": mask}  # 0 pads


def _gradients(folder, case, first, end):
    """Return the loss of some rows without dropout, and its gradient as one vector."""
    torch.manual_seed(0)
    head, precision, _ = CASES[case]
    options = {"pooling": "mean", "dropout": 0.0, "attention_dropout": 0.0}
    encoder = SentenceEncoder.from_pretrained(folder, head=head, **options)
    module = SimCSEModule(encoder, ContrastiveLoss(hard_negative_weight=0.7), adamw())
    if precision is torch.float64:
        module.double()
    module.prepare({"own": RowKind(default_roles(3))})
    rows = module.batch_of({name: x[first:end] for name, x in _batch().items()})
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
        loss = module.loss(rows)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in module.parameters() if p.requires_grad])


def _one_rank(number, results, folder):
    pairs = {case: _gradients(folder, case, *BOUNDS[number : number + 2]) for case in CASES}
    found = {case: [mean_over_ranks(x) for x in pair] for case, pair in pairs.items()}  # as DDP averages them
    split = split_batch(BOUNDS[number + 1] - BOUNDS[number], torch.device("cpu"))
    lone = mean_over_ranks(torch.tensor([0.25 if number else torch.nan, torch.nan]), ignore_nan=True)
    results[number] = found, split, rank(), world_size(), str(lone.tolist())


def test_gradients_equal_one_big_batch(on_ranks, make_model):
    folder = make_model("bert")
    results = on_ranks(_one_rank, 3, folder)
    for number, (offset, weight) in enumerate([(0, 6 / 7), (2, 6 / 7), (4, 9 / 7)]):
        split = BatchSplit((2, 2, 3), offset, weight)
        assert results[number][1:] == (split, number, 3, "[0.25, nan]")
    for case, (_, _, tolerance) in CASES.items():
        loss, gradient = _gradients(folder, case, 0, ROWS)
        for number in range(3):
            ours = results[number][0][case]
            assert ours[0].item() == pytest.approx(loss.item(), rel=tolerance), case
            assert (ours[1] - gradient).norm() <= tolerance * gradient.norm(), case
