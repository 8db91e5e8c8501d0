import asyncio
import threading

import pytest

from simcse_pl.inference.server.batching import SearchBatcher
from simcse_pl.results.neighbourhood import Neighbour


class Encoder:
    """Finds the query itself; the first search takes until it is let go, as an encoder would be busy."""

    def __init__(self):
        self.searched, self.go = [], threading.Event()
        self.threads = set()

    def search(self, queries, top_k, threshold):
        self.searched.append((list(queries), top_k, threshold))
        self.threads.add(threading.current_thread())
        assert self.go.wait(10)
        if "bad" in queries:
            raise RuntimeError("this one")
        return [[Neighbour(query, threshold or 0)] for query in queries]


def ask(encoders, *searches):
    """The answers to the first search and, all asked while it runs, to the others."""

    async def all_of_them():
        waiting = SearchBatcher(encoders)
        first, *others = (asyncio.ensure_future(waiting.search(*search)) for search in searches)
        while not encoders[0].searched:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        for encoder in encoders:
            encoder.go.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_what_came_in_meanwhile_is_searched_together_in_one_thread():
    encoder = Encoder()
    singles = [([f"query {i}"], 5, None) for i in range(1, 50)]
    answers = ask([encoder], (["query 0"], 5, None), *singles)
    assert sum(len(queries) for queries, _, _ in encoder.searched) == 50 and len(encoder.searched) <= 2
    assert len(encoder.threads) == 1 and encoder.threads != {threading.current_thread()}
    assert answers == [[[[Neighbour(f"query {i}", 0)]]] for i in range(50)]


def test_everybody_gets_their_own_answers_of_every_encoder():
    encoders = [Encoder(), Encoder()]
    searches = [(["a", "b"], 5, None), (["c"], 5, 0.5), (["d", "a"], 5, None), (["e"], 1, 0.5), (["f", "g"], 5, 0.5)]
    answers = ask(encoders, *searches)
    for (queries, _, threshold), answer in zip(searches, answers, strict=True):
        assert answer == [[[Neighbour(query, threshold or 0)] for query in queries]] * 2
    asked = {("".join(queries), *options) for queries, *options in encoders[0].searched}
    assert asked == {("abda", 5, None), ("cfg", 5, 0.5), ("e", 1, 0.5)}


def test_a_failure_is_told_to_those_it_concerns_and_the_next_is_answered():
    answers = ask([Encoder()], (["bad"], 5, None), (["good"], 1, None))
    assert isinstance(answers[0], RuntimeError) and answers[1] == [[[Neighbour("good", 0)]]]


def test_whoever_has_gone_away_is_no_trouble_to_the_others():
    encoder = Encoder()

    async def gone():
        waiting = SearchBatcher([encoder])
        first, second = (asyncio.ensure_future(waiting.search([query], 5, None)) for query in "ab")
        while not encoder.searched:
            await asyncio.sleep(0.01)
        first.cancel()
        encoder.go.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(gone()) == [[[Neighbour("b", 0)]]]
