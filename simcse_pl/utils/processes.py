"""Which rank this process is, and how many CPUs it has, without importing torch."""

import ctypes
import functools
import os
import re
import signal
import sys
from pathlib import Path

_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # in the order in which Lightning reads them
_PR_SET_PDEATHSIG = 1
_CPU_INFO = Path("/proc/cpuinfo")  # of Linux
_ZEN_5 = 26  # its CPU family; on earlier ones, AVX-512 is not faster than AVX2


def is_first_process() -> bool:
    """Return whether this process is rank 0. The environment tells it before the process group exists."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), "0")
    return int(rank) == int(os.environ.get("NODE_RANK", "0")) == 0


def available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_one_of_several() -> bool:
    """Return whether torchrun or SLURM started several ranks, or Lightning did so in this job."""
    return any(int(os.environ.get(name, "1")) > 1 for name in ("WORLD_SIZE", "SLURM_NTASKS"))


def end_with_parent() -> None:
    """Let Linux kill this process when its parent ends, so that no rank waits for one that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def submitits_signal() -> signal.Signals | None:
    """Return the signal with which submitit preempts this process, None without submitit."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return None
    return signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]


@functools.cache
def onednn_is_faster() -> bool:
    """Return whether this is an AMD processor with AVX-512 units of full width, from Zen 5 on."""
    import torch  # takes seconds, and cli.py imports this file

    if not (_CPU_INFO.is_file() and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    info = _CPU_INFO.read_text(encoding="utf-8")
    family = re.search(r"^cpu family\s*: (\d+)$", info, flags=re.MULTILINE)
    is_new = family is not None and int(family[1]) >= _ZEN_5
    return "AuthenticAMD" in info and is_new and torch.backends.cpu.get_cpu_capability() == "AVX512"
