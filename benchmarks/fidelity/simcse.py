"""SimCSE (Gao, Yao and Chen 2021), by the authors' class and their preparation of sentences."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.fidelity.common import (
    PAIRS,
    TRIPLETS,
    Record,
    Repository,
    arguments,
    features,
    official_model,
    tokenizer,
)

NAMES = {"mlp.dense.": "encoder.projection.0."}


def records(folders: Path) -> Iterator[Record]:
    """Yield the unsupervised loss, and the supervised one without and with a weight of hard negatives."""
    repository = Repository(folders, "princeton-nlp/SimCSE", "49fa580")
    unsupervised, supervised = (f"run_{setting}_example.sh" for setting in ("unsup", "sup"))
    weight = "objective.hard_negative_weight=1.6487212707001282"  # the released option is its logarithm
    yield recorded(Record("simcse", repository, ["method=simcse"], NAMES, PAIRS, script=unsupervised))
    yield recorded(Record("simcse_roberta", repository, ["method=simcse"], NAMES, PAIRS, architecture="roberta"))
    yield recorded(Record("sup_simcse", repository, ["method=sup_simcse"], NAMES, TRIPLETS, script=supervised))
    yield recorded(Record("sup_simcse_weight", repository, ["method=sup_simcse", weight], NAMES, TRIPLETS), 0.5)


def recorded(record: Record, weight: float = 0.0) -> Record:
    """Run the official class with the logarithm of a weight of hard negatives."""
    official, words = record.repository.load("simcse/models.py"), tokenizer(record.architecture)
    options = arguments(max_seq_length=32, pad_to_max_length=False)
    prepare = record.repository.nested(
        "train.py", "prepare_features", tokenizer=words, data_args=options, **record.column_names()
    )
    inputs = features(prepare, record.sentences, words.pad_token_id)
    make = official.BertForCL if record.architecture == "bert" else official.RobertaForCL
    options = arguments(pooler_type="cls", temp=0.05, hard_negative_weight=weight, do_mlm=False)
    model = official_model(make, record.architecture, model_args=options)
    record.run(model, inputs, lambda model: model(**inputs).loss)
    return record
