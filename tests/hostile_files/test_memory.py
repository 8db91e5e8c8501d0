"""No loader takes the memory that a file of a few bytes asks for."""

import contextlib
import gzip
import json
import resource
import struct
import sys
import time
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from simcse_pl.data.prepare.wikipedia import extract
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.models.word_vectors import WordVectors
from simcse_pl.postprocessing.flow import Flow
from simcse_pl.results.evaluation_results import read
from simcse_pl.utils.errors import UserError
from tests.hostile_files.loaders import (
    dense,
    in_file,
    index,
    postprocess,
    torch_bytes,
)

_LIMIT = 1 << 30  # bytes that a loader may ask for


def giant_tensor(size, stride):
    """In a torch file of 16 bytes of numbers, which its header has in another shape."""

    class Giant:
        def __reduce__(self):
            storage = torch.storage.TypedStorage(
                wrap_storage=torch.ones(4).untyped_storage(), dtype=torch.float32, _internal=True
            )
            return torch._utils._rebuild_tensor_v2, (storage, 0, size, stride, False, OrderedDict())

    return torch_bytes({"linear.weight": Giant(), "linear.bias": torch.ones(4)})


def safe_header(**about):
    header = json.dumps({"vectors": {"dtype": "F32", "shape": [1, 4], "data_offsets": [0, 16]} | about}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16)


def flow(**options):
    Flow(transforms=1, hidden=2, epochs=1).fit(torch.randn(20, 4)).save("model")
    content = json.loads(Path("model/postprocess.json").read_text())
    content["options"] |= options
    postprocess("postprocess.json", json.dumps(content).encode())


def entities():
    """A dump of 600 bytes whose text is 10^10 characters."""
    named = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
    return (
        f'<!DOCTYPE mediawiki [<!ENTITY a0 "{"x" * 10}">{named}]><mediawiki><page><text>&a9;</text></page></mediawiki>'
    )


def aliases():
    """YAML of 300 characters that stands for 9^9 values."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join(lines)


TAKES_MEMORY = {
    "a tensor beyond its bytes": (lambda: dense(giant_tensor((10**10,), (1,))), "pytorch_model.bin is damaged, or"),
    "a tensor of one byte again and again": (
        lambda: dense(giant_tensor((10**9, 10**9), (0, 0))),
        "^model: the weights of its projection head do not fit",
    ),
    "a safetensors header's length": (
        lambda: index("vectors.safetensors", struct.pack("<Q", 2**62)),
        "^index/vectors.safetensors is damaged: Error while deserializing header",
    ),
    "a safetensors shape": (
        lambda: index("vectors.safetensors", safe_header(shape=[10**12, 4], data_offsets=[0, 16 * 10**12])),
        "^index/vectors.safetensors is damaged: Error while deserializing header",
    ),
    "a safetensors shape that wraps": (
        lambda: index("vectors.safetensors", safe_header(shape=[2**62, 2**62])),
        "^index/vectors.safetensors is damaged: Error while deserializing header",
    ),
    "a flow's hidden units": (
        lambda: flow(hidden=10**9),
        "^model/postprocess.safetensors is damaged .*too few numbers",
    ),
    "a flow's transforms": (
        lambda: flow(transforms=10**9),
        "^model/postprocess.safetensors is damaged .*too few numbe",
    ),
    "word vectors by their first line": (
        lambda: in_file("a.vec", b"1000000000 1000000000\na 1\n", WordVectors.from_file),
        "^a.vec, line 2: 1000000000 values; a word has 10000 at most",
    ),
    "word vectors by their count": (
        lambda: in_file("a.vec", b"1000000000 3\na 1 2 3\n", WordVectors.from_file),
        "^a.vec: 1 words, and its first line says 1000000000: is it cut short?",
    ),
    "word vectors by digits": (
        lambda: in_file("a.vec", b"9" * 5000 + b" 3\na 1\n", WordVectors.from_file),
        None,  # they are a word then
    ),
    "word vectors by a long line": (
        lambda: in_file("a.vec", b"a" + b" 1" * 300_000, WordVectors.from_file),
        "^a.vec, line 1: 300000 values; a word has 10000 at most",
    ),
    "a dump's entities": (
        lambda: in_file("enwiki.xml", entities().encode(), lambda name: extract(name, "out.txt")),
        "^enwiki.xml is truncated or not a Wikipedia dump: limit on input amplification factor",
    ),
    "JSON": (
        lambda: in_file("results.json", b"[" * 10**6 + b"]" * 10**6, read),
        "^results.json is damaged, or no JSON: maximum recursion depth",
    ),
}


@contextlib.contextmanager
def little_memory():
    """Of the process's address space, so that what is asked for counts, and not what is used of it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + _LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")
@pytest.mark.parametrize("case", TAKES_MEMORY)
def test_no_header_takes_memory(case, here):
    """A refusal that comes of the limit would say so, or come late."""
    load, line = TAKES_MEMORY[case]
    begun = time.process_time()
    with little_memory(), pytest.raises(UserError, match=line) if line else contextlib.nullcontext() as error:
        load()
    assert time.process_time() - begun < 5
    if error is not None:
        assert "\n" not in str(error.value) and "alloc" not in str(error.value).lower()


def test_packed_lines_are_bounded(here):
    Path("a.txt.gz").write_bytes(gzip.compress(bytes(1 << 27), 1))
    with little_memory(), pytest.raises(UserError, match="^a.txt.gz, line 1: it unpacks to more than 64 MB"):
        read_rows("a.txt.gz")
