"""Load a SentenceEncoder from a folder, a hub repository or a checkpoint, and save it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.adapters import MERGE_FIRST
from simcse_pl.models.backbone import load_backbone, longest_input
from simcse_pl.models.heads import pretrained_transform
from simcse_pl.models.pooling import CHOICES, OfLayers, is_dotted
from simcse_pl.models.saved_encoder import read_checkpoint, read_spec, write_saved
from simcse_pl.models.settings import EncoderSettings, EncoderSpec
from simcse_pl.models.sources import base_of, load_tokenizer, resolve
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import check_vocabulary
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.types import Backbone


class PretrainedEncoder(nn.Module):
    """Adds `from_pretrained`, `from_checkpoint` and `save_pretrained` to SentenceEncoder."""

    backbone: Backbone
    templates: Templates
    projection: nn.Module | None
    postprocess: PostProcess | None

    @property
    def settings(self) -> EncoderSettings:
        """Return the settings that are saved with the weights and the tokenizer."""
        raise NotImplementedError

    def encode(self, sentences: Sequence[str]) -> Tensor:
        """Return vectors [n, dim]."""
        raise NotImplementedError

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
        pooling: str | OfLayers | None = None,
        head: str | None = None,
        max_length: int | None = None,
        normalize: bool | None = None,
        template: str | Sequence[str] | None = None,
        template_bias: str | None = None,
        final_period: bool | None = None,
        truncate_dim: int | None = None,
        pooler: str | None = None,
        **backbone: Any,
    ) -> Self:
        """Load a saved encoder of this project, sentence-transformers or the paper, or any Hugging Face checkpoint.

        The encoder is in evaluation mode, on the CPU. A quantized backbone is on a GPU if there is one.

        Args:
            name: a folder, a hub name, or `package:NAME` (see sources.resolve).
            pooling: required for a plain checkpoint. If it differs from that of a folder of sentence-transformers,
                only the transformer of that folder is loaded.
            head: replaces the saved head. A head without saved weights is drawn at random; `transform` is taken
                from the checkpoint's masked language model, if it has one.
            max_length, normalize, template, template_bias, final_period, truncate_dim: replace the saved settings. The
                template "{sentence}" removes the saved one.
            pooler: `cls` or `cls_before_pooler`, for checkpoints of the official code; see saved_encoder.py.
            backbone: the options of `backbone.load_backbone`, such as num_layers, dropout, pretrained and adapter.

        Raises:
            UserError: the checkpoint does not exist or is damaged, or an option is unknown, has another type or does
                not fit it.
        """
        source = resolve(str(name))
        spec = read_spec(source, pooling, pooler)
        pretrained = backbone.get("pretrained", True)
        if not pretrained:
            head = head or spec.settings.head
            spec = EncoderSpec(replace(spec.settings, head="none"), subfolder=spec.subfolder)
        if backbone.get("num_layers") is not None and base_of(source):
            raise UserError(f"num_layers={backbone['num_layers']}: {name} {MERGE_FIRST}")
        for option in ("num_layers", "bidirectional"):
            if backbone.get(option) is None:
                backbone[option] = getattr(spec, option)
        try:
            model = load_backbone(str(name), subfolder=spec.subfolder, **backbone)
        except ValidationError as error:
            wrong = error.errors()[0]
            raise UserError(f"{wrong['loc'][0]}={wrong['input']}: {wrong['msg']}") from error
        if head == "transform" and pretrained and spec.settings.head == "none":
            weights = pretrained_transform(str(name))
            settings = replace(spec.settings, head=head if weights else "none")
            spec = replace(spec, settings=settings, head_weights=weights)
        tokenizer = load_tokenizer(str(name), spec.subfolder)
        options: dict[str, Any] = {"pooling": pooling, "head": head, "max_length": max_length, "normalize": normalize}
        options |= {"template": template, "template_bias": template_bias, "final_period": final_period}
        return cls._assemble(str(name), model, tokenizer, spec, options | {"truncate_dim": truncate_dim})

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        pooling: str | OfLayers | None = None,
        max_length: int | None = None,
        num_layers: int | None = None,
        normalize: bool | None = None,
        template: str | Sequence[str] | None = None,
        truncate_dim: int | None = None,
    ) -> Self:
        """Load the encoder of a Lightning checkpoint of SimCSEModule, in evaluation mode, on the CPU.

        The options replace the saved settings. UserError is raised as by `from_pretrained`.
        """
        backbone, tokenizer, spec = read_checkpoint(path, num_layers)
        options: dict[str, Any] = {
            "pooling": pooling,
            "max_length": max_length,
            "normalize": normalize,
            "template": template,
            "truncate_dim": truncate_dim,
        }
        # The head is initialized at random and then overwritten. The global random state stays unchanged.
        with torch.random.fork_rng(devices=[]):
            return cls._assemble(str(path), backbone, tokenizer, spec, options)

    @classmethod
    def _assemble(
        cls,
        name: str,
        backbone: Backbone,
        tokenizer: PreTrainedTokenizerBase,
        spec: EncoderSpec,
        options: dict[str, Any],
    ) -> Self:
        """Build the encoder from its parts, with options that are not None in place of the saved settings."""
        options = {option: value for option, value in options.items() if value is not None}
        settings = replace(spec.settings, **options)
        if not settings.pooling:
            raise UserError(f"{name} does not say how it is pooled: add pooling=, one of {CHOICES}")
        if "pooling" not in options and is_dotted(settings.pooling):
            raise UserError(
                f"{name} names code that is imported only if you ask for it: add pooling={settings.pooling}"
            )
        # With options, a UserError already begins with the option, so it gets no prefix.
        with reraise_as(f"{name} cannot encode", users_too=not options):
            check_vocabulary(tokenizer, backbone, name)
            longest = longest_input(backbone)
            if settings.max_length and longest and "max_length" not in options:  # a saved length may exceed the limit
                longest = Templates(tokenizer, settings.template).longest_sentence(longest)
                settings = replace(settings, max_length=min(settings.max_length, longest))
            encoder = cls(backbone, tokenizer, **vars(settings), postprocess=spec.postprocess)
        if encoder.projection is not None and spec.settings.head != "none":
            with reraise_as(f"{name}: the weights of its projection head do not fit"):
                encoder.projection.load_state_dict(spec.head_weights)
        with reraise_as(f"{name} cannot encode", users_too=not options):
            vectors = encoder.encode(["a"])
        if not vectors.isfinite().all():
            raise UserError(f"{name} is damaged: its weights give vectors that are not finite")
        return encoder.eval()
