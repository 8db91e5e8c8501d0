"""One or more cases of every loss, and the batches that they take."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.labelled_pairs import CosineMSELoss, SoftmaxLoss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.methods.angle import AngleLoss
from simcse_pl.methods.arccse import AngularMarginLoss, TripletMargin
from simcse_pl.methods.contrastive_tension import ContrastiveTension
from simcse_pl.methods.cosent import CoSENTLoss
from simcse_pl.methods.cot_bert import ContrastedPositives
from simcse_pl.methods.cse_sfp import SinglePassLoss
from simcse_pl.methods.dclr import DebiasedLoss
from simcse_pl.methods.declutr import DeCLUTRLoss
from simcse_pl.methods.denosent import NoisyReconstruction
from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.methods.distillation import EmbeddingDistillation, ListwiseDistillation, MarginMSE
from simcse_pl.methods.gcse import GaussianDecayLoss
from simcse_pl.methods.gist import GISTLoss
from simcse_pl.methods.gs_infonce import GaussianNegatives
from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.methods.matryoshka import InnerLayer, MatryoshkaLoss
from simcse_pl.methods.mixcse import MixedNegatives
from simcse_pl.methods.mntp import MaskedNextTokenPrediction
from simcse_pl.methods.pcl import PeerNetwork
from simcse_pl.methods.promcse import EnergyHinge
from simcse_pl.methods.rankcse import RankingConsistency, RankingDistillation
from simcse_pl.methods.simcse_pp import DimensionContrast, NegativesWithoutDropout
from simcse_pl.methods.sncse import BidirectionalMargin
from simcse_pl.methods.tsdae import DenoisingAutoEncoder
from simcse_pl.methods.whitenedcse import WhitenedContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.types import Role, default_roles
from tests.conftest import SENTENCES
from tests.losses import formulas

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role
COPIES = torch.tensor([[0, 0, view, 0, row % 2] for row, view in enumerate((1, 0, 0, 1, 0))]).bool()
PAIR, TRIPLET = default_roles(2), default_roles(3)
MIXED, SEVERAL = (ANCHOR, NEGATIVE, POSITIVE, POSITIVE), (ANCHOR, POSITIVE, POSITIVE, NEGATIVE, NEGATIVE)
LABELS = {
    None: None,
    "classes": torch.tensor([2, 0, 1, 0, 2]),
    "scores": torch.tensor([0.25, 1.0, -0.5, 0.75, 1.0]),
    "score_lists": torch.tensor([[3.0, -1.0], [0.5, 0.25], [-2.0, 4.0], [1.0, 1.0], [0.0, 2.0]]),
}


class Case(NamedTuple):
    """How to build a loss, given the folder of another encoder, and what it computes."""

    make: Callable
    formula: Callable | None = None  # without one, tests/fidelity compares the loss with its official code
    roles: tuple[Role, ...] = PAIR
    labels: str | None = None
    queue: int = 0
    plain: bool = True  # whether it is defined for plain tensors
    copies: Tensor | None = None  # which views repeat an earlier one


def contrastive(*loss, roles=TRIPLET, queue=0, plain=True, copies=None, **options):
    """Return a case of ContrastiveLoss at the temperature 0.3, with its other arguments."""
    make = partial(ContrastiveLoss, 0.3, *loss, **options)
    return Case(lambda _: make(), formulas.contrastive, roles, None, queue, plain, copies)


CASES = {
    "contrastive": contrastive(0.5, hardness=0.7, roles=default_roles(4), queue=3),
    "contrastive, hard negatives of others": contrastive(0.0),
    "contrastive, trainable temperature": contrastive(0.5, trainable_temperature=True),
    "contrastive, several positives": contrastive(0.5, "dot", roles=(ANCHOR, POSITIVE, OTHER, POSITIVE, NEGATIVE)),
    "contrastive, symmetric": contrastive(mask_duplicates=True, symmetric=True, roles=MIXED, queue=3, plain=False),
    "contrastive, same role": contrastive(
        0.5, mask_duplicates=True, hardness=0.7, symmetric=True, same_role=True, roles=MIXED, queue=3, plain=False
    ),
    "contrastive, joint": contrastive(0.5, symmetric="joint", same_role=True, false_negative_margin=0.1, queue=3),
    "contrastive, positives in the sum": contrastive(
        0.5, mask_positives=False, symmetric=True, same_role=True, hardness=0.5, roles=MIXED
    ),
    "contrastive, copies": contrastive(
        symmetric=True, same_role=True, hardness=0.5, roles=SEVERAL, plain=False, copies=COPIES
    ),
    "matryoshka": Case(lambda _: MatryoshkaLoss(ContrastiveLoss(0.3), [32, 7], [1.0, 0.5]), roles=TRIPLET),
    "inner layer": Case(
        lambda _: InnerLayer(ContrastiveLoss(0.3), kl_weight=0.7, temperature=0.5), formulas.inner_layer, plain=False
    ),
    "mse": Case(EmbeddingDistillation, formulas.distillation, TRIPLET, plain=False),
    "cosine": Case(partial(EmbeddingDistillation, loss="cosine"), formulas.distillation, plain=False),
    "mse, anchors": Case(partial(EmbeddingDistillation, target="anchor"), formulas.distillation, TRIPLET, plain=False),
    "margins": Case(MarginMSE, formulas.margin_mse, default_roles(4), plain=False),
    "margins, copies": Case(
        MarginMSE, formulas.margin_mse, (ANCHOR, POSITIVE, NEGATIVE, NEGATIVE, NEGATIVE), plain=False, copies=COPIES
    ),
    "margins, scores": Case(lambda _: MarginMSE(similarity="dot"), roles=TRIPLET, labels="scores"),
    "listwise": Case(
        partial(ListwiseDistillation, temperature=0.3, teacher_temperature=0.2), formulas.listwise, TRIPLET, plain=False
    ),
    "listwise, copies": Case(
        partial(ListwiseDistillation, temperature=0.3), formulas.listwise, SEVERAL, plain=False, copies=COPIES
    ),
    "listwise, scores": Case(
        lambda _: ListwiseDistillation(similarity="dot", temperature=0.5, teacher_temperature=2.0),
        formulas.listwise,
        (ANCHOR, NEGATIVE, OTHER, POSITIVE),
        labels="score_lists",
    ),
    "mlm": Case(lambda _: MaskedLanguageModeling(probability=0.5), plain=False),
    "mntp": Case(lambda _: MaskedNextTokenPrediction(0.5), plain=False),
    "cosine mse": Case(lambda _: CosineMSELoss(2.0), formulas.cosine_mse, labels="scores"),
    "softmax": Case(lambda _: SoftmaxLoss(), formulas.softmax_of_pairs, labels="classes"),
    "angle": Case(lambda _: AngleLoss(0.5, 0.5, 2.0, 1.5), labels="scores"),
    "angular margin": Case(lambda _: AngularMarginLoss(20, temperature=0.3), formulas.angular_margin, TRIPLET, queue=3),
    "triplet margin": Case(
        lambda _: TripletMargin(margin=0.1), formulas.triplet_margin, (ANCHOR, OTHER, OTHER, POSITIVE, OTHER)
    ),
    "contrastive_tension": Case(lambda _: ContrastiveTension(2)),
    "cosent": Case(lambda _: CoSENTLoss(0.5), labels="scores"),
    "cot_bert": Case(lambda _: ContrastedPositives(0.3), roles=default_roles(4), queue=3),
    "gist": Case(
        partial(GISTLoss, margin=0.1, relative_margin=True, temperature=0.3, same_role=True), roles=TRIPLET, plain=False
    ),
    "cse_sfp": Case(lambda _: SinglePassLoss("", temperature=0.3, mask_duplicates=True), plain=False),
    "gcse": Case(
        partial(GaussianDecayLoss, sigma=2.0, temperature=0.3, symmetric=True, same_role=True),
        roles=SEVERAL,
        queue=2,
        plain=False,
    ),
    "dclr": Case(partial(DebiasedLoss, temperature=0.3, threshold=0.5, noise_step_size=0.3), plain=False),
    "declutr": Case(
        lambda _: DeCLUTRLoss(MaskedLanguageModeling(weight=0.5), temperature=0.3, symmetric=True, same_role=True),
        roles=(ANCHOR, POSITIVE, POSITIVE, OTHER, OTHER, OTHER),
    ),
    "denosent": Case(lambda _: NoisyReconstruction(noise=0, dropout=0, layers=2), roles=TRIPLET, plain=False),
    "diffcse": Case(lambda _: ReplacedTokenDetection(), plain=False),
    "gs_infonce": Case(lambda _: GaussianNegatives(5, 2.0, temperature=0.3), roles=TRIPLET, queue=2),
    "infocse": Case(lambda _: SentenceMaskedLanguageModeling(frozen_layers=2), plain=False),
    "mixcse": Case(lambda _: MixedNegatives(0.2, temperature=0.3)),
    "mixcse, dot": Case(lambda _: MixedNegatives(0.7, similarity="dot"), roles=TRIPLET),
    "pcl": Case(lambda _: PeerNetwork(temperature=0.7), roles=(ANCHOR, OTHER, POSITIVE, OTHER), plain=False),
    "energy hinge": Case(lambda _: EnergyHinge(0.3), formulas.energy_hinge, (ANCHOR, NEGATIVE, POSITIVE, NEGATIVE)),
    "ranking consistency": Case(lambda _: RankingConsistency(temperature=0.2)),
    "list_net": Case(
        lambda teacher: RankingDistillation([str(teacher)] * 2, loss="list_net"), formulas.list_net, plain=False
    ),
    "list_mle": Case(lambda teacher: RankingDistillation([str(teacher)]), plain=False),
    "simcse_pp, dimensions": Case(lambda _: DimensionContrast(temperature=2.0), roles=(ANCHOR, POSITIVE, POSITIVE)),
    "simcse_pp, negatives": Case(lambda _: NegativesWithoutDropout(0.3), plain=False),
    "sncse": Case(lambda _: BidirectionalMargin(), roles=(ANCHOR, OTHER, NEGATIVE, POSITIVE)),
    "tsdae": Case(lambda _: DenoisingAutoEncoder(), plain=False),
    "whitenedcse": Case(
        lambda _: WhitenedContrastiveLoss(0.3, groups=16), roles=(ANCHOR, POSITIVE, OTHER, POSITIVE), plain=False
    ),
}


def load(folder, **options):
    """Return an encoder in training mode, without dropout unless it is given."""
    without = {"pooling": "cls", "head": "mlp", "dropout": 0.0, "attention_dropout": 0.0}
    return SentenceEncoder.from_pretrained(folder, **without | options).train()


def attached(loss, encoder):
    """Return a loss, or a queue, that is ready to train the encoder, in its precision."""
    loss.attach(encoder)
    return loss.to(encoder.backbone.dtype)


def batch_of(encoder, roles=PAIR, labels=None, rows=4, **attributes):
    """Return a batch of SENTENCES, with other attributes, such as embeddings."""
    sentences = [tuple(SENTENCES[(len(roles) * row + view) % 8] for view in range(len(roles))) for row in range(rows)]
    inputs = dict(ViewCollator(encoder.tokenizer, 32)(sentences))
    labels = None if labels is None else LABELS[labels][:rows]
    batch = EmbeddedBatch(encoder, inputs, roles, labels, dataset="mine", rows=np.arange(rows))
    return batch.replaced(**attributes)


def given_vectors(encoder, case, rows=4):
    """Return random embeddings, pooled vectors, and a queue."""
    shape, dtype = (rows, len(case.roles), encoder.dim), encoder.backbone.dtype
    embeddings, pooled = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(2))
    queue = torch.randn(case.queue, encoder.dim, dtype=dtype) if case.queue else None
    return {"embeddings": embeddings, "pooled": pooled, "queue": queue, "copies": copies_of(case, slice(rows))}


def copies_of(case, rows):
    return None if case.copies is None else case.copies[rows]
