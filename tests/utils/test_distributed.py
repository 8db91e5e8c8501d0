"""Three ranks against one process with the whole batch; tests/losses/test_all_losses.py has every loss on two ranks."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.mlm import NOT_CHOSEN, MaskedLanguageModeling, TokenMaskingLoss
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import RowKind, default_roles
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.distributed import BatchSplit, mean_over_ranks, rank, split_batch, world_size
from tests.conftest import adamw
from tests.forks import start_ranks

ROWS = 7  # an odd number: ranks hold different numbers of rows
BOUNDS = (0, 2, 4, 7)
CASES = {  # the number of views, the precision, and the tolerance
    "pairs": (2, torch.float64, 1e-10),
    "pairs in float32": (2, torch.float32, 1e-6),
    "pairs in bfloat16": (2, torch.bfloat16, 2e-2),
    "duplicates": (3, torch.float64, 1e-10),
    "mlm chunks": (3, torch.float64, 1e-10),
    "queue": (2, torch.float64, 1e-10),
    "batch_norm": (3, torch.float64, 1e-10),
}


def _mask_by_content(self, input_ids):
    """Mask tokens by their id, so that the masks do not depend on the rank."""
    chosen = (input_ids % 2 == 0) & ~torch.isin(input_ids, self.special_ids)
    return input_ids.masked_fill(chosen, 4), input_ids.masked_fill(~chosen, NOT_CHOSEN)


def _batch(views):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 60, (ROWS, views, 9), generator=generator)
    mask = (torch.arange(9) < torch.randint(4, 10, (ROWS, views, 1), generator=generator)).long()
    batch = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}  # 0 pads
    for tensor in batch.values():  # duplicates on other ranks
        tensor[6, :2], tensor[1, -1] = tensor[0, :2], tensor[5, 1]
    return batch


def _gradients(folder, case, first, end, chunk_size=None):
    """Return the loss of some rows without dropout, and its gradient as one vector."""
    torch.manual_seed(0)
    views, precision, _ = CASES[case]
    head = "batch_norm_train_only" if case == "batch_norm" else "mlp"
    options = {"pooling": "mean", "dropout": 0.0, "attention_dropout": 0.0}
    encoder = SentenceEncoder.from_pretrained(folder, head=head, **options)
    objective = ContrastiveLoss(hard_negative_weight=0.7, mask_duplicates=case == "duplicates")
    mlm = {"mlm": MaskedLanguageModeling(weight=0.5, head="new")} if case == "mlm chunks" else {}
    queue = MomentumQueue(size=10) if case == "queue" else None
    module = SimCSEModule(encoder, objective, adamw(), auxiliary=mlm, queue=queue, chunk_size=chunk_size)
    if precision is torch.float64:
        module.double()
    module.prepare({"own": RowKind(default_roles(views))})
    share = {name: x[first:end] for name, x in _batch(views).items()}
    if queue:
        queue.update(encoder, share)
    rows = module.batch_of(share, queue=queue.negatives() if queue else None)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
        loss = module.loss(rows)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in module.parameters() if p.requires_grad])


def _one_rank(number, store, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=3)
    torch.set_num_threads(1)
    TokenMaskingLoss.mask = _mask_by_content
    found = {}
    for case in CASES:
        pair = _gradients(folder, case, *BOUNDS[number : number + 2], chunk_size=2 if "chunks" in case else None)
        found[case] = [mean_over_ranks(x) for x in pair]  # as DDP averages them
    split = split_batch(BOUNDS[number + 1] - BOUNDS[number], torch.device("cpu"))
    lone = mean_over_ranks(torch.tensor([0.25 if number else torch.nan, torch.nan]), ignore_nan=True)
    results[number] = found, split, rank(), world_size(), str(lone.tolist())
    dist.destroy_process_group()


def test_gradients_equal_one_big_batch(tmp_path, make_model, monkeypatch):
    folder = make_model("bert")
    with mp.Manager() as manager:
        results = manager.dict()
        start_ranks(_one_rank, (tmp_path / "store", folder, results), 3)
        results = dict(results)
    monkeypatch.setattr(TokenMaskingLoss, "mask", _mask_by_content)
    for number in range(3):
        assert results[number][1:] == (BatchSplit((2, 2, 3), number), number, 3, "[0.25, nan]")
    for case, (_, _, tolerance) in CASES.items():
        loss, gradient = _gradients(folder, case, 0, ROWS)
        assert gradient.norm() > 0.1
        for number in range(3):
            ours = results[number][0][case]
            assert abs(ours[0] - loss) <= tolerance * loss, case
            assert (ours[1] - gradient).norm() <= tolerance * gradient.norm(), case
