"""Files as people have them: each is read right, or refused with what to set."""

import gzip
import json
import re

import pytest

from simcse_pl.data.readers.layout import Layout
from simcse_pl.data.readers.row_reader import iterate_rows, read_rows
from simcse_pl.utils.errors import UserError

ZH = [("花呗怎么还款", "怎样还花呗"), ("他说：“好”", "他同意了"), ("一个男人在弹吉他。", "他在弹。")] * 3
TW = [("繁體中文的句子很長。", "這是另一個句子。"), ("他說：「好」", "他同意了")] * 4
JA = [("男性がギターを弾いています。", "彼は弾いている。"), ("犬が走る。", "動物が動く。")] * 4
KO = [("한 남자가 기타를 치고 있다.", "그는 연주한다."), ("개가 달린다.", "동물이 움직인다.")] * 4
DE = [("Ein Mann fährt über die Brücke.", "Er fährt nach München."), ("Zwei Hunde, ein Ball, Schnee", "Spiel")] * 4
FR = [("Un élève répète la leçon.", "Il étudie à l'école."), ("Où est le garçon ?", "Le garçon est là.")] * 4
MARKS = [('He said "hi".', "Greeting"), ('"Yes."', "A, b; c"), ('5" screen', "Two\nlines")]
TEXT = ["A dog\u0085 runs.", "A cat\u2028 sleeps.", "半年。"]
LONG = ("word " * 60_000).strip()


def table(rows, separator="\t", end="\n", encoding="utf-8"):
    return "".join(separator.join(row) + end for row in rows).encode(encoding)


def objects(rows, array=False):
    dicts = [dict(zip("ab", row, strict=True)) for row in rows]
    return json.dumps(dicts, indent=1).encode() if array else "\n".join(map(json.dumps, dicts)).encode()


READ = {
    "UTF-8 with a byte order mark": ("a.csv", b"\xef\xbb\xbf" + table(ZH, ","), ZH),
    "tabs in txt": ("a.txt", table(DE), DE),
    "commas in tsv": ("a.tsv", table([("one", "two"), ("three", "four")], ","), [("one", "two"), ("three", "four")]),
    "semicolons": ("a.csv", table(DE, ";"), DE),
    "pipes": ("a.csv", table(DE, "|"), DE),
    "double pipes": ("a.txt", table(ZH, "||"), ZH),
    "double pipes in csv": ("a.csv", table(DE, "||"), DE),
    "commas and tabs": ("a.csv", table(DE), DE),
    "marks of the text": ("a.tsv", table([('"Go!" he said', "x"), *MARKS[:2]]), [('"Go!" he said', "x"), *MARKS[:2]]),
    "a mark within a cell": ("a.csv", b'5" screen,Small\nA,B\n', [('5" screen', "Small"), ("A", "B")]),
    "a line of a spreadsheet": ("a.csv", b"sep=;\ntext;question\n" + table(DE, ";"), DE),
    "Windows' line ends": ("a.txt", table(ZH, end="\r\n"), ZH),
    "line ends of old Macs": ("a.txt", "\r".join(TEXT).encode(), [(line,) for line in TEXT]),
    "no end of the last line": ("a.tsv", table(DE).rstrip(), DE),
    "JSON lines in txt": ("a.txt", objects(ZH), ZH),
    "JSON lines in csv": ("a.csv", objects(ZH), ZH),
    "JSON lines in json": ("a.json", objects(ZH), ZH),
    "a JSON array": ("a.json", objects(ZH, array=True), ZH),
    "blank lines": ("a.tsv", table(DE, end="\n\n \n"), DE),
    "NUL": ("a.tsv", b"A\x00 dog.\tRuns\nB\tC\n", [("A\x00 dog.", "Runs"), ("B", "C")]),
    "one line": ("a.txt", b"A dog runs.", [("A dog runs.",)]),
    "a long cell": ("a.csv", table([(LONG, "b"), ("c", "d e")], ","), [(LONG, "b"), ("c", "d e")]),
}


@pytest.mark.parametrize("case", READ)
def test_files_are_read_right(case, write):
    name, content, rows = READ[case]
    assert read_rows(write(name, content)) == rows


ENCODED = {"utf-16": ZH, "gb18030": ZH, "big5": TW, "shift_jis": JA, "euc_kr": KO, "cp1252": DE, "latin-1": FR}


@pytest.mark.parametrize("encoding", ENCODED)
def test_the_encoding_that_an_error_names_reads_the_file(encoding, write):
    rows, path = ENCODED[encoding], write("a.tsv", table(ENCODED[encoding], end="\r\n", encoding=encoding))
    with pytest.raises(UserError, match="line 1: not UTF-8 .*; if it is .*, say so by data.encoding") as error:
        read_rows(path)
    named = re.search("if it is ([^,]+),", str(error.value))[1]
    zipped = write("a.tsv.gz", gzip.compress(path.read_bytes()))
    for way, file in ((named, path), (encoding, path), (named, zipped)):
        assert read_rows(file, layout=Layout(encoding=way)) == rows


REFUSED = {
    "a ragged row": ("a.tsv", b"A\tB\nC\nD\tE\n", {}, "line 2: 1 columns where there should be 2 .*on_invalid_row"),
    "the header again": ("a.csv", b"text,title\na b,x\ntext,title\n", {}, "line 3: the columns' names again"),
    "a mark that is not closed": ("a.csv", b'a,b\n"one,two\nthree,four\n', {}, "line 2: .* quotation mark missing"),
    "marks after a backslash": ("a.csv", b'"He said \\"hi\\".",x\nb,c\n', {}, "line 1: .* quotation mark missing"),
    "a damaged byte": ("a.tsv", b"A\tB\nC\xff\tD\n", {}, "line 2: not UTF-8"),
    "UTF-16 without its mark": ("a.txt", "A dog runs.\n".encode("utf-16-le"), {}, "NUL bytes.; if it is utf_16_le"),
    "an empty cell": ("a.tsv", b"A\tB\nC\t\n", {}, "line 2: column 1 is empty .*on_invalid_row=drop"),
    "an empty file": ("a.txt", b"", {}, "a.txt has no rows"),
    "a cut archive": ("a.txt.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:-20], {}, "cannot be read"),
    "an unknown ending": ("a.dat", b"A\n", {}, "data.format names another's format"),
    "scores": ("a.tsv", b"A b\t4,2\nC d\t0\n", {}, "column 1 has numbers, .* data.score_column"),
    "several marks": ("a.csv", b"A b;0.5\nC d;1,2,3\n", {"score_column": 1}, "line 2: .*'1,2,3'"),
    "an empty label": ("a.csv", b"text,label\na,b\nc, \n", {}, "a.csv, line 3: column label is empty"),
    "a number": ("a.jsonl", b'{"x": "a"}\n{"x": 3}\n', {}, "line 2: column x is not text: 3"),
    "a list": ("a.jsonl", b'{"x": "a"}\n{"x": ["b", "c"]}\n', {}, "column x is not text: ..b', 'c"),
    "no object": ("a.jsonl", b'{"x": "a"}\nb\n[1]\n', {}, "line 2: not a JSON object"),
    "no valid rows": ("a.csv", b"text,label\na,\n", {"on_invalid_row": "drop"}, "a.csv has no valid rows"),
    "one label": ("a.txt", table([(f"猫{i}", f"犬{i}", "蕴含") for i in range(100)]), {}, "column 2 has only 蕴含"),
    "a label that is read twice": (
        "a.csv",
        b"sentence1,gold_label,sentence2\na,neutral,b\n",
        {"label_column": 1, "columns": [0, "gold_label"]},
        "data.columns: .* other than 1, which",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_are_refused_with_what_to_do(case, write):
    name, content, options, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        list(iterate_rows(write(name, content), **options))


@pytest.mark.parametrize(
    ("cells", "scores"),
    [(("0,5", "4"), (0.5, 4)), (("1,234.5", "0"), (1234.5, 0)), (("1.234,5", "-7,25"), (1234.5, -7.25))],
)
def test_decimals_and_thousands_have_commas_or_points(cells, scores, write):
    path = write("a.csv", table([("A, b", cells[0]), ("C", cells[1])], ";"))
    assert [float(score) for _, score in iterate_rows(path, score_column=1)] == list(scores)
