"""Scores of pairs by a cross-encoder, which reads both sentences at once, and mined negatives that it confirms."""

from collections.abc import Callable, Iterable, Sequence

import torch
from transformers import AutoModelForSequenceClassification

from simcse_pl.models.sources import load_config, load_tokenizer, loading, loading_options
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import to_device
from simcse_pl.utils.terminal import tracked

Pair = tuple[str, str]
Score = Callable[[Sequence[Pair]], list[float]]
_LONGEST = 512  # tokens of a pair


class CrossEncoder:
    """A sequence classifier of transformers with one logit, such as BAAI/bge-reranker-v2-m3.

    Args:
        name: a folder, a hub name or package:NAME.
        device: where it computes.
        batch_size: pairs of similar length per forward pass.
    """

    def __init__(self, name: str, device: str | torch.device = "cpu", batch_size: int = 32) -> None:
        self.tokenizer, self.device, self.batch_size = load_tokenizer(name), torch.device(device), batch_size
        with loading(name) as source:
            if (count := load_config(source).num_labels) != 1:
                raise UserError(f"{name} has {count} logits; a cross-encoder that scores pairs has one")
            model = AutoModelForSequenceClassification.from_pretrained(source, **loading_options(source))
        self.model = model.eval().to(self.device)

    @torch.inference_mode()
    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the logit of each pair. A terminal shows a progress bar."""
        longest = min(self.tokenizer.model_max_length, _LONGEST)
        order = sorted(range(len(pairs)), key=lambda i: -sum(map(len, pairs[i])))
        scores = torch.empty(len(pairs))
        for start in tracked(range(0, len(order), self.batch_size), "scoring"):
            places = order[start : start + self.batch_size]
            sides = [list(side) for side in zip(*(pairs[place] for place in places), strict=True)]
            inputs = self.tokenizer(*sides, truncation=True, max_length=longest, padding=True, return_tensors="pt")
            scores[places] = self.model(**to_device(inputs, self.device)).logits[:, 0].float().cpu()
        return scores.tolist()


def rescore(
    score: Score, rows: Iterable[tuple[str, ...]], negatives: int, margin: float = 0.0
) -> tuple[list[tuple[str, ...]], int]:
    """Keep the first negatives of each row that a cross-encoder scores below the positive by at least a margin.

    Args:
        score: returns the scores of pairs of an anchor and another sentence.
        rows: anchor, positive and candidates, as from `mine`.
        negatives: how many are kept; rows with fewer are left out.
        margin: a candidate above the positive's score minus this margin is left out.

    Returns:
        Rows of anchor, positive and negatives, then the scores of the positive and of the negatives as text; and the
        number of candidates that were left out.
    """
    rows = list(rows)
    scores = iter(score([(anchor, other) for anchor, *others in rows for other in others]))
    kept_rows: list[tuple[str, ...]] = []
    left_out = 0
    for anchor, positive, *candidates in rows:
        of_positive = next(scores)
        scored = [(candidate, next(scores)) for candidate in candidates]
        kept = [(candidate, value) for candidate, value in scored if value <= of_positive - margin]
        left_out += len(scored) - len(kept)
        if len(kept) >= negatives:
            texts, own_scores = zip(*kept[:negatives], strict=True)
            written = (f"{value:.6g}" for value in (of_positive, *own_scores))
            kept_rows.append((anchor, positive, *texts, *written))
    return kept_rows, left_out
