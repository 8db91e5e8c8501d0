"""Tiny models on which the official code of published methods runs, and the records of what it computes."""

import ast
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizerFast,
)

RECORDS = Path(__file__).parents[2] / "tests" / "fidelity" / "records"
PAIRS = [
    ("A man plays a guitar.", "A man makes music."),
    ("Two dogs run in the snow", "The dogs are outside."),
    ("Why is it red?", "What made it red?"),
    ('He said "no"', "She did not agree, she said so twice."),
]
TRIPLETS = [
    (*pair, negative)
    for pair, negative in zip(PAIRS, ("A man sleeps.", "Two cats sleep", "It is blue.", "He agreed."), strict=True)
]
HYPERPARAMETERS = (
    "learning_rate", "per_device_train_batch_size", "batch_size", "nproc_per_node", "num_train_epochs", "epochs",
    "max_seq_length", "maxlen", "temp", "eval_steps",
)  # fmt: skip
_STEP = 1e-3  # the rate of gradient descent
_SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def save_models() -> None:
    """Save a BERT and a RoBERTa with random weights, and their tokenizers: WordPiece and byte-level BPE."""
    text = [sentence for row in TRIPLETS for sentence in row]
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["man", "play", "##s", "the", "dog", "red", "said", "mean", "this", "sentence", "of", "not"]
    words += ["so", "it", "can", "be", "as", "does", "cannot", "summarized"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *",.?!:\"'", *letters, *(f"##{x}" for x in letters)]
    vocabulary += [word for word in words if word not in vocabulary]
    bert, roberta = RECORDS / "bert", RECORDS / "roberta"
    bert.mkdir(parents=True, exist_ok=True)
    (bert / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizerFast(str(bert / "vocab.txt"), model_max_length=66).save_pretrained(bert)
    text += ["This sentence :", "The sentence :"] * 20  # whole words, as in RoBERTa's vocabulary
    tokens = save_bpe("roberta", text, 300)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=66, **_SMALL)
    _spread(BertForMaskedLM(config)).save_pretrained(bert, safe_serialization=True)
    config = RobertaConfig(
        vocab_size=tokens, max_position_embeddings=68, type_vocab_size=1, bos_token_id=0, pad_token_id=1,
        eos_token_id=2, **_SMALL,
    )  # fmt: skip
    _spread(RobertaForMaskedLM(config)).save_pretrained(roberta, safe_serialization=True)


def save_bpe(name: str, text: Sequence[str], size: int) -> int:
    """Train and save a byte-level BPE, and return the number of its tokens, at most `size`."""
    bpe, folder = ByteLevelBPETokenizer(), RECORDS / name
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator(text, vocab_size=size, special_tokens=special, show_progress=False)
    bpe.save_model(str(folder))
    RobertaTokenizerFast.from_pretrained(folder, model_max_length=66).save_pretrained(folder)
    return bpe.get_vocab_size()


def _spread(model: nn.Module) -> nn.Module:
    """Add noise to all weights, so that no two are equal and the vectors of sentences differ."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.8 if weight.ndim > 1 else 0.1))
    return model


@dataclass
class Repository:
    """A repository with the official code of a method."""

    folders: Path  # of all repositories, each called OWNER+NAME
    name: str  # OWNER/NAME
    commit: str  # that was checked out
    folder: str = "."  # the part of the repository that is on Python's path

    @property
    def place(self) -> Path:
        """The folder."""
        return self.folders / self.name.replace("/", "+") / self.folder

    def load(self, path: str, repair: Callable[[str], str] = str) -> ModuleType:
        """Import a file of the folder; `repair` changes its source, where it does not run or has an error."""
        before = set(sys.modules)
        sys.path.insert(0, str(self.place))
        module = ModuleType(f"official_{Path(path).stem}")
        sys.modules[module.__name__] = module
        exec(compile(repair((self.place / path).read_text()), self.place / path, "exec"), module.__dict__)
        sys.path.remove(str(self.place))
        for name in set(sys.modules) - before:  # other repositories have modules of the same names
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(self.folders)):
                del sys.modules[name]
        return module

    def nested(self, path: str, name: str, **given: object) -> Callable[..., Any]:
        """Return a function or a class of a file, without running the rest of it.

        `given` are the values of the names that it takes from around it.
        """
        place = self.place / path
        nodes = ast.walk(ast.parse(place.read_text()))
        function = next(
            node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        )
        exec(compile(ast.Module([function], []), place, "exec"), given)
        return given[name]


@dataclass
class Record:
    """What the official code computes of one batch."""

    name: str  # NAME or NAME_VARIANT
    repository: Repository
    # of `simcse train`, for the same method; {bert} is the shared model, {guide} the encoder that pools its [CLS]
    options: Sequence[str]
    names: dict[str, str]  # prefixes of the official names of parameters, each with the prefix in SimCSEModule
    sentences: Sequence[Sequence[str]] = ()  # the rows that a user has
    repaired: str = ""  # what was changed in the released code, and why
    architecture: str = "bert"  # of the shared model
    views: str = ""  # `recorded` if the further views of a row are drawn at random
    copy: str = ""  # a second network of the official model, with the same weights
    scores: Sequence[float] = ()  # of the rows
    script: str = ""  # the file with the command that trains the published encoder
    section: str = ""  # where the part of the script for this method begins
    steps: int = 1  # of gradient descent
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def column_names(self) -> dict[str, str | None]:
        """Return what official scripts call the columns of the rows."""
        count = len(self.sentences[0])
        return {f"sent{number}_cname": f"sent{number}" if number < count else None for number in range(3)}

    def run(self, model: nn.Module, inputs: dict[str, Tensor], loss: Callable[[nn.Module], Tensor]) -> "Record":
        """Record the inputs, the loss, its gradients, and the weights that are not the shared model's; return this."""
        model.double().train()
        weights = dict(model.named_parameters())
        start = {name: weight.detach().float() for name, weight in weights.items()}
        losses, gradients = descend(lambda: loss(model), weights, self.steps)
        known = [*shared_model(self.architecture).state_dict().values()]
        for name, gradient in gradients.items():
            self.tensors[f"gradient/{name}"] = gradient
            if not any(torch.equal(start[name], other) for other in known):
                self.tensors[f"weight/{name}"] = start[name]
        self.tensors |= {f"input/{name}": tensor for name, tensor in inputs.items()} | {"loss": losses}
        return self

    def script_options(self) -> dict[str, str]:
        """Return the options of the first training command of the script, with the values of its variables."""
        source = (self.repository.place / self.script).read_text()
        section = source[source.index(self.section) :]
        assigned = re.findall(r"^ *(\w+)=(\S+)(?: +#.*)?$", source, re.MULTILINE)
        assigned = [*reversed(assigned), *re.findall(r"^ *(\w+)=(\S+)$", section.partition(";;")[0], re.MULTILINE)]
        values = {name.lower(): value for name, value in assigned}
        options: dict[str, str] = {}
        for name, value in re.findall(r"--(\w+)['\"]?[ ,]+['\"]?([^\s'\",\\]+)", section):
            options.setdefault(name, values.get(value.strip("${}").lower(), value))
        return {name: options[name] for name in HYPERPARAMETERS if name in options}

    def save(self) -> dict[str, object]:
        """Write the tensors, and return what the list of records says of them."""
        save_file(
            {name: tensor.contiguous().clone() for name, tensor in self.tensors.items()},
            RECORDS / f"{self.name}.safetensors",
        )
        facts = {
            "repository": self.repository.name,
            "commit": self.repository.commit,
            "model": self.architecture,
            "options": [*self.options],
            "names": self.names,
            "sentences": [[*row] for row in self.sentences],
            "scores": [*self.scores],
            "script": self.script and self.script_options(),
            "repaired": self.repaired,
            "views": self.views,
            "steps": self.steps > 1 and self.steps,
        }
        return {name: fact for name, fact in facts.items() if fact}


def descend(
    loss: Callable[[], Tensor], weights: Mapping[str, Tensor], steps: int = 1
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss at each step of gradient descent, a scalar for one step, and the gradients of the first."""
    optimizer, losses, gradients = torch.optim.SGD(weights.values(), lr=_STEP), [], {}
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(loss())
        losses[-1].backward()
        gradients = gradients or {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
        optimizer.step()
    return torch.stack(losses).squeeze(0).detach(), gradients


def shared_model(architecture: str) -> BertForMaskedLM | RobertaForMaskedLM:
    """Return a shared model with its head."""
    return (BertForMaskedLM if architecture == "bert" else RobertaForMaskedLM).from_pretrained(RECORDS / architecture)


def official_model(
    make: Callable[..., nn.Module], architecture: str = "bert", copy: str = "", **arguments: object
) -> nn.Module:
    """Return a model of an official class with the shared weights; its other weights are random, in float32."""
    config = (BertConfig if architecture == "bert" else RobertaConfig).from_pretrained(RECORDS / architecture)
    torch.manual_seed(1)
    model = make(config, **arguments)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4)
    weights = getattr(shared_model(architecture), architecture).state_dict()
    for network in filter(None, (architecture, copy)):
        getattr(model, network).load_state_dict(weights, strict=False)
    return model


def tokenizer(architecture: str = "bert") -> BertTokenizerFast | RobertaTokenizerFast:
    """Return the tokenizer of a shared model."""
    kind = BertTokenizerFast if architecture == "bert" else RobertaTokenizerFast
    return kind.from_pretrained(RECORDS / architecture)


def features(prepare: Callable[..., Any], rows: Sequence[Sequence[str]], pad: int = 0) -> dict[str, Tensor]:
    """Return the ids [rows, views, tokens] and the attention mask that an official `prepare_features` gives."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return padded(prepare({f"sent{number}": column for number, column in enumerate(columns)})["input_ids"], pad)


def padded(rows: Sequence[Sequence[Sequence[int]]], pad: int = 0) -> dict[str, Tensor]:
    """Return the ids [rows, views, tokens] and the attention mask of token ids of different lengths."""
    views = [torch.tensor([token for token in view if token != pad]) for row in rows for view in row]
    ids = pad_sequence(views, batch_first=True, padding_value=pad).view(len(rows), len(rows[0]), -1)
    return {"input_ids": ids, "attention_mask": (ids != pad).long()}
