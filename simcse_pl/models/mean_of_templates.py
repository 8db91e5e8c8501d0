"""An encoder whose vectors are means over several templates (MetaEOL, Lei et al. 2024)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.templates import Templates
from simcse_pl.utils.tensors import unit_vectors


class MeanOfTemplates(SentenceEncoder):
    """A SentenceEncoder that encodes each sentence in all of its templates, and returns the mean of the vectors.

    It is for evaluation: its saved folder is a SentenceEncoder, which encodes with the first template.

    Examples:
        >>> templates = ['The topic of "{sentence}" in one word:"', 'The mood of "{sentence}" in one word:"']
        >>> encoder = MeanOfTemplates.from_pretrained("facebook/opt-125m", "last_token", template=templates)
    """

    def encode(self, sentences: Sequence[str], *args: Any, **options: Any) -> Tensor:
        """Return vectors [n, dim] for n sentences in order; see `SentenceEncoder.encode`."""
        normalize = options.pop("normalize", None)
        texts: Sequence[str | None] = self.templates.texts or [None]
        whole, postprocess, vectors = self.templates, self.postprocess, []
        self.postprocess = None  # it is applied to the mean
        try:
            for text in texts:
                self.templates = Templates(
                    self.tokenizer, text, whole.with_sentence_mask, whole.final_period, whole.as_text
                )
                vectors.append(super().encode(sentences, *args, **options | {"normalize": False}))
        finally:
            self.templates, self.postprocess = whole, postprocess
        mean = self._postprocessed(torch.stack(vectors).mean(dim=0))
        return unit_vectors(mean) if normalize or (normalize is None and self.normalize) else mean
