"""One line for the user, whatever it quotes."""

import pytest

from simcse_pl.utils.errors import UserError, reraise_as


@pytest.mark.parametrize(
    ("quoted", "shown"),
    [("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\u2028\ud800", "\\u2028\\ud800"), ("é字", "é字")],
)
def test_what_would_break_the_line_or_move_the_cursor_is_escaped(quoted, shown):
    assert str(UserError(f"no file {quoted}")) == f"no file {shown}"


def test_what_a_library_says_comes_after_what_has_failed():
    with pytest.raises(UserError, match="^x: the first line$"), reraise_as("x"):
        raise RuntimeError("the first line\nand another")
    with pytest.raises(UserError, match="^x: a panic$"), reraise_as("x"):
        raise type("PanicException", (BaseException,), {})("a panic")
    with pytest.raises(KeyboardInterrupt), reraise_as("x"):
        raise KeyboardInterrupt
    with pytest.raises(UserError, match="^mine$"), reraise_as("x"):
        raise UserError("mine")
    with pytest.raises(UserError, match="^x: mine$"), reraise_as("x", users_too=True):
        raise UserError("mine")
