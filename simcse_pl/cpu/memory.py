"""Memory that a training step frees, kept for the next one."""

import ctypes
import platform

_MMAP_THRESHOLD, _MMAP_MAX, _TRIM_THRESHOLD = -3, -4, -1  # of malloc.h


def keep_freed_memory(keep: bool = True) -> None:
    """Let the C library keep all memory that is freed, or return it to the system as usual. Without glibc, do nothing.

    By default, glibc returns arrays above 32 MB, such as the gradient of the word embeddings, at once. Then each step
    waits for new pages. Training on triplets is faster by about a tenth with all memory kept (docs/benchmarks.md).
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, 0 if keep else 2**16)
    libc.mallopt(_MMAP_THRESHOLD, 2**25)  # what glibc arrives at by itself
    libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1 if keep else 2**26)
    if not keep:
        libc.malloc_trim(0)
