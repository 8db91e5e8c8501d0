"""Arguments and helpers that several commands use."""

import argparse
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from simcse_pl.data.formats import Format, Layout
from simcse_pl.data.rows import ReadOptions, iterate_rows, iterate_sentences
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.tools.simcse import SimCSE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import finish_write, remove_half_written
from simcse_pl.utils.terminal import counting_bar, integer

T = TypeVar("T")
CHUNK_SIZE = 1024  # sentences; the encoder sorts them by length


def add_encoder(
    parser: argparse.ArgumentParser, name: str = "encoder", computes: bool = True, prompt: str = "", **how: Any
) -> None:
    """Add the arguments that select an encoder; a `name` such as `--encoder` makes it an option.

    With `computes`, add the arguments for device, batch size and precision. With `prompt`, add --prompt-name, whose
    help says what the prompt is for.
    """
    text = (
        "an encoder: the folder `encoder` of a training run, a training checkpoint (.ckpt), a folder of transformers "
        "or sentence-transformers, a hub name, package:NAME of a Python package, static embeddings, word vectors "
        "(.txt or .vec), or with --backbone a file with a state dict"
    )
    parser.add_argument(name, metavar="ENCODER", help=text, **how)
    parser.add_argument("--pooling", help="such as cls or mean (default: the saved one; a plain checkpoint has none)")
    text = "model with the config and the tokenizer, for a file that has weights alone, such as simcse_unsup.pt"
    parser.add_argument("--backbone", metavar="MODEL", help=text)
    text = "maximum number of tokens per sentence (default: the saved one)"
    parser.add_argument("--max-length", type=integer, metavar="N", help=text)
    text = "keep only the first N dimensions of the vectors, if the encoder was trained with objective=matryoshka"
    parser.add_argument("--truncate-dim", type=integer, metavar="N", help=text)
    if prompt:
        parser.add_argument("--prompt-name", metavar="NAME", help=f"one of the encoder's prompts, for {prompt}")
    if not computes:
        return
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if available)")
    text = "sentences per batch (default: 32 on a CPU, 128 on a GPU)"
    parser.add_argument("--batch-size", type=integer, metavar="N", help=text)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16, faster on hardware that supports it")


def load_simcse(arguments: argparse.Namespace) -> SimCSE:
    """Load the selected encoder on the device of the arguments."""
    names = ("pooling", "backbone", "max_length", "truncate_dim", "batch_size", "bf16")
    options = {name: getattr(arguments, name) for name in names}
    return SimCSE(arguments.encoder, device=arguments.device, **options)


def load_selected(name: str, arguments: argparse.Namespace) -> SentenceEncoder:
    """Load an encoder on the CPU, with the arguments of `add_encoder` that replace its settings."""
    options = {name: getattr(arguments, name) for name in ("pooling", "backbone", "max_length", "truncate_dim")}
    return SentenceEncoder.from_pretrained(name, **options)


def new_folder(name: str) -> Path:
    """Return an output folder, without what a killed process left in it; raise UserError if it contains files."""
    folder = Path(name)
    finish_write(folder)
    remove_half_written(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists: give a new directory, or remove it first")
    return folder


def column(text: str) -> int | str:
    """Return a column's position if the argument is a number, otherwise its name."""
    return int(text) if text.isdecimal() else text


def add_column(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how a file is written, and which of its columns has the sentences."""
    text = "name or position (from 0) of the column with the sentences, for files with several columns"
    parser.add_argument("--column", type=column, help=text)
    add_layout(parser)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how a file of pairs is written, and which are its two columns."""
    text = "names or positions (from 0) of the columns of the pairs (default: 0 1)"
    parser.add_argument("--columns", nargs=2, type=column, metavar="COLUMN", help=text)
    add_layout(parser)


def add_layout(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how a file is written."""
    default = "(default: detected from the file)"
    parser.add_argument("--format", choices=get_args(Format), help=f"format of the file {default}")
    parser.add_argument("--separator", metavar="TEXT", help=f"what separates cells of a table, such as ';' {default}")
    parser.add_argument("--header", choices=("true", "false"), help=f"whether the first row has column names {default}")
    parser.add_argument("--encoding", help="how the characters are written, such as gb18030 (default: UTF-8)")


def layout(arguments: argparse.Namespace) -> Layout:
    """Return how the file of a command is written, as far as the arguments say."""
    header = None if arguments.header is None else arguments.header == "true"
    how = {"format": arguments.format, "separator": arguments.separator, "encoding": arguments.encoding}
    return Layout(header=header, **how)


def read_sentences(file: str, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the sentences of a file, with the arguments of `add_column`."""
    return iterate_sentences(file, arguments.column, **vars(layout(arguments)))


def add_id(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the column of ids."""
    text = "column of the ids that a search prints (default: the number of the row in its file, from 0)"
    parser.add_argument("--id", type=column, metavar="COLUMN", help=text)


def read_with_ids(file: str, arguments: argparse.Namespace) -> tuple[Sequence[str], dict[str, int | str]]:
    """Return the sentences of a file, and the id of the first row of each."""
    sentences: Sequence[str] = ()
    ids: Sequence[Any] = ()
    if arguments.id is None:
        sentences = list(read_sentences(file, arguments))
        ids = range(len(sentences))
    elif arguments.column is None:
        raise UserError("--id: give the column of the sentences, too, by --column")
    else:
        how = ReadOptions(columns=[arguments.column], label_column=arguments.id, **vars(layout(arguments)))
        rows = iterate_rows(file, how, labels_are_ids=True)
        sentences, ids = zip(*((sentence, given) for (sentence,), given in rows), strict=True)
    return sentences, dict(zip(reversed(sentences), reversed(ids), strict=True))


def chunks_with_progress(
    rows: Iterable[T], description: str, total: int | None = None, size: int = CHUNK_SIZE, shown: bool = True
) -> Iterator[list[T]]:
    """Yield chunks of `size` rows, the last one shorter, and show how many rows are done."""
    rows = iter(rows)
    with counting_bar(shown=shown) as bar:
        task = bar.add_task(description, total=total)
        while chunk := list(itertools.islice(rows, size)):
            yield chunk
            bar.advance(task, len(chunk))


def json_line(row: dict[str, Any]) -> str:
    """Return a row as a line of JSON, with the line break."""
    return json.dumps(row, ensure_ascii=False) + "\n"
