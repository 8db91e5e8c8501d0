"""The fixtures of the reports, whose command is tested here."""

from tests.report.conftest import bert, job, make_report, write_results, write_run, write_sweep
from tests.report.html.conftest import write_curves

__all__ = ["bert", "job", "make_report", "write_curves", "write_results", "write_run", "write_sweep"]
