"""YAML is read as OmegaConf reads it; what is damaged, or asks for too much, is one line."""

import pytest
from omegaconf import OmegaConf

from simcse_pl.errors import UserError
from simcse_pl.yaml_files import read_yaml

TOO_MUCH = "50 lists in each other, or 10000 values by aliases"
TEN_OF_EACH_BEFORE = "\n".join(
    ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 6)]
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1\nb: [x, {c: '${a}'}]\n",
        "a: &x [1, 2]\nb: [*x, *x]\n",
        "a: &x {y: 1}\nb: {<<: *x, z: 2}\n",
        "- 1\n- [2]\n",
    ],
)
def test_reads_what_omegaconf_does(text, tmp_path):
    (tmp_path / "a.yaml").write_text(text)
    assert read_yaml(tmp_path / "a.yaml") == OmegaConf.create(text)


def test_no_file_holds_nothing(tmp_path):
    assert read_yaml(tmp_path / "a.yaml") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2\nb: 3\n", "line 2, column 2: expected ',' or ']', but got ':'"),
        ("a:\n\t- 1\n", "line 2, column 1: found character '\\t' that cannot start any token"),
        ("b: *a\n", "line 1, column 4: found undefined alias 'a'"),
        ("a: !!python/name:os.system\n", "line 1, column 4: could not determine a constructor for the tag"),
        ("a: ${b\n", "no viable alternative at input"),
        ("a: \0\n", "unacceptable character #x0000"),
        ("[" * 100_000, TOO_MUCH),
        ("a: &a [*a]\n", TOO_MUCH),
        ("a: &a {b: {c: *a}}\n", TOO_MUCH),
        (TEN_OF_EACH_BEFORE, TOO_MUCH),
    ],
)
def test_what_is_damaged_or_too_much_is_told(text, message, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        read_yaml(file)
    assert str(error.value).startswith(f"{file} is damaged: {message}") and "\n" not in str(error.value)


def test_bytes_that_are_no_text_are_told(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(UserError, match="a.yaml is damaged: 'utf-8' codec can't decode byte 0xff"):
        read_yaml(tmp_path / "a.yaml")
