"""Groups of similar rows, from which batches are drawn."""

import hashlib
import logging
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt

from simcse_pl.data.collator import TrainingRows
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import fingerprint
from simcse_pl.utils.files import cached
from simcse_pl.utils.tensors import unit_vectors

log = logging.getLogger(__name__)

_FILE = "clusters.npy"


class Clusters:
    """Find clusters of similar anchors by k-means on the unit vectors of an encoder, for `data.sampler`.

    The clusters are kept in the user's cache. While they are computed, the vectors of all anchors are in memory.

    Args:
        encoder: a folder, a hub name or package:NAME; it is not trained.
        pooling: of the encoder; None takes what it was saved with.
        clusters: the number of clusters; fewer if there are fewer rows.
        seed: seed of k-means.
    """

    def __init__(
        self, encoder: str | Path, pooling: str | None = None, clusters: PositiveInt = 100, seed: int = 42
    ) -> None:
        self.encoder, self.pooling, self.clusters, self.seed = encoder, pooling, clusters, seed

    def __call__(self, rows: TrainingRows) -> NDArray[np.int32]:
        """Return the cluster of each row that is trained on."""
        used = np.array(rows.chosen, dtype=np.int64)
        count = min(self.clusters, len(used))
        encoder = SentenceEncoder.from_pretrained(self.encoder, self.pooling)

        def write(folder: Path) -> None:
            from sklearn.cluster import MiniBatchKMeans  # slow to import

            log.info("encoding %d anchors, once, by %s, for %d clusters", len(used), self.encoder, count)
            encoder.to("cuda" if torch.cuda.is_available() else "cpu")
            sentences = [rows.cache[row][0] for row in used.tolist()]
            vectors = unit_vectors(encoder.encode(sentences, progress=True)).numpy()
            k_means = MiniBatchKMeans(count, random_state=self.seed, n_init=3)
            np.save(folder / _FILE, k_means.fit_predict(vectors).astype(np.int32))

        key = fingerprint(encoder), rows.cache.key, count, self.seed, hashlib.sha256(used.tobytes()).hexdigest()
        clusters: NDArray[np.int32] = np.load(cached("clusters", key, _FILE, write) / _FILE)
        return clusters
