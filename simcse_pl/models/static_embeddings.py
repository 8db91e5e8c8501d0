"""Static embeddings: one vector per token, and the mean of these as the vector of a sentence.

They are distilled from an encoder as model2vec does, without any text, and saved in its format, which
sentence-transformers reads too. They need no transformer, so they encode much faster.
"""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sentence_transformers_format import MODEL_FILE, MODULES_FILE, read_object
from simcse_pl.models.sources import find_file, find_weights
from simcse_pl.models.word_vectors import AveragedVectors
from simcse_pl.postprocessing.linear import principal_directions
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, read_json, write_json
from simcse_pl.utils.tensors import read_weights, to_device
from simcse_pl.utils.terminal import tracked

_BATCH_SIZE = 256
_MAX_LENGTH = 512  # of model2vec, if a config names none
_UNUSED = re.compile(r"\[unused\d+\]")  # tokens that BERT's vocabulary reserves


class StaticEmbeddings(AveragedVectors):
    """The average of the vectors of a sentence's tokens, without the special ones.

    Args:
        tokenizer: of the library `tokenizers`.
        vectors, normalize: see AveragedVectors.
        known_only: as model2vec, leave unknown tokens out and ignore the tokenizer's truncation; sentence-transformers
            does neither.
    """

    _longest: int | None = None  # characters of a sentence that are read

    def __init__(self, tokenizer: Tokenizer, vectors: Tensor, normalize: bool = True, known_only: bool = True) -> None:
        super().__init__(vectors, normalize)
        self.tokenizer, self.known_only, self._unknown = tokenizer, known_only, None
        tokenizer.no_padding()
        if known_only:
            tokenizer.no_truncation()
            model = json.loads(tokenizer.to_str())["model"]
            self._unknown = model.get("unk_id", tokenizer.token_to_id(model.get("unk_token") or ""))

    def truncate(self, max_length: int) -> None:
        """Read at most `max_length` tokens.

        As in model2vec, a text is first cut to `max_length` times the median length of a token, in characters.
        """
        self.tokenizer.enable_truncation(max_length)
        self._longest = max_length * int(median(map(len, self.tokenizer.get_vocab())))

    def rows_of(self, sentences: list[str]) -> list[list[int]]:
        sentences = [sentence[: self._longest] for sentence in sentences]
        encodings = self.tokenizer.encode_batch_fast(sentences, add_special_tokens=False)
        return [[row for row in encoding.ids if row != self._unknown] for encoding in encodings]

    def save_pretrained(self, folder: str | Path, **about: Any) -> None:
        """Write a folder for sentence-transformers and, with `known_only`, for model2vec.

        `about` are further entries of model2vec's config.
        """
        kind, kinds = "sentence_transformers.models.", ["StaticEmbedding"]
        if self.normalize:
            kinds.append("Normalize")
        paths = [".", "1_Normalize"]
        modules = [{"idx": i, "name": str(i), "path": paths[i], "type": kind + name} for i, name in enumerate(kinds)]
        config = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": self.dim, **about}
        config |= {"normalize": self.normalize, "max_length": (self.tokenizer.truncation or {}).get("max_length")}
        prompts = {name: prompt for name, prompt in self.prompts.items() if name is not None}
        default = next((name for name, prompt in prompts.items() if prompt and prompt == self.prompts[None]), None)
        with atomic_write(folder, last=MODULES_FILE) as new:
            if self.known_only:
                write_json(new / "config.json", config)
            if prompts:
                write_json(new / MODEL_FILE, {"prompts": prompts, "default_prompt_name": default})
            save_file({"embeddings": self.vectors.contiguous()}, new / "model.safetensors")
            self.tokenizer.save(str(new / "tokenizer.json"))
            write_json(new / MODULES_FILE, modules)


def read_static_embeddings(source: str) -> StaticEmbeddings | None:
    """Read a model of model2vec, or of sentence-transformers with a StaticEmbedding; None if it is another."""
    path = find_file(source, MODULES_FILE)
    with reraise_as(f"{source}: its static embeddings are damaged"):
        modules = read_json(path) if path else []
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        if kinds[:1] != ["StaticEmbedding"]:
            return None
        folder, model = modules[0]["path"], read_object(source, "", MODEL_FILE)
        truncate_dim, prompts = model.get("truncate_dim"), model.get("prompts") or {}
        if kinds[1:] not in ([], ["Normalize"]) or (truncate_dim and kinds[1:]):
            what = ", ".join([*kinds, f"and truncate_dim={truncate_dim}"] if truncate_dim else kinds)
            raise UserError(f"{source}: static embeddings with the modules {what} are not supported")
        file = find_file(source, "tokenizer.json", folder)
        tensors = read_weights(find_weights(source, folder))
        vectors = tensors["embeddings" if "embeddings" in tensors else "embedding.weight"].float()[:, :truncate_dim]
        if "mapping" in tensors:  # of tokens to shared vectors
            vectors = vectors[tensors["mapping"].long()]
        if "weights" in tensors:
            vectors = vectors * tensors["weights"].float().unsqueeze(1)
        config = read_object(source, folder, "config.json")
        known_only, max_length = config.get("model_type") == "model2vec", config.get("max_length", _MAX_LENGTH)
        static = StaticEmbeddings(Tokenizer.from_file(str(file)), vectors, "Normalize" in kinds, known_only)
        if known_only and max_length is not None:
            static.truncate(max_length)
        static.prompts = prompts | {None: prompts.get(model.get("default_prompt_name")) or ""}
        return static


@torch.no_grad()
def distill(encoder: SentenceEncoder, dim: int = 256, sif: float = 1e-4) -> StaticEmbeddings:
    """Return static embeddings that are distilled from an encoder, as by model2vec (Tulkens and van Dongen 2024).

    The encoder, with its pooling, template, post-processing and `truncate_dim`, embeds each token of its vocabulary
    alone between the special tokens. The vectors are projected on their first principal components, and the i-th
    token, in the order of the vocabulary from 0, gets a SIF weight (Arora et al. 2017) with the frequency of Zipf's
    law:

        v_i = a / (a + p_i) P^T (f(t_i) - mean),    p_i = (1 / (i + 2)) / sum_j (1 / (j + 2))

    Special tokens and those that a vocabulary reserves do not count, and get zeros.

    Args:
        encoder: with a tokenizer of the library `tokenizers`.
        dim: the number of components; fewer are possible.
        sif: a, such as 1e-4.
    """
    tokenizer = encoder.tokenizer
    (leading, trailing), ids = encoder.templates.special, tokenizer("a")["input_ids"]
    before, after, vocabulary = ids[:leading], ids[len(ids) - trailing :], tokenizer.get_vocab()
    skipped = {*tokenizer.all_special_ids, *(row for token, row in vocabulary.items() if _UNUSED.fullmatch(token))}
    kept = sorted({*vocabulary.values()} - skipped)
    parts = []
    for start in tracked(range(0, len(kept), _BATCH_SIZE), "encoding tokens"):
        tokens = [[*before, row, *after] for row in kept[start : start + _BATCH_SIZE]]
        parts.append(encoder(to_device(encoder.templates.batch(tokens, 1), encoder.device)).float().cpu())
    vectors = torch.cat(parts)
    if encoder.postprocess:
        vectors = encoder.postprocess.transform(vectors)
    vectors = vectors[:, : encoder.truncate_dim]
    mean, _, directions = principal_directions(vectors)
    shares = 1 / torch.arange(2, len(kept) + 2, dtype=torch.float64)
    weights = sif / (sif + shares / shares.sum())
    table = torch.zeros(max(vocabulary.values()) + 1, min(dim, directions.shape[1]))
    table[kept] = (weights.unsqueeze(1) * ((vectors - mean) @ directions[:, :dim])).float()
    return StaticEmbeddings(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()), table)
