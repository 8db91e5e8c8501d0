"""Models with random weights, and a tokenizer, that need no download."""

from pathlib import Path
from typing import Any

import torch
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from benchmarks.common import sample_sentences
from simcse_pl.models.backbone import draw_model, without_pooler
from simcse_pl.models.encoder import SentenceEncoder

_SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}


def make_tokenizer() -> BertTokenizer:
    """Return BERT's tokenizer with the words and the characters of the sample."""
    split, special = BertPreTokenizer(), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted({word for text in sample_sentences() for word, _ in split.pre_tokenize_str(text)})
    characters = sorted(set("".join(words)))
    entries = dict.fromkeys([*special, *characters, *(f"##{character}" for character in characters), *words])
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    return BertTokenizer(vocabulary, do_lower_case=False, model_input_names=["input_ids", "attention_mask"])


def save_small_encoders(*folders: Path) -> None:
    """Save encoders of 3 layers, each with the head of a masked language model, and with the same tokenizer.

    They have no dropout, whose masks differ between devices. The weights are so large that sentences have different
    vectors.
    """
    torch.manual_seed(1)
    tokenizer = make_tokenizer()
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": 256, "initializer_range": 0.1, **_SMALL}
    config = BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0, **size)
    for folder in folders:
        model = BertForMaskedLM(config)
        SentenceEncoder(model.bert, tokenizer, pooling="cls").save_pretrained(folder, model)


def save_encoder(folder: Path, tiny: bool) -> SentenceEncoder:
    """Save an encoder of the size of BERT-base, or a small one, and return it."""
    shape: dict[str, Any] = _SMALL if tiny else {}
    encoder = SentenceEncoder(without_pooler(draw_model(BertConfig(**shape))), make_tokenizer(), pooling="mean")
    encoder.save_pretrained(folder)
    return encoder
