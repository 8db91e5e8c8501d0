"""Targets: files of sentences, and the corpora that training files are made of."""

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from simcse_pl.data import nli, paraphrases, wikipedia
from simcse_pl.data.corpus import open_corpus
from simcse_pl.data.readers import iterate_documents, iterate_labeled_rows, read_rows
from simcse_pl.data.views.synonym import read_thesaurus
from simcse_pl.errors import UserError
from tests.fuzz.engine import Target
from tests.fuzz.tiny import files_under, tokenizer


def _read(file: str) -> Callable[[Path], Any]:
    """By each road that a file of sentences has into the program."""

    def read(folder: Path) -> None:
        path = folder / file
        with contextlib.suppress(UserError):
            list(iterate_labeled_rows(path, 1, on_bad_row="drop", header=False))
        with contextlib.suppress(UserError):
            list(iterate_documents(path))
        with contextlib.suppress(UserError):
            read_rows(path)
        read_rows(path, columns=[0])

    return read


def _parquet(**options: Any) -> bytes:
    table = pyarrow.table({"a": ["One.", "Two.", "One."], "b": [1, 2, None], "c": [["x"], [], ["é", "字"]]})
    pyarrow.parquet.write_table(table, buffer := io.BytesIO(), **options)
    return buffer.getvalue()


def _packed(pack: Callable[[bytes], bytes], magic: bytes) -> Callable[[dict[str, bytes]], None]:
    """What is changed inside of what is packed."""

    def seal(files: dict[str, bytes]) -> None:
        files.update({name: own if own.startswith(magic) else pack(own) for name, own in files.items()})

    return seal


_TXT = [b"One.\n\nTwo words.\r\nThree\xc2\x85.\n", b"\xef\xbb\xbfA", b"\xff\n\0"]
_CSV = [b'a,b\n"One, ""two"".",x\n"Two\nlines",y\n', b"a\n\n\xff\n", b'"\n']
_NLI = [
    b'{"sentence1": "A dog.", "sentence2": "B.", "gold_label": "entailment"}\n'
    b'{"sentence1": "A dog.", "sentence2": "C.", "gold_label": "contradiction"}\n',
    b'{"context": "A dog.", "hypothesis": "B.", "label": "e"}\n{"context": "A", "hypothesis": "C", "label": "c"}\n',
]
_QUORA = b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhat?\tWhy?\t1\n"
_QUOTED = b'1\t3\t4\t"a ""b""\nc"\td\t1\n2\t5\t6\t"a\tb\t0\n'
_KAGGLE = b'"id","qid1","qid2","question1","question2","is_duplicate"\n"0","1","2","What?","Why?","1"\n'
_CAPTIONS = [b"1.jpg#0\tA dog.\n1.jpg#1\tA cat.\n", b"image_name| n| comment\n1.jpg| 0| A dog.\n1.jpg| 1 A cat.\n"]
_DUMP = (
    b'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="en"><page><title>A</title><ns>0</ns>'
    b"<id>1</id><revision><id>2</id><text>'''A''' is the first letter of the alphabet (in [[Latin]]).{{x}}\n"
    b"* list\n{| table |}\nIt is older than people think, as [http://x y] says.&lt;ref&gt;z&lt;/ref&gt;</text>"
    b"</revision></page></mediawiki>"
)
_WORDNET = b"  1 licence\n00001740 03 n 02 entity 0 thing(a) 0 001 ~ 00001930 n 0000 | that which\n"


def _convert(convert: Callable[..., Any], file: str, what: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> None:
        with contextlib.suppress(UserError):
            convert(what, folder / file, folder / "out.csv", on_bad_row="drop")
        convert(what, folder / file, folder / "out.csv")

    return read


def _nli(kind: str, file: Path, out: Path, on_bad_row: str = "error") -> None:
    nli.convert(kind, [file], out, on_bad_row=on_bad_row)


def _open_tokens(folder: Path) -> None:
    """As a start does that finds them in the user's cache."""
    rows = [(("A dog.",), "x"), (("A cat.",), "y")]

    def records() -> Any:
        yield from rows

    os.environ["XDG_CACHE_HOME"] = str(folder)
    corpus = open_corpus(records, ["x"], tokenizer(), 8, named=True)
    for column in (corpus.sentences, corpus.tokens, corpus.names or ()):
        list(column)
    corpus.count({"A dog."})


def _seal_tokens(files: dict[str, bytes]) -> None:
    (rows,), (seal,) = ([name for name in files if name.endswith(own)] for own in ("rows.arrow", "seal.json"))
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        checksum = hashlib.sha256(files[rows]).hexdigest()
        files[seal] = json.dumps(json.loads(files[seal]) | {"sha256": checksum}).encode()


TARGETS = {
    "txt": Target({"a.txt": _TXT}, _read("a.txt")),
    "csv": Target({"a.csv": _CSV}, _read("a.csv")),
    "tsv": Target({"a.tsv": [b"a\tb\nOne.\tx\n"]}, _read("a.tsv")),
    "jsonl": Target({"a.jsonl": [b'{"a": "One.", "b": 1}\n\n{"a": "Two."}\n']}, _read("a.jsonl")),
    "gz": Target(
        {"a.txt.gz": [*_TXT, gzip.compress(_TXT[0])]}, _read("a.txt.gz"), seal=_packed(gzip.compress, b"\x1f\x8b")
    ),
    "parquet": Target(
        {"a.parquet": [_parquet(), _parquet(compression="none", use_dictionary=False)]}, _read("a.parquet")
    ),
    "parquet_gz": Target({"a.parquet.gz": [gzip.compress(_parquet())]}, _read("a.parquet.gz"), 300),
    "nli": Target({"a.jsonl": _NLI}, _convert(_nli, "a.jsonl", "triplets"), 200),
    "qqp": Target({"a.tsv": [_QUORA, _QUORA + _QUOTED]}, _convert(paraphrases.convert, "a.tsv", "qqp"), 200),
    "qqp_csv": Target({"a.csv": [_KAGGLE]}, _convert(paraphrases.convert, "a.csv", "qqp"), 200),
    "flickr30k": Target({"a.token": _CAPTIONS}, _convert(paraphrases.convert, "a.token", "flickr30k"), 200),
    "paranmt": Target({"a.txt": [b"A dog.\tA hound.\t0.9\n"]}, _convert(paraphrases.convert, "a.txt", "paranmt"), 200),
    "wikipedia": Target(
        {"enwiki.xml": [_DUMP]}, lambda folder: wikipedia.extract(folder / "enwiki.xml", folder / "out.txt"), 300
    ),
    "wikipedia_bz2": Target(
        {"enwiki.xml.bz2": [_DUMP, bz2.compress(_DUMP)]},
        lambda folder: wikipedia.extract(folder / "enwiki.xml.bz2", folder / "out.txt"),
        300,
        seal=_packed(bz2.compress, b"BZ"),
    ),
    "wordnet": Target({f"data.{kind}": [_WORDNET] for kind in ("noun", "verb", "adj", "adv")}, read_thesaurus),
    "tokens": Target(files_under(_open_tokens), _open_tokens, 300, _seal_tokens, names_file=False),
}
