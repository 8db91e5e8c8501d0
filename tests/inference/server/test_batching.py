import asyncio
import itertools
import threading

import pytest

from simcse_pl.inference.server.batching import SearchBatcher
from simcse_pl.results.neighbourhood import Neighbour


class Encoder:
    """Finds each query `top_k` times, less and less similar; searches wait for `go`."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()

    def search(self, queries, device, threshold, top_k):
        self.batches.append(queries)
        assert self.go.wait(10)
        if "bad" in queries:
            raise RuntimeError("bad query")
        return [[Neighbour(query, 1 - rank / 10) for rank in range(top_k)] for query in queries]


def search_concurrently(encoders, *searches):
    """Return the answers to the first search and to those that arrive while it runs."""

    async def search_all():
        batcher = SearchBatcher(encoders)
        tasks = [asyncio.ensure_future(batcher.search(*search)) for search in searches]
        while not encoders[0].batches:
            await asyncio.sleep(0.01)
        for encoder in encoders:
            encoder.go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(search_all())


def test_concurrent_searches_form_one_batch_and_each_gets_its_own_results():
    encoders = [Encoder(), Encoder()]
    searches = [(["first"], 1, None), (["a", "b"], 2, None), (["c"], 5, 0.85), (["d"], 1, 0.5)]
    answers = search_concurrently(encoders, *searches)
    for encoder in encoders:
        assert [*itertools.chain(*encoder.batches)] == ["first", "a", "b", "c", "d"] and len(encoder.batches) <= 2
    for (queries, _, _), count, answer in zip(searches, (1, 2, 2, 1), answers, strict=True):
        expected = [[Neighbour(query, 1 - rank / 10) for rank in range(count)] for query in queries]
        assert answer == [expected, expected]


def test_an_error_is_raised_in_its_batch_and_the_next_one_is_searched():
    async def search_twice():
        encoder = Encoder()
        encoder.go.set()
        batcher = SearchBatcher([encoder])
        with pytest.raises(RuntimeError, match="bad query"):
            await batcher.search(["bad"], 1, None)
        return await batcher.search(["good"], 1, None)

    assert asyncio.run(search_twice()) == [[[Neighbour("good", 1)]]]
