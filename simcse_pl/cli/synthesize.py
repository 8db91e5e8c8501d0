"""Make triplets from sentences: a language model writes a positive and a hard negative for each.

The language model is any OpenAI-compatible server, or a model of transformers. Its answers are kept in the file
OUT.answers.jsonl, so the same command continues after an interruption, and other filters ask nothing again.
"""

import argparse
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from simcse_pl.cli.common import add_column, add_encoder, layout, load_simcse
from simcse_pl.data.prepare.conversion import USED, ConversionStats, check_paths, write_csv
from simcse_pl.data.readers.row_reader import iterate_sentences, read_rows
from simcse_pl.data.synthesis.language_model import LocalModel, Server
from simcse_pl.data.synthesis.synthesizer import PROMPTS, Prompts, Synthesizer, filter_by_similarity
from simcse_pl.utils.errors import reraise_as, reraise_invalid_options
from simcse_pl.utils.files import read_lines
from simcse_pl.utils.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "sentences: .txt (one per line), .csv, .tsv, .json, .jsonl or .parquet"
    parser.add_argument("sentences", metavar="SENTENCES", help=text)
    parser.add_argument("out", metavar="OUT", help="output file (.csv) with the columns anchor, positive and negative")
    add_column(parser)
    text = "address of a server, such as http://localhost:8000/v1; its key is read from OPENAI_API_KEY"
    parser.add_argument("--server", metavar="URL", help=text)
    text = "name of the model on the server; without --server, a chat model: a folder, a hub name or package:NAME"
    parser.add_argument("--model", required=True, metavar="MODEL", help=text)
    text = "settings of a request, added to temperature 0.7 and max_tokens 128; null removes one"
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON", help=text)
    parser.add_argument("--workers", type=int, default=8, metavar="N", help="requests at a time (default: %(default)s)")
    text = "file of instructions, to be written like the default, simcse_pl/data/synthesis/prompts.yaml"
    parser.add_argument("--prompts", default=PROMPTS, metavar="FILE", help=text)
    text = "file of triplets, of which five, drawn by --seed, show the model what is wanted (default: none)"
    parser.add_argument("--examples", metavar="FILE", help=text)
    parser.add_argument("--seed", type=int, default=42, help="seed of instructions and examples (default: %(default)s)")
    text = "leave out answers with X times as many characters as the sentence, or as few (default: %(default)s)"
    parser.add_argument("--length-ratio", type=float, default=3.0, metavar="X", help=text)
    text = "ask again if the positive follows from the sentence and the negative contradicts it; leave out the others"
    parser.add_argument("--check", action="store_true", help=text)
    add_encoder(parser, "--encoder")
    parser.add_argument("--min-positive", type=float, default=-2, metavar="X", help="lowest cosine of a positive")
    parser.add_argument("--max-negative", type=float, default=2, metavar="X", help="highest cosine of a negative")
    text = "price of a million tokens that are read, and of a million that are written"
    parser.add_argument("--price", nargs=2, type=float, metavar="X", help=text)
    parser.add_argument("--dry-run", action="store_true", help="print the number of requests and tokens, and stop")


def run(arguments: argparse.Namespace) -> None:
    out = Path(arguments.out)
    check_paths([Path(arguments.sentences)], out)
    given = list(iterate_sentences(arguments.sentences, arguments.column, layout=layout(arguments)))
    sentences = list(dict.fromkeys(given))
    synthesizer = _synthesizer(arguments, out.with_name(f"{out.name}.answers.jsonl"))
    requests, *tokens = synthesizer.estimate(sentences, arguments.check)
    print(f"at most {requests} requests, about {tokens[0]} tokens to read and {tokens[1]} to write", flush=True)
    if arguments.price:
        print(f"price: {sum(price * count for price, count in zip(arguments.price, tokens, strict=True)) / 1e6:.2f}")
    if arguments.dry_run:
        return
    triplets = synthesizer.triplets(sentences, arguments.length_ratio, arguments.check)
    stats = ConversionStats(Counter({"the same sentence again": len(given) - len(sentences)}) + synthesizer.left_out)
    if arguments.encoder and triplets:
        simcse, count = load_simcse(arguments), len(triplets)
        triplets = filter_by_similarity(simcse.encode, triplets, arguments.min_positive, arguments.max_negative)
        stats["a cosine beyond --min-positive or --max-negative"] = count - len(triplets)
    stats[USED] = write_csv(out, ["anchor", "positive", "negative"], triplets, stats)
    show(stats.table("sentences").printed())
    print(f"{synthesizer.tokens['read']} tokens read and {synthesizer.tokens['written']} written in this run")
    print(f"{stats[USED]} rows in {out}")


def _synthesizer(arguments: argparse.Namespace, answers: Path) -> Synthesizer:
    settings: dict[str, Any] = {"model": arguments.model, "temperature": 0.7, "max_tokens": 128} | arguments.settings
    settings = {name: value for name, value in settings.items() if value is not None}
    with reraise_as(arguments.prompts, users_too=True), reraise_invalid_options():
        prompts = Prompts(**yaml.safe_load("\n".join(read_lines(Path(arguments.prompts)))))
    examples = read_rows(arguments.examples, [0, 1, 2]) if arguments.examples else []
    if arguments.server:
        key = os.environ.get("OPENAI_API_KEY")
        model: Server | LocalModel = Server(arguments.server, settings, key, arguments.workers)
    else:
        model = LocalModel(settings, arguments.device, arguments.batch_size or 8)
    return Synthesizer(model, prompts, examples, arguments.seed, answers)
