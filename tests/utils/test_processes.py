"""The rank of a process before the process group exists."""

import pytest

from simcse_pl.utils.processes import is_first_process, is_one_of_several


@pytest.mark.parametrize(
    ("environment", "first", "several"),
    [
        ({}, True, False),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, False, True),  # Lightning
        ({"LOCAL_RANK": "0", "NODE_RANK": "1", "WORLD_SIZE": "2"}, False, True),  # Lightning, on a second machine
        ({"RANK": "4", "LOCAL_RANK": "0", "WORLD_SIZE": "8"}, False, True),  # torchrun
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, True, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, True, True),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, False, True),
    ],
)
def test_the_environment_tells_the_rank(environment, first, several, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "JSM_NAMESPACE_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (is_first_process(), is_one_of_several()) == (first, several)
