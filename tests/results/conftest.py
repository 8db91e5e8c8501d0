"""The fixtures of the reports, which read the same results."""

from tests.reports.conftest import make_report, write_results, write_run

__all__ = ["make_report", "write_results", "write_run"]
