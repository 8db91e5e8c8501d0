"""Poolings against a loop over tokens, of a template, and of a user."""

import math
from types import SimpleNamespace

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from transformers import AutoModel

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.pooling import POOLINGS, find_pooling, first_token, is_dotted, mean_over_tokens
from simcse_pl.models.tokenization import SENTENCE_MASK
from simcse_pl.postprocessing.linear import Whitening
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.support.helpers import save_checkpoint

BERT = SimpleNamespace(num_hidden_layers=3)
NAMES = [*POOLINGS, "layers_0", "layers_2_1", "layers_0_1_2_3"]
every_dtype = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
LENGTHS = [6, 3, 1]
REDUCE = {
    "cls": lambda values: values[0],
    "last_token": lambda values: values[-1],
    "max": max,
    "weighted_mean": lambda values: (
        math.fsum(n * value for n, value in enumerate(values, 1)) / sum(range(len(values) + 1))
    ),
}


def inputs_of(lengths, left=False):
    """Rows of 6 tokens with padding on one side. All tokens are the sentence's own."""
    mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).long()
    mask = mask.flip(1) if left else mask
    return {"attention_mask": mask, SENTENCE_MASK: mask}


@every_dtype
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_a_loop_over_tokens_with_padding_on_either_side(name, dtype):
    states = (torch.randn(4, 3, 6, 2, dtype=torch.float64) * 100).to(dtype)  # embeddings and three layers
    pooling, reduce = find_pooling(name, BERT), REDUCE.get(name, lambda values: math.fsum(values) / len(values))
    precision = torch.finfo(dtype).eps
    for left in (False,) if name == "cls" else (False, True):
        pooled = pooling(states, inputs_of(LENGTHS, left))
        assert pooled.dtype == dtype
        for row, length in enumerate(LENGTHS):
            place = slice(6 - length, 6) if left else slice(length)
            for i in range(2):
                values = [reduce(states[layer, row, place, i].tolist()) for layer in pooling.layers]
                expected = pytest.approx(math.fsum(values) / len(values), rel=4 * precision, abs=300 * precision)
                assert pooled[row, i].item() == expected


@every_dtype
@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_effect_and_no_gradient_and_no_tokens_are_zeros(name, dtype):
    states, inputs, pooling = torch.randn(4, 3, 6, 2).to(dtype), inputs_of(LENGTHS), find_pooling(name, BERT)
    padding = inputs["attention_mask"] == 0
    for junk in (math.nan, math.inf, 6e4):
        dirty = states.masked_fill(padding[:, :, None], junk).requires_grad_()
        assert torch.equal(pooling(dirty, inputs), pooling(states, inputs))
        pooling(dirty, inputs).sum().backward()
        assert (dirty.grad[:, padding] == 0).all() and dirty.grad.isfinite().all()
    assert name == "cls" or not pooling(states, inputs_of([0, 0, 0])).any()


def test_named_poolings_equal_layers_by_number():
    states = tuple(torch.randn(3, 6, 4) for _ in range(4))
    inputs = inputs_of([5, 3, 1])
    numbers = {"first_last": "1_3", "first_last_embedding": "0_3", "top2": "2_3", "mean": "3"}
    for pooling, by_number in ((find_pooling(name, BERT), numbers[name]) for name in numbers):
        assert torch.equal(pooling(states, inputs), find_pooling(f"layers_{by_number}", BERT)(states, inputs))
    assert torch.equal(POOLINGS["first_last"]()(states[:2], inputs), POOLINGS["mean"]()(states[:2], inputs))


@pytest.mark.parametrize("name", [*POOLINGS, "cls+mean"])
def test_each_encoder_has_a_pooling_of_its_own(name):
    first, second = (find_pooling(name, BERT) for _ in range(2))
    assert not {*first.modules()} & {*second.modules()}, "a hook on one would be called for the other"


@pytest.mark.parametrize("name", ["average", "mask_0", "layers_4", "torch.no_such_function", "ditto_4_1", "ditto_1_5"])
def test_an_unknown_name_is_an_error(name):
    with pytest.raises(UserError, match=f"^pooling={name}: "):
        find_pooling(name, SimpleNamespace(num_hidden_layers=3, num_attention_heads=4))


def test_a_function_without_a_name_is_saved_and_given_again(make_model, tmp_path):
    def last(states, inputs):
        return states[-1][:, -1]

    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling=last)
    encoder.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="names code that is imported only if you ask for it"):
        SentenceEncoder.from_pretrained(tmp_path)
    loaded = SentenceEncoder.from_pretrained(tmp_path, pooling=last)
    assert torch.equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))


def test_a_concatenation_has_the_vectors_of_its_parts_and_names_its_code(make_model, tmp_path):
    names = ["layers_1", "cls", "ditto_3_1", "max", "ditto_1_4"]
    parts = [SentenceEncoder.from_pretrained(make_model("bert"), name).encode(SENTENCES) for name in names]
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "+".join(names))
    assert encoder.dim == 5 * 32
    torch.testing.assert_close(encoder.encode(SENTENCES), torch.cat(parts, dim=1), atol=1e-6, rtol=0)
    encoder.save_pretrained(tmp_path)
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(SENTENCES), encoder.encode(SENTENCES))
    assert is_dotted("cls+my_package.poolings.mine") and not is_dotted("cls+mean")
    with pytest.raises(UserError, match="the weights of a pooler"):
        SentenceEncoder.from_pretrained(make_model("bert"), "mean+pooler")


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_mask_tokens_of_a_template_are_found_with_padding_on_either_side(side):
    """A mask token in the sentence itself does not count."""
    mask, pad = 7, 0
    rows = [[1, mask, 5, mask, mask, 2], [1, 5, mask, 6, mask, 3, mask, 2]]  # the sentences: [mask, 5] and [5, mask, 6]
    own = [[0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0, 0]]
    expected = {"mask": (3, 4), "mask_2": (4, 6)}

    def pad_(values):
        gap = [pad] * (9 - len(values))
        return gap + values if side == "left" else values + gap

    inputs = {"input_ids": torch.tensor([*map(pad_, rows)]), SENTENCE_MASK: torch.tensor([*map(pad_, own)])}
    inputs["attention_mask"] = (inputs["input_ids"] != pad).long()
    states = torch.randn(2, 9, 4)
    for name, places in expected.items():
        found = find_pooling(name, BERT, mask)([states], inputs)
        for row, place in enumerate(places):
            start = 9 - len(rows[row]) if side == "left" else 0
            assert torch.equal(found[row], states[row, start + place])


def test_pooler_is_the_backbones_own(make_model):
    folder = make_model("bert")
    encoder, model = SentenceEncoder.from_pretrained(folder, "pooler"), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = [model(**encoder.tokenizer(text, return_tensors="pt")).pooler_output[0] for text in SENTENCES]
    torch.testing.assert_close(encoder.encode(SENTENCES), torch.stack(expected), atol=1e-5, rtol=0)


def test_a_pooler_without_pretrained_weights_is_an_error(make_model):
    with pytest.raises(UserError, match="has no weights of a pooler: choose another pooling"):
        SentenceEncoder.from_pretrained(make_model("distilbert"), "pooler")


def wide(hidden_states, inputs):
    """A pooling of a user, whose vectors are wider than the backbone."""
    mask = inputs["attention_mask"]
    return torch.cat([first_token(hidden_states[-1], mask), mean_over_tokens(hidden_states[1], mask)], dim=1)


@pytest.mark.parametrize(("by_name", "head"), [(True, "none"), (False, "mlp")])
def test_a_function_may_have_another_width_than_the_backbone(by_name, head, make_model, tmp_path):
    name = f"{__name__}.wide"
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), name if by_name else wide, head=head)
    vectors = encoder.encode(SENTENCES)
    assert encoder.pooling == name and encoder.pooled_dim == encoder.dim == vectors.shape[1] == 64
    encoder.postprocess = Whitening(dim=3).fit(vectors)
    encoder.save_pretrained(tmp_path)
    loaded = SentenceEncoder.from_pretrained(tmp_path, name)
    assert loaded.dim == 3 and torch.equal(loaded.encode(SENTENCES), encoder.encode(SENTENCES))


class Attention(torch.nn.Module):
    """Attention over tokens with a trained query, projected to another width."""

    def __init__(self, config, width=5):
        super().__init__()
        self.query = torch.nn.Parameter(torch.randn(config.hidden_size))
        self.project = torch.nn.Linear(config.hidden_size, width)

    def forward(self, hidden_states, inputs):
        states, mask = hidden_states[-1], inputs["attention_mask"]
        weights = (states @ self.query).masked_fill(mask == 0, -torch.inf).softmax(dim=1)
        return self.project((weights.unsqueeze(-1) * states).sum(dim=1))


@pytest.mark.parametrize("form", ["folder", "checkpoint"])
@pytest.mark.parametrize(
    ("name", "dim"),
    [("pooler", 32), (f"{__name__}.Attention", 5), ("cls+latent_attention_3", 64), ("weighted_layers_2", 32)],
)
def test_the_weights_of_a_pooling_are_trained_and_saved(name, dim, form, make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), name, head="mlp")
    assert encoder.pooling == name and encoder.dim == dim
    inputs = encoder.templates.batch(encoder.templates.tokens_of(SENTENCES, 20))
    encoder(inputs).square().sum().backward()
    for weight in encoder.pooling_layer.parameters():
        assert weight.grad.abs().sum() > 0
        torch.nn.init.normal_(weight)
    saved = tmp_path / "saved.ckpt"
    encoder.save_pretrained(saved) if form == "folder" else save_checkpoint(encoder, saved)
    loaded = SentenceEncoder.from_pretrained(saved, name)
    assert torch.equal(loaded.encode(SENTENCES), encoder.eval().encode(SENTENCES))


def test_a_config_makes_a_module(make_model):
    target = "simcse_pl.models.encoder.SentenceEncoder.from_pretrained"
    pooling = {"_target_": f"{__name__}.Attention", "width": 7, "config": {"hidden_size": 32}}
    config = OmegaConf.create({"_target_": target, "name": str(make_model("bert")), "pooling": pooling})
    assert instantiate(config).dim == 7
