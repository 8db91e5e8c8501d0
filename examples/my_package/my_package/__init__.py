"""A method for simcse_pl: the anchors of a batch should point in different directions."""

import torch.nn.functional as F
from torch import Tensor

from simcse_pl import EmbeddedBatch, Loss


class Spread(Loss):
    """The mean squared cosine of an anchor with all anchors."""

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over the rows."""
        anchors = F.normalize(batch.embeddings[:, 0], dim=-1)
        return (anchors @ batch.gather(anchors).T).square().mean()
