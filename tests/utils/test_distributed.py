"""The gradients of several ranks against one process with the whole batch."""

import itertools

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from examples.my_research.objective import ScoreRegression
from examples.my_research.terms import NegativeMargin, TeacherSimilarities
from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.combined import LossPerDataset
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.distillation import EmbeddingDistillation, MarginMSE
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.losses.inner_layer import InnerLayer
from simcse_pl.losses.matryoshka import MatryoshkaLoss
from simcse_pl.losses.mlm import NOT_CHOSEN, MaskedLanguageModeling, TokenMaskingLoss
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.losses.scored_pairs import CosineMSELoss
from simcse_pl.losses.softmax import SoftmaxLoss
from simcse_pl.methods.angle import AngleLoss
from simcse_pl.methods.arccse import AngularMarginLoss, TripletMargin
from simcse_pl.methods.cosent import CoSENTLoss
from simcse_pl.methods.cot_bert import ContrastedPositives
from simcse_pl.methods.dclr import DebiasedLoss
from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.methods.gs_infonce import GaussianNegatives
from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.methods.mixcse import MixedNegatives
from simcse_pl.methods.pcl import PeerNetwork
from simcse_pl.methods.rankcse import RankingConsistency, RankingDistillation
from simcse_pl.methods.simcse_pp import DimensionContrast, NegativesWithoutDropout
from simcse_pl.methods.sncse import BidirectionalMargin
from simcse_pl.methods.whitenedcse import WhitenedContrastiveLoss
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
from tests.forks import start_ranks

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
    words = case.split()
    make = OBJECTIVES.get(words[0], lambda folder: ContrastiveLoss(hard_negative_weight=0.7))
    objective = make(folder)
    objective.mask_duplicates = case in ("hard duplicates", "symmetric hard")
    if case == "dataset":
        objective = LossPerDataset(objective, {"other": SoftmaxLoss(), "own": CosineMSELoss()})
    terms = [term for word in words if word in TERMS for term in TERMS[word](folder)]
    queue = MomentumQueue(size=10) if case == "queue" else None
    module = SimCSEModule(
        encoder,
        objective,
        adamw(),
        auxiliary={str(number): term for number, term in enumerate(terms)},
        queue=queue,
        chunk_size=2 if "chunks" in case else None,
    )
    for part in module.modules():
        if isinstance(part, FrozenEncoder):
            torch.nn.init.normal_(part.network.backbone.embeddings.word_embeddings.weight)
    if precision is torch.float64:
        module.double()
    roles = ROLES.get(words[0])
    batch = _batch(len(roles) if roles else 3 if "hard" in case or "idea" in case else 2)
    if case in ("hard duplicates", "symmetric hard"):  # duplicates on other ranks
        for tensor in batch.values():
            tensor[6, :2], tensor[1, 2] = tensor[0, :2], tensor[5, 1]
    labels = LABELS.get(words[0])
    if labels:
        scores = torch.tensor([0.5, 1.0, 0.0, -0.25, 0.1, 0.7, 1.0])
        batch["labels"] = scores if labels == "scores" else torch.tensor([0, 2, 1, 0, 1, 2, 2])
    if "prompts" in case:
        rows = [(sentence,) * 3 for sentence in SENTENCES[:ROWS]]
        batch = ViewCollator(encoder.tokenizer, 16, encoder.templates)(rows)
    module.prepare({"own": RowKind(roles or default_roles(batch["input_ids"].shape[1]), labels)})
    share = {name: x[first:end] for name, x in batch.items()} | ({"roles": roles} if roles else {})
    if case == "dataset":
        share["dataset"] = "own"
    if queue:
        queue.update(encoder, share)
    torch.manual_seed(rank())  # what ranks share must be that of the first
    rows = module.batch_of(share, queue=queue.negatives() if queue else None)
    with torch.autocast("cpu", precision, enabled=precision in HALVES):
        loss = module.loss(rows)
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
    split = split_batch(bounds[number + 1] - bounds[number], torch.device("cpu"))
    lone = mean_over_ranks(torch.tensor([0.25 if number else torch.nan, torch.nan]), ignore_nan=True)
    results[number] = found, split, rank(), world_size(), str(lone.tolist())
    dist.destroy_process_group()


OBJECTIVES = {  # by the first word of a case; made for the folder of a model
    "matryoshka": lambda folder: MatryoshkaLoss(ContrastiveLoss(), [32, 7]),
    "labels": lambda folder: SoftmaxLoss(),
    "contrasted": lambda folder: ContrastedPositives(),
    "scores": lambda folder: CosineMSELoss(),
    "idea": lambda folder: ScoreRegression(),
    "noise": lambda folder: GaussianNegatives(),
    "mixtures": lambda folder: MixedNegatives(),
    "plain": lambda folder: NegativesWithoutDropout(),
    "margins": lambda folder: AngularMarginLoss(),
    "pretraining": lambda folder: MaskedLanguageModeling(head="new"),
    "order": lambda folder: CoSENTLoss(),
    "angle": lambda folder: AngleLoss(in_batch_weight=2.0, cosine_weight=0.5),
    "symmetric": lambda folder: ContrastiveLoss(symmetric=True, hardness=0.5),
    "whitened": lambda folder: WhitenedContrastiveLoss(groups=16),
    "distilled": lambda folder: EmbeddingDistillation(folder, "cls"),
    "triplets": lambda folder: MarginMSE(folder, "cls"),
    "debiased": lambda folder: DebiasedLoss(f"{folder}_guide", threshold=0.2, noise_ratio=0.8),
}
TERMS = {  # by any word
    "mlm": lambda folder: [MaskedLanguageModeling(weight=0.5, head="new")],
    "idea": lambda folder: [TeacherSimilarities(0.5, folder, "cls"), NegativeMargin(0.5, margin=1.0)],
    "dimensions": lambda folder: [DimensionContrast(0.5), InnerLayer(ContrastiveLoss(), 0.5)],
    "margins": lambda folder: [TripletMargin(0.5, margin=0.1)],
    "soft": lambda folder: [BidirectionalMargin(0.5)],
    "peer": lambda folder: [PeerNetwork(0.5)],
    "networks": lambda folder: [
        ReplacedTokenDetection(0.5),
        SentenceMaskedLanguageModeling(0.5, head="new", frozen_layers=2),
    ],
    "ranking": lambda folder: [RankingConsistency(0.5)],
    "net": lambda folder: [RankingDistillation([folder, folder], pooling="mean", loss="list_net")],
    "mle": lambda folder: [RankingDistillation([folder, folder], pooling="mean", loss="list_mle")],
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
    *("matryoshka hard chunks", "distilled chunks", "triplets hard", "noise", "mixtures", "mixtures hard"),
    *("plain chunks", "pretraining chunks", "dimensions", "margins", "order", "angle"),
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
BASIC = ("pairs", "hard", "roles", "mlm", "hard mlm chunks", "hard duplicates", "labels", "queue", "scores", "dataset")
CASES = [
    *itertools.product((*BASIC, *METHODS, "idea chunks"), (torch.float64,)),
    *itertools.product(("pairs", "hard mlm chunks", "soft", "debiased"), (torch.float32,)),
    *itertools.product(("hard mlm chunks",), HALVES),
]


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.by_hand), 3])
def test_gradients_equal_one_big_batch(ranks, tmp_path, make_model, monkeypatch):
    folder = make_model("bert")
    SentenceEncoder.from_pretrained(folder, pooling="mean").save_pretrained(f"{folder}_guide")
    with mp.Manager() as manager:
        results = manager.dict()
        start_ranks(_one_rank, (ranks, tmp_path / "store", folder, results), ranks)
        results = dict(results)
    monkeypatch.setattr(TokenMaskingLoss, "mask", _mask_by_content)
    monkeypatch.setattr(ReplacedTokenDetection, "edit", _edit_by_content)
    sizes = {2: (3, 4), 3: (2, 2, 3)}[ranks]
    for number in range(ranks):
        assert results[number][1:] == (BatchSplit(sizes, number), number, ranks, "[0.25, nan]")
    for case, precision in CASES:
        loss, gradient = _gradients(folder, case.removesuffix(" chunks"), precision, 0, ROWS)
        tolerance = TOLERANCES[precision]
        assert gradient.norm() > 0.1
        for number in range(ranks):
            ours = results[number][0][case, precision]
            assert abs(ours[0] - loss) <= tolerance * loss, (case, precision)
            assert (ours[1] - gradient).norm() <= tolerance * gradient.norm(), (case, precision)
