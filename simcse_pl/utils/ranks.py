"""Which rank this process is, and how many CPUs it has, without importing torch."""

import os
import sys

_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # in the order in which Lightning reads them


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
