"""Small models of several architectures with random weights, and their tokenizers, which are trained here."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerFast

# The special tokens in the order of their ids, and the architecture's own settings.
_BERT_TOKENS = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
_ROBERTA_NAMES = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
_ROBERTA_TOKENS = {f"{name}_token": token for name, token in _ROBERTA_NAMES.items()}
_SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
ARCHITECTURES: dict[str, tuple[dict[str, str], dict[str, int]]] = {
    "bert": (_BERT_TOKENS, {"max_position_embeddings": 64}),
    "roberta": (_ROBERTA_TOKENS, {"max_position_embeddings": 66, "type_vocab_size": 1}),
    "distilbert": (_BERT_TOKENS, {"max_position_embeddings": 64, "hidden_dim": 64}),
    "mpnet": (_ROBERTA_TOKENS, {"max_position_embeddings": 66}),
    "electra": (_BERT_TOKENS, {"max_position_embeddings": 64, "embedding_size": 16}),
    "modernbert": (_BERT_TOKENS, {"max_position_embeddings": 64}),
    "xlm-roberta": (_ROBERTA_TOKENS, {"max_position_embeddings": 66, "type_vocab_size": 1}),
}

# Decoders; GPT-2's and Qwen's tokenizers add no special token.
_DECODER_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_DECODER = {"max_position_embeddings": 64, "num_key_value_heads": 2}
_WITHOUT_SPECIAL = ("gpt2", "qwen3")
DECODERS: dict[str, tuple[dict[str, str], dict[str, int]]] = {
    "gpt2": (_DECODER_TOKENS, _DECODER | {"n_positions": 64}),
    "opt": (_DECODER_TOKENS, _DECODER | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "llama": (_DECODER_TOKENS, _DECODER),
    "qwen3": (_DECODER_TOKENS, _DECODER | {"head_dim": 8}),
    "gemma2": (_DECODER_TOKENS, _DECODER | {"head_dim": 8}),
    "gemma3_text": (_DECODER_TOKENS, _DECODER | {"head_dim": 8}),
}
_WITH_DECODER = {"t5": (_ROBERTA_TOKENS, {"d_ff": 64, "d_kv": 8})}


def train_decoder_tokenizer(
    architecture: str, sentences: Sequence[str], splits: pre_tokenizers.PreTokenizer | None = None
) -> PreTrainedTokenizerFast:
    """Return a tokenizer with byte-level BPE; `splits` are those of GPT-2 by default."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splits or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    options = {"special_tokens": list(_DECODER_TOKENS.values()), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    tokenizer.train_from_iterator([*sentences] * 5, trainer)
    if architecture not in _WITHOUT_SPECIAL:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **_DECODER_TOKENS)


def _train_tokenizer(special: dict[str, str], sentences: Sequence[str]) -> PreTrainedTokenizerFast:
    tokens = list(special.values())
    if special is _ROBERTA_TOKENS:
        model, splits, trainer = models.BPE, pre_tokenizers.ByteLevel(), trainers.BpeTrainer
    else:
        model, splits, trainer = models.WordPiece, pre_tokenizers.BertPreTokenizer(), trainers.WordPieceTrainer
    tokenizer = Tokenizer(model(unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = splits
    if special is _ROBERTA_TOKENS:
        tokenizer.decoder = decoders.ByteLevel()
    trainer = trainer(vocab_size=400, special_tokens=tokens, show_progress=False)
    tokenizer.train_from_iterator([*sentences] * 5, trainer)
    begin, end = special["cls_token"], special["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(t, tokens.index(t)) for t in (begin, end)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def train_tokenizers(text: Sequence[str], size: int) -> dict[str, PreTrainedTokenizerFast]:
    """Return a tokenizer of each of four kinds, of at most `size` tokens, beside the 256 bytes of the last two."""
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    own, unknown, levels = list(special.values()), {"unk_token": "<unk>"}, pre_tokenizers.ByteLevel()
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    options = {"show_progress": False, "special_tokens": own, "vocab_size": size}
    often = options | {"min_frequency": 3}  # pairs of tokens that occur so often
    with_bytes = often | {"vocab_size": size + 256}
    of_llama = with_bytes | {"special_tokens": own + fallback, "limit_alphabet": size // 5}
    words, spaces = pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Metaspace()
    kinds = {
        "WordPiece": (models.WordPiece(**unknown), words, trainers.WordPieceTrainer(**often)),
        "Unigram": (models.Unigram(), spaces, trainers.UnigramTrainer(**options, **unknown)),
        "byte-level BPE": (models.BPE(), levels, trainers.BpeTrainer(**with_bytes, initial_alphabet=levels.alphabet())),
        "BPE with byte fallback": (models.BPE(byte_fallback=True, **unknown), spaces, trainers.BpeTrainer(**of_llama)),
    }
    for kind, (model, splits, trainer) in kinds.items():
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = splits
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False) if kind == "WordPiece" else None
        tokenizer.train_from_iterator(text, trainer)
        kinds[kind] = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    return kinds


def save_model(folder: Path, architecture: str, sentences: Sequence[str], **settings: object) -> None:
    """Save a model of an architecture, and a tokenizer trained on the sentences; `settings` are of its config."""
    special, own = (ARCHITECTURES | DECODERS | _WITH_DECODER)[architecture]
    decoder = architecture in DECODERS
    tokenizer = train_decoder_tokenizer(architecture, sentences) if decoder else _train_tokenizer(special, sentences)
    ids = {name.replace("_token", "_token_id"): tokenizer.convert_tokens_to_ids(t) for name, t in special.items()}
    if not decoder:
        ids |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    shape = {"vocab_size": len(tokenizer), **_SMALL, **own, **ids, **settings}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.for_model(architecture, **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_masked_language_model(folder: Path, source: Path) -> None:
    """Save a masked language model with the config and the tokenizer of a model; no two of its weights are equal."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(source))
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def save_embedding_decoder(folder: Path, sentences: Sequence[str]) -> None:
    """Save a decoder in the form of Qwen3-Embedding, with an end token and an instruction for queries."""
    save_model(folder, "qwen3", sentences, max_position_embeddings=2048)
    options = {"add_eos_token": True, "padding_side": "left", "model_max_length": 2048}
    AutoTokenizer.from_pretrained(folder, **options).save_pretrained(folder)
    modules = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    entries = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(modules.items())
    ]
    instruction = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
    files = {
        "modules.json": entries,
        "1_Pooling/config.json": {"word_embedding_dimension": _SMALL["hidden_size"], "pooling_mode_lasttoken": True},
        "config_sentence_transformers.json": {"prompts": {"query": instruction, "document": ""}},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":  # makes the decoders that docs/commands.py trains
    text = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    save_embedding_decoder(Path("Qwen/Qwen3-Embedding-0.6B"), text)
    save_model(Path("Qwen/Qwen3-0.6B-Base"), "qwen3", text, max_position_embeddings=2048)
    save_model(Path("facebook/opt-125m"), "opt", text, max_position_embeddings=2048)
