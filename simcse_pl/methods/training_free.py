"""Encoders of decoders that need no training: means over several prompts (MetaEOL), and Token Prepending."""

import copy
import re
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any, Self

import torch
from torch import Tensor, nn
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import with_padding
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.pooling import last_token
from simcse_pl.models.templates import Templates
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.types import Backbone, Batch

_ENCODING = threading.Lock()  # the templates below are replaced meanwhile


class MeanOfTemplates(SentenceEncoder):
    """A SentenceEncoder that encodes each sentence in all of its templates, and returns the mean of the vectors.

    With the prompts of conf/templates/metaeol.yaml, this is MetaEOL (Lei et al. 2024). It is for evaluation: its saved
    folder is a SentenceEncoder, which encodes with the first template.

    Examples:
        >>> templates = ['The topic of "{sentence}" in one word:"', 'The mood of "{sentence}" in one word:"']
        >>> encoder = MeanOfTemplates.from_pretrained("facebook/opt-125m", "last_token", template=templates)
    """

    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int | None = None,
        progress: bool = False,
        bf16: bool = False,
        max_length: int | None = None,
        normalize: bool | None = None,
        prompt_name: str | None = None,
    ) -> Tensor:
        options = batch_size, progress, bf16, max_length
        if prompt_name:  # it replaces the templates
            return super().encode(sentences, *options, normalize, prompt_name)
        with _ENCODING:
            whole, postprocess, truncate_dim, vectors = self.templates, self.postprocess, self.truncate_dim, []
            how = whole.with_sentence_mask, whole.final_period, whole.as_text
            self.postprocess = self.truncate_dim = None  # they are applied to the mean
            try:
                for text in whole.texts or (None,):
                    self.templates = Templates(self.tokenizer, text, *how)
                    vectors.append(super().encode(sentences, *options, normalize=False))
            finally:
                self.templates, self.postprocess, self.truncate_dim = whole, postprocess, truncate_dim
        mean = self._postprocessed(torch.stack(vectors).mean(dim=0))
        return unit_vectors(mean) if normalize or (normalize is None and self.normalize) else mean


class TokenPrepending(MeanOfTemplates):
    """An encoder of a decoder in which a placeholder before the sentence has the state of the prompt's last token.

    The last token of a prompt stands for the sentence, but a decoder's first tokens cannot attend to it. So the first
    layers copy its state to the placeholder, where all tokens of the next layer attend to it (Fu et al. 2025). The
    first layer reads random numbers there, as in the released code.

    It is for evaluation: its saved folder is a SentenceEncoder, which copies nothing.

    Args:
        template: as of MeanOfTemplates; the placeholder <PST> is added before the sentence and its quotation mark.

    Attributes:
        first_layer, last_layer: the numbers of the layers, from 1, whose outputs are changed.
    """

    first_layer, last_layer = 1, 6

    def __init__(self, backbone: Backbone, tokenizer: PreTrainedTokenizerBase, template: Any, **options: Any) -> None:
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.add_tokens(["<PST>"])
        self.placeholder = tokenizer.get_vocab()["<PST>"]
        words: Any = backbone.get_input_embeddings()
        words = backbone.resize_token_embeddings(max(len(tokenizer), words.num_embeddings), mean_resizing=False)
        drawn = torch.randn(words.embedding_dim, generator=torch.Generator().manual_seed(0))
        words.weight.data[self.placeholder] = drawn.to(words.weight)
        texts = [template] if isinstance(template, str) else template or ["{sentence}"]
        texts = [re.sub(r'(<PST> )?(["“]?\{sentence\})', r"<PST> \2", text, count=1) for text in texts]
        super().__init__(backbone, tokenizer, template=texts, **options)

    @classmethod
    def from_pretrained(
        cls,
        *names: Any,
        first_layer: int = 1,
        last_layer: int = 6,
        **options: Annotated[Any, SentenceEncoder.from_pretrained],
    ) -> Self:
        """Load a decoder; see `SentenceEncoder.from_pretrained` and the attributes."""
        encoder = super().from_pretrained(*names, **options)
        encoder.first_layer, encoder.last_layer = first_layer, last_layer
        return encoder

    def pool(self, inputs: Batch, num_layers: int | None = None, in_groups: bool = False) -> Tensor:
        """Return the vectors of a batch, which is one group; see `SentenceEncoder.pool`."""
        is_placeholder = (inputs["input_ids"] == self.placeholder).unsqueeze(-1)

        def prepended(_layer: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            last = last_token(states[0], inputs["attention_mask"]).unsqueeze(1)
            return torch.where(is_placeholder, last, states[0]), *states[1:]

        layers = next(x for x in self.backbone.modules() if isinstance(x, nn.ModuleList))
        with ExitStack() as hooks, with_padding(self.backbone):
            for layer in layers[self.first_layer : self.last_layer + 1]:
                hooks.enter_context(layer.register_forward_pre_hook(prepended))
            return super().pool(inputs, num_layers)
