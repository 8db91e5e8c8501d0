"""Lines of a bundle's files: encodings and line ends."""

import pytest

from simcse_pl.data.senteval.bundle import text_lines, warn_if_short
from simcse_pl.utils.errors import UserError


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\r\n\r\nb\n", ["a", "", "b"]),
        (b"4.5\n\n", ["4.5", ""]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("a\u0085b\u2028c\x0bd\n".encode(), ["a\u0085b\u2028c\x0bd"]),
    ],
)
def test_only_newlines_end_lines(content, lines, tmp_path):
    (tmp_path / "file").write_bytes(content)
    assert text_lines(tmp_path / "file") == lines


def test_a_file_that_is_not_utf8_may_be_latin1(tmp_path):
    path = tmp_path / "file"
    path.write_bytes("café\n".encode())
    assert text_lines(path, latin1=True) == ["café"]
    path.write_bytes("na\u00efve\ncaf\u00e9 \u0085\n".encode("latin-1"))
    assert text_lines(path, latin1=True) == ["naïve", "café \u0085"]
    with pytest.raises(UserError, match=r"file, line 1: not UTF-8 \(byte 0xef\)"):
        text_lines(path)


def test_complete_and_unknown_tasks_are_not_warned_of(caplog):
    warn_if_short("STS-B", "test", 1379)
    warn_if_short("STS-B", "train", 1)
    assert not caplog.records
