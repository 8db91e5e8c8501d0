"""Fixed dropout against two passes with the generator rewound, which have one mask by nature."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModel

from simcse_pl.dropout import SharedDropout, embed_with_fixed_dropout
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.errors import UserError
from tests.conftest import ARCHITECTURES

RATE = 0.3
PAIRS = torch.tensor([0, 0, 1, 1, 2, 2])
# Those that make_model does not make; DeBERTa drops out a table of relative positions, XLNet puts tokens first.
OTHERS = {
    "deberta-v2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 8,
        "hidden_dropout_prob": RATE,
        "attention_probs_dropout_prob": RATE,
    },
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": RATE},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "dropout": RATE},
}


@pytest.fixture
def make_encoder(make_model):
    def make(architecture, attention="sdpa"):
        if architecture in OTHERS:
            config = AutoConfig.for_model(architecture, vocab_size=100, architectures=[], **OTHERS[architecture])
            model = AutoModel.from_config(config)
            model = model.encoder if architecture == "t5" else model
            model.train()
            return lambda inputs: model(**inputs).last_hidden_state.mean(dim=1)
        encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean", head="mlp", dropout=RATE)
        if attention == "eager":
            encoder.backbone.set_attn_implementation("eager")
        return encoder.train()

    return make


def random_batch(batch, views, tokens):
    """Views of different text and different length."""
    ids = torch.randint(5, 90, (batch, views, tokens))
    lengths = torch.randint(1, tokens + 1, (batch, views, 1))
    return {"input_ids": ids, "attention_mask": (torch.arange(tokens) < lengths).long()}


def same_views(batch, views=2):
    return {name: x[:, :1].repeat(1, views, 1) for name, x in batch.items()}


def one_pass_a_view(encoder, batch):
    """Each view by itself, the generator set back before each."""
    passes = []
    for view in range(batch["input_ids"].shape[1]):
        torch.manual_seed(3)
        passes.append(encoder({name: x[:, view] for name, x in batch.items()}))
    return torch.stack(passes, dim=1)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *OTHERS])
def test_views_of_the_same_text_are_equal_to_the_bit(architecture, make_encoder):
    encoder = make_encoder(architecture)
    for batch, tokens, bfloat16 in ((1, 3, False), (7, 7, False), (5, 9, True)):
        inputs = same_views(random_batch(batch, 1, tokens))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            fixed = embed_with_fixed_dropout(encoder, inputs)
            ordinary = encoder({name: x.flatten(0, 1) for name, x in inputs.items()}).view_as(fixed)
        assert torch.equal(fixed[:, 0], fixed[:, 1])
        assert ((ordinary[:, 0] - ordinary[:, 1]).abs().amax(dim=-1) > 0.01).all()


@pytest.mark.parametrize(
    ("architecture", "attention"),
    [(name, "sdpa") for name in [*ARCHITECTURES, "deberta-v2", "t5"]] + [("bert", "eager"), ("modernbert", "eager")],
)
def test_views_of_different_text_share_their_masks(architecture, attention, make_encoder):
    encoder = make_encoder(architecture, attention)
    batch = random_batch(5, 3, 7)
    expected = one_pass_a_view(encoder, batch)
    torch.manual_seed(3)
    torch.testing.assert_close(embed_with_fixed_dropout(encoder, batch), expected, atol=1e-5, rtol=0)


def test_same_and_different_views_side_by_side(make_encoder):
    encoder = make_encoder("bert")
    batch = random_batch(6, 3, 7)
    for x in batch.values():
        x[:3, 1] = x[:3, 0]  # two like views
        x[2:5, 2] = x[2:5, 1]  # row 2 has three, rows 3 and 4 have the second and the third alike
        x[5, 2] = x[5, 0]
    expected = one_pass_a_view(encoder, batch)
    torch.manual_seed(3)
    embeddings = embed_with_fixed_dropout(encoder, batch)
    torch.testing.assert_close(embeddings, expected, atol=1e-5, rtol=0)
    assert torch.equal(embeddings[:3, 0], embeddings[:3, 1])
    assert torch.equal(embeddings[2:5, 1], embeddings[2:5, 2])
    assert torch.equal(embeddings[5, 0], embeddings[5, 2])


def test_the_same_tokens_under_another_mask_are_another_input(make_encoder):
    batch = same_views(random_batch(3, 1, 6))
    batch["attention_mask"][:] = 1
    batch["attention_mask"][:, 1, 4:] = 0
    embeddings = embed_with_fixed_dropout(make_encoder("bert"), batch)
    assert (embeddings[:, 0] - embeddings[:, 1]).abs().amax(dim=-1).min() > 0.001


@pytest.mark.parametrize("same", [True, False])
def test_gradients_are_those_of_both_views(same, make_encoder):
    encoder = make_encoder("bert")
    batch = same_views(random_batch(4, 1, 6)) if same else random_batch(4, 2, 6)
    weights = torch.randn(4, 2, encoder.dim)

    def gradients(embeddings):
        encoder.zero_grad()
        (embeddings * weights).sum().backward()
        return {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}

    expected = gradients(one_pass_a_view(encoder, batch))
    torch.manual_seed(3)
    found = gradients(embed_with_fixed_dropout(encoder, batch))
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_one_pass_in_which_no_input_comes_twice(make_encoder):
    encoder, passes = make_encoder("bert"), []

    def count(inputs):
        passes.append(len(inputs["input_ids"]))
        return encoder(inputs)

    batch = random_batch(5, 2, 6)
    embed_with_fixed_dropout(count, batch)
    embed_with_fixed_dropout(count, same_views(batch))
    assert passes == [10, 5]


def test_masks_are_new_for_every_row_and_every_call_and_the_seeds_own(make_encoder):
    encoder = make_encoder("bert")
    batch = {name: x[:1].repeat(4, 1, 1) for name, x in random_batch(1, 2, 6).items()}  # one row four times
    torch.manual_seed(8)
    first, second = embed_with_fixed_dropout(encoder, batch), embed_with_fixed_dropout(encoder, batch)
    apart = torch.cdist(first[:, 0], first[:, 0]) + torch.eye(4)
    assert apart.min() > 0.01
    assert ((first - second).abs().amax(dim=-1) > 0.01).all()
    torch.manual_seed(8)
    assert torch.equal(embed_with_fixed_dropout(encoder, batch), first)


def test_without_dropout_nothing_changes(make_encoder):
    encoder = make_encoder("bert").eval()
    batch = random_batch(3, 2, 6)
    plain = encoder({name: x.flatten(0, 1) for name, x in batch.items()})
    assert torch.equal(embed_with_fixed_dropout(encoder, batch).flatten(0, 1), plain)
    x = torch.randn(6, 4)
    with SharedDropout(PAIRS):
        assert torch.equal(F.dropout(x, 0.5, training=False), x)
        assert torch.equal(F.dropout(x, 0.0), x)


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_rate_and_the_scale_are_dropouts_own(p, dtype):
    x = torch.rand(3, 100, 100, dtype=dtype) + 1
    with SharedDropout(PAIRS):
        dropped = torch.nn.Dropout(p)(x.repeat_interleave(2, dim=0))
    assert dropped.dtype == dtype
    views = dropped.unflatten(0, (3, 2))
    assert torch.equal(views[:, 0], views[:, 1])
    kept = views[:, 0] != 0
    torch.testing.assert_close(views[:, 0][kept], x[kept] / (1 - p))
    scale = (views[:, 0][kept].double() / x[kept].double()).mean().item()
    assert scale == pytest.approx(1 / (1 - p), rel=1e-4)  # in bfloat16, 1 / 0.9 itself would be off by 1.6e-3
    share = kept.double().mean(dim=(1, 2))
    assert (share - (1 - p)).abs().max() < 5 * (p * (1 - p) / 10_000) ** 0.5
    assert (kept[0] ^ kept[1]).double().mean().item() == pytest.approx(2 * p * (1 - p), abs=0.03)  # of their own


def test_everything_is_dropped_at_a_rate_of_one():
    with SharedDropout(PAIRS):
        assert torch.equal(F.dropout(torch.randn(6, 2), 1.0), torch.zeros(6, 2))


ATTENTION = {
    "plain": {},
    "boolean mask": {"attn_mask": (torch.arange(5) < torch.tensor([5, 5, 3, 3, 1, 1]).view(6, 1, 1, 1))},
    "nothing to attend to": {"attn_mask": (torch.arange(5) < torch.tensor([5, 5, 3, 3, 0, 0]).view(6, 1, 1, 1))},
    "added mask": {"attn_mask": torch.linspace(-3, 3, 6 * 5 * 5).view(6, 1, 5, 5)},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.9},
}


def queries_keys_values(key_heads=4):
    return (torch.randn(6, heads, 5, 8, requires_grad=True) for heads in (4, key_heads, key_heads))


@pytest.mark.parametrize("options", [*ATTENTION.values(), {"enable_gqa": True}], ids=[*ATTENTION, "grouped heads"])
def test_attention_is_torchs_where_the_rate_is_tiny(options):
    query, key, value = queries_keys_values(key_heads=2 if "enable_gqa" in options else 4)
    expected = F.scaled_dot_product_attention(query, key, value, **options)
    with SharedDropout(PAIRS):
        found = F.scaled_dot_product_attention(query, key, value, dropout_p=1e-9, **options)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    both = [torch.autograd.grad((x * weights).sum(), (query, key, value)) for x in (found, expected)]
    torch.testing.assert_close(*both)


@pytest.mark.parametrize("options", ATTENTION.values(), ids=ATTENTION)
def test_attention_drops_probabilities_at_its_rate_alike_in_a_rows_views(options):
    query, key, _ = queries_keys_values()
    units = torch.eye(5).expand(6, 4, 5, 5)
    undropped = F.scaled_dot_product_attention(query, key, units, **options)
    with SharedDropout(PAIRS):
        draws = torch.stack(
            [F.scaled_dot_product_attention(query, key, units, dropout_p=0.4, **options) for _ in range(200)]
        )
    possible = undropped > 0
    kept = (draws > 0)[:, possible]
    torch.testing.assert_close(draws[:, possible][kept], (undropped[possible] / 0.6).expand(200, -1)[kept])
    assert kept.double().mean().item() == pytest.approx(0.6, abs=0.01)
    first, second = draws.unflatten(1, (3, 2)).unbind(dim=2)
    both = possible.unflatten(0, (3, 2)).all(dim=1)
    assert torch.equal((first > 0)[:, both], (second > 0)[:, both])


@pytest.mark.parametrize("sequences", [5, 7, 12])
def test_a_batch_of_other_sequences_is_refused(sequences):
    with SharedDropout(PAIRS), pytest.raises(UserError, match=f"\\[{sequences}, 4, 2\\] .* batch's 6 sequences"):
        F.dropout(torch.ones(sequences, 4, 2))


def test_an_encoder_that_puts_tokens_first_is_refused_where_views_differ(make_encoder):
    with pytest.raises(UserError, match="drops out a tensor \\[7, 10, 32\\] that does not begin"):
        embed_with_fixed_dropout(make_encoder("xlnet"), random_batch(5, 2, 7))
    dropped = F.dropout(torch.ones(10, 1000)).unflatten(0, (5, 2))  # the context has ended
    assert (dropped[:, 0] != dropped[:, 1]).any()
