"""All text encoders of transformers, tiny and with random weights: train, freeze, save and load, or an error."""

import pytest
import torch
import transformers
from transformers import MODEL_MAPPING
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.models.backbone import run_backbone
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw

# The architectures' names of the sizes; a config gets those that it has.
SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "dim", "n_embd", "emb_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"), 3),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("head_dim", "d_head", "d_kv"), 8),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff", "d_inner", "encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 80),
    **{"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3, "mask_token_id": 4},
    "pad_token_id": 0,
}
OWN_SIZES = {
    "lilt": {"hidden_size": 48},
    "longformer": {"attention_window": [8, 8, 8]},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 16},
    "neomme": {"hidden_size": 64, "head_dim": 16},
    "roc_bert": {"pronunciation_vocab_size": 20, "shape_vocab_size": 20},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
}
SHARED_LAYERS = ("albert",)  # nothing would be left to train with one of them frozen
PADDING_CHANGES_VECTORS = ("convbert", "esm", "nystromformer", "yoso")
FAST = ("albert", "bert", "convbert", "distilbert", "luke", "modernbert", "roformer", "t5")
WITHOUT_HEAD = (
    *("bert-generation", "eurobert", "gemma3_text", "gpt2", "lilt", "markuplm", "splinter", "t5", "umt5", "xlnet"),
)
UNSUPPORTED = {
    "pegasus": "is an encoder-decoder model, of which no part is supported",
    "dpr": "does not return one vector of hidden_size=32 for every token",
    "fnet": "cannot encode: ",
}
OTHERS = ("bart", "canine", "funnel", "mbart", "modernvbert", "mvp", "perceiver", "reformer", "ultravbert")
ALL = sorted({*MODEL_FOR_MASKED_LM_MAPPING_NAMES, *WITHOUT_HEAD} - {*UNSUPPORTED, *OTHERS})


@pytest.fixture
def make_tiny(make_model, tmp_path):
    """Make a folder with a tiny model of an architecture and the tokenizer of make_model's BERT."""

    def make(architecture):
        tokenizer = transformers.AutoTokenizer.from_pretrained(make_model("bert"))
        config_class = CONFIG_MAPPING[architecture]
        names = {*config_class().to_dict(), *config_class.attribute_map}
        sizes = SIZES | {"vocab_size": len(tokenizer)} | OWN_SIZES.get(architecture, {})
        config = config_class(**{name: size for name, size in sizes.items() if name in names})
        model_class = MODEL_MAPPING[config_class]
        model_class = model_class[0] if isinstance(model_class, tuple) else model_class
        model_class(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return tmp_path

    return make


def take_two_steps(module):
    """Train two steps. Each parameter must get its gradient, as DDP requires."""
    module.prepare()
    optimizer = adamw(lr=1e-3)(module.parameters())
    losses = []
    for _ in range(2):
        rows = ViewCollator(module.encoder.tokenizer, 32)([(sentence,) for sentence in SENTENCES])
        loss = module.loss(module.batch_of(rows))
        optimizer.zero_grad()
        loss.backward()
        assert [name for name, p in module.named_parameters() if p.requires_grad and p.grad is None] == []
        optimizer.step()
        losses.append(loss.item())
    assert torch.tensor(losses).isfinite().all() and losses[0] != losses[1]


@pytest.mark.parametrize(
    "architecture", [pytest.param(kind, marks=[] if kind in FAST else pytest.mark.slow) for kind in ALL]
)
def test_an_architecture_trains_freezes_saves_and_loads(architecture, make_tiny, tmp_path):
    folder = make_tiny(architecture)
    encoder = SentenceEncoder.from_pretrained(folder, pooling="mean", head="mlp")
    assert encoder.groups.ignores_padding == (architecture not in PADDING_CHANGES_VECTORS)
    masked = {"mlm": MaskedLanguageModeling(head="new")} if architecture in MODEL_FOR_MASKED_LM_MAPPING_NAMES else {}
    take_two_steps(SimCSEModule(encoder, ContrastiveLoss(), adamw(), auxiliary=masked))
    encoder.eval()
    vectors = encoder.encode(SENTENCES)
    alone = torch.cat([encoder.encode([sentence]) for sentence in SENTENCES])
    torch.testing.assert_close(vectors, alone, atol=1e-4, rtol=0)
    encoder.save_pretrained(tmp_path / "saved")
    again = SentenceEncoder.from_pretrained(tmp_path / "saved").encode(SENTENCES)
    torch.testing.assert_close(again, vectors, atol=1e-4, rtol=0)

    encoder = SentenceEncoder.from_pretrained(folder, pooling="layers_1_2")
    before = {name: p.clone() for name, p in encoder.backbone.named_parameters()}
    words = encoder.backbone.get_input_embeddings()
    layers = 0 if architecture in SHARED_LAYERS else 1
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), freeze_layers=layers)
    inputs = encoder.tokenizer(SENTENCES[:2], padding=True, return_tensors="pt")
    frozen = run_backbone(encoder.eval().backbone, inputs)[: layers + 1]
    take_two_steps(module.train())
    for own, old in zip(run_backbone(encoder.eval().backbone, inputs), frozen, strict=False):
        torch.testing.assert_close(own, old)
    assert any(not p.equal(before[name]) for name, p in encoder.backbone.named_parameters())
    assert not any(p.requires_grad for p in words.parameters())


@pytest.mark.parametrize("architecture", UNSUPPORTED)
def test_an_unsupported_architecture_is_one_line(architecture, make_tiny):
    with pytest.raises(UserError, match=UNSUPPORTED[architecture]):
        SentenceEncoder.from_pretrained(make_tiny(architecture), pooling="mean")
