"""Memory that is kept."""

import platform
import resource

import pytest
import torch

from simcse_pl.cpu.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_large_arrays_reuse_memory_until_it_is_returned():
    def new_pages() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**24)  # 64 MB
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    try:
        keep_freed_memory()
        first, kept = new_pages(), new_pages()
    finally:
        keep_freed_memory(False)
    assert kept < 0.1 * min(first, new_pages())
