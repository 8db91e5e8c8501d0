import asyncio
import itertools
import threading

from simcse_pl.inference.server.batching import SearchBatcher
from simcse_pl.results.neighbour import Neighbour


class Encoder:
    """Finds each query `top_k` times, less and less similar; searches wait for `go`."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()

    def search(self, queries, device, threshold, top_k):
        self.batches.append(queries)
        assert self.go.wait(10)
        return [[Neighbour(query, 1 - rank / 10) for rank in range(top_k)] for query in queries]


def test_searches_that_arrive_during_a_search_form_one_batch_and_each_gets_its_own_results():
    encoders = [Encoder(), Encoder()]
    searches = [(["first"], 1, None), (["a", "b"], 2, None), (["c"], 5, 0.85), (["d"], 1, 0.5)]

    async def search_all():
        batcher = SearchBatcher(encoders)
        tasks = [asyncio.ensure_future(batcher.search(*search)) for search in searches]
        while not encoders[0].batches:
            await asyncio.sleep(0.01)
        for encoder in encoders:
            encoder.go.set()
        return await asyncio.gather(*tasks)

    answers = asyncio.run(search_all())
    for encoder in encoders:
        assert [*itertools.chain(*encoder.batches)] == ["first", "a", "b", "c", "d"] and len(encoder.batches) <= 2
    for (queries, _, _), count, answer in zip(searches, (1, 2, 2, 1), answers, strict=True):
        expected = [[Neighbour(query, 1 - rank / 10) for rank in range(count)] for query in queries]
        assert answer == [expected, expected]
