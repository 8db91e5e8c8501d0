"""The settings and parts that an encoder adds to a backbone and a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from torch import Tensor

from simcse_pl.models.templates import TemplateAsText, TemplateBias
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError

SETTINGS_FILE, HEAD_FILE, POOLING_FILE = "simcse.json", "head.safetensors", "pooling.safetensors"
CHECKPOINT_KEY = "simcse_pl.models.encoder"  # an entry of Lightning's checkpoints


@dataclass(frozen=True)
class EncoderSettings:
    """The settings of a SentenceEncoder, which are saved with it. A plain checkpoint has none of them.

    Args:
        pooling: the name of the pooling; None if it is not known.
        head: the projection head, Linear(dim, dim) + Tanh: `none`, `mlp` (kept at test time) or `mlp_train_only`
            (dropped at test time); Table 6 of the paper. Two others are dropped, too: `batch_norm_train_only` of
            DiffCSE, and `linear_train_only` of DenoSent, without Tanh. `transform` is Linear + GELU + LayerNorm, as in
            BERT's masked language model; it is kept, and applied before the template's bias is subtracted. Others are
            named by their layers, such as `linear_256_gelu+linear_without_bias` (see heads.py), and are kept.
        max_length: the most tokens per sentence that `encode` reads, including special tokens but not the template's.
            None takes the backbone's limit, at most 512. With prompts, this is the limit in the longest one. In a
            shorter one, a sentence may have as many tokens more as the prompt has fewer, as in sentence-transformers.
        normalize: whether `encode` scales vectors to length 1. Training uses cosine similarity anyway.
        template: a prompt with the placeholder {sentence}, or one per view of training rows (see templates.py).
        template_bias: when to subtract the vector of the template without the sentence, before the head: `none`,
            `train_only`, `always`, or `padded_train_only` for a template with padding in the sentence's place (see
            template_bias.bare_templates).
        final_period: whether `encode` appends "." to a sentence that ends in none of . ? " ', as PromptBERT's
            evaluation does, nor in punctuation beyond ASCII, such as 。 Training reads the sentences as they are.
        truncate_dim: how many of the first dimensions `encode` keeps, after the post-processing and before it
            normalizes (see methods/matryoshka.py). None keeps all.
        template_as_text: when the template and the truncated sentence are tokenized as one text: `never`, `test_only`
            or `always`. Byte-level BPE and SentencePiece then give other tokens where they meet.
        prompts: by name, such as `query`, texts before the sentence, or templates; see `SentenceEncoder.encode`.
        end_token: whether the tokenizer appends its end token to each sentence, and does so when it is saved. Those of
            most decoders append none, so that the pooling `last_token` reads a token of the sentence.
        similarity: how sentence-transformers compares the vectors. Evaluation and search here take the cosine.
    """

    pooling: str | None = None
    head: str = "none"
    max_length: int | None = None
    normalize: bool = False
    template: str | list[str] | None = None
    template_bias: TemplateBias = "none"
    final_period: bool = False
    truncate_dim: int | None = None
    template_as_text: TemplateAsText = "never"
    prompts: dict[str, str] | None = None
    end_token: bool = False
    similarity: str = "cosine"

    def __post_init__(self) -> None:  # a config has lists and mappings of its own kind
        if self.template is not None and not isinstance(self.template, str):
            object.__setattr__(self, "template", list(self.template))
        if self.truncate_dim is not None and self.truncate_dim < 1:  # a slice would cut the others off
            raise UserError(f"truncate_dim={self.truncate_dim}: it is 1 or more, or null for all dimensions")
        object.__setattr__(self, "prompts", dict(self.prompts) if self.prompts else None)


SETTINGS = [field.name for field in fields(EncoderSettings)]


@dataclass(frozen=True)
class EncoderSpec:
    """The parts of an encoder that its backbone and tokenizer do not contain.

    Args:
        head_weights, pooling_weights: the state dicts of its projection head and its pooling; None to draw them at
            random.
        subfolder: the folder within the source that contains the backbone and the tokenizer.
        num_layers, bidirectional: how the base model of an adapter was changed; None without an adapter.
        content_of_base: a hash of the base model's weights (see adapters.py); None if it is not known.
    """

    settings: EncoderSettings = field(default_factory=EncoderSettings)
    head_weights: Mapping[str, Tensor] | None = None
    pooling_weights: Mapping[str, Tensor] | None = None
    postprocess: PostProcess | None = None
    subfolder: str = ""
    num_layers: int | None = None
    bidirectional: bool | None = None
    content_of_base: str | None = None
