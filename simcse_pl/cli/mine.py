"""Find hard negatives for pairs: sentences that are similar to the anchor, but not its positives."""

import argparse
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from simcse_pl.cli.common import add_columns, add_encoder, column, layout, load_simcse
from simcse_pl.data.prepare.conversion import ConversionStats, check_paths, write_csv
from simcse_pl.data.readers.row_reader import iterate_sentences, read_rows
from simcse_pl.inference.cross_encoder import CrossEncoder, rescore
from simcse_pl.inference.mining import NEAREST, RANDOM, MiningOptions, mine
from simcse_pl.utils.tensors import DOCUMENT, QUERY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, prompt="the anchors (default: query, if the encoder has it); others have its prompt document")
    text = "pairs of an anchor and a positive: .csv, .tsv, .jsonl or .parquet"
    parser.add_argument("pairs", metavar="PAIRS", help=text)
    text = "output file (.csv) with the columns anchor, positive, negative_1, negative_2, ..."
    parser.add_argument("out", metavar="OUT", help=text)
    add_columns(parser)
    text = "error: stop at an invalid row; drop: leave out invalid rows, and count them (default: error)"
    parser.add_argument("--on-invalid-row", choices=("error", "drop"), default="error", help=text)
    text = "file of the sentences to choose negatives from (default: the positives of all pairs)"
    parser.add_argument("--corpus", metavar="FILE", help=text)
    parser.add_argument("--corpus-column", type=column, metavar="COLUMN", help="column of --corpus, if it has several")
    text = "negatives per pair (default: %(default)s)"
    parser.add_argument("--negatives", type=int, default=1, metavar="N", help=text)
    text = "leave out the N nearest sentences, which are often unlabelled positives (default: %(default)s)"
    parser.add_argument("--skip-top", type=int, default=0, metavar="N", help=text)
    text = "leave out sentences whose cosine with the anchor is above that of the positive minus X"
    parser.add_argument("--margin", type=float, metavar="X", help=text)
    text = "leave out sentences whose cosine is above that of the positive times (1 - X), for example X = 0.05"
    parser.add_argument("--relative-margin", type=float, metavar="X", help=text)
    parser.add_argument("--max-similarity", type=float, metavar="X", help="leave out sentences whose cosine is above X")
    parser.add_argument("--min-similarity", type=float, metavar="X", help="leave out sentences whose cosine is below X")
    text = "choose the nearest of the remaining sentences, or a random sample (default: %(default)s)"
    parser.add_argument("--choice", choices=(NEAREST, RANDOM), default=NEAREST, help=text)
    text = "choose among the nearest sentences that an index of FAISS finds, such as IVF1024,Flat:nprobe=32, or Flat"
    parser.add_argument("--faiss", metavar="INDEX", help=text)
    parser.add_argument("--nearest", type=int, default=100, metavar="N", help="how many (default: %(default)s)")
    text = "score the candidates by this cross-encoder, a sequence classifier with one logit, and write the scores"
    parser.add_argument("--rescore", metavar="MODEL", help=text)
    text = "with --rescore, leave out candidates that score above the positive minus X (default: %(default)s)"
    parser.add_argument("--rescore-margin", type=float, default=0.0, metavar="X", help=text)
    text = "with --rescore, how many candidates of a pair are scored (default: %(default)s)"
    parser.add_argument("--candidates", type=int, default=10, metavar="N", help=text)
    parser.add_argument("--seed", type=int, default=42, help="seed of --choice random (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    out = Path(arguments.out)
    check_paths([Path(file) for file in (arguments.pairs, arguments.corpus) if file and Path(file).exists()], out)
    arguments.candidates = max(arguments.candidates, arguments.negatives) if arguments.rescore else 0
    options = MiningOptions(**{field.name: getattr(arguments, field.name) for field in fields(MiningOptions)})
    reading: Any = {"on_invalid_row": arguments.on_invalid_row, "layout": layout(arguments)}
    rows = read_rows(arguments.pairs, arguments.columns, **reading)
    pairs, corpus = [(row[0], row[1]) for row in rows], None
    if arguments.corpus:
        corpus = list(iterate_sentences(arguments.corpus, arguments.corpus_column, **reading))
    simcse = load_simcse(arguments)
    encode = partial(simcse.encode, normalize_to_unit=False, progress=True)
    names = simcse.prompt_if_any(DOCUMENT), arguments.prompt_name or simcse.prompt_if_any(QUERY)
    of_others, of_anchors = (partial(encode, prompt_name=name) for name in names)
    mined, counts = mine(of_others, pairs, options, corpus, simcse.device, of_anchors if any(names) else None)
    numbers = range(1, options.negatives + 1)
    columns = ["anchor", "positive", *(f"negative_{number}" for number in numbers)]
    if arguments.rescore:
        score = CrossEncoder(arguments.rescore, simcse.device, arguments.batch_size or 32).score
        mined, counts["rescore"] = rescore(score, mined, options.negatives, arguments.rescore_margin)
        columns += ["positive_score", *(f"negative_{number}_score" for number in numbers)]
    too_few = len(pairs) - len(mined)
    write_csv(out, columns, mined, ConversionStats({"without enough negatives": too_few}))
    for name, number in counts.items():
        print(f"--{name.replace('_', '-')} left out {number / len(pairs):.1f} sentences per pair")
    print(f"{len(mined)} rows in {out}; {too_few} pairs had too few negatives")
