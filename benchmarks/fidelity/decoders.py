"""Methods whose decoder rebuilds a sentence from its vector: TSDAE (Wang et al. 2021), DenoSent (Wang et al. 2024)."""

import logging
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest.mock import MagicMock, patch

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BertModel, PreTrainedModel

from benchmarks.fidelity.common import PAIRS, RECORDS, Record, Repository, padded, tokenizer
from benchmarks.fidelity.forks import SINGLES, tokens


class Sentences(nn.Module):
    """The parts of a SentenceTransformer with [CLS] pooling that the official loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.transformers_model = BertModel.from_pretrained(RECORDS / "bert")
        self.tokenizer = tokenizer()

    def __getitem__(self, _: int) -> nn.Module:
        return self

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of [CLS]."""
        return {"sentence_embedding": self.transformers_model(**inputs).last_hidden_state[:, 0]}


def records(folders: Path) -> Iterator[Record]:
    """Yield a record of each method."""
    yield tsdae(folders)
    yield denosent(folders)


def spread(parameters: Iterable[tuple[str, Tensor]], *parts: str) -> None:
    """Draw the weights whose names have one of some parts, as those of the other official models."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in parameters:
            if any(part in name for part in parts):
                weight.normal_(std=0.4)


def tsdae(folders: Path) -> Record:
    """TSDAE (Wang, Reimers and Gurevych 2021), by the loss of sentence-transformers."""
    repository = Repository(folders, "UKPLab/sentence-transformers", "85ec645")
    layer = "decoder.bert.encoder.layer."
    names = {"encoder.transformers_model.": "encoder.backbone.", "decoder.cls.": "objective.head.model.cls."}
    names |= {f"{layer}{i}.crossattention.": f"objective.cross_attention.{i}." for i in range(2)}
    record = Record("tsdae", repository, ["method=tsdae", "data.max_length=66"], names, SINGLES, views="recorded")
    make = repository.nested(
        "sentence_transformers/losses/DenoisingAutoEncoderLoss.py", "DenoisingAutoEncoderLoss",
        nn=nn, Tensor=Tensor, Iterable=Iterable, PreTrainedModel=PreTrainedModel, AutoConfig=AutoConfig,
        AutoModelForCausalLM=AutoModelForCausalLM, AutoTokenizer=AutoTokenizer, StaticEmbedding=type(None),
        SentenceTransformer=Sentences, logger=logging.getLogger(__name__),
    )  # fmt: skip
    model = make(Sentences())
    spread(model.named_parameters(), "crossattention")
    inputs = tokens(2)

    def loss(model: nn.Module) -> Tensor:
        original, damaged = ({name: x[:, view] for name, x in inputs.items()} for view in range(2))
        return model([damaged, original], None)

    return record.run(model, inputs, loss)


def denosent(folders: Path) -> Record:
    """DenoSent (Wang et al. 2024)."""
    repository, term = Repository(folders, "xinghaow99/DenoSent", "35d05f5"), "auxiliary.noisy_reconstruction."
    names = {
        "encoder.": "encoder.backbone.",
        "sent_embedding_projector.": "encoder.projection.0.",
        "decoder.": f"{term}decoder.",
        "prediction_head.": f"{term}head.model.cls.",
    }
    options = ["method=denosent", f"{term}layers=1", f"{term}noise=0", f"{term}dropout=0"]
    record = Record("denosent", repository, options, names, PAIRS, script="README.md")
    with patch.dict("sys.modules", wandb=MagicMock()):
        official = repository.load("model.py", lambda source: source.replace("dropout=0.1", "dropout=0.0"))
    config = repository.load("config.py").DenoSentConfig(
        encoder_name_or_path=str(RECORDS / "bert"), hidden_size=8, decoder_num_layers=1, decoder_noise_dropout=0.0,
        prompt_format='"[X]" means [MASK].', do_contrastive=True, do_generative=True, contrastive_weight=5,
        generative_weight=7,
    )  # fmt: skip
    prepare = repository.nested(
        "train.py", "map_fn", tokenizer=tokenizer(), config=config, model_args=Namespace(max_length=32)
    )
    rows = [prepare({"sent0": first, "sent1": second}) for first, second in PAIRS]
    inputs = padded([[row["input_ids"], row["positive_input_ids"]] for row in rows])
    model = official.DenoSentModel(config)
    spread(model.named_parameters(), "decoder.layers", "projector")

    def loss(model: nn.Module) -> Tensor:
        views = [{name: x[:, view].contiguous() for name, x in inputs.items()} for view in range(2)]
        return model(**views[0], **{f"positive_{name}": x for name, x in views[1].items()}).loss

    return record.run(model, inputs, loss)
