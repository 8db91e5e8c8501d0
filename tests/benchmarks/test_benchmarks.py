"""The benchmarks run with a few steps, and their ratios and counts of operations are right."""

import pandas
import pytest

from benchmarks import methods
from benchmarks.common import comparison, operations_of
from simcse_pl.data import sample
from simcse_pl.models.encoder import SentenceEncoder
from tests.support.senteval_bundle import write_bundle


def test_ratios_are_within_a_round():
    table = comparison("x", "x", "rows/s", {"a": [1.0, 10.0, 4.0], "b": [0.5, 2.0, 4.0]}, amount=8, operations=16e9)
    first, second = table.frame.to_dict("records")
    assert first == {"way": "a", "rows/s": 2, "times the first": 1, "lowest": 1, "highest": 1, "GFLOP/s": 4}
    assert second == {"way": "b", "rows/s": 4, "times the first": 2, "lowest": 1, "highest": 5, "GFLOP/s": 8}


def test_operations_equal_those_that_torch_counts(make_model):
    from torch.utils.flop_counter import FlopCounterMode

    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean").eval()
    encoder.double()  # torch does not count products by oneDNN, which are in float32
    encoder.backbone.set_attn_implementation("eager")
    inputs = encoder.tokenizer(["a man is playing a guitar"], return_tensors="pt")
    with FlopCounterMode(display=False) as counter:
        encoder(inputs)
    assert operations_of(encoder.backbone.config, [inputs["input_ids"].shape[1]]) == counter.get_total_flops()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "table", "options", "ways"),
    [
        ("train", "train_triplets", f"--rounds 1 --steps 1 --batch-size 4 --triplets {sample.path('nli.csv')}", 9),
        ("encode", "encode", "--rounds 1 --sentences 16", 3),
        ("data", "data", "--lines 300", 4),
        ("evaluate", "evaluate_sts", "--rounds 1 --senteval-dir {bundle}", 3),
        ("host", "host", "--rounds 1 --steps 3", 5),
        ("memory", "memory", "--sizes 8 --chunk-size 4", 2),
        ("methods", "methods", "--rounds 1 --steps 1 --only simcse", 2),
    ],
)
def test_each_benchmark_runs(benchmark, table, options, ways, run_command, tmp_path):
    options = options.format(bundle=write_bundle(tmp_path / "bundle"))
    run_command("-m", f"benchmarks.{benchmark}", *options.split(), "--out", tmp_path)
    rows = pandas.read_csv(tmp_path / f"{table}.csv").to_dict("records")
    assert len(rows) == ways
    assert all(value > 0 for row in rows for value in row.values() if isinstance(value, int | float))


@pytest.mark.slow
def test_vectors_are_those_of_sentence_transformers(tmp_path):
    from benchmarks.equality import by_folder, by_prompt

    differences = [one for table in (by_prompt, by_folder) for row in table(tmp_path).values() for one in row.values()]
    assert len(differences) == 7 * 5 + 2 * 9 + 1 and all(float(one) < 1e-5 for one in differences)


def test_the_cost_of_a_method_is_relative_to_simcse_of_its_setting():
    seconds = {"simcse": [1, 2, 4], "sup_simcse": [2, 2, 2], "diffcse": [3, 4, 8], "angle": [3, 1, 2]}
    memory = {"simcse": 5, "sup_simcse": 4, "diffcse": 10, "angle": 6}
    settings = {name: "supervised" if name in ("sup_simcse", "angle") else "unsupervised" for name in memory}
    costs = {name: methods.Cost(0.0, own * 10**6, settings[name]) for name, own in memory.items()}
    rows = {row.pop("method"): row for row in methods.table(seconds, costs, "").frame.to_dict("records")}
    assert [*rows["diffcse"].values()] == [4000, 2, 2, 3, 10, 2, "simcse"]
    assert [*rows["angle"].values()] == [2000, 1, 0.5, 1.5, 6, 1.5, "sup_simcse"]
