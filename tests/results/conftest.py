"""The fixtures of the reports, which read the same results."""

from tests.reports.conftest import bert, make_report, write_results, write_run

__all__ = ["bert", "make_report", "write_results", "write_run"]
