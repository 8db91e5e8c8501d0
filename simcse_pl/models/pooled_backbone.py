"""PooledBackbone: a backbone, a pooling and a projection head; token ids in, vectors out."""

import inspect
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.attention_masks import use_masks_without_synchronization
from simcse_pl.models.backbone_config import is_decoder
from simcse_pl.models.backbone_type import Backbone
from simcse_pl.models.encoder_files import EncoderSettings
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.models.heads import HEADS, projection_head
from simcse_pl.models.length_bucketing import TOKENS_PER_PASS, apply_in_length_groups, ignores_padding
from simcse_pl.models.onednn_linear import use_onednn_linear
from simcse_pl.models.pooling import find_pooling
from simcse_pl.models.shared_dropout import pool_with_shared_dropout
from simcse_pl.models.template_bias import bare_templates, check_template_bias
from simcse_pl.models.templates import SENTENCE_MASK, Templates
from simcse_pl.models.tokenization import Batch, match_inputs
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError


class PooledBackbone(nn.Module):
    """The part of a SentenceEncoder that computes vectors from token ids. See SentenceEncoder for the arguments.

    Attributes:
        tokens_per_pass: the cost of one more pass in training on a CPU (see length_bucketing.longest_of_groups).
    """

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str = "cls",
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
        if head not in HEADS:
            raise UserError(f"head={head}: choose one of {', '.join(HEADS)}")
        use_masks_without_synchronization()
        use_onednn_linear(backbone)
        self.backbone = backbone
        self.tokens_per_pass: float = TOKENS_PER_PASS
        self.tokenizer = tokenizer
        self.pooling = pooling
        self._pooling = find_pooling(pooling, backbone.config.num_hidden_layers, tokenizer.mask_token_id)
        self.head = head
        self.normalize = normalize
        self.hidden_size: int = backbone.config.hidden_size
        self.projection = None if head == "none" else projection_head(backbone, head).to(backbone.device)
        self.postprocess = postprocess
        takes = inspect.signature(backbone.forward).parameters
        self._takes_positions = is_decoder(backbone.config) and "position_ids" in takes
        match_inputs(tokenizer, backbone)
        self.template = template if template is None or isinstance(template, str) else list(template)
        self.template_bias, self.final_period = template_bias, final_period
        with_sentence_mask = self._pooling.reads_sentence_mask or template_bias != "none"
        self.templates = Templates(tokenizer, self.template, with_sentence_mask, final_period)
        if (masks := self._pooling.masks) > self.templates.masks:
            given = f"template={self.template or 'null'}"
            raise UserError(f"pooling={pooling}: it needs {masks} [MASK] in every template, but {given}")
        tokenizer.model_max_length = self.templates.checked_length(max_length, backbone)
        self.ignores_padding = ignores_padding(backbone, tokenizer, self.max_length)
        check_template_bias(template_bias, self.templates, backbone, self.ignores_padding)
        self.truncate_dim = None
        if truncate_dim is not None and not 1 <= truncate_dim <= self.dim:
            raise UserError(
                f"truncate_dim={truncate_dim}: the vectors have {self.dim} dimensions; choose 1 to {self.dim}"
            )
        self.truncate_dim = truncate_dim

    @property
    def dim(self) -> int:
        """Return the number of dimensions of the vectors of `encode`."""
        return self._postprocessed(torch.empty(0, self.hidden_size)).shape[1]

    @property
    def max_length(self) -> int:
        """Return the most tokens per sentence that are read, special tokens included."""
        return self.tokenizer.model_max_length

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

    def forward(self, inputs: Batch) -> Tensor:
        """Return sentence vectors [batch, dim].

        All heads are applied in training mode, and only `mlp` and `transform` in evaluation mode.

        Args:
            inputs: from `templates.batch` or the tokenizer, tensors [batch, tokens]: `input_ids`,
                `attention_mask`, `token_type_ids` if the backbone takes them, and `sentence_mask` if the
                pooling or `template_bias` reads it.
        """
        return self.project(self.pool(inputs))

    def pool(self, inputs: Batch, num_layers: int | None = None) -> Tensor:
        """Return the vectors of `forward` before `project`. The head `transform` is already applied.

        Args:
            inputs: as in `forward`.
            num_layers: pool the output of this layer in place of the last one, or of the first layers; None for all.
        """
        return self._subtract_bias(self._pool_states(inputs, inputs, num_layers), inputs, num_layers)

    def embed(self, views: Batch, chunk_size: int | None = None) -> Tensor:
        """Return the vectors of all views of a training batch, [batch, views, dim]; see `pool_views`."""
        return self.project(self.pool_views(views, chunk_size))

    def pool_views(self, views: Batch, chunk_size: int | None = None, shared_dropout: bool = False) -> Tensor:
        """Return the vectors of `embed` before the projection head, [batch, views, hidden].

        On a CPU, sequences of similar length are encoded together (see length_bucketing.py).

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
        return self.pool_in_length_groups(sequences).view(rows, count, -1)

    def forward_in_length_groups(self, inputs: Batch) -> Tensor:
        """Return the vectors of `forward`, computed with less padding; see `length_bucketing.length_groups`."""
        return self.project(self.pool_in_length_groups(inputs))

    def pool_in_length_groups(self, inputs: Batch) -> Tensor:
        """Return the vectors of `pool`, computed with less padding; see `length_bucketing.length_groups`."""
        cost = self.tokens_per_pass if self.training else TOKENS_PER_PASS  # evaluation does not depend on a measurement
        of_groups = self.ignores_padding, cost
        return self._subtract_bias(apply_in_length_groups(self._pool_states, self.backbone, inputs, *of_groups), inputs)

    def _subtract_bias(self, vectors: Tensor, inputs: Batch, num_layers: int | None = None) -> Tensor:
        """Subtract the vector of each sentence's bare template, if `template_bias` applies in the current mode."""
        if self.template_bias == "none" or not (self.training or self.template_bias == "always"):
            return vectors
        padded = self.template_bias == "padded_train_only"
        of_backbone, of_pooling, rows = bare_templates(inputs, self.tokenizer.pad_token_id, padded)
        return vectors - self._pool_states(of_backbone, of_pooling, num_layers)[rows]

    def _pool_states(self, inputs: Batch, tokens: Batch, num_layers: int | None = None) -> Tensor:
        """Pool the states that the backbone computes from `inputs`, then apply the head if it is `transform`.

        The pooling reads `tokens`.
        """
        if self._pooling.reads_last_layer_alone and num_layers is None:
            states: tuple[Tensor, ...] = (self.backbone(**self._of_backbone(inputs)).last_hidden_state,)
        else:
            states = self.hidden_states(inputs)[: None if num_layers is None else num_layers + 1]
        vectors = self._pooling(states, tokens)
        if self.backbone.dtype == torch.bfloat16:  # the head's weights are float32
            vectors = vectors.float()
        return self.projection(vectors) if self.projection is not None and self.head == "transform" else vectors

    def hidden_states(self, inputs: Batch) -> tuple[Tensor, ...]:
        """Return the outputs of the embeddings and of each layer, each [batch, tokens, dim], or raise UserError."""
        output = self.backbone(**self._of_backbone(inputs), output_hidden_states=True)
        states: tuple[Tensor, ...] = output.get("hidden_states") or ()
        expected = (*inputs["attention_mask"].shape, self.hidden_size)
        if len(states) != self.backbone.config.num_hidden_layers + 1 or any(x.shape != expected for x in states):
            model = type(self.backbone).__name__
            raise UserError(
                f"{model} does not return the output of each layer: choose a pooling of the last layer only"
            )
        return states

    def project(self, vectors: Tensor) -> Tensor:
        """Apply the projection head to pooled vectors [..., dim], if it applies in the current mode.

        The head `transform` is left out, because `pool` has applied it.
        """
        if self.projection is not None and self.head != "transform" and (self.training or self.head == "mlp"):
            projected: Tensor = self.projection(vectors)
            return projected
        return vectors

    def _of_backbone(self, inputs: Batch) -> Batch:
        """Return what the backbone reads. A decoder counts positions from the first token that is not padding."""
        of_backbone = {name: x for name, x in inputs.items() if name != SENTENCE_MASK}
        if self._takes_positions:
            mask = inputs["attention_mask"]
            padding_on_the_left = (mask.cumsum(dim=1) == 0).sum(dim=1, keepdim=True)
            places = torch.arange(mask.shape[1], device=mask.device)
            of_backbone["position_ids"] = (places - padding_on_the_left).clamp(min=0)
        return of_backbone

    def _postprocessed(self, vectors: Tensor) -> Tensor:
        vectors = self.postprocess.transform(vectors) if self.postprocess else vectors
        return vectors[:, : self.truncate_dim]
