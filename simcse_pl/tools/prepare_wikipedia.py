"""Extract the sentences of a Wikipedia dump in any language."""

import argparse
import bz2
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO, Any

import rich.progress

from simcse_pl.tools.conversion import USED, ConversionStats
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_open, check_is_file
from simcse_pl.utils.processes import available_cpus
from simcse_pl.utils.terminal import integer, progress_bar, show

_PAGES_A_TASK = 64
_NOT_PROSE = tuple("=*#:;|!{}")  # first characters of headings, lists, indented lines and tables
_MARKUP_LEFT = re.compile(r"[|{}<>\[\]=]|https?:|''")
_EMPHASIS = re.compile(r"'{2,5}")
_EMPTY_BRACKETS = re.compile(r"\s*[(（][\s,;:，；]*[)）]")
_SPACE_BEFORE_COMMA = re.compile(r"\s+([,;])")
_BEGINS_A_SENTENCE = re.compile(r"[^\s,;:.)]")
# the sentence ends of all scripts, then quotation marks and brackets; French has a space before its quotation mark
_ENDS_A_SENTENCE = re.compile(r"[.!?…。！？．｡؟۔।॥։።፧။།។៕᠃][\"'”’“‘»«›‹」』》〉】）)\]]*(?:\s»)?$")
# Thai and Lao have spaces in place of end marks, and around the signs of repetition and abbreviation
_BETWEEN_THAI = re.compile(r"(?<=[\u0e01-\u0edf])(?<![ๆฯໆຯ])\s+(?=[\u0e01-\u0edf])(?![ๆฯໆຯ])")
_ENDS_IN_THAI = re.compile(r"[\u0e01-\u0edf]$")
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_WORTH = 3  # characters of other scripts that a wide one has the content of
_SHORTEST, _LONGEST = 20, 500  # characters
# -{zh-hans:计算机;zh-hant:電腦}- of Chinese, Serbian and other Wikipedias; -{{ begins a template
_VARIANTS = re.compile(r"-\{(?!\{)((?:(?!-\{|\}-).)*)\}-", re.DOTALL)
_FLAG = re.compile(r"\s*(?:([A-Z-])|[a-z;\s-]+)\s*\|")
_SHOWN_FLAGS = ("A", "R", "S", None)  # None: variant codes
SCRIPTS = {"simplified": "t2s", "traditional": "s2t"}  # the conversions of OpenCC
_FIRST_VARIANT = re.compile(r"\s*(?:[^;:]*=>\s*)?[a-z]{2,3}(?:-[a-z]+)*\s*:([^;]*)")
TOO_SHORT, TOO_LONG = "too short", "too long"
MARKUP = "with leftover markup"
NOT_WHOLE = "without a start or an end mark"


def sentences_of(markup: str, language: str, script: str | None = None) -> tuple[list[str], ConversionStats]:
    """Return the usable sentences of an article, and the numbers of sentences by outcome.

    Headings, lists and tables are left out. So are sentences with leftover markup, without an end mark, with fewer than
    20 or more than 500 characters. A Chinese, Japanese or Korean character counts as 3. Of words that are written in
    several variants of a language, the first variant is taken. Thai and Lao are split at spaces.

    Args:
        markup: the article in wiki markup.
        language: its ISO 639 code, for the rules of sentence splitting.
        script: one of `SCRIPTS`, to convert Chinese text to; None to keep it.
    """
    import sentencex  # slow to import, like gensim
    from gensim.corpora import wikicorpus

    sentences, stats = [], ConversionStats()
    while (replaced := _VARIANTS.sub(_first_variant, markup)) != markup:  # the inner ones first
        markup = replaced
    for line in wikicorpus.filter_wiki(markup).splitlines():
        line = _EMPHASIS.sub("", line.strip())
        if not line or line.startswith(_NOT_PROSE):
            continue
        line = _SPACE_BEFORE_COMMA.sub(r"\1", _EMPTY_BRACKETS.sub("", line))
        line = _converter(script).convert(line) if script else line
        is_thai = _ENDS_IN_THAI.search(line)
        for sentence in _BETWEEN_THAI.split(line) if is_thai else sentencex.segment(language, line):
            sentence = " ".join(sentence.split())
            outcome = _outcome(sentence)
            stats[outcome] += 1
            if outcome == USED:
                sentences.append(sentence)
    return sentences, stats


def _outcome(sentence: str) -> str:
    length = len(sentence) + (_WORTH - 1) * len(_WIDE.findall(sentence))
    if length < _SHORTEST:
        return TOO_SHORT
    if length > _LONGEST:
        return TOO_LONG
    if _MARKUP_LEFT.search(sentence):
        return MARKUP
    ends = _ENDS_A_SENTENCE.search(sentence) or _ENDS_IN_THAI.search(sentence)
    return USED if _BEGINS_A_SENTENCE.match(sentence) and ends else NOT_WHOLE


@cache
def _converter(script: str) -> Any:
    import opencc  # an extra

    return opencc.OpenCC(SCRIPTS[script])


def _first_variant(match: re.Match[str]) -> str:
    text = match[1]
    if flag := _FLAG.match(text):
        if flag[1] not in _SHOWN_FLAGS:  # a rule for the page or its title
            return ""
        text = text[flag.end() :]
    variant = _FIRST_VARIANT.match(text)
    return variant[1].strip() if variant else text


def extract(
    dump: str | Path,
    out: str | Path,
    language: str | None = None,
    processes: int = 1,
    script: str | None = None,
) -> tuple[int, ConversionStats]:
    """Write the sentences of a dump in order, one per line, with a blank line between articles.

    Args:
        dump: a pages-articles file of any Wikipedia, .xml or .xml.bz2.
        out: the text file to write, atomically.
        language: an ISO 639 code; None for the beginning of the dump's name, such as `de` of dewiki-latest-….
        processes: the number of processes.
        script: see `sentences_of`.

    Returns:
        The number of articles with sentences, and the numbers of sentences by outcome.
    """
    dump, out = Path(dump), Path(out)
    check_is_file(dump)
    if out.exists() and out.samefile(dump):
        raise UserError(f"{out} is the dump: give another name for the output")
    if language is None:
        if not (named := re.match(r"([a-z]{2,3}|simple)wiki", dump.name)):
            raise UserError(f"{dump}: its name does not begin with a language, as dewiki does: give --language")
        language = "en" if named[1] == "simple" else named[1]
    tasks = ((markup, language, script) for markup in _articles(dump))
    articles, stats = 0, ConversionStats()
    with atomic_open(out) as file:
        made = itertools.starmap(sentences_of, tasks) if processes == 1 else _in_parallel(tasks, processes)
        for document, article_stats in made:
            stats.update(article_stats)
            if document:
                file.write(("\n" if articles else "") + "\n".join(document) + "\n")
                articles += 1
        if not articles:
            raise UserError(f"{dump} has no usable sentences ({stats}): is it a pages-articles dump?")
    return articles, stats


def _in_parallel(tasks: Iterator[tuple[Any, ...]], processes: int) -> Iterator[tuple[list[str], ConversionStats]]:
    """Yield the sentences of each article and their stats, in order."""
    with ProcessPoolExecutor(processes) as pool:  # in batches, because map() would read the whole dump first
        while batch := list(itertools.islice(tasks, processes * _PAGES_A_TASK)):
            yield from pool.map(sentences_of, *zip(*batch, strict=True), chunksize=_PAGES_A_TASK // 4)


def _articles(dump: Path) -> Iterator[str]:
    from gensim.corpora import wikicorpus

    columns = (*rich.progress.Progress.get_default_columns(), rich.progress.DownloadColumn())
    with progress_bar(*columns) as bar, bar.open(dump, "rb", description=f"reading {dump.name}") as raw:
        file: IO[bytes] = bz2.BZ2File(raw) if dump.suffix == ".bz2" else raw
        with reraise_as(f"{dump} is truncated or not a Wikipedia dump"):
            # the namespace 0 has the articles; others have talk, users, templates
            for _, markup, _ in wikicorpus.extract_pages(file, filter_namespaces=("0",)):
                if markup and not markup.lstrip().startswith("#"):  # #REDIRECT, in any language
                    yield markup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DUMP", help="dump of the articles: a file ...-pages-articles.xml or .xml.bz2")
    text = "output file (.txt) with one sentence per line and a blank line between articles"
    parser.add_argument("out", metavar="OUT", help=text)
    parser.add_argument("--language", help="ISO 639 code of the language (default: from the file name of the dump)")
    text = "convert Chinese text to this script by OpenCC: pip install opencc (default: as it is)"
    parser.add_argument("--script", choices=SCRIPTS, help=text)
    parser.add_argument("--processes", type=integer, default=available_cpus(), metavar="N", help="default: all cores")


def run(arguments: argparse.Namespace) -> None:
    options = arguments.language, arguments.processes, arguments.script
    articles, stats = extract(arguments.dump, arguments.out, *options)
    show(stats.table("sentences").printed())
    print(f"{stats[USED]} sentences of {articles} articles in {arguments.out}")
