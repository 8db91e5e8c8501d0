"""Training with weights in bfloat16: the gradients of a copy in bfloat16, for weights that stay in float32."""

import copy
from types import SimpleNamespace

import pytest
import torch

from simcse_pl.callbacks import SeedEveryStep
from simcse_pl.data.collator import ViewCollator
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.methods.tsdae import DenoisingAutoEncoder
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.speed.half_weights import use_half_weights
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, quiet_trainer
from tests.losses.cases import batch_of

ON = SimpleNamespace(precision="bf16-mixed")


def load(folder, **options):
    """Return an encoder without dropout in training mode, and one that computes with bfloat16 weights."""
    encoder = SentenceEncoder.from_pretrained(folder, "mean", **options)
    module = SimCSEModule(copy.deepcopy(encoder), ContrastiveLoss(), adamw())
    use_half_weights(module, ON)
    return encoder.train(), module.encoder


def states_and_gradients(backbone, inputs):
    """Return the last states of a pass, and the gradient of a function of them for each weight."""
    states = backbone(**inputs).last_hidden_state.float()
    (states * torch.arange(states.shape[-1])).cos().sum().backward()
    return states.detach(), {name: p.grad.float() for name, p in backbone.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("architecture", "options"),
    [(name, {"dropout": 0.0, "attention_dropout": 0.0}) for name in ("bert", "roberta", "distilbert", "modernbert")]
    + [("qwen3", {}), ("bert", {"dropout": 0.0, "attn_implementation": "unpadded"})],
)
def test_gradients_are_those_of_a_copy_in_bfloat16(architecture, options, make_model):
    encoder, trained = load(make_model(architecture), **options)
    before = copy.deepcopy(trained.state_dict())
    inputs = encoder.templates.examples(16)
    for parameter in encoder.backbone.parameters():  # no buffers, such as the frequencies of positions
        parameter.data = parameter.data.bfloat16()
    expected = states_and_gradients(encoder.backbone, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        found = states_and_gradients(trained.backbone, inputs)
        assert torch.is_autocast_enabled("cpu")
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    torch.testing.assert_close(trained.state_dict(), before, atol=0, rtol=0)
    assert {p.grad.dtype for p in trained.backbone.parameters() if p.grad is not None} == {torch.float32}


def test_chunks_have_the_gradients_of_the_whole_batch_and_evaluation_is_in_float32(make_model):
    encoder, trained = load(make_model("bert"), dropout=0.0)
    views = ViewCollator(encoder.tokenizer, 32, encoder.templates)([(text, text) for text in SENTENCES])
    gradients = []
    for chunk_size in (None, 1):
        trained.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            ContrastiveLoss()(*trained.embed(views, chunk_size).unbind(dim=1)).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in trained.parameters() if p.grad is not None]))
    whole, in_chunks = gradients
    assert (in_chunks - whole).norm() < 0.05 * whole.norm()
    torch.testing.assert_close(trained.encode(SENTENCES), encoder.encode(SENTENCES), atol=0, rtol=0)
    with pytest.raises(IndexError):  # in a pass, which leaves the weights as they were
        trained.backbone(input_ids=torch.full((1, 4), 10**6), attention_mask=torch.ones(1, 4))
    torch.testing.assert_close(trained.encode(SENTENCES), encoder.encode(SENTENCES), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("options", "precision", "message"),
    [
        ({}, "32-true", "module.half_weights: it needs trainer.precision=bf16-mixed, not 32-true"),
        ({"gradient_checkpointing": True}, "bf16-mixed", "layers cannot be recomputed"),
    ],
)
def test_what_would_compute_otherwise_is_refused(options, precision, message, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "cls")
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), **options)
    with pytest.raises(UserError, match=message):
        use_half_weights(module, SimpleNamespace(precision=precision))


def _one_rank(number, results, model, sentences, pairs):
    encoder = SentenceEncoder.from_pretrained(model, pooling="cls", num_layers=1)
    scored = {"evaluators": {"sts": ScoredPairs}, "validation": str(pairs)}
    data = SentenceDataModule(encoder.tokenizer, sentences, batch_size=4, max_length=8, **scored)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(lr=1e-3), half_weights=True)
    how = {"strategy": "ddp", "devices": 2, "max_steps": 2, "limit_val_batches": 0, "use_distributed_sampler": False}
    quiet_trainer(precision="bf16-mixed", callbacks=[SeedEveryStep(1)], **how).fit(module, data)
    results[number] = torch.cat([weight.detach().flatten() for weight in module.parameters()]).tolist()


def test_ranks_with_masks_of_their_own_keep_equal_weights(on_ranks, make_model, sentences, pairs):
    results = on_ranks(_one_rank, 2, make_model("bert"), sentences, pairs)
    before = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", num_layers=1)
    assert results[0] == results[1] != torch.cat([x.flatten() for x in before.parameters()]).tolist()


def test_the_cross_attention_of_tsdae_computes_in_bfloat16_too(make_masked_language_model):
    _, encoder = load(make_masked_language_model("bert"), dropout=0.0)
    loss = DenoisingAutoEncoder()
    loss.attach(encoder)
    with torch.autocast("cpu", torch.bfloat16):
        loss(batch_of(encoder)).backward()
    weights = [weight for weight in loss.cross_attention.parameters() if weight.grad is not None]
    assert weights and {weight.dtype for weight in weights} == {torch.float32}
