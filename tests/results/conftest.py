"""The fixtures of the reports, which read the same results."""

from tests.reports.conftest import bert, write_results, write_run

__all__ = ["bert", "write_results", "write_run"]
