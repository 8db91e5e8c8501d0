"""ONNX: a graph from tokens to the finished vector, for any batch and length, and the same with 8-bit weights.

Both are compared with the encoder itself before they are kept.
"""

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import Batch, sorted_batches
from simcse_pl.postprocessing.affine import AffinePostProcess
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tensors import unit_vectors

GRAPH_FILE = "sentence_encoder.onnx"
INT8_FILE = "sentence_encoder_int8.onnx"
OUTPUT = "sentence_embedding"
LARGEST_DIFFERENCE = 1e-4  # of a coordinate, in units of the largest, or of 1 where that is smaller
SMALLEST_COSINE = 0.98
_LARGEST_FILE = 2**31 - 2**20  # bytes of a protocol buffer; larger weights stand in a file beside it
_AT_ONCE = 16  # sentences that are compared


def write_onnx(encoder: SentenceEncoder, folder: Path, sentences: Sequence[str], int8: bool = False) -> dict[str, str]:
    """Write the graph, from `input_ids` and so on [batch, tokens] to `sentence_embedding` [batch, dim].

    It reads what the encoder's tokenizer returns, and does all that `encoder.encode` does: pooling, the head where it
    is kept at test time, post-processing and normalization.

    Args:
        encoder: on the CPU.
        folder: that gets sentence_encoder.onnx and, with `int8`, sentence_encoder_int8.onnx.
        sentences: that the graph's vectors are compared on with the encoder's.
        int8: write one with weights of 8 bits too.

    Returns:
        How far the vectors of each file are from the encoder's, in words.

    Raises:
        UserError: the packages are missing, the backbone has no ONNX form, or vectors differ by more than 1e-4 (with
            8 bits: a cosine similarity below 0.98), as they do behind a post-processing that is not linear. Nothing is
            written then.
    """
    onnxruntime, quantization = _package("onnxruntime"), _package("onnxruntime.quantization")
    _package("onnxscript")
    with atomic_write(folder) as new:
        _write_graph(encoder, sentences[:2], new / GRAPH_FILE)
        expected, found = _vectors(encoder, onnxruntime, new / GRAPH_FILE, sentences)
        difference = float((expected - found).abs().max() / expected.abs().max().clamp(min=1))
        if not difference <= LARGEST_DIFFERENCE:
            raise UserError(f"{GRAPH_FILE}: its vectors differ from the encoder's by {difference:.1e}")
        measured = {GRAPH_FILE: f"vectors differ from the encoder's by {difference:.1e} at most"}
        if not int8:
            return measured
        _quantize(quantization, new / GRAPH_FILE, new / INT8_FILE)
        expected, found = _vectors(encoder, onnxruntime, new / INT8_FILE, sentences)
        cosine = float((unit_vectors(expected) * unit_vectors(found)).sum(dim=-1).min())
        if not cosine > SMALLEST_COSINE:
            raise UserError(f"{INT8_FILE}: a vector has cosine similarity {cosine:.3f} with the encoder's: too coarse")
        return measured | {INT8_FILE: f"vectors have cosine similarity {cosine:.3f} or more with the encoder's"}


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError("onnx needs further packages: pip install onnx onnxruntime onnxscript") from error


class _Graph(nn.Module):
    """From what the tokenizer gives to the vectors of `encode`."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, inputs: Batch) -> Tensor:
        vectors: Tensor = self.encoder(inputs)
        match self.encoder.postprocess:
            case AffinePostProcess(mean=mean, matrix=matrix):
                vectors = ((vectors.double() - mean) @ matrix).float()
        return unit_vectors(vectors) if self.encoder.normalize else vectors


def _write_graph(encoder: SentenceEncoder, sentences: Sequence[str], path: Path) -> None:
    ((_, inputs),) = sorted_batches(sentences, encoder.tokenizer, len(sentences), encoder.max_length)
    was_training = encoder.training
    try:
        with _quiet(), torch.no_grad():
            torch.onnx.export(
                _Graph(encoder).eval(),
                kwargs={"inputs": inputs},
                f=path,
                input_names=list(inputs),
                output_names=[OUTPUT],
                dynamic_shapes={"inputs": {name: {0: "batch", 1: "tokens"} for name in inputs}},
                external_data=sum(p.numel() * p.element_size() for p in encoder.parameters()) > _LARGEST_FILE,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # torch's own, of many kinds
        kind = type(encoder.backbone).__name__
        raise UserError(f"{kind} cannot be written as ONNX: {first_line(error)}") from error
    finally:
        encoder.train(was_training)


def _quantize(quantization: ModuleType, graph: Path, path: Path) -> None:
    """Weights of 8 bits in all matrices but those that narrow, the second of each feed-forward layer.

    A few of the latter's inputs are far larger than the others, and would leave these too few of the 8 bits.
    """
    content = _package("onnx").load(graph, load_external_data=False).graph
    shapes = {weight.name: tuple(weight.dims) for weight in content.initializer}
    matrices = {node.name: shapes.get(node.input[1], ()) for node in content.node if node.op_type in ("MatMul", "Gemm")}
    with _quiet():
        quantization.quantize_dynamic(
            graph,
            path,
            per_channel=True,
            reduce_range=True,  # sums of products of 8 bits overflow on processors without VNNI
            nodes_to_exclude=[name for name, shape in matrices.items() if len(shape) == 2 and shape[0] > shape[1]],
            use_external_data_format=Path(f"{graph}.data").exists(),
        )


def _vectors(
    encoder: SentenceEncoder, onnxruntime: ModuleType, path: Path, sentences: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """The encoder's and the graph's, [n, dim]."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = torch.empty(len(sentences), encoder.dim)
    for places, inputs in sorted_batches(sentences, encoder.tokenizer, _AT_ONCE, encoder.max_length):
        (vectors,) = session.run([OUTPUT], {name: tensor.numpy() for name, tensor in inputs.items()})
        found[places] = torch.from_numpy(np.asarray(vectors))
    return encoder.encode(sentences), found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporters say of themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(level)
