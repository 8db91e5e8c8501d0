"""An error is one line, and the exit status tells a user's mistake from a failure."""

import pytest

from simcse_pl.utils.command_line import report_error
from simcse_pl.utils.errors import FailureError, UserError


def raised(error, cause=None):
    try:
        raise error from cause
    except Exception as caught:
        return caught


ITS_OWN_CAUSE = KeyError("a\nb")


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (UserError("x: not that"), "x: not that", 2),
        (FailureError("the disk is gone"), "the disk is gone", 1),
        (raised(RuntimeError("of a library"), UserError("x: not that")), "x: not that", 2),
        (raised(RuntimeError("of a library"), FailureError("the disk is gone")), "the disk is gone", 1),
        (FileExistsError(17, "File exists", "a"), "[Errno 17] File exists: 'a'", 2),
        (OSError(28, "No space", "a"), "[Errno 28] No space: 'a' (--debug shows where)", 1),
        (
            raised(ITS_OWN_CAUSE, ITS_OWN_CAUSE),  # as OmegaConf's errors can be
            "KeyError: 'a\\nb' (this should not happen; --debug shows where)",
            1,
        ),
    ],
)
def test_an_error_is_one_line_and_a_status(error, line, status, capfd):
    assert report_error(error, debug=False, debug_option="--debug") == status
    assert capfd.readouterr().err == f"error: {line}\n"


def test_output_after_an_error_of_the_system_is_printed(capfd):
    error = UserError("the hub cannot be reached")
    error.__cause__ = OSError("no network")
    assert report_error(error, debug=False, debug_option="debug=true") == 2
    print("the next job")
    assert capfd.readouterr().out == "the next job\n"
