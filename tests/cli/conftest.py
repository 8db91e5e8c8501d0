"""The fixtures of the reports, whose command is tested here."""

from tests.reports.conftest import bert, job, make_report, write_results, write_run, write_sweep
from tests.reports.html.conftest import write_curves

__all__ = ["bert", "job", "make_report", "write_curves", "write_results", "write_run", "write_sweep"]
