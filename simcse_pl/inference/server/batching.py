"""Searches of many clients at once: one thread encodes, and what came in meanwhile is its next batch."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from simcse_pl.inference.simcse import SimCSE
from simcse_pl.results.neighbourhood import Neighbour

Found = list[list[Neighbour]]  # of every query


@dataclass(frozen=True)
class _Waiting:
    queries: list[str]
    options: tuple[int, float | None]  # top_k and threshold
    answer: "asyncio.Future[list[Found]]"


class SearchBatcher:
    """Answers searches in the order they came in, those that ask alike together.

    An encoder that many threads call is slower than one thread with batches, and would hold all their activations.

    Args:
        encoders: each with an index.
    """

    def __init__(self, encoders: Sequence[SimCSE]) -> None:
        self._encoders = encoders
        self._thread = ThreadPoolExecutor(1, "search")
        self._waiting: list[_Waiting] = []
        self._work: asyncio.Task[None] | None = None

    async def search(self, queries: list[str], top_k: int, threshold: float | None) -> list[Found]:
        """What SimCSE.search finds with each encoder, in their order; the arguments are its own."""
        search = _Waiting(queries, (top_k, threshold), asyncio.get_running_loop().create_future())
        self._waiting.append(search)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_all())
        return await asyncio.shield(search.answer)  # as the server ends, it may no longer be waited for

    async def _answer_all(self) -> None:
        while self._waiting:
            options = self._waiting[0].options
            batch = [search for search in self._waiting if search.options == options]
            self._waiting = [search for search in self._waiting if search.options != options]
            await self._answer(batch, *options)

    async def _answer(self, batch: list[_Waiting], top_k: int, threshold: float | None) -> None:
        queries = [query for search in batch for query in search.queries]
        run = asyncio.get_running_loop().run_in_executor
        try:
            found = [iter(own) for own in await run(self._thread, self._find, queries, top_k, threshold)]
        except Exception as error:
            for search in batch:
                search.answer.set_exception(error)
            return
        for search in batch:
            search.answer.set_result([list(islice(neighbours, len(search.queries))) for neighbours in found])

    def _find(self, queries: list[str], top_k: int, threshold: float | None) -> list[Found]:
        return [one.search(queries, threshold=threshold, top_k=top_k) for one in self._encoders]
