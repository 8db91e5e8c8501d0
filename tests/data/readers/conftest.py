"""Write a file."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Write a file of text or bytes; return its path."""

    def write_(name, content):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return write_
