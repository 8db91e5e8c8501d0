"""Checks of arguments."""

from simcse_pl.utils.validation import as_number


def test_only_finite_numbers_are_numbers():
    assert [as_number(text) for text in ("1e-5", "0.0", "64", "fixed 0.1", "nan", "inf", "")] == [
        1e-5, 0, 64, None, None, None, None,
    ]  # fmt: skip
