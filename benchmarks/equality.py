"""The largest difference of a value from sentence-transformers, by tokenizer and prompt, and by folder.

    python -m benchmarks.equality

The encoders are tiny and random. Their tokenizers are trained on these texts, so some join prompt and sentence.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Regex, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import load_encoder
from simcse_pl.models.sources import quiet_transformers
from tests.support.library_folders import FOLDERS, save_folder
from tests.support.tiny_models import save_model, train_decoder_tokenizer, train_tokenizers

PROMPTS = {"`query: `": "query: ", "`query:`": "query:", "`为这句话生成向量：`": "为这句话生成向量："}
PROMPTS["instruction"] = "Instruct: Retrieve passages that answer the question\nQuery: "
SENTENCES = ["A man plays a guitar.", "  it's 1998", "\n\nA dog.\nIt runs.\n", "他说：“今天下雨了。”", "été 🙂", ""]
SENTENCES += ["A man plays. " * 60, "“今天下雨了。”" * 40, "🙂 " * 60]  # longer than the limit
TEXTS = [prompt + sentence for prompt in ("", *PROMPTS.values()) for sentence in SENTENCES]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def with_ends(tokenizer: PreTrainedTokenizerFast, ends: str = "<s> $A </s>") -> PreTrainedTokenizerFast:
    """Return a tokenizer that adds special tokens around a sentence."""
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=ends, special_tokens=special)
    return tokenizer


def tokenizers() -> dict[str, tuple[str, PreTrainedTokenizerFast]]:
    """Return an architecture and a tokenizer by the name of each kind."""
    kinds, splits = train_tokenizers(TEXTS * 3, 300), pre_tokenizers.Split(Regex(QWEN), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    qwen = train_decoder_tokenizer("qwen3", TEXTS, pre_tokenizers.Sequence([splits, to_bytes]))
    return {
        "WordPiece (BERT)": ("bert", with_ends(kinds["WordPiece"])),
        "Unigram (XLM-R)": ("bert", with_ends(kinds["Unigram"])),
        "BPE, spaces added (RoBERTa)": ("bert", with_ends(kinds["byte-level BPE"])),
        "BPE (ModernBERT)": ("modernbert", with_ends(train_decoder_tokenizer("gpt2", TEXTS))),
        "BPE, begin token (Llama 3)": ("llama", train_decoder_tokenizer("llama", TEXTS)),
        "BPE, end token (Qwen3)": ("qwen3", with_ends(qwen, "$A </s>")),
        "BPE, byte fallback (Llama 2)": ("llama", with_ends(kinds["BPE with byte fallback"], "<s> $A")),
    }


def encoder_with(architecture: str, tokenizer: PreTrainedTokenizerFast, folder: Path) -> SentenceEncoder:
    """Return an encoder of an architecture with a tokenizer and all prompts."""
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    save_model(folder, architecture, SENTENCES, max_position_embeddings=512, **ids)
    tokenizer.save_pretrained(folder)
    pooling = "mean" if architecture in ("bert", "modernbert") else "last_token"
    return SentenceEncoder.from_pretrained(folder, pooling, max_length=40, prompts=PROMPTS)


def difference(encoder: Any, model: SentenceTransformer, prompt: str | None = None) -> str:
    """Return the largest absolute difference of a value of the vectors of both."""
    theirs = model.encode(SENTENCES, prompt_name=prompt, show_progress_bar=False, convert_to_tensor=True)
    largest = (encoder.encode(SENTENCES, prompt_name=prompt) - theirs).abs().max().item()
    return f"{largest:.0e}".replace("e-0", "e-") if largest else "0"


def library(folder: Path) -> SentenceTransformer:
    """Return the library's encoder of a folder."""
    return SentenceTransformer(str(folder), device="cpu")


def by_prompt(folder: Path) -> dict[str, dict[str, str]]:
    """Return the difference for each tokenizer, without and with each prompt."""
    rows = {}
    for kind, (architecture, tokenizer) in tokenizers().items():
        encoder = encoder_with(architecture, tokenizer, folder / kind)
        encoder.save_pretrained(folder / f"{kind} saved")
        model = library(folder / f"{kind} saved")
        rows[kind] = {name or "no prompt": difference(encoder, model, name) for name in (None, *PROMPTS)}
    return rows


def by_folder(folder: Path) -> dict[str, dict[str, str]]:
    """Return the difference for each folder of the library: as it is read, and as it is saved again."""

    def make_model(architecture: str, **settings: object) -> Path:
        save_model(folder / architecture, architecture, SENTENCES, **settings)
        return folder / architecture

    rows = {}
    for name in FOLDERS:
        model = save_folder(name, make_model, folder / f"{name} theirs")
        encoder = SentenceEncoder.from_pretrained(folder / f"{name} theirs")
        encoder.save_pretrained(folder / f"{name} ours")
        saved = library(folder / f"{name} ours")
        rows[name] = {"as read": difference(encoder, model), "as saved": difference(encoder, saved)}
    tokenizer = train_tokenizers(TEXTS, 300)["WordPiece"].backend_tokenizer
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu")
    model.save(str(folder / "static"))
    return rows | {"StaticEmbedding": {"as read": difference(load_encoder(str(folder / "static")), model)}}


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.manual_seed(0)
    for table in (by_prompt, by_folder):
        with TemporaryDirectory() as made, quiet_transformers():
            differences = pd.DataFrame(table(Path(made))).T.fillna("")
        print(differences.to_markdown(disable_numparse=True), end="\n\n")
