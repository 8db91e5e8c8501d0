"""Models with random weights, and a tokenizer, that need no download."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from benchmarks.common import sample_sentences
from simcse_pl.models.backbone import draw_model, without_pooler
from simcse_pl.models.encoder import SentenceEncoder

_SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
_SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer as BERT's, with the words and the characters of the sample."""
    split, special = pre_tokenizers.BertPreTokenizer(), list(_SPECIAL.values())
    words = sorted({word for text in sample_sentences() for word, _ in split.pre_tokenize_str(text)})
    characters = sorted(set("".join(words)))
    entries = dict.fromkeys([*special, *characters, *(f"##{character}" for character in characters), *words])
    tokenizer = Tokenizer(WordPiece({entry: i for i, entry in enumerate(entries)}, unk_token=_SPECIAL["unk_token"]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(lowercase=False), split
    ends = [(name, special.index(name)) for name in (_SPECIAL["cls_token"], _SPECIAL["sep_token"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_SPECIAL)


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
