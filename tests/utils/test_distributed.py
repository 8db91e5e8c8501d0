"""The gradients of several ranks against one process with the whole batch."""

import itertools
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from examples.my_research.objective import ScoreRegression
from examples.my_research.terms import NegativeMargin, TeacherSimilarities
from simcse_pl.data.collators import ViewCollator
from simcse_pl.losses.bidirectional_margin import BidirectionalMargin
from simcse_pl.losses.contrasted_positives import ContrastedPositivesObjective
from simcse_pl.losses.debiased import DebiasedObjective
from simcse_pl.losses.dimension_contrast import DimensionContrast
from simcse_pl.losses.distillation import EmbeddingDistillation, MarginMSE
from simcse_pl.losses.inner_layer import InnerLayer
from simcse_pl.losses.margins import AngularMarginObjective, TripletMargin
from simcse_pl.losses.matryoshka import MatryoshkaObjective
from simcse_pl.losses.mlm import MaskedLanguageModeling, MaskedLanguageModelingObjective
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.losses.negatives import GaussianNegatives, MixedNegatives, NegativesWithoutDropout
from simcse_pl.losses.objectives import ContrastiveObjective, SoftmaxObjective
from simcse_pl.losses.peer_network import PeerNetwork
from simcse_pl.losses.ranking import RankingConsistency, RankingDistillation
from simcse_pl.losses.replaced_tokens import ReplacedTokenDetection
from simcse_pl.losses.scored_pairs import AngleObjective, CoSENTObjective, CosineMSEObjective
from simcse_pl.losses.sentence_mlm import SentenceMaskedLanguageModeling
from simcse_pl.losses.token_masking import NOT_CHOSEN, TokenMaskingLoss
from simcse_pl.losses.whitened import WhitenedContrastiveObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role, RowKind, default_roles
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.distributed import (
    BatchSplit,
    mean_over_ranks,
    rank,
    split_batch,
    world_size,
)
from tests.conftest import SENTENCES, adamw

ROWS = 7  # an odd number: ranks hold different numbers of rows


def _mask_by_content(self, input_ids):
    """Mask tokens by their id, so that the masks do not depend on the rank."""
    chosen = (input_ids % 2 == 0) & ~torch.isin(input_ids, self.special_ids)
    return input_ids.masked_fill(chosen, 4), input_ids.masked_fill(~chosen, NOT_CHOSEN)


def _edit_by_content(self, input_ids, *_):
    """Replace tokens by their id, so that the edits do not depend on the rank."""
    return input_ids + (input_ids % 3 == 0)


def _batch(views):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 60, (ROWS, views, 9), generator=generator)
    mask = (torch.arange(9) < torch.randint(4, 10, (ROWS, views, 1), generator=generator)).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}  # 0 pads


def _gradients(folder, case, precision, first, end):
    """Return the loss of some rows without dropout, and its gradient as one vector."""
    torch.manual_seed(0)
    options = PROMPTED if "prompts" in case else {"pooling": "mean"}
    head = "batch_norm_train_only" if "batch_norm" in case else "mlp"
    encoder = SentenceEncoder.from_pretrained(folder, head=head, dropout=0.0, attention_dropout=0.0, **options)
    objective = OBJECTIVES.get(case.split()[0], partial(ContrastiveObjective, hard_negative_weight=0.7))()
    if "distilled" in case or "triplets" in case:
        objective = (EmbeddingDistillation if "distilled" in case else MarginMSE)(folder, "cls")
        torch.nn.init.normal_(objective.teacher.network.backbone.embeddings.word_embeddings.weight)
    if case == "debiased":
        objective = DebiasedObjective(f"{folder}_guide", threshold=0.2, noise_ratio=0.8)
        torch.nn.init.normal_(objective.guide.network.backbone.embeddings.word_embeddings.weight)
    objective.mask_duplicates = case in ("hard duplicates", "symmetric hard")
    terms = [MaskedLanguageModeling(weight=0.5, head="new")] if "mlm" in case else []
    if "idea" in case:
        terms = [TeacherSimilarities(0.5, folder, "cls"), NegativeMargin(0.5, margin=1.0)]
        torch.nn.init.normal_(terms[0].teacher.network.backbone.embeddings.word_embeddings.weight)
    if case == "dimensions":
        terms = [DimensionContrast(0.5), InnerLayer(ContrastiveObjective(), 0.5)]
    if case == "margins":
        terms = [TripletMargin(0.5, margin=0.1)]
    if case == "soft":
        terms = [BidirectionalMargin(0.5)]
    if "peer" in case:
        terms = [PeerNetwork(0.5)]
    if "networks" in case:
        terms = [ReplacedTokenDetection(0.5), SentenceMaskedLanguageModeling(0.5, head="new", frozen_layers=2)]
    if "ranking" in case:
        teachers = RankingDistillation([folder, folder], pooling="mean", loss=f"list_{case.split()[1]}")
        for teacher in teachers.teachers:
            torch.nn.init.normal_(teacher.network.backbone.embeddings.word_embeddings.weight)
        terms = [teachers, RankingConsistency(0.5)]
    queue = MomentumQueue(size=10) if case == "queue" else None
    module = SimCSEModule(
        encoder,
        objective,
        adamw(),
        auxiliary=terms,
        queue=queue,
        chunk_size=2 if "chunks" in case else None,
        objectives={"other": SoftmaxObjective(), "own": CosineMSEObjective()} if case == "dataset" else None,
    )
    if precision is torch.float64:
        module.double()
    batch = _batch(views=3 if "hard" in case or "idea" in case else 2)
    if case in ("hard duplicates", "symmetric hard"):  # duplicates on other ranks
        for tensor in batch.values():
            tensor[6, :2], tensor[1, 2] = tensor[0, :2], tensor[5, 1]
    if roles := ROLES.get(case.split()[0]):
        batch = _batch(len(roles))
    if case == "labels":
        batch["labels"] = torch.tensor([0, 2, 1, 0, 1, 2, 2])
    if "idea" in case:
        batch["labels"] = torch.linspace(0, 5, ROWS)
    if case in ("scores", "dataset", "order", "angle"):
        batch["labels"] = torch.tensor([0.5, 1.0, 0.0, -0.25, 0.1, 0.7, 1.0])
    if "prompts" in case:
        rows = [(sentence,) * 3 for sentence in SENTENCES[:ROWS]]
        batch = ViewCollator(encoder.tokenizer, 16, encoder.templates)(rows)
    roles = roles or default_roles(batch["input_ids"].shape[1])
    module.prepare({"own": RowKind(roles, LABELS.get(case.split()[0]))})
    share = {name: x[first:end] for name, x in batch.items()}
    if case.split()[0] in ROLES:
        share["roles"] = roles
    if case == "dataset":
        share["dataset"] = "own"
    if queue:
        queue.update(encoder, share)
    torch.manual_seed(rank())  # what ranks share must be that of the first
    with torch.autocast("cpu", precision, enabled=precision in HALVES):
        loss, _ = module.loss(share)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in module.parameters() if p.requires_grad])


def _one_rank(number, ranks, store, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=ranks)
    torch.set_num_threads(1)
    TokenMaskingLoss.mask = _mask_by_content
    ReplacedTokenDetection.edit = _edit_by_content
    bounds = [ROWS * n // ranks for n in range(ranks + 1)]
    found = {}
    for case, precision in CASES:
        loss, gradient = _gradients(folder, case, precision, bounds[number], bounds[number + 1])
        found[case, precision] = mean_over_ranks(loss), mean_over_ranks(gradient)  # as DDP averages them
    own = split_batch(bounds[number + 1] - bounds[number], torch.device("cpu"))
    results[number] = found, own, rank(), world_size()
    dist.destroy_process_group()


OBJECTIVES = {
    "matryoshka": lambda: MatryoshkaObjective(ContrastiveObjective(), [32, 7]),
    "labels": SoftmaxObjective,
    "contrasted": ContrastedPositivesObjective,
    "scores": CosineMSEObjective,
    "idea": ScoreRegression,
    "noise": GaussianNegatives,
    "mixtures": MixedNegatives,
    "plain": NegativesWithoutDropout,
    "margins": AngularMarginObjective,
    "pretraining": partial(MaskedLanguageModelingObjective, head="new"),
    "order": CoSENTObjective,
    "angle": partial(AngleObjective, in_batch_weight=2.0, cosine_weight=0.5),
    "symmetric": partial(ContrastiveObjective, symmetric=True, hardness=0.5),
    "whitened": partial(WhitenedContrastiveObjective, groups=16),
}
LABELS = {
    "labels": "classes",
    **dict.fromkeys(("scores", "dataset", "idea", "order", "angle"), "scores"),
}
ROLES = {
    "roles": (Role.POSITIVE, Role.ANCHOR, Role.POSITIVE, Role.NEGATIVE),
    "margins": (Role.OTHER, Role.ANCHOR, Role.POSITIVE, Role.OTHER),
    "soft": (Role.ANCHOR, Role.POSITIVE, Role.OTHER),
    "peer": (Role.ANCHOR, Role.POSITIVE, Role.OTHER, Role.OTHER),
    "whitened": (Role.ANCHOR, Role.POSITIVE, Role.POSITIVE),
}
METHODS = (
    *(
        "matryoshka hard chunks",
        "distilled chunks",
        "triplets hard",
        "noise",
        "mixtures",
        "mixtures hard",
        "plain chunks",
        "pretraining chunks",
        "dimensions",
        "margins",
        "order",
        "angle",
    ),
    *("symmetric hard", "soft", "peer chunks", "contrasted hard", "contrasted prompts chunks"),
    *("networks batch_norm chunks", "ranking net chunks", "ranking mle"),
    *("batch_norm hard", "whitened", "whitened batch_norm chunks", "debiased"),
)
PROMPTED = {
    "pooling": "mask",
    "template": ['"{sentence}" [MASK].', '[MASK]: "{sentence}"', 'no "{sentence}" [MASK].'],
    "template_bias": "train_only",
}
HALVES = (torch.bfloat16, torch.float16)
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-10, torch.bfloat16: 2e-2, torch.float16: 2e-3}
CASES = [
    *itertools.product(
        ("pairs", "hard", "roles", "mlm", "hard mlm chunks", "hard duplicates", "labels", "queue", "scores", "dataset"),
        (torch.float32, torch.float64),
    ),
    *itertools.product(METHODS, (torch.float64,)),  # a bias is a small difference of large vectors
    *itertools.product(("idea chunks", "soft", "peer chunks", "debiased"), (torch.float32, torch.float64)),
    *itertools.product(("hard mlm chunks",), HALVES),
]


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.by_hand), 3])
def test_gradients_equal_one_big_batch(ranks, tmp_path, make_model, monkeypatch):
    folder = make_model("bert")
    SentenceEncoder.from_pretrained(folder, pooling="mean").save_pretrained(f"{folder}_guide")
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_one_rank, (ranks, tmp_path / "store", folder, results), nprocs=ranks)
        results = dict(results)
    monkeypatch.setattr(TokenMaskingLoss, "mask", _mask_by_content)
    monkeypatch.setattr(ReplacedTokenDetection, "edit", _edit_by_content)
    sizes = {2: (3, 4), 3: (2, 2, 3)}[ranks]
    for number in range(ranks):
        assert results[number][1:] == (BatchSplit(sizes, number), number, ranks)
    for case, precision in CASES:
        loss, gradient = _gradients(folder, case.removesuffix(" chunks"), precision, 0, ROWS)
        tolerance = TOLERANCES[precision]
        assert gradient.norm() > 0.1
        for number in range(ranks):
            ours = results[number][0][case, precision]
            assert abs(ours[0] - loss) <= tolerance * loss, (case, precision)
            assert (ours[1] - gradient).norm() <= tolerance * gradient.norm(), (case, precision)
