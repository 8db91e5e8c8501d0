"""The sentences of validation and test sets, tokenized once and divided over the devices."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.protocols import Encode
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import Batch, Tokens
from simcse_pl.utils.distributed import rank, world_size
from simcse_pl.utils.errors import UserError

_BATCH = 256


class EvaluationSentences:
    """The distinct sentences of some evaluators, the longest first.

    Args:
        sentences: the sentences.
        tokenizer: the encoder's tokenizer.
        templates: the encoder's; None for none.
    """

    def __init__(
        self, sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase, templates: Templates | None = None
    ) -> None:
        distinct = list(dict.fromkeys(sentences))
        self._templates = templates or Templates(tokenizer)
        tokens = self._templates.tokens_of(distinct, tokenizer.model_max_length)
        order = sorted(range(len(distinct)), key=lambda i: -len(tokens[i]))
        self.sentences = [distinct[i] for i in order]
        self.tokens = [np.array(tokens[i]) for i in order]

    def __len__(self) -> int:
        return len(self.sentences)

    def loader(self) -> DataLoader[Tokens]:
        """Return batches of this device's sentences, [batch, tokens]; each sentence is on one device.

        Raises:
            UserError: a device has no sentence.
        """
        if len(self) < world_size():
            raise UserError(
                f"trainer.devices: a validation or test set of {len(self)} distinct sentences is too small for "
                f"{world_size()} devices; use fewer, or give a larger file"
            )
        own = self.tokens[rank() :: world_size()]
        return DataLoader(own, batch_size=_BATCH, collate_fn=self._collate)  # type: ignore[arg-type]

    def _collate(self, tokens: Sequence[Tokens]) -> Batch:
        return self._templates.batch(tokens)

    def encode(self, vectors: Tensor) -> Encode:
        """Return a function from sentences to their vectors.

        Args:
            vectors: the vectors of the sentences of `loader`, of all devices in order, [n, dim].
        """
        ranks = world_size()
        order = [place for device in range(ranks) for place in range(device, len(self), ranks)]
        row = {self.sentences[place]: number for number, place in enumerate(order)}
        return lambda sentences: vectors[[row[sentence] for sentence in sentences]]
