"""The page of `simcse demo`: its tables against other computations, and in a browser."""

import re
import shutil

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from simcse_pl import SimCSE
from simcse_pl.tools.demo import MOVED, ONLY, cosines, nearest, page, query_ranks
from tests.conftest import SENTENCES


@pytest.fixture(scope="module")
def encoders(teacher):
    """Two encoders, each with an index of SENTENCES, whose ranks differ."""
    made = {"first": SimCSE(teacher, "cpu"), "<second>": SimCSE(teacher, "cpu", pooling="max")}
    for seed, simcse in enumerate(made.values()):
        generator = torch.Generator().manual_seed(seed)
        for weight in simcse.encoder.parameters():
            if weight.dim() == 2:  # a bias common to all sentences would bring their cosines near to ties
                torch.nn.init.normal_(weight, generator=generator)
        simcse.build_index(SENTENCES)
    return made


def coloured(html, css):
    """Return the cells of a style, by row and column."""
    cells = [rule.partition("{") for rule in re.findall(r"[^}]*\{[^}]*\}", html)]
    ids = " ".join(names for names, _, style in cells if css in style)
    return {(int(row), int(column)) for row, column in re.findall(r"_row(\d+)_col(\d+)\b", ids)}


def test_a_search_has_the_nearest_sentences_of_both_encoders_and_colours_ranks_that_differ(encoders):
    count, seen = 5, set()
    for query in SENTENCES:
        table = nearest(encoders, query, count)
        similarities = [one.encode(SENTENCES).double() @ one.encode(query).double() for one in encoders.values()]
        ranks = [rankdata(-own.numpy(), method="ordinal") for own in similarities]
        for name, own, others in zip(encoders, ranks, ranks[::-1], strict=True):
            order = own.argsort()[:count]
            assert table.data[name]["sentence"].tolist() == [SENTENCES[place] for place in order]
            assert table.data[name]["rank in the other"].tolist() == others[order].tolist()
        np.testing.assert_allclose(table.data["first"]["cosine"], np.sort(similarities[0])[::-1][:count], atol=1e-5)
        html, here = table.to_html(), np.arange(1, count + 1)[:, None]
        there = table.data.xs("rank in the other", axis="columns", level=1).to_numpy()
        for css, differs in ((ONLY, there > count), (MOVED, (there <= count) & (there != here))):
            cells = {(row, 3 * side + place) for row, side in zip(*differs.nonzero(), strict=True) for place in (0, 2)}
            assert coloured(html, css) == cells
            seen |= {css} if cells else set()
    assert seen == {ONLY, MOVED}
    alone = nearest({"first": encoders["first"]}, query, 3).data
    assert [*alone["first"]] == ["sentence", "cosine"] and len(alone) == 3


@pytest.mark.parametrize("sentences", [[], SENTENCES])
def test_queries_are_sorted_by_how_much_the_rank_of_their_nearest_answer_changes(sentences, encoders):
    rows = [*zip(SENTENCES[:5], SENTENCES[3:], strict=True), (SENTENCES[0], SENTENCES[6]), (SENTENCES[7], SENTENCES[7])]
    frame = query_ranks(encoders, rows, sentences)
    answers = {query: {answer for first, answer in rows if first == query} for query in SENTENCES[:5]}
    corpus = sorted(set(sentences).union(*answers.values()))
    for name, simcse in encoders.items():
        for query, rank in zip(frame["query"], frame[name], strict=True):
            near = {text: simcse.similarity(query, text) for text in corpus if text != query}
            best = max(near[text] for text in answers[query])
            assert rank == 1 + sum(value > best for value in near.values())
    assert {*frame["query"]} == {*SENTENCES[:5]}
    assert frame["change"].tolist() == (frame["<second>"] - frame["first"]).tolist() and frame["change"].any()
    assert frame["change"].abs().is_monotonic_decreasing
    assert query_ranks({"first": encoders["first"]}, rows, sentences)["first"].is_monotonic_decreasing


def test_two_sentences_have_a_cosine_in_each_encoder(encoders):
    shown = cosines(encoders, *SENTENCES[:2]).data
    assert shown.to_numpy().tolist() == [[simcse.similarity(*SENTENCES[:2]) for simcse in encoders.values()]]


def test_mistakes_are_one_line(command, encoder, write):
    pytest.importorskip("gradio")
    assert "--dev: its rows should be a query" in command("demo", *encoder, "--dev", write(("a", "a")), status=2).err
    assert "no file" in command("demo", *encoder, "--sentences", "none.txt", status=2).err
    assert "is given twice" in command("demo", encoder[0], *encoder, status=2).err


def test_the_page_answers_and_escapes_what_it_shows(encoders):
    gradio = pytest.importorskip("gradio")
    dev = query_ranks(encoders, [("<i>query", "answer"), ("other", SENTENCES[0])])
    blocks = page(encoders, dev)
    search, compare = (function.fn for function in blocks.fns.values())
    assert "&lt;second&gt;" in search("A dog.", 2) and "<second>" not in search("A dog.", 2)
    assert search(" ", 2) == compare("A dog.", "") == ""
    html = [block.value for block in blocks.blocks.values() if isinstance(block, gradio.HTML)]
    assert any("&lt;i&gt;query" in str(value) for value in html) and not blocks.analytics_enabled


@pytest.mark.slow
def test_the_page_in_a_browser(encoders, monkeypatch, tmp_path):
    """A search shows both encoders, and the page asks no other machine."""
    if not (chromium := shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("neither Chromium nor Chrome is here")
    from playwright.sync_api import sync_playwright  # slow to import

    blocks = page(encoders, query_ranks(encoders, [*zip(SENTENCES[:4], SENTENCES[4:], strict=True)]))
    _, address, _ = blocks.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
    asked = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(address)
        tab.get_by_label("Query").fill("A dog runs.")
        tab.keyboard.press("Enter")
        tab.get_by_role("columnheader", name="rank in the other").first.wait_for()
        assert tab.get_by_role("cell", name="Two dogs run through the snow.").count() == 2
        tab.screenshot(path=tmp_path / "page.png")
        browser.close()
    blocks.close()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
