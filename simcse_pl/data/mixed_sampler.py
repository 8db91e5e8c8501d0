"""The order of the batches of several data sets."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from simcse_pl.data.sampler import BatchSampler, ContrastiveBatches, Sampling


class MixedBatchSampler(BatchSampler):
    """Yields the batches of an epoch, each of one data set. All ranks draw the same sets in the same order.

    Args:
        sets: the batches of each data set.
        sampling: `proportional`: all batches of all sets, in random order. `round_robin`: one batch of each set in
            turn, until the set with the fewest batches ends. `concatenated`: one set after the other.
        seed: seed of the order of the sets.
        start: see BatchSampler.
    """

    def __init__(
        self,
        sets: Mapping[str, ContrastiveBatches],
        sampling: Sampling = "proportional",
        seed: int = 42,
        start: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(sets, start)
        self.sampling, self.seed = sampling, seed

    def sets_drawn(self, epoch: int) -> NDArray[np.integer]:
        """Return the place in `sets` of the set of each batch, without last batches whose rows join the one before."""
        counts = [batches.batches_of_one_rank for batches in self.sets.values()]
        if self.sampling == "round_robin":
            drawn = np.tile(np.arange(len(counts)), min(counts))
        else:
            drawn = np.repeat(np.arange(len(counts)), counts)
        if self.sampling == "proportional":
            order = torch.randperm(len(drawn), generator=torch.Generator().manual_seed(self.seed + epoch))
            drawn = drawn[order.numpy()]
        for place, batches in enumerate(self.sets.values()):
            if len(of_set := np.flatnonzero(drawn == place)) > batches.batches:
                drawn = np.delete(drawn, of_set[-1])
        return drawn
