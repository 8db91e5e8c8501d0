"""User-facing messages are one printable line."""

import pytest

from simcse_pl.utils.errors import UserError, reraise_as


def test_unprintable_characters_are_escaped():
    assert str(UserError("no file a\nb \x1b[2J \u2028\ud800 é字")) == "no file a\\nb \\x1b[2J \\u2028\\ud800 é字"


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (RuntimeError("the first line\nand another"), {}, "^x: the first line$"),
        (type("PanicException", (BaseException,), {})("a panic"), {}, "^x: a panic$"),
        (UserError("mine"), {"users_too": True}, "^x: mine$"),
    ],
)
def test_reraise_as_puts_what_failed_first(error, options, message):
    with pytest.raises(UserError, match=message), reraise_as("x", **options):
        raise error
