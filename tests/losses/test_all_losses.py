"""What every loss does: its formula and gradient, half precision, few rows, ranks, plain tensors, rows."""

import copy
import importlib
import inspect
import pkgutil
import re
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist

import simcse_pl.losses
import simcse_pl.methods
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.labelled_pairs import CosineMSELoss, SoftmaxLoss
from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.losses.mlm import NOT_CHOSEN, TokenMaskingLoss
from simcse_pl.methods.angle import AngleLoss
from simcse_pl.methods.cosent import CoSENTLoss
from simcse_pl.methods.cse_sfp import SinglePassLoss
from simcse_pl.methods.denosent import NoisyReconstruction
from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.methods.distillation import ListwiseDistillation, MarginMSE
from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.methods.matryoshka import InnerLayer, MatryoshkaLoss
from simcse_pl.methods.momentum_queue import MomentumQueue
from simcse_pl.methods.simcse_pp import NegativesWithoutDropout
from simcse_pl.methods.tsdae import DenoisingAutoEncoder
from simcse_pl.methods.whitenedcse import WhitenedContrastiveLoss
from simcse_pl.utils.distributed import mean_over_ranks
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import paired_similarity, similarity_matrix
from simcse_pl.utils.types import Role, RowKind
from tests.losses.cases import CASES, PAIR, TRIPLET, Case, attached, batch_of, copies_of, given_vectors, load

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role

for package in (simcse_pl.losses, simcse_pl.methods):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def concrete(base):
    """Return the classes of the project below a base class that can be built."""
    below = {kind for child in base.__subclasses__() for kind in (child, *concrete(child))}
    return {kind for kind in below if kind.__module__.startswith("simcse_pl.") and not inspect.isabstract(kind)}


@pytest.fixture(scope="module")
def folder(make_masked_language_model):
    return make_masked_language_model("bert")


@pytest.fixture(scope="module")
def in_float32(folder):
    """An encoder as runs train it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # of the head: otherwise it depends on the tests before
        return load(folder)


@pytest.fixture(scope="module")
def encoder(in_float32):
    return copy.deepcopy(in_float32).double()


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def loss(case, encoder, teacher):
    return attached(case.make(teacher), encoder)


def test_every_loss_has_a_case(teacher):
    assert {type(case.make(teacher)) for case in CASES.values()} == concrete(Loss) - {TokenMaskingLoss}


def gradients(value, tensors):
    found = torch.autograd.grad(value, tensors, allow_unused=True)
    return [torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(tensors, found, strict=True)]


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.formula], indirect=True)
def test_the_loss_without_its_weight_and_its_gradient_are_those_of_the_formula(case, loss, encoder):
    given = given_vectors(encoder, case)
    trained = [x for x in (*given.values(), *encoder.parameters(), *loss.parameters()) if x is not None]
    trained = [x for x in trained if x.requires_grad]
    batch = batch_of(encoder, case.roles, case.labels, **given)
    loss.weight = 7.0
    torch.manual_seed(5)
    value = loss(batch)
    torch.manual_seed(5)
    expected = case.formula(loss, encoder, batch)
    torch.testing.assert_close(value, expected.to(value), rtol=1e-9, atol=1e-12)
    ours, theirs = gradients(value, trained), gradients(expected, trained)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    assert sum(gradient.norm() for gradient in theirs) > 1e-3
    assert 0 < batch.curves.get("train/masked_negatives", 0.5) < 1


def without_and_with_autocast(loss, encoder, case, **given):
    """Yield the loss in float32, and with autocast to bfloat16."""
    for enabled in (False, True):
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            yield loss(batch_of(encoder, case.roles, case.labels, **given))


def test_half_precision_has_a_finite_loss_in_float32(case, in_float32, teacher):
    """Where the loss gets vectors, they are those in float32, and autocast does not change the loss."""
    loss = attached(case.make(teacher), in_float32)
    exact, coarse = without_and_with_autocast(loss, in_float32, case)
    assert coarse.dtype == torch.float32
    torch.testing.assert_close(coarse, exact, rtol=0.1, atol=0.01)
    found = gradients(coarse, [weight for weight in in_float32.parameters() if weight.requires_grad])
    assert all(gradient.isfinite().all() for gradient in found)
    if case.plain:
        given = given_vectors(in_float32, case)
        torch.testing.assert_close(*without_and_with_autocast(loss, in_float32, case, **given), rtol=1e-6, atol=0)


def test_a_batch_without_negatives_or_of_equal_vectors_has_finite_gradients(case, loss, encoder):
    signs = torch.tensor([-1.0, 1.0] * 3)[: len(case.roles), None]
    for kind, limit in {
        "one row": lambda vectors: vectors[:1],
        "equal rows": lambda vectors: vectors[:1, :1].expand_as(vectors),
        "opposite views": lambda vectors: vectors[:, :1] * signs,
        "zeros": lambda vectors: 0 * vectors,
    }.items():
        given = given_vectors(encoder, case)
        for name in ("embeddings", "pooled"):
            given[name] = limit(given[name].detach()).clone().requires_grad_()
        rows = len(given["pooled"])
        given["copies"] = copies_of(case, slice(rows))
        value = loss(batch_of(encoder, case.roles, case.labels, rows, **given))
        found = gradients(value, [given["embeddings"], given["pooled"]])
        assert value.isfinite() and all(gradient.isfinite().all() for gradient in found), kind


def masked_by_content(loss, ids, begins_word=None):
    """Mask tokens by their id, so that the masks do not depend on the rank."""
    chosen = (ids % 2 == 0) & ~torch.isin(ids, loss.special_ids)
    return ids.masked_fill(chosen, 4), ids.masked_fill(~chosen, NOT_CHOSEN)


def edited_by_content(ids, *_):
    return ids - (ids % 3 == 0).long()


class Own(Loss):
    """A user's loss, which returns the plain mean over the rows of a device."""

    def forward(self, batch):
        return (batch.embeddings[:, 0] - batch.embeddings[:, 1]).abs().mean()


def results_of(rows, folder, teacher, seed=0, chunk_size=None):
    """Return the loss of some rows of a batch of 5, and its gradient as one vector, of each case."""
    torch.manual_seed(0)
    results, loaded = {}, load(folder).double()
    for name, case in (CASES | {"own": Case(lambda _: Own())}).items():
        torch.manual_seed(0)
        encoder = copy.deepcopy(loaded)
        loss = attached(case.make(teacher), encoder)
        for part in loss.modules():
            if isinstance(part, TokenMaskingLoss):
                part.mask = partial(masked_by_content, part)
        if isinstance(loss, ReplacedTokenDetection):
            loss.edit = edited_by_content
        queue = given_vectors(encoder, case)["queue"]
        batch = batch_of(encoder, case.roles, case.labels, rows=5, queue=queue, chunk_size=chunk_size)
        batch.inputs = {key: tensor[rows] for key, tensor in batch.inputs.items()}
        batch.labels, batch.rows = None if batch.labels is None else batch.labels[rows], batch.rows[rows]
        batch.copies = copies_of(case, rows)
        batch.counts = (3, 2) if dist.is_initialized() else (5,)
        torch.manual_seed(seed)  # what ranks share must be that of the first
        trained = [x for x in (*encoder.parameters(), *loss.parameters()) if x.requires_grad]
        value = loss(batch)
        results[name] = value.detach(), torch.cat([x.flatten() for x in gradients(value, trained)])
    return results


def on_rank(number, results, folder, teacher):
    """Compute the losses of 3 or 2 rows on one of two ranks, in chunks."""
    found = results_of(slice(0, 3) if number == 0 else slice(3, 5), folder, teacher, seed=number, chunk_size=2)
    # as DDP averages them
    results[number] = {name: [mean_over_ranks(x).numpy() for x in pair] for name, pair in found.items()}


def test_two_ranks_in_chunks_equal_one_device(on_ranks, folder, teacher):
    ranks = on_ranks(on_rank, 2, folder, teacher)
    for name, (value, gradient) in results_of(slice(0, 5), folder, teacher).items():
        assert gradient.norm() > 1e-6, name
        for rank in ranks.values():
            loss, of_rank = map(torch.as_tensor, rank[name])
            assert abs(loss - value) <= 1e-9 * abs(value), name
            assert (of_rank - gradient).norm() <= 1e-9 * gradient.norm(), name


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.plain])
def test_plain_tensors_are_a_batch(name, encoder, teacher):
    case = CASES[name]
    loss, given = attached(case.make(teacher), encoder), given_vectors(encoder, case) | {"queue": None}
    batch = batch_of(encoder, case.roles, case.labels, **given).replaced(dataset=None)
    torch.manual_seed(5)
    value = loss(*given["embeddings"].unbind(dim=1), labels=batch.labels, roles=case.roles)
    torch.manual_seed(5)
    torch.testing.assert_close(value, loss(batch), rtol=0, atol=0)


def test_plain_tensors_have_names():
    anchors, positives, *hard = vectors = torch.randn(4, 5, 3).unbind()
    queue, expected = torch.randn(2, 3), ContrastiveLoss()(*vectors)
    for negatives in ({}, {"hard_negatives": torch.stack(hard, dim=1)}):
        found = ContrastiveLoss()(anchors=anchors, positives=positives, queue=queue, **negatives)
        assert found == ContrastiveLoss()(anchors, positives, *(hard if negatives else ()), queue=queue) != expected
    assert ContrastiveLoss()(*vectors[:2], hard_negatives=hard[0]) == ContrastiveLoss()(*vectors[:3])


@pytest.mark.parametrize("more", [{"labels": torch.ones(4)}, {}])
def test_a_batch_is_given_alone(more, encoder):
    with pytest.raises(TypeError):
        Own()(*([] if more else [encoder]), batch_of(encoder), **more)


class Returned(Loss):
    """Returns what a function makes of the batch."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, batch):
        return self.function(batch)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: batch.embeddings[:, 0, 0], r"^Returned.forward returned \[4\] values: return their mean$"),
        (lambda batch: None, "^Returned.forward returned None: return a tensor"),
        (lambda batch: batch.log("x", batch.embeddings[:, 0, 0]), r"^batch.log\('x'\): it has \[4\] values"),
    ],
)
def test_a_loss_and_its_curves_are_scalars(function, message, encoder):
    with pytest.raises(UserError, match=message):
        Returned(function)(batch_of(encoder))


@pytest.mark.parametrize("runs_networks", [False, True])
def test_only_networks_multiply_in_the_precision_of_training(runs_networks, make_model, monkeypatch):
    products = []

    def sum_of_products(batch):
        products.append(batch.embeddings[:, 0] @ batch.embeddings[:, 1].T)
        return products[0].sum()

    monkeypatch.setattr(Returned, "runs_networks", runs_networks)
    with torch.autocast("cpu", torch.bfloat16):
        batch = batch_of(load(make_model("bert"), pooling="cls", head="mlp"))
        Returned(sum_of_products)(batch)
    assert batch.embeddings.dtype == torch.float32
    assert products[0].dtype == (torch.bfloat16 if runs_networks else torch.float32)


WITHOUT_POSITIVE = RowKind((ANCHOR, NEGATIVE, OTHER))
IGNORED = {None: "scores", "classes": None, "scores": "classes", "score_lists": "scores"}  # no loss for a key reads it


def test_rows_that_a_loss_would_read_wrongly_or_ignore_are_errors(case, loss):
    needs = loss.needs
    if needs is None:
        return  # it reads any rows
    loss.check_rows(RowKind(case.roles, case.labels))
    repeated = (ANCHOR, *case.roles)
    wrong = {
        WITHOUT_POSITIVE: "one anchor, .*positive.* not anchor, negative, other:",
        RowKind(repeated, case.labels): f"one anchor, .* not {', '.join(repeated)}:",
    }
    if needs.labels != "any":
        wrong[RowKind(case.roles, IGNORED[case.labels])] = "takes no labels|teacher=null: set data.score_column"
    if needs.negatives is not None:
        lacking = "hard" if needs.negatives else "no"
        wrong[RowKind(TRIPLET if not needs.negatives else PAIR, case.labels)] = f"{lacking} negatives?, not"
    for rows, message in wrong.items():
        if needs.labels in ("classes", "scores"):
            message = f"takes {len(case.roles)} sentences and a {'label' if needs.labels == 'classes' else 'score'} "
        with pytest.raises(UserError, match=message):
            loss.check_rows(rows)


@pytest.mark.parametrize(
    ("loss", "labels", "limits", "classes", "message"),
    [
        (SoftmaxLoss(3), "classes", (0, 3), None, "classes=3: the rows have labels 0 to 3"),
        (SoftmaxLoss(3), "classes", (-1, 0), None, "the rows have labels -1 to 0"),
        (SoftmaxLoss(3), "classes", (0, 1), 2, "the rows have labels 0 to 1, .* set it to the number of classes"),
        (CosineMSELoss(), "scores", (0, 1.5), None, "max_score=1: the rows have scores 0 to 1.5"),
        (CosineMSELoss(), "scores", (-1.5, 0), None, "the rows have scores -1.5 to 0"),
    ],
)
def test_labels_out_of_range_are_errors(loss, labels, limits, classes, message):
    with pytest.raises(UserError, match=message):
        loss.check_rows(RowKind(labels=labels, label_range=limits, classes=classes))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (partial(ContrastiveLoss, temperature=0), "temperature=0: it should be greater than 0"),
        (partial(ContrastiveLoss, temperature="0.1"), "temperature=0.1: "),
        (partial(ContrastiveLoss, similarity="euclid"), "similarity=euclid: it should be 'cosine' or 'dot'"),
        (partial(CosineMSELoss, weight=-0.5), r"weight=-0\.5: "),
        (partial(MatryoshkaLoss, ContrastiveLoss(), dims=[8, 0]), r"dims=\[8, 0\]: "),
        (partial(MatryoshkaLoss, ContrastiveLoss(), [32, 8], [1]), r"weights=\[1\]: give one for each of dims="),
        (partial(MatryoshkaLoss, ContrastiveLoss(), [8, 8], [1, 2]), r"dims=\[8, 8\]: each number of dimensions has"),
    ],
)
def test_arguments_of_python_are_checked_as_options_are(make, said):
    with pytest.raises(UserError, match=f"^{said}"):
        make()
    MatryoshkaLoss(ContrastiveLoss(np.float32(0.1)), dims=[*np.array([8, 4])])


def test_a_similarity_that_does_not_exist_is_no_dot_product():
    for similarity in (similarity_matrix, paired_similarity):
        with pytest.raises(UserError, match="^similarity=euclid: it should be cosine or dot$"):
            similarity(torch.ones(2, 3), torch.ones(2, 3), "euclid")


@pytest.mark.parametrize(
    ("loss", "shapes", "wanted"),
    [
        (CosineMSELoss(), [(4, 1), (1,), (3,), (4, 4)], "[4]"),
        (CoSENTLoss(), [(4, 1), (1,)], "[4]"),
        (AngleLoss(), [(4, 1), (1,)], "[4]"),
        (MarginMSE(), [(4, 1), (4, 2), (1,)], "[4]"),
        (ListwiseDistillation(), [(4,), (4, 1), (1, 2)], "[4, 2]"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Loss) else "",
)
def test_labels_of_another_shape_are_not_broadcast(loss, shapes, wanted):
    vectors = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    views = vectors if loss.needs.negatives or wanted == "[4, 2]" else vectors[:2]
    for labels in (*map(torch.ones, shapes), None):
        with pytest.raises(UserError, match=f"^labels: {type(loss).__name__} takes {re.escape(wanted)}, not "):
            loss(*views, labels=labels)
        with pytest.raises(UserError, match="^labels: "):
            loss(EmbeddedBatch.of(*views, labels=labels))


@pytest.mark.parametrize("name", ["softmax", "mse", "pcl", "whitenedcse", "tsdae", "diffcse"])
def test_a_head_may_change_the_width_unless_a_state_takes_the_place_of_an_embedding(name, teacher, make_model):
    case, encoder = CASES[name], load(make_model("bert"), head="linear_16")
    if name in ("tsdae", "diffcse"):
        with pytest.raises(UserError, match="^model.head=linear_16: it returns 16 dimensions, not 32$"):
            attached(case.make(teacher), encoder)
        return
    attached(case.make(teacher), encoder)(batch_of(encoder, case.roles, case.labels)).backward()
    assert encoder.embedding_dim == 16 and encoder.projection[0].weight.grad.isfinite().all()


def of_matryoshka(**options):
    return partial(MatryoshkaLoss, **{"objective": ContrastiveLoss()} | options)


SUMMARY = {"template": "{sentence}, it can be summarized as"}  # of SinglePassLoss
MASK = {"pooling": "mask", "template": "{sentence} [MASK]"}
QUEUE = partial(MomentumQueue, size=4)  # it would not have the vectors of training
MISFITS = [
    (partial(NoisyReconstruction, head="new"), "gpt2", {}, "^GPT2Model has no embedding layer"),
    (partial(NoisyReconstruction, head="new", heads=5), "bert", {}, "^heads=5: "),
    (NoisyReconstruction, "bert", {}, "option head=new initializes a new one$"),
    (DenoisingAutoEncoder, "distilbert", {}, "^DistilBertModel has no cross-attention: choose BERT"),
    (DenoisingAutoEncoder, "bert", {}, "option head=new initializes a new one$"),
    (SentenceMaskedLanguageModeling, "bert", {}, "^frozen_layers=6: the model has 3 layers$"),
    (WhitenedContrastiveLoss, "bert", {}, "^groups=128: choose a divisor of 32, the width of vectors"),
    (partial(NegativesWithoutDropout, same_role=True), "bert", {}, "^same_role: "),
    (SinglePassLoss, "bert", SUMMARY | {"head": "transform"}, "^this loss pools two tokens"),
    (SinglePassLoss, "bert", SUMMARY | {"pooling": "ditto_1_2"}, "^this loss pools two tokens"),
    (of_matryoshka(dims=[8]), "bert", {}, r"^dims=\[8\]: the other dimensions would not be trained"),
    (of_matryoshka(dims=[768, 32]), "bert", {}, r"^dims=\[768, 32\]: the embeddings have 32 dimensions"),
    (of_matryoshka(), "bert", {"head": "mlp_train_only"}, "^model.head=mlp_train_only: the vectors of the saved"),
    (of_matryoshka(objective=WhitenedContrastiveLoss(groups=4)), "bert", {}, "needs whole embeddings"),
    (partial(InnerLayer, NegativesWithoutDropout()), "bert", {}, "embeds sentences itself, by the last layer"),
    (partial(InnerLayer, ContrastiveLoss()), "bert", {"pooling": "layers_1_2"}, "^model.pooling=layers_1_2: inner"),
    (partial(InnerLayer, ContrastiveLoss()), "bert", {"pooling": "layers_1_2+cls"}, r"^model.pooling=layers_1_2\+cls"),
    (
        QUEUE,
        "bert",
        MASK | {"template_bias": "train_only"},
        "^queue: it does not support model.template_bias=train_only: ",
    ),
    (QUEUE, "bert", MASK | {"template_bias": "padded_train_only"}, "support model.template_bias=padded_train_only"),
    (
        QUEUE,
        "bert",
        MASK | {"head": "transform"},
        "^queue: it does not support model.head=transform: change it, or set",
    ),
    (partial(InnerLayer, AngleLoss()), "bert", {"head": "none"}, None),  # which takes whole embeddings alone
]


@pytest.mark.parametrize(("make", "architecture", "options", "message"), MISFITS)
def test_an_encoder_that_does_not_suit_a_loss_is_an_error(make, architecture, options, message, make_model):
    with pytest.raises(UserError, match=message) if message else nullcontext():
        make().attach(load(make_model(architecture), **{"pooling": "mean"} | options))
