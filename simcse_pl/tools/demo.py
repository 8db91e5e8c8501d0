"""Show one encoder, or two side by side, on a page in the browser.

The page searches in sentences of yours, and compares two sentences. A sentence that two encoders rank differently has a
colour. With --dev, the page lists the queries whose rank changes most. It needs Gradio and sends nothing to other
machines. Only this machine can open it, unless --host says otherwise.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from simcse_pl.data.rows import read_rows
from simcse_pl.evaluation.judgements import judgements_of_texts
from simcse_pl.evaluation.ranking import relevant_ranks
from simcse_pl.evaluation.sts import load_sample
from simcse_pl.evaluation.suite import encode_once
from simcse_pl.run_folder import encoder_label
from simcse_pl.tools.common import add_column, add_encoder, column, load_simcse, read_sentences
from simcse_pl.tools.simcse import SimCSE
from simcse_pl.utils.errors import UserError, prefixed

Encoders = Mapping[str, SimCSE]  # by the labels that the page shows
ONLY, MOVED = "background: rgba(0, 114, 178, 0.3)", "background: rgba(230, 159, 0, 0.4)"  # visible on white and black
_THERE = "rank in the other"
_COLOURS = "Blue: a sentence that only one encoder finds. Orange: one that they find at different ranks."


def nearest(encoders: Encoders, query: str, top_k: int) -> Styler:
    """Return the sentences nearest to a query, in a row per rank, with their cosines in each encoder's index.

    With two encoders, there is also the rank of each sentence in the other one, and a colour: ONLY if it is not among
    the first `top_k` there, and MOVED if it has another rank.
    """
    found = {
        name: one.search(query, threshold=None, top_k=len(one.index or ()) if len(encoders) > 1 else top_k)
        for name, one in encoders.items()
    }
    ranks = {name: {hit.sentence: rank for rank, hit in enumerate(hits, 1)} for name, hits in found.items()}
    frames, styles = {}, {}
    for name, hits in found.items():
        frames[name] = frame = pd.DataFrame(hits[:top_k], columns=["sentence", "cosine"])
        frame.index += 1
        styles[name] = style = pd.DataFrame("", frame.index, [*frame])
        for other in encoders.keys() - {name}:
            there = frame[_THERE] = frame["sentence"].map(ranks[other])
            style["sentence"] = style[_THERE] = np.select([there > top_k, there != frame.index], [ONLY, MOVED], "")
    return pd.concat(frames, axis="columns").style.apply(lambda _: pd.concat(styles, axis="columns"), axis=None)


def cosines(encoders: Encoders, first: str, second: str) -> Styler:
    """Return the cosine similarity of two sentences in each encoder."""
    return pd.DataFrame({name: {"cosine": simcse.similarity(first, second)} for name, simcse in encoders.items()}).style


def query_ranks(encoders: Encoders, rows: Sequence[Sequence[str]], sentences: Sequence[str] = ()) -> pd.DataFrame:
    """Return the rank of each query's nearest answer among all answers and sentences, with a column per encoder.

    `rows` have a query and its answers; a query is not its own answer. The first rows of the result have the largest
    `change` from the first to the second encoder or, of a single encoder, the worst rank.
    """
    positives: dict[str, dict[str, float]] = {}
    for query, *answers in rows:
        others = (answer for answer in answers if answer not in ("", query))
        positives.setdefault(query, {}).update(dict.fromkeys(others, 1.0))
    qrels = [(query, grades) for query, grades in positives.items() if grades]
    if not qrels:
        raise UserError("--dev: its rows should be a query and one or more answers")
    data = judgements_of_texts("--dev", qrels, sentences)
    frame = pd.DataFrame({"query": [*data.queries]})
    for name, simcse in encoders.items():
        encode = encode_once(simcse.encode, getattr(simcse.encoder, "prompts", None) or ())
        frame[name] = [int(ranks.min()) for ranks, _ in relevant_ranks(encode, data, judged_only=False)]
    if len(encoders) > 1:
        frame["change"] = frame.iloc[:, 2] - frame.iloc[:, 1]
    return frame.sort_values(frame.columns[-1], key=abs, ascending=False, kind="stable", ignore_index=True)


def page(encoders: Encoders, dev: pd.DataFrame | None = None) -> Any:
    """Return the page, of `gradio.Blocks`; `dev` is what `query_ranks` returns."""
    import gradio as gr

    def html(table: Styler) -> str:
        table = table.format(precision=3, escape="html").format_index(escape="html", axis="columns")
        return str(table.to_html())

    def search(query: str, top_k: int) -> str:
        return html(nearest(encoders, query, int(top_k))) if query.strip() else ""

    def compare(first: str, second: str) -> str:
        return html(cosines(encoders, first, second)) if first.strip() and second.strip() else ""

    with gr.Blocks(title=f"simcse: {' and '.join(encoders)}", analytics_enabled=False, fill_width=True) as blocks:
        with gr.Tab("Search"):
            query = gr.Textbox(label="Query", submit_btn=True)
            top_k = gr.Slider(1, 50, 10, step=1, label="Number of sentences")
            found = gr.HTML()
            gr.Markdown(_COLOURS * (len(encoders) > 1))
            gr.on([query.submit, top_k.release], search, [query, top_k], found)
        with gr.Tab("Two sentences"):
            pair = [gr.Textbox(label="First sentence"), gr.Textbox(label="Second sentence", submit_btn=True)]
            similarity = gr.HTML()
            gr.on([box.submit for box in pair], compare, pair, similarity)
        if dev is not None:
            with gr.Tab("Queries"):
                gr.Markdown("The rank of each query's nearest answer, among all answers and --sentences.")
                gr.HTML(html(dev[:50].style.hide(axis="index")))
    return blocks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser)
    parser.add_argument("other", nargs="?", metavar="OTHER", help="a second encoder, loaded with the same options")
    parser.add_argument("--sentences", metavar="FILE", help="sentences to search in (default: the packaged sample)")
    add_column(parser)
    text = "file of queries and their answers, to list those whose ranks among all answers and --sentences differ most"
    parser.add_argument("--dev", metavar="FILE", help=text)
    text = "names or positions (from 0) of its columns (default: all)"
    parser.add_argument("--dev-columns", nargs="+", type=column, metavar="COLUMN", help=text)
    text = "address to listen on (default: %(default)s); 0.0.0.0 shows the page to the network"
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help=text)


def run(arguments: argparse.Namespace) -> None:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio  # noqa: F401  an extra: if it is missing, nothing is encoded first

    encoders: dict[str, SimCSE] = {}
    sentences = load_sample("test").sentences
    if file := arguments.sentences:
        sentences = list(read_sentences(file, arguments))
    with prefixed("--dev", "--dev-columns NAME NAME"):
        rows = read_rows(arguments.dev, arguments.dev_columns) if arguments.dev else []
    for name in filter(None, (arguments.encoder, arguments.other)):
        if name in encoders:
            raise UserError(f"{name} is given twice")
        arguments.encoder = name
        label = encoder_label(name)
        encoders[name if label in encoders else label] = simcse = load_simcse(arguments)
        simcse.build_index(sentences)
    own = sentences if arguments.sentences else ()
    blocks = page(encoders, query_ranks(encoders, rows, own) if rows else None)
    _, url, _ = blocks.launch(server_name=arguments.host, prevent_thread_lock=True, quiet=True)
    print(f"open {url} (Ctrl-C ends it)", flush=True)
    blocks.block_thread()
