"""Files as people have them: each is read right, whatever its layout and characters, or refused with what to set."""

import csv
import gzip
import json
import re
import shutil

import datasets
import pandas
import pyarrow
import pytest

from simcse_pl.data.formats import Layout, open_table
from simcse_pl.data.rows import ReadOptions, iterate_rows, iterate_sentences, read_rows
from simcse_pl.data.sources import open_source
from simcse_pl.utils import files
from simcse_pl.utils.errors import UserError

ZH = [("花呗怎么还款", "怎样还花呗"), ("他说：“好”", "他同意了"), ("一个男人在弹吉他。", "他在弹。")] * 3
TW = [("繁體中文的句子很長。", "這是另一個句子。"), ("他說：「好」", "他同意了")] * 4
JA = [("男性がギターを弾いています。", "彼は弾いている。"), ("犬が走る。", "動物が動く。")] * 4
KO = [("한 남자가 기타를 치고 있다.", "그는 연주한다."), ("개가 달린다.", "동물이 움직인다.")] * 4
DE = [("Ein Mann fährt über die Brücke.", "Er fährt nach München."), ("Zwei Hunde, ein Ball, Schnee", "Spiel")] * 4
FR = [("Un élève répète la leçon.", "Il étudie à l'école."), ("Où est le garçon ?", "Le garçon est là.")] * 4
MARKS = [('"Go!" he said', "x"), ('He said "hi".', "Greeting"), ('"Yes."', "A, b; c")]
AROUND = [('"Go!"', "A b"), ('"Yes."', "B c")]
TEXT = ["A dog\u0085 runs.", "A cat\u2028 sleeps.", "半年。"]
MAC = [(line,) for line in (*TEXT, TEXT[0])]
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
    "marks of the text": ("a.tsv", table(MARKS), MARKS),
    "marks around sentences": ("a.tsv", table(AROUND), AROUND),
    "a mark within a cell": ("a.csv", b'5" screen,Small\nA,B\n', [('5" screen', "Small"), ("A", "B")]),
    "a line of a spreadsheet": ("a.csv", b"sep=:\ntext:question\n" + table(DE, ":"), DE),
    "Windows' line ends": ("a.txt", table(ZH, end="\r\n"), ZH),
    "line ends of old Macs": ("a.txt", "\r".join(TEXT).encode(), [(line,) for line in TEXT]),
    "two newlines in a file of old Macs": ("a.txt", ("\r".join(TEXT) + "\n\n\r" + TEXT[0] + "\r\n").encode(), MAC),
    "triple pipes": ("a.txt", table(DE, "|||"), DE),
    "a space before a quotation mark": ("a.csv", b'A b, "c, d"\ne f, "g, h"\n', [("A b", "c, d"), ("e f", "g, h")]),
    "the numbers of columns in pandas": ("a.csv", b"0,1\na b,c\nd,e f\n", [("a b", "c"), ("d", "e f")]),
    "no end of the last line": ("a.tsv", table(DE).rstrip(), DE),
    "JSON lines in txt": ("a.txt", objects(ZH), ZH),
    "JSON lines in csv": ("a.csv", objects(ZH), ZH),
    "JSON lines in json": ("a.json", objects(ZH), ZH),
    "a JSON array": ("a.json", objects(ZH, array=True), ZH),
    "a JSON array per line": ("a.jsonl", b"\n" + "\n".join(json.dumps(row) for row in ZH).encode(), ZH),
    "a JSON array of arrays": ("a.json", json.dumps(ZH).encode(), ZH),
    "an indented JSON array of arrays": ("a.json", json.dumps(ZH, indent=0).encode(), ZH),
    "a header in a JSON array": ("a.json", json.dumps([("premise", "hypothesis"), *ZH]).encode(), ZH),
    "blank lines": ("a.tsv", table(DE, end="\n\n \n"), DE),
    "NUL": ("a.tsv", b"A\x00 dog.\tRuns\nB\tC\n", [("A\x00 dog.", "Runs"), ("B", "C")]),
    "one line": ("a.txt", b"A dog runs.", [("A dog runs.",)]),
    "a tab in a sentence": ("a.txt", b"One tab\there.\nNone.\n", [("One tab\there.",), ("None.",)]),
    "commas in sentences": ("a.txt", b"a, b\nc, d\n", [("a, b",), ("c, d",)]),
    "brackets in sentences": ("a.txt", b"{Braces} too.\n[MASK] too.", [("{Braces} too.",), ("[MASK] too.",)]),
    "a long cell": ("a.csv", table([(LONG, "b"), ("c", "d e")], ","), [(LONG, "b"), ("c", "d e")]),
}


@pytest.mark.parametrize("case", READ)
def test_files_are_read_right(case, write_file):
    name, content, rows = READ[case]
    assert read_rows(write_file(name, content)) == rows


ENCODED = {"utf-16": ZH, "gb18030": ZH, "big5": TW, "shift_jis": JA, "euc_kr": KO, "cp1252": DE, "latin-1": FR}


@pytest.mark.parametrize("encoding", ENCODED)
def test_the_encoding_that_an_error_names_reads_the_file(encoding, write_file):
    rows, path = ENCODED[encoding], write_file("a.tsv", table(ENCODED[encoding], end="\r\n", encoding=encoding))
    with pytest.raises(UserError, match="line 1: not UTF-8 .*; if it is .*, say so by data.encoding") as error:
        read_rows(path)
    named = re.search("if it is ([^,]+),", str(error.value))[1]
    zipped = write_file("a.tsv.gz", gzip.compress(path.read_bytes()))
    for way, file in ((named, path), (encoding, path), (named, zipped)):
        assert read_rows(file, encoding=way) == rows


REFUSED = {
    "a ragged row": ("a.tsv", b"A\tB\nC\nD\tE\n", "line 2: 1 columns where there should be 2 .*on_invalid_row"),
    "the header again": ("a.csv", b"text,title\na b,x\ntext,title\n", "line 3: the columns' names again"),
    "a joined file": ("a.csv", b'\xef\xbb\xbf"text","title"\na b,x\n\xef\xbb\xbf"text", title\n', "the columns' names"),
    "labels in a short file": ("a.csv", b"text,title,label\na b,c d,yes\n", "column label has labels, not sentences"),
    "a mark that is not closed": ("a.csv", b'a,b\n"one,two\nthree,four\n', "line 2: .* quotation mark missing"),
    "marks after a backslash": ("a.csv", b'"He said \\"hi\\".",x\nb,c\n', "line 1: .* quotation mark missing"),
    "a damaged byte": ("a.tsv", b"A\tB\nC\xff\tD\n", "line 2: not UTF-8"),
    "UTF-32": ("a.txt", "A dog runs.\n".encode("utf-32"), "NUL bytes.; if it is utf_32"),
    "UTF-16 without its mark": ("a.txt", "A dog runs.\n".encode("utf-16-le"), "NUL bytes.; if it is utf_16_le"),
    "a sentence that would fill the memory": ("a.txt", b"a b\n" + b"a " * 2**20, "line 2: .* 2097152 characters.*drop"),
    "an empty cell": ("a.tsv", b"A\tB\nC\t\n", "line 2: column 1 is empty .*on_invalid_row=drop"),
    "an empty file": ("a.txt", b"", "a.txt has no rows"),
    "a cut archive": ("a.txt.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:-20], "cannot be read"),
    "an unknown ending": ("a.dat", b"\x80\n", "data.format or --format names another's format"),
    "a pointer of Git LFS": ("a.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n", "git lfs pull"),
    "a spreadsheet": ("a.xlsx", b"PK\x03\x04\x14\xb4", "a.xlsx is a zip archive or .*: unpack it, or save it as .csv"),
    "chat messages": ("a.jsonl", b'{"chat": [{"role": "user"}]}', "column chat is not text: .*sentence its own column"),
    "no keys": ("a.jsonl", b"{}\n{}\n", "line 1: no sentence"),
    "no values": ("a.jsonl", b"[]\n[]\n", "line 1: no sentence"),
    "no rows": ("a.json", b"[]", "a.json has no rows"),
    "another order": ("a.jsonl", b'{"anchor": "a", "negative": "b", "positive": "c"}\n', "would be read as anchor, "),
    "a negative in place of the positive": ("a.csv", b"text,hard_neg\na b,c d\n", "which their names contradict"),
    "objects after arrays": ("a.jsonl", b'["a b", "c d"]\n' * 1500 + b'{"x": "e"}\n', "1501: not a JSON array"),
    "arrays and objects": ("a.jsonl", b'["a", "b"]\n{"x": "c"}\n', "line 1: not a JSON object"),
    "scores": ("a.tsv", b"A b\t4,2\nC d\t0\n", "column 1 has numbers, .* data.score_column"),
    "several marks": ("a.csv", b"A b;0.5\nC d;1,2,3\n", "line 2: .*'1,2,3'", {"score_column": 1}),
    "an empty label": ("a.csv", b"text,label\na,b\nc, \n", "a.csv, line 3: column label is empty"),
    "a number": ("a.jsonl", b'{"x": "a"}\n{"x": 3}\n', "line 2: column x is not text: 3"),
    "a list": ("a.jsonl", b'{"x": "a"}\n{"x": ["b", "c"]}\n', "column x is not text: ..b', 'c"),
    "half of a character": ("a.jsonl", rb'{"x": "a\ud83d"}', "line 1: column x has a lone surrogate"),
    "no object": ("a.jsonl", b'{"x": "a"}\nb\n[1]\n', "line 2: not a JSON object"),
    "an object over lines": ("a.jsonl", b'{\n "x": "a"\n}\n', "line 1: each line needs to be one", {"columns": ["x"]}),
    "columns of an empty file": ("a.tsv", b"", "no column 0 in .*a.tsv, which has no columns", {"columns": [0]}),
    "no valid rows": ("a.csv", b"text,label\na,\n", "a.csv has no valid rows", {"on_invalid_row": "drop"}),
    "one label": ("a.txt", table([(f"猫{i}", f"犬{i}", "蕴含") for i in range(100)]), "column 2 has only .* as 蕴含"),
    "few ids": ("a.csv", b"ticket,text\n" + b"".join(b"T-%d,A dog %d\n" % (i, i) for i in range(20)), "ticket has ids"),
    "topics": ("a.csv", b"text,topic\n" + b"A dog,topicx\nA cat,topicy\n" * 10, "topic has only words such as topicx"),
    "a comma for two things": ("a.tsv", b"a\t950\na\t2,500\n", "line 2: .*: write 2500 or 2.500", {"score_column": 1}),
    "a label twice": ("a.csv", b"a,label\nb,c\n", "other than 1, which", {"label_column": 1, "columns": [0, "label"]}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_are_refused_with_what_to_do(case, write_file):
    name, content, message, *options = REFUSED[case]
    with pytest.raises(UserError, match=message):
        list(iterate_rows(write_file(name, content), ReadOptions(**dict(*options))))


@pytest.mark.parametrize("encoding", [None, "utf-8", "latin-1"])
def test_a_line_that_would_fill_the_memory_is_not_read(encoding, write_file, monkeypatch):
    monkeypatch.setattr(files, "_LONGEST", 10_000_000)
    path = write_file("a.txt.gz", gzip.compress(b"a b\n" + b"\xc3\xa9" * 10_000_000 + b"\n", 1))
    with pytest.raises(UserError, match="a.txt.gz, line 2: it has over 10 MB: give shorter lines"):
        read_rows(path, encoding=encoding)


def test_a_cell_that_would_fill_the_memory_is_not_read(write_file, monkeypatch):
    path = write_file("a.csv", b'a,b\n"one,two\n' + b"three,four\n" * 10_000)
    monkeypatch.setattr("simcse_pl.data.records._LARGEST_CELL", 50_000)
    with pytest.raises(UserError, match="a.csv, line 2: field larger .*is a quotation mark missing"):
        read_rows(path)


@pytest.mark.parametrize("encoding", [None, "utf-8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_the_first_name(encoding, write_file):
    path = write_file("a.csv", b"\xef\xbb\xbftext,b\nA dog.,x\n")
    assert read_rows(path, ["text"], encoding=encoding) == [("A dog.",)]


@pytest.mark.parametrize(
    ("cells", "scores"),
    [(("0,750", "4,2"), (0.75, 4.2)), (("1,234.5", "0"), (1234.5, 0)), (("1.234,5", "-7,25"), (1234.5, -7.25))],
)
def test_decimals_and_thousands_have_commas_or_points(cells, scores, write_file):
    path = write_file("a.csv", table([("A, b", cells[0]), ("C", cells[1])], ";"))
    assert [float(score) for _, score in iterate_rows(path, ReadOptions(score_column=1))] == list(scores)


QUOTED = [('He said "hi".', "Greeting"), ('"Yes."', "A\tyes"), ("Two\nlines", "One")]


@pytest.mark.parametrize("separator", ["\t", ";", ","])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("rows", [QUOTED, QUOTED[:1], [("A dog.", "Runs")], [("A\tdog", "Runs"), ("A", "B")]])
def test_what_pandas_writes_is_read_back(separator, quoting, rows, tmp_path):
    for name in ("a.csv", "a.tsv"):
        pandas.DataFrame(rows, columns=["a", "b"]).to_csv(tmp_path / name, sep=separator, quoting=quoting, index=False)
        assert read_rows(tmp_path / name, ["a", "b"]) == rows


@pytest.mark.parametrize("last", [*QUOTED, MARKS[0], AROUND[0]])
def test_the_first_quotation_mark_may_be_far_from_the_head(last, tmp_path):
    """And the lines that are inspected may end within a cell."""
    rows, path = [("A dog.", "It runs")] * 1500 + [last] + QUOTED[:1] * 1000, tmp_path / "a.tsv"
    pandas.DataFrame(rows, columns=["a", "b"]).to_csv(path, sep="\t", index=False)
    assert read_rows(path) == rows
    path.write_bytes(table([*rows[:1500], MARKS[0], AROUND[0], rows[0]]))
    assert read_rows(path) == [*rows[:1500], MARKS[0], AROUND[0], rows[0]]
    cells = [("Two full\nlines", "One line")] * 700
    pandas.DataFrame(cells, columns=["a", "b"]).to_csv(path, sep="\t", index=False)
    assert read_rows(path) == cells


@pytest.mark.parametrize(("given", "separator"), [(r"\t", "\t"), (":", ":")])
def test_a_separator_can_be_given_as_it_is_typed(given, separator, write_file):
    assert read_rows(write_file("a.csv", table(DE, separator)), separator=given) == DE


def test_backslashes_that_pandas_wrote_before_quotation_marks_are_warned_of(tmp_path, caplog):
    path, rows = tmp_path / "a.csv", [("A dog.", "It runs")] * 1500 + QUOTED[:1] * 2
    pandas.DataFrame(rows, columns=["a", "b"]).to_csv(path, index=False, doublequote=False, escapechar="\\")
    assert read_rows(path)[1500:] == [(r"He said \"hi\".", "Greeting")] * 2
    expected = rf'{path}: backslashes before quotation marks stay in the text: write "" in place of \"'
    assert caplog.messages.count(expected) == 1


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("sent0\tsent1\nA dog runs.\tAn animal moves.\n", True),
        ("Sentence 1\t#2 String\na\tb\n", True),
        ("句子1\t句子2\n花呗怎么还款\t怎样还花呗\n", True),
        ("frage\tantwort\nWo ist der Hund?\tIm Garten hinter dem Haus\n", True),
        ("甲\t乙\t丙\n花呗怎么还款\t怎样还花呗\t1\n可以\t行\t0\n", True),
        ("标准问\t相似问\n花呗怎么还款\t怎样还花呗\n", True),
        ("花呗怎么还款\t怎样还花呗\n可以\t行\n", False),
        ("订单问题\t物流问题\n可以\t行\n", False),
        ("半年。\t半\nx\ty\n", False),
        ("花呗\t借呗\t1\n可以\t行\t0\n", False),
        ("a dog\ta cat\nthe dog\tthe cat\n", False),
        ("Hello\tWorld\nYes\tNo\n", False),
        ("A\tB\t4.2\nC\tD\t1.0\n", False),
        ("dog\tcat\nruns\t20_10\n", False),
    ],
)
def test_a_header_is_found(text, header, write_file, caplog):
    caplog.set_level("INFO")
    path = write_file("a.tsv", text)
    assert (open_source(str(path)).header is not None) == header
    assert caplog.messages[0].endswith("with the column names " + ", ".join(text.split("\n")[0].split("\t"))) == header
    for given in (True, False):
        assert (open_source(str(path), Layout(header=given)).header is not None) == given
    assert open_source(str(path), columns=["text"]).header is not None


# Line breaks to Python's splitlines but not to a file, what is no character, what joins, and what runs the other way.
ODD = (
    *("\u0085", "\u2028", "\u2029", "\x1c", "\x1e", "\x0b", "\x0c", "\r", "\t", "\xa0", "\u3000", "\ufeff", "\x00"),
    *("\u200b", "\u200d", "\ufffd", "\U0010ffff", "\u00e9", "\U0001f469\u200d\U0001f467", "\u202e", "\u05e9\u05dc"),
    *('"', "'", ",", "\\", "[MASK]", "</s>", "#", "\u534a\u5e74"),
)


@pytest.mark.parametrize("name", ["d.txt", "d.txt.gz"])
def test_only_newlines_end_a_line_of_text(name, tmp_path):
    lines = [f"a {odd} b" for odd in ODD]
    text = ("\ufeff" + "\r\n".join(lines[:20]) + "\n \n" + "\n".join(lines[20:])).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert list(iterate_sentences(tmp_path / name)) == lines


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.jsonl", "d.parquet"])
def test_tables_are_read_back(name, tmp_path):
    rows, path = [(f"a {odd} b", f"c{odd}{odd}d") for odd in ODD], tmp_path / name
    frame = pandas.DataFrame(rows, columns=["x", "y"])
    if name.endswith("parquet"):
        frame.to_parquet(path)
    elif name.endswith("jsonl"):
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, quoting=csv.QUOTE_ALL)
    assert read_rows(path) == rows
    assert read_rows(path, ["y", "x"]) == [row[::-1] for row in rows]
    assert list(iterate_sentences(path, 0)) == [row[0] for row in rows]


@pytest.mark.parametrize(("first", "places"), [("", ["line 2", "line 5"]), ("sep=,\n", ["line 3", "line 6"])])
def test_line_numbers_count_lines_not_rows(first, places, tmp_path):
    (tmp_path / "data.csv").write_text(f'{first}text,label\n"one\nmore",two\n\nthree,four\n')
    assert [place for place, _ in open_table(tmp_path / "data.csv").records] == places


def test_the_keys_of_all_objects_are_the_columns(tmp_path):
    objects = ['{"a": "x", "b": 1}', '{"b": "y", "c": 2}']
    expected = [["x", 1, None], [None, "y", 2]]
    for name, text in (("d.jsonl", "\n\n".join(objects)), ("d.json", "[" + ",\n".join(objects) + "]")):
        (tmp_path / name).write_text(text)
        table = open_table(tmp_path / name)
        assert table.header == ["a", "b", "c"] and [cells for _, cells in table.records] == expected


def test_tables_of_datasets_have_the_words_of_labels_and_those_of_pandas_no_index(tmp_path):
    labels = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    features = datasets.Features({"a": datasets.Value("string"), "label": labels})
    rows = {"a": ["x", "y", "z", "w"], "label": [0, 1, 2, -1]}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    dataset.to_parquet(tmp_path / "hub.parquet")
    with pyarrow.ipc.new_stream(tmp_path / "cache-0123.arrow", dataset.data.schema) as file:
        file.write_table(dataset.data.table)
    datasets.DatasetDict({"train": dataset}).save_to_disk(tmp_path / "saved", num_shards={"train": 2})
    expected = [["x", "entailment"], ["y", "neutral"], ["z", "contradiction"], ["w", "-"]]
    assert [cells for _, cells in open_table(tmp_path / "hub.parquet").records] == expected
    shutil.move(tmp_path / "cache-0123.arrow", tmp_path / "saved" / "train")  # what Dataset.map leaves there
    assert [cells for _, cells in open_source(tmp_path / "saved" / "train").records] == expected
    with pytest.raises(UserError, match="no files .*saved .of the folders in a folder, give one"):
        open_source(tmp_path / "saved")
    frame = pandas.DataFrame({"a": ["x"], "b": ["y"]}, index=["i"])
    frame.to_parquet(tmp_path / "pandas.parquet")
    with pyarrow.ipc.new_file(str(tmp_path / "d.arrow"), (arrow := pyarrow.Table.from_pandas(frame)).schema) as file:
        file.write_table(arrow)
    for name in ("pandas.parquet", "d.arrow"):
        table = open_table(tmp_path / name)
        assert table.header == ["a", "b"] and [[*cells] for _, cells in table.records] == [["x", "y"]]
