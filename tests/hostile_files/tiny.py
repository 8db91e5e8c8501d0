"""An encoder of a few kilobytes with its tokenizer, and folders in memory, as targets start from them."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.whitening import Whitening

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "cat", "runs", "."]


@functools.cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Of WORDS."""
    made = Tokenizer(models.WordPiece({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = {f"{word.strip('[]').lower()}_token": word for word in WORDS[:5]}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=16, **named)


@functools.cache
def encoder() -> SentenceEncoder:
    """With a head and a post-processing."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=4,
        max_position_embeddings=16,
    )
    return SentenceEncoder(
        BertModel(config, add_pooling_layer=False),
        tokenizer(),
        "mean",
        head="mlp",
        max_length=8,
        postprocess=Whitening(2).fit(torch.randn(20, 4)),
    ).eval()


def encode(sentences: list[str]) -> torch.Tensor:
    """Vectors [n, 4] without a model."""
    return torch.tensor([[len(own), own.count("a"), own.count("o"), 1.0] for own in sentences]).view(-1, 4)


def files_under(write: Callable[[Path], Any]) -> dict[str, list[bytes]]:
    """What something writes into a folder, by name."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        paths = sorted(path for path in Path(name).rglob("*") if path.is_file() and path.name != "lock")
        return {str(path.relative_to(name)): [path.read_bytes()] for path in paths}
