"""Export an encoder to ONNX: a graph from tokens to the states of the last layer and to the final vectors.

The exporter of sentence-transformers needs optimum-onnx, which does not support transformers 5 (version 0.1.0).
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.templates import sorted_batches
from simcse_pl.postprocessing.linear import AffinePostProcess
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tensors import cosine_similarity, evaluation_mode, unit_vectors
from simcse_pl.utils.types import Batch

GRAPH_FILE = "model.onnx"  # the names that transformers.js and text-embeddings-inference look for
INT8_FILE = "model_quantized.onnx"
STATES, OUTPUT = "last_hidden_state", "sentence_embedding"  # pooling libraries read the first
MAX_DIFFERENCE = 1e-4  # of a coordinate, relative to the largest one if that is above 1
MIN_COSINE = 0.98
_MAX_FILE_SIZE = 2**31 - 2**20  # bytes of a protocol buffer; larger weights go to a file beside it
_BATCH_SIZE = 16


def write_onnx(encoder: SentenceEncoder, folder: Path, sentences: Sequence[str], int8: bool = False) -> dict[str, str]:
    """Write a graph from the tokenizer's outputs [batch, tokens] to `sentence_embedding` [batch, dim].

    The graph computes all of `encoder.encode`: pooling, the head if it is used at test time,
    post-processing and normalization. It takes any batch size and length. Its first output is the backbone's
    `last_hidden_state` [batch, tokens, hidden], which libraries pool themselves.

    Args:
        encoder: on the CPU.
        folder: receives model.onnx and, with `int8`, model_quantized.onnx.
        sentences: sentences on which the vectors of graph and encoder are compared.
        int8: also write a graph with 8-bit weights.

    Returns:
        A message per file: how far its vectors are from the encoder's.

    Raises:
        UserError: the backbone cannot be exported, or vectors differ by more
            than 1e-4 (8 bits: a cosine similarity below 0.98). Then no file is written.
    """
    expected = encoder.encode(sentences)
    with atomic_write(folder) as new:
        graph = new / GRAPH_FILE
        _write_graph(encoder, sentences[:2], graph)
        difference = float((_run(graph, encoder, sentences) - expected).abs().max() / expected.abs().max().clamp(min=1))
        if not difference <= MAX_DIFFERENCE:
            raise UserError(f"{GRAPH_FILE}: its vectors differ from the encoder's by {difference:.1e}")
        messages = {GRAPH_FILE: f"vectors differ from the encoder's by {difference:.1e} at most"}
        if int8:
            _write_int8(graph, new / INT8_FILE)
            cosine = float(cosine_similarity(expected, _run(new / INT8_FILE, encoder, sentences)).min())
            if not cosine > MIN_COSINE:
                raise UserError(f"{INT8_FILE}: a vector has cosine similarity {cosine:.3f} with the encoder's: too low")
            messages[INT8_FILE] = f"vectors have cosine similarity {cosine:.3f} or more with the encoder's"
    return messages


def _run(graph: Path, encoder: SentenceEncoder, sentences: Sequence[str]) -> Tensor:
    """Return the vectors [n, dim] of a graph."""
    import onnxruntime  # of an extra

    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    vectors = torch.empty(len(sentences), encoder.dim)
    for rows, inputs in sorted_batches(sentences, encoder.templates, _BATCH_SIZE, encoder.max_length):
        (batch,) = session.run([OUTPUT], {name: tensor.numpy() for name, tensor in inputs.items()})
        vectors[rows] = torch.from_numpy(batch)
    return vectors


def _write_int8(graph: Path, path: Path) -> None:
    import onnx
    from onnxruntime.quantization import quantize_dynamic

    model = onnx.load(graph, load_external_data=False)
    shapes = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    matrices = {node.name: shapes.get(node.input[1]) for node in model.graph.node if node.op_type in ("MatMul", "Gemm")}
    model.graph.ClearField("value_info")  # shapes, also of weights, which quantize_dynamic may transpose
    onnx.save(model, graph)
    with _quiet():
        quantize_dynamic(
            graph,
            path,
            per_channel=True,
            reduce_range=True,  # sums of 8-bit products overflow on processors without VNNI
            # The second layer of a feed-forward block: a few of its inputs are far larger than the others.
            nodes_to_exclude=[name for name, shape in matrices.items() if shape and shape[0] > shape[-1]],
            use_external_data_format=Path(f"{graph}.data").exists(),
        )


class _Graph(nn.Module):
    """Maps the tokenizer's outputs to the backbone's last states, and to the vectors of `encode`."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, inputs: Batch) -> tuple[Tensor, Tensor]:
        states: list[Tensor] = []  # of the passes; the first one has the template
        keep = self.encoder.backbone.register_forward_hook(lambda *call: states.append(call[-1].last_hidden_state))
        vectors: Tensor = self.encoder(inputs)
        keep.remove()
        if isinstance(post := self.encoder.postprocess, AffinePostProcess):
            vectors = post.map(vectors.double()).float()
        vectors = vectors[:, : self.encoder.truncate_dim]
        return states[0], unit_vectors(vectors) if self.encoder.normalize else vectors


def _write_graph(encoder: SentenceEncoder, sentences: Sequence[str], path: Path) -> None:
    ((_, inputs),) = sorted_batches(sentences, encoder.templates, len(sentences), encoder.max_length)
    what = f"{type(encoder.backbone).__name__} cannot be exported to ONNX"
    with reraise_as(what), _quiet(), torch.no_grad(), evaluation_mode(encoder):
        torch.onnx.export(
            _Graph(encoder).eval(),
            kwargs={"inputs": inputs},
            f=path,
            input_names=list(inputs),
            output_names=[STATES, OUTPUT],
            dynamic_shapes={"inputs": {name: {0: "batch", 1: "tokens"} for name in inputs}},
            external_data=sum(p.numel() * p.element_size() for p in encoder.parameters()) > _MAX_FILE_SIZE,
            dynamo=True,
            verbose=False,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporters' log, warnings and output."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(level)
