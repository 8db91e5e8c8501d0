"""The extraction from a small dump, and the sample from gensim's."""

import bz2
from html import escape

import pytest

from simcse_pl.data.rows import read_rows
from simcse_pl.tools.conversion import USED
from simcse_pl.tools.prepare_wikipedia import NOT_WHOLE, TOO_SHORT, extract, sentences_of
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
        f"<page><title>T{i}</title><ns>{ns}</ns><id>{i}</id><revision><text>{escape(text)}</text></revision></page>"
        for i, (ns, text) in enumerate(pages)
    )
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/"><siteinfo><dbname>x</dbname></siteinfo>'
    return f"{head}{body}</mediawiki>".encode()


def test_markup_is_removed():
    sentences, outcomes = sentences_of(ARTICLE, "en")
    assert outcomes == {USED: 4, TOO_SHORT: 3, NOT_WHOLE: 1}  # too short: two cells of the table, and a sentence
    assert sentences == [
        "Moss is a small plant that grows in damp places.",
        "It has no flowers, e.g. no petals.",
        "Does Dr. Green study it in the U.S. every summer?",
        'She said: "It is a joy to study moss."',
    ]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("zh", ["一只狗在跑步。", "他说：“我们明天去公园。”"]),
        ("ja", ["犬が公園を走っている。", "（彼は「明日は公園へ行こう。」）"]),
        ("fr", ["Il a répondu : « Nous irons au parc. »", "Elle est ensuite partie."]),
        ("de", ["Er sagte: „Wir gehen in den Park.“", "Dann ging er nach Hause."]),
        ("ar", ["هل تريد الذهاب إلى الحديقة؟", "قال: «سنذهب إلى الحديقة.»"]),
        ("hi", ["कुत्ते पार्क में दौड़ रहे हैं।"]),
        ("th", ["เมืองหลวงต่าง ๆ คือกรุงเทพมหานคร", "มีประชากรกว่า 66 ล้านคนในปี 2563 และอื่น ๆ"]),
    ],
)
def test_sentences_of_other_scripts_are_whole(language, sentences):
    for between in (" ",) if language == "th" else (" ", ""):
        assert sentences_of(between.join(sentences), language)[0] == sentences


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("这是-{zh-hans:计算机;zh-hant:電腦}-的历史。", "这是计算机的历史。"),
        ("这里的-{電腦}-不转换文字。", "这里的電腦不转换文字。"),
        ("-{H|zh-cn:博客;zh-hk:網誌;}--{T|zh-cn:页;zh-tw:頁}-他写了一篇博客。", "他写了一篇博客。"),
        ("他写了-{A|zh-cn:-{博客}-;zh-tw:部落格}-的文章。", "他写了博客的文章。"),
        ("Ово је -{sr-ec:рачунар; sr-el:računar}- из музеја.", "Ово је рачунар из музеја."),
        ("A range of 10-{{convert|12|km}}- as before.", "A range of 10-- as before."),
    ],
)
def test_the_first_variant_of_a_word_is_taken(markup, text):
    assert sentences_of(markup, "zh")[0] == [text]


CONVERTED = {"simplified": "这里的计算机与汉语。", "traditional": "這裏的計算機與漢語。", None: "这里的计算机与漢語。"}


@pytest.mark.parametrize("script", CONVERTED)
def test_chinese_text_is_converted_to_one_script(script):
    assert sentences_of("这里的计算机与漢語。", "zh", script=script)[0] == [CONVERTED[script]]


@pytest.mark.parametrize(("name", "language"), [("frwiki-latest.xml", None), ("latest.xml.bz2", "fr")])
def test_documents_are_separate_and_in_order(tmp_path, name, language):
    pages = dump(("0", FRENCH), ("1", FRENCH), ("0", "#REDIRECTION [[Mousse]]"), ("0", ARTICLE), ("0", ""))
    (tmp_path / name).write_bytes(bz2.compress(pages) if name.endswith("bz2") else pages)
    out = tmp_path / "new folder" / "out.txt"
    articles, stats = extract(tmp_path / name, out, language, processes=2 if language else 1)
    assert (articles, stats) == (2, {USED: 6, TOO_SHORT: 5, NOT_WHOLE: 1})
    documents = out.read_text(encoding="utf-8").split("\n\n")
    assert documents[0].splitlines() == FRENCH.replace(". Elle", ".\nElle").splitlines()
    assert documents[1].count("\n") == 4
    assert len(read_rows(out)) == 6
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize(
    ("name", "content", "out", "said"),
    [
        ("dump.xml", b"kept", "dump.xml", "dump.xml is the dump"),
        ("dump.xml", dump(("0", FRENCH)), "out.txt", "dump.xml: its name does not begin with a language"),
        ("enwiki.xml.bz2", bz2.compress(dump(("0", FRENCH)))[:-9], "out.txt", "is truncated or not a Wikipedia dump"),
    ],
)
def test_a_dump_that_cannot_be_used_is_an_error_and_leaves_no_output(name, content, out, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        extract(tmp_path / name, tmp_path / out)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]
