"""SimCSE (Gao, Yao and Chen 2021) and CARDS (Wang et al. 2022), by the authors' classes."""

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from transformers import RobertaConfig

from benchmarks.fidelity.common import PAIRS, TRIPLETS, Record, Repository, features, official_model, padded, tokenizer

NAMES = {"mlp.dense.": "encoder.projection.0."}


def records(folders: Path) -> Iterator[Record]:
    """Yield the unsupervised loss, the supervised one without and with a weight of hard negatives, and CARDS."""
    repository = Repository(folders, "princeton-nlp/SimCSE", "49fa580")
    unsupervised, supervised = (f"run_{setting}_example.sh" for setting in ("unsup", "sup"))
    weight = "objective.hard_negative_weight=1.6487212707001282"  # the released option is its logarithm
    yield recorded(Record("simcse", repository, ["method=simcse"], NAMES, PAIRS, script=unsupervised))
    yield recorded(Record("simcse_roberta", repository, ["method=simcse"], NAMES, PAIRS, architecture="roberta"))
    yield recorded(Record("sup_simcse", repository, ["method=sup_simcse"], NAMES, TRIPLETS, script=supervised))
    yield recorded(Record("sup_simcse_weight", repository, ["method=sup_simcse", weight], NAMES, TRIPLETS), 0.5)
    yield cards(Repository(folders, "alibaba/SimCSE-with-CARDS", "8e038a0"))


def recorded(record: Record, weight: float = 0.0) -> Record:
    """Run the official class with the logarithm of a weight of hard negatives."""
    official, words = record.repository.load("simcse/models.py"), tokenizer(record.architecture)
    options = Namespace(max_seq_length=32, pad_to_max_length=False)
    prepare = record.repository.nested(
        "train.py", "prepare_features", tokenizer=words, data_args=options, **record.column_names()
    )
    inputs = features(prepare, record.sentences, words.pad_token_id)
    make = official.BertForCL if record.architecture == "bert" else official.RobertaForCL
    options = Namespace(pooler_type="cls", temp=0.05, hard_negative_weight=weight, do_mlm=False)
    model = official_model(make, record.architecture, model_args=options)
    return record.run(model, inputs, lambda model: model(**inputs).loss)


def cards(repository: Repository) -> Record:
    """Run CARDS with hard negatives, of which one is the anchor of another row."""
    repaired = "the similarities are in float64, and faiss, which finds hard negatives, is left out"
    rows = [*TRIPLETS[:-1], (*TRIPLETS[-1][:2], TRIPLETS[0][0])]
    names, options = {"embedding_projector.dense.": "encoder.projection.0."}, ["method=cards", "views=dropout"]
    record = Record("cards", repository, options, names, rows, repaired, architecture="roberta")
    settings = dict.fromkeys(("mlm_loss_weight", "label_smoothing", "hard_negative_weight"), 0.0)
    settings |= {"pooler_type": "cls", "cl_temperature": 0.05, "switch_case_pattern": "00", "discard_embd_proj": False}
    settings |= {"update_retrieved_negatives_representations": False, "sample_retrieved_dynamic_negatives": 0}
    settings |= {"symmetric_contrastive_loss": False}

    def repair(source: str) -> str:
        source = source.replace("from .", "from models.bert.").replace(".to(torch.float32)", "")
        return re.sub("^(import faiss|RETRIEVER_METRIC).*", "", source, flags=re.MULTILINE)

    def make(config: RobertaConfig) -> nn.Module:
        official = repository.load("models/bert/modeling_simcse.py", repair)
        return official.SimCSEForSequenceEmbedding(official.RobertaConfig(**config.to_dict() | settings))

    words = tokenizer("roberta")
    inputs = padded([[words(sentence).input_ids for sentence in row] for row in rows], words.pad_token_id)
    ids = torch.tensor([[row, 0 if row == len(rows) - 1 else -1] for row in range(len(rows))])  # of anchor and negative
    return record.run(official_model(make, "roberta"), inputs, lambda model: model(**inputs, ids=ids).loss)
