"""Pairs from QQP, Flickr30k and ParaNMT, in each published form."""

import csv
import io
import itertools
import math

import pytest

from simcse_pl.data.rows import read_rows
from simcse_pl.tools import prepare_paraphrases as paraphrases
from simcse_pl.tools.conversion import INVALID, NO_WORDS, REPEATED, USED, ConversionStats
from simcse_pl.tools.prepare_paraphrases import CORPORA

HEADER = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
QUESTIONS = [
    ("How can I be a good geologist?", "What should I do to be a great geologist?", "1"),
    ("When do you use シ instead of し?", 'When do you use "&" instead of "and"?', "0"),
    ('Who said "I came, I saw"?', '"I came, I saw": who said it?', "1"),
    ("Was he real?\n\nIs there evidence?", "Did he\tlive?", "1"),
    ("How can I be a good geologist?", "What should I do to be a great geologist?", "1"),
    ("What is it?", "", "1"),
    ('"', "Is a mark a question?", "1"),
]
DUPLICATES = [QUESTIONS[0][:2], QUESTIONS[2][:2], ("Was he real? Is there evidence?", "Did he live?")]


def converted(tmp_path, corpus, text):
    (tmp_path / "corpus").write_text(text, encoding="utf-8")
    stats = ConversionStats()
    return stats, [tuple(row) for row in CORPORA[corpus](tmp_path / "corpus", stats)]


def test_questions_that_are_duplicates_are_pairs(tmp_path):
    writer = csv.writer(text := io.StringIO(), delimiter="\t", lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows([i, 2 * i + 1, 2 * i + 2, *question] for i, question in enumerate(QUESTIONS))
    stats, rows = converted(tmp_path, "qqp", text.getvalue())
    assert rows == DUPLICATES
    assert stats == {paraphrases.NOT_DUPLICATE: 1, REPEATED: 1, NO_WORDS: 2, USED: 3, INVALID: 0}


@pytest.mark.parametrize("separators", [("#", "\t"), ("| ", "| ")])
def test_every_two_captions_of_an_image_are_a_pair(tmp_path, separators):
    said = {f"{i}.jpg": [f"Caption {i} , {n} | of 5 #1 ." for n in range(5)] for i in (10, 2, 7)}
    said["3.jpg"] = ["3 men run ."]
    said["2.jpg"][4] = said["2.jpg"][0]
    before, after = separators
    lines = ["image_name| comment_number| comment"] if before == "| " else []
    lines += [f"{image}{before}{n}{after}{text}" for image, texts in said.items() for n, text in enumerate(texts)]
    stats, rows = converted(tmp_path, "flickr30k", "\n".join(lines))
    expected = {image: list(itertools.combinations(dict.fromkeys(texts), 2)) for image, texts in said.items()}
    assert [len(pairs) for pairs in expected.values()] == [math.comb(5, 2), math.comb(4, 2), math.comb(5, 2), 0]
    assert rows == [pair for pairs in expected.values() for pair in pairs]
    assert stats == {paraphrases.REPEATED_CAPTION: 1, paraphrases.ONLY_CAPTION: 1, USED: 14}


@pytest.mark.parametrize("score", ["", "\t0.83"])
def test_back_translations_are_read_unchanged(tmp_path, score):
    lines = [
        f"so , unless that 's gon na be feasible , then ...\tso , if you can afford it , then ...{score}",
        f'he said " no\the " refused "{score}',
        f'he said " no\the " refused "{score}',
        f". . .\tthat is all .{score}",
    ]
    stats, rows = converted(tmp_path, "paranmt", "\n".join(lines))
    assert rows == [tuple(line.split("\t")[:2]) for line in lines[:3]]
    assert stats == {NO_WORDS: 1, USED: 3}


QUORA = "\t".join(HEADER) + "\n0\t1\t2\tIs it?\tIs it so?\t1\n"


@pytest.mark.parametrize(
    ("corpus", "good", "bad", "count"),
    [
        ("qqp", QUORA, '1\t3\t4\t"Is it?\tIs it so?\n1\n', 2),
        ("flickr30k", "1.jpg#0\tA .\n1.jpg#1\tB .\n", "1.jpg#2 C .\n", 1),
        ("paranmt", "a\tb\n", "a\tb\t0.5\tc\n", 1),
    ],
)
def test_invalid_rows_are_left_out_and_counted(tmp_path, corpus, good, bad, count):
    stats, rows = converted(tmp_path, corpus, good + bad)
    assert (stats[INVALID], len(rows)) == (count, 1)


def test_the_command_writes_a_file_of_pairs(command, tmp_path):
    (tmp_path / "corpus").write_text("a\tb\nc\td\n")
    printed = command("prepare", "paraphrases", "paranmt", tmp_path / "corpus", tmp_path / "out.csv").out
    assert read_rows(tmp_path / "out.csv", ["anchor", "positive"]) == [("a", "b"), ("c", "d")]
    assert printed.endswith(f"2 pairs in {tmp_path}/out.csv\n")
