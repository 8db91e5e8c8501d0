"""The geometry of an encoder's embeddings: alignment, uniformity, isotropy and the distribution of cosines."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from simcse_pl.evaluation.metrics import alignment, gram_bound, uniformity
from simcse_pl.evaluation.results import Geometry
from simcse_pl.evaluation.sts import SPLITS, StsTask, load_sts_task
from simcse_pl.utils.tensors import Encode, as_float64, cosine_similarity, encode_columns, unit_vectors

POSITIVE_SCORE = 4.0  # pairs with higher scores are the positives of alignment (section 2 of the paper)
BANDS = ("0-1", "1-2", "2-3", "3-4", "4-5")


@dataclass(frozen=True)
class GeometryTask:
    """Sections 2 and 5 and Appendices F and G of the paper, on scored pairs; the paper's are those of STS-B."""

    pairs_of: StsTask
    name: str = "geometry"

    def __call__(self, encode: Encode, device: object = None) -> Geometry:
        """Measure the vectors of all pairs. `encode` is called once, with the distinct sentences."""
        pairs = self.pairs_of.pairs
        first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
        positive = torch.tensor([pair.score > POSITIVE_SCORE for pair in pairs])
        x = torch.cat([first, second])
        spectrum = singular_spectrum(x)
        gram = gram_bound(x)
        similarities: dict[str, list[float]] = {band: [] for band in BANDS}
        for cosine, pair in zip(cosine_similarity(first, second).tolist(), pairs, strict=True):
            similarities[BANDS[min(int(pair.score), 4)]].append(cosine)  # a score of 5 belongs to the last band
        return Geometry(
            data=f"{self.pairs_of.name} {self.pairs_of.split}",
            sentences=len(x),
            positives=int(positive.sum()),
            alignment=float(alignment(first[positive], second[positive])),
            uniformity=float(uniformity(x)),
            mean_cosine=(gram["gram_sum"] - gram["trace"]) / (len(x) * (len(x) - 1)),
            spectrum=spectrum.tolist(),
            effective_rank=float(effective_rank(spectrum)),
            **gram,
            similarities=similarities,
        )


def read_geometry_task(senteval_dir: str | Path | None, split: str) -> GeometryTask:
    """Read STS-B, or the project's sample without a SentEval bundle: `dev`, `test`, or `all` for all splits as one."""
    if split != "all":
        return GeometryTask(load_sts_task(senteval_dir, "STS-B", split))
    *first, last = parts = [*(["train"] if senteval_dir else []), *SPLITS]
    tasks = [load_sts_task(senteval_dir, "STS-B", part) for part in parts]
    splits = {task.split: task.pairs for task in tasks}
    return GeometryTask(StsTask(tasks[0].name, f"{', '.join(first)} and {last}", splits))


def singular_spectrum(x: Tensor) -> Tensor:
    """Return the singular values of the normalized embeddings [n, dim], divided by the largest (Appendix F).

    They are [min(n, dim)] in float64, descending from 1.
    """
    values: Tensor = torch.linalg.svdvals(unit_vectors(as_float64(x)))
    return values / values[0]


def effective_rank(spectrum: Tensor) -> Tensor:
    """Return exp of the entropy of singular values [k] of any scale, in [1, k] (Roy and Vetterli 2007)."""
    entropy: Tensor = torch.special.entr(spectrum / spectrum.sum()).sum()
    return entropy.exp()
