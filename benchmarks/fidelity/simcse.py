"""SimCSE (Gao, Yao and Chen 2021), by the authors' class."""

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
    official = repository.load("simcse/models.py")
    for name, rows, given, weight in (
        ("simcse", PAIRS, ["method=simcse"], 0.0),
        ("sup_simcse", TRIPLETS, ["method=sup_simcse"], 0.0),
        (
            "sup_simcse_weight",
            TRIPLETS,
            ["method=sup_simcse", "objective.hard_negative_weight=1.6487212707001282"],
            0.5,
        ),
    ):
        for architecture in ("bert", "roberta") if name == "simcse" else ("bert",):
            record = Record(f"{name}_{architecture}", repository, given, NAMES, rows, architecture=architecture)
            words = tokenizer(architecture)
            options = arguments(max_seq_length=32, pad_to_max_length=False)
            prepare = repository.nested(
                "train.py", "prepare_features", tokenizer=words, data_args=options, **record.column_names()
            )
            inputs = features(prepare, rows, words.pad_token_id)
            options = arguments(pooler_type="cls", temp=0.05, hard_negative_weight=weight, do_mlm=False)
            make = official.BertForCL if architecture == "bert" else official.RobertaForCL
            model = official_model(make, architecture, model_args=options)
            record.run(model, inputs, lambda model, inputs=inputs: model(**inputs).loss)
            yield record
