"""What goes wrong is one line, whatever it comes from, and the status says whose fault it was."""

import pytest

from simcse_pl.utils.errors import FailureError, UserError
from simcse_pl.utils.exit_status import report_error


def raised(error, cause=None):
    """As it comes to whoever catches it."""
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (UserError("x: not that"), "x: not that", 2),
        (FailureError("the disk is gone"), "the disk is gone", 1),
        (raised(RuntimeError("of a library"), UserError("x: not that")), "x: not that", 2),
        (raised(RuntimeError("of a library"), FailureError("the disk is gone")), "the disk is gone", 1),
        (FileExistsError(17, "File exists", "a"), "[Errno 17] File exists: 'a'", 2),
        (KeyError("a\nb"), "KeyError: 'a\\nb' (this should not happen; debug=true shows where)", 1),
    ],
)
def test_it_is_one_line_and_a_status(error, line, status, capfd):
    assert report_error(error, debug=False, to_debug="debug=true") == status
    assert capfd.readouterr().err == f"error: {line}\n"


def test_an_error_that_is_its_own_cause_is_told_once(capfd):
    """As OmegaConf's are under a debugger, and where OC_CAUSE is set."""
    error = KeyError("a")
    assert report_error(raised(error, error), debug=False, to_debug="--debug") == 1
    assert capfd.readouterr().err == "error: KeyError: 'a' (this should not happen; --debug shows where)\n"
