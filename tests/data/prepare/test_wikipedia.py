"""The extraction from a small dump, and the sample from gensim's."""

import bz2

import pytest

from simcse_pl.data.prepare.wikipedia import extract, sentences_of
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.utils.errors import UserError

ARTICLE = """{{Infobox|a=b}}
'''Moss''' is a [[plant|small plant]] (, ) that grows in ''damp'' places.<ref>Book.</ref>
It has no flowers, e.g. no petals. Short.
==History==
* A list item that is long enough to be a sentence.
{| class="wikitable"
| rows || 12
|}
Does Dr. Green study it in the U.S. every summer? She said: "It is a joy to study moss." A line without an end
[[Category:Plants]]"""

FRENCH = "La mousse est une petite plante qui pousse dans les lieux humides. Elle n'a pas de fleurs, dit-on !"


def dump(*pages):
    body = "".join(
        f"<page><title>T{i}</title><ns>{ns}</ns><id>{i}</id><revision><text>{text}</text></revision></page>"
        for i, (ns, text) in enumerate(pages)
    )
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/"><siteinfo><dbname>x</dbname></siteinfo>'
    return f"{head}{body}</mediawiki>".encode()


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def test_markup_is_removed():
    assert sentences_of(ARTICLE, "en") == [
        "Moss is a small plant that grows in damp places.",
        "It has no flowers, e.g. no petals.",
        "Does Dr. Green study it in the U.S. every summer?",
        'She said: "It is a joy to study moss."',
    ]


@pytest.mark.parametrize(("name", "processes"), [("frwiki-latest.xml", 1), ("frwiki-latest.xml.bz2", 2)])
def test_documents_are_separate_and_in_order(tmp_path, name, processes):
    pages = dump(("0", FRENCH), ("1", FRENCH), ("0", "#REDIRECTION [[Mousse]]"), ("0", escaped(ARTICLE)), ("0", ""))
    (tmp_path / name).write_bytes(bz2.compress(pages) if name.endswith("bz2") else pages)
    out = tmp_path / "new folder" / "out.txt"
    assert extract(tmp_path / name, out, processes=processes) == (2, 6)
    documents = out.read_text(encoding="utf-8").split("\n\n")
    assert documents[0].splitlines() == FRENCH.replace(". Elle", ".\nElle").splitlines()
    assert documents[1].count("\n") == 4
    assert len(read_rows(out)) == 6
    assert list(out.parent.iterdir()) == [out]


def test_a_truncated_dump_leaves_no_output(tmp_path):
    (tmp_path / "enwiki.xml.bz2").write_bytes(bz2.compress(dump(("0", FRENCH)))[:-9])
    with pytest.raises(UserError, match="is truncated or not a Wikipedia dump"):
        extract(tmp_path / "enwiki.xml.bz2", tmp_path / "out.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["enwiki.xml.bz2"]
