"""The fixtures of results."""

from tests.lab.conftest import write_results, write_run, write_sweep

__all__ = ["write_results", "write_run", "write_sweep"]
