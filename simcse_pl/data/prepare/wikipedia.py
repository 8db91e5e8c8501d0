"""Extract the sentences of a Wikipedia dump in any language: `simcse prepare wikipedia`."""

import bz2
import hashlib
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import IO

import rich.progress

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_open, cache_folder, check_is_file
from simcse_pl.utils.terminal import progress_bar

_GENSIM_DUMP = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
_ARTICLES = ("0",)  # the namespace; others are talk, users, templates
_PAGES_A_TASK = 64

_NOT_PROSE = tuple("=*#:;|!{}")  # first characters of headings, lists, indented lines and tables
_MARKUP_LEFT = re.compile(r"[|{}<>\[\]=]|https?:|''")
_EMPHASIS = re.compile(r"'{2,5}")
_EMPTY_BRACKETS = re.compile(r"\s*[(（][\s,;:，；]*[)）]")
_SPACE_BEFORE_COMMA = re.compile(r"\s+([,;])")
_BEGINS_A_SENTENCE = re.compile(r"[^\s,;:.)]")
_ENDS_A_SENTENCE = re.compile(r"[.!?…。！？।۔։።][\"'”’»」』)]*$")
_SHORTEST, _LONGEST = 20, 500  # characters


def sentences_of(markup: str, language: str) -> list[str]:
    """Return the usable sentences of an article.

    Headings, lists, tables and text with leftover markup are left out, as are sentences without an end mark or with
    fewer than 20 or more than 500 characters.

    Args:
        markup: the article in wiki markup.
        language: its ISO 639 code, for the rules of sentence splitting.
    """
    import sentencex  # slow to import, like gensim; a run of data=wiki_sample only needs the file
    from gensim.corpora import wikicorpus

    sentences = []
    for line in wikicorpus.filter_wiki(markup).splitlines():
        line = _EMPHASIS.sub("", line.strip())
        if not line or line.startswith(_NOT_PROSE):
            continue
        line = _SPACE_BEFORE_COMMA.sub(r"\1", _EMPTY_BRACKETS.sub("", line))
        for sentence in sentencex.segment(language, line):
            sentence = " ".join(sentence.split())
            whole = _BEGINS_A_SENTENCE.match(sentence) and _ENDS_A_SENTENCE.search(sentence)
            if _SHORTEST <= len(sentence) <= _LONGEST and whole and not _MARKUP_LEFT.search(sentence):
                sentences.append(sentence)
    return sentences


def extract(dump: str | Path, out: str | Path, language: str | None = None, processes: int = 1) -> tuple[int, int]:
    """Write the sentences of a dump in order, one per line, with a blank line between articles.

    Args:
        dump: a pages-articles file of any Wikipedia, .xml or .xml.bz2.
        out: the text file to write, atomically.
        language: an ISO 639 code; None for the beginning of the dump's name, such as `de` of dewiki-latest-….
        processes: the number of processes.

    Returns:
        The number of articles with sentences, and of sentences.

    Raises:
        UserError: the dump does not exist, or is truncated or not a dump.
    """
    dump, out = Path(dump), Path(out)
    check_is_file(dump)
    language = language or dump.name.partition("wiki")[0]
    tasks = ((markup, language) for markup in _articles(dump))
    articles = sentences = 0
    with atomic_open(out) as file:
        for document in itertools.starmap(sentences_of, tasks) if processes == 1 else _in_parallel(tasks, processes):
            if document:
                file.write(("\n" if articles else "") + "\n".join(document) + "\n")
                articles, sentences = articles + 1, sentences + len(document)
        if not sentences:
            raise UserError(f"{dump} has no sentences: is it a pages-articles dump?")
    return articles, sentences


def gensim_sample() -> str:
    """Return the path of a file with the sentences of gensim's dump. It is written to the user's cache once.

    The dump has 106 articles of English Wikipedia, about 18,000 sentences.
    """
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    path = cache_folder() / f"wiki_sample-{version}.txt"
    if not path.is_file():
        import gensim

        extract(Path(gensim.__file__).parent / _GENSIM_DUMP, path)
    return str(path)


def _in_parallel(tasks: Iterator[tuple[str, str]], processes: int) -> Iterator[list[str]]:
    """Yield the sentences of each article, in order."""
    with ProcessPoolExecutor(processes) as pool:  # in batches, because map() would read the whole dump first
        while batch := list(itertools.islice(tasks, processes * _PAGES_A_TASK)):
            yield from pool.map(sentences_of, *zip(*batch, strict=True), chunksize=_PAGES_A_TASK // 4)


def _articles(dump: Path) -> Iterator[str]:
    from gensim.corpora import wikicorpus

    columns = (*rich.progress.Progress.get_default_columns(), rich.progress.DownloadColumn())
    with progress_bar(*columns) as bar, bar.open(dump, "rb", description=f"reading {dump.name}") as raw:
        file: IO[bytes] = bz2.BZ2File(raw) if dump.suffix == ".bz2" else raw
        with reraise_as(f"{dump} is truncated or not a Wikipedia dump"):
            for _, markup, _ in wikicorpus.extract_pages(file, filter_namespaces=_ARTICLES):
                if markup and not markup.lstrip().startswith("#"):  # #REDIRECT, in any language
                    yield markup
