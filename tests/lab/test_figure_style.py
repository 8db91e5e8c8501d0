"""The fonts of figures: one line for characters that no font has, and no warning of matplotlib."""

import warnings

from matplotlib.figure import Figure

from simcse_pl.lab.figures import STYLE, figure_files


def test_characters_that_no_font_has_are_one_line(caplog):
    figure = Figure()
    figure.suptitle("语 \U00012000")  # of cuneiform
    with warnings.catch_warnings(action="error"):
        for name in ("a", "b"):
            assert [*figure_files(name, figure)] == [f"{name}.png", f"{name}.svg"]
    (line,) = caplog.messages
    assert "\U00012000: install" in line and STYLE["font.family"][0] == "DejaVu Sans"
