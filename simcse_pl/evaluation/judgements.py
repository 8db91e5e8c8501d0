"""Judgements: queries, a corpus, and how relevant its documents are to each query."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from simcse_pl.data.formats import Layout
from simcse_pl.data.rows import Row, position_of, valid_rows
from simcse_pl.data.sources import open_source
from simcse_pl.evaluation.evaluators import EvaluationFile
from simcse_pl.results import VALIDATION
from simcse_pl.utils.errors import UserError, prefixed
from simcse_pl.utils.text import as_number

log = logging.getLogger(__name__)
Qrels = Sequence[tuple[str, Mapping[str, float]]]  # the id of a query, and the grades of documents by their ids


class Judgements(NamedTuple):
    """Queries and documents by their ids, and the grades of the documents that were judged for each query.

    A document with a grade above 0 is relevant. Each query has one.
    """

    queries: Mapping[str, str]
    corpus: Mapping[str, str]
    qrels: Qrels


def judgements_of(source: Any, queries: Mapping[str, str], corpus: Mapping[str, str], qrels: Qrels) -> Judgements:
    """Return the judgements of queries that have a relevant document; raise UserError if there are none."""
    judged = [(query, grade_of) for query, grade_of in qrels if max(grade_of.values()) > 0]
    if not judged:
        raise UserError(f"{source}: no query has a relevant document, with a score above 0, and another one if needed")
    if missing := sum(document not in corpus for _, grade_of in judged for document in grade_of):
        log.warning("%s: the corpus lacks %d of its documents, which are never found", source, missing)
    return Judgements({query: queries[query] for query, _ in judged}, corpus, judged)


def judgements_of_texts(source: Any, qrels: Qrels, corpus: Iterable[str] = ()) -> Judgements:
    """Return judgements whose texts are the ids; the documents that were judged are appended to the corpus."""
    documents = [*corpus, *(document for _, grade_of in qrels for document in grade_of)]
    return judgements_of(source, {query: query for query, _ in qrels}, {one: one for one in documents}, qrels)


@dataclass(frozen=True, kw_only=True)
class RetrievalFile(EvaluationFile):
    """A file of queries and their positives, or a folder in BEIR's layout.

    Args:
        corpus: further documents to rank, the rows of a file or of several files; or a mapping with the arguments of
            EvaluationFile. The columns of a row, such as title and text, are one document.
    """

    corpus: Annotated[Any, EvaluationFile] = None

    def judgements(self) -> Judgements:
        """Read the queries, the corpus and the positives."""
        if (folder := Path(str(self.file)) / "queries.jsonl").is_file():
            return _judgements_of_beir(folder.parent, "dev" if self.split == VALIDATION else self.split)
        positives: dict[str, dict[str, float]] = {}
        for (query, *cells), _ in self.rows(negatives=False):
            others = [cell for cell in cells if cell not in ("", query)]
            if not query or not others:
                raise UserError(f"{self.file}: the query {query!r} needs a positive other than itself")
            positives.setdefault(query, {}).update(dict.fromkeys(others, 1.0))
        given = self.corpus if isinstance(self.corpus, Mapping) else {"file": self.corpus}
        with prefixed("corpus", "'evaluators.retrieval.corpus={file: FILE, columns: [NAME]}'"):
            corpus = [_joined(row) for row, _ in EvaluationFile(**given).rows()] if self.corpus else []
        answers = {one for others in positives.values() for one in others}
        if corpus and (lacking := answers - {*corpus}):
            log.warning("%s: the corpus lacks %d positives, which are ranked, too", self.file, len(lacking))
            if lacking == answers:
                log.warning("%s has no positive of %s: are its columns those of the texts?", given["file"], self.file)
        return judgements_of_texts(self.file, [*positives.items()], corpus)


def _joined(parts: Iterable[str]) -> str:
    return " ".join(filter(None, parts))


def _judgements_of_beir(folder: Path, split: str) -> Judgements:
    """Read corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."""
    corpus = _texts_by_id(folder / "corpus.jsonl", "title", "text")
    queries = _texts_by_id(folder / "queries.jsonl", "text")
    file, grades = folder / "qrels" / f"{split}.tsv", dict[str, dict[str, float]]()
    for query, document, score in _cells(file, "query-id", "corpus-id", "score"):
        if query not in queries or (grade := as_number(score)) is None:
            raise UserError(f"{file}: {query}, {document}, {score}: no query in queries.jsonl, or no score")
        grades.setdefault(query, {})[document] = grade
    return judgements_of(file, queries, corpus, [*grades.items()])


def _texts_by_id(file: Path, *columns: str) -> dict[str, str]:
    """Return the joined columns of each row by its id; raise UserError if an id has two texts."""
    texts: dict[str, str] = {}
    for number, *parts in _cells(file, "_id", *columns):
        if texts.setdefault(number, text := _joined(parts)) != text:
            raise UserError(f"{file}: the id {number} has two texts")
    return texts


def _cells(file: Path, *names: str) -> Iterator[Row]:
    """Return the text of these columns of each row; a corpus may have no column title."""
    table = open_source(file, Layout(header=True))
    positions = [position_of(table, name) for name in names if name != "title" or name in (table.header or ())]
    return (row for row, _ in valid_rows(table, positions, None, "blank", log.debug))
