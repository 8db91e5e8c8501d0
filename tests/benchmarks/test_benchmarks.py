"""The benchmarks run with a few steps, and their ratios and counts of operations are right."""

import json
import math
import shutil

import pandas as pd
import pytest
import torch

from benchmarks import __main__ as all_benchmarks
from benchmarks import distillation, methods, over_seeds
from benchmarks.common import AllocatorRecord, operations_of
from benchmarks.comparison import comparison, in_turn
from benchmarks.methods import Cost
from benchmarks.over_seeds import Scores
from simcse_pl.data import sample
from simcse_pl.data.prepare.wikipedia import gensim_sample
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.files import cache_folder
from tests.conftest import SENTENCES
from tests.helpers import composed

SLOW = pytest.mark.slow  # many processes
BY_HAND = pytest.mark.by_hand  # a minute or more each


def test_ways_take_turns_and_the_first_round_is_not_counted():
    seen = []
    ways = {name: lambda name=name: seen.append(name) or float(len(seen)) for name in "ab"}
    assert in_turn(ways, rounds=2) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert seen == ["a", "b"] * 3


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


@pytest.mark.parametrize(
    ("benchmark", "options", "ways"),
    [
        pytest.param(
            *("train", ["--rounds", "1", "--steps", "1", "--batch-size", "4", "--triplets", sample.path("nli.csv")], 9),
            marks=SLOW,
        ),
        ("encode", ["--rounds", "1", "--sentences", "16"], 3),
        pytest.param("profile_step", ["--sentences", "8"], 4, marks=SLOW),
        pytest.param("evaluate", ["--rounds", "1"], 3, marks=SLOW),
        pytest.param("search", ["--rounds", "1", "--sentences", "64", "--queries", "8"], 4, marks=SLOW),
        pytest.param("data", ["--lines", "300"], 4, marks=SLOW),
        pytest.param("first_step", ["--lines", "300"], 2, marks=BY_HAND),
        pytest.param("startup", ["--rounds", "1"], 13, marks=BY_HAND),
        pytest.param("memory", ["--sizes", "8", "--chunk-size", "4"], 2, marks=SLOW),
        pytest.param(
            *("scaling", ["--sizes", "8", "--lengths", "8", "--ranks", "1", "--steps", "3", "--runs", "2"], 1),
            marks=SLOW,
        ),
        pytest.param("matryoshka", ["--seeds", "0", "--steps", "2"], 5, marks=SLOW),
        pytest.param("mining", ["--seeds", "0", "--steps", "2"], 5, marks=BY_HAND),
        pytest.param("distillation", ["--seeds", "0", "--steps", "2"], 6, marks=BY_HAND),
        pytest.param("methods", ["--rounds", "1", "--steps", "1", "--only", "simcse"], 2, marks=SLOW),
        pytest.param(
            "masked_head", ["--rounds", "1", "--vocabulary", "100", "--dim", "24", "--positions", "64"], 2, marks=SLOW
        ),
    ],
)
def test_each_benchmark_runs(benchmark, options, ways, run_command, tmp_path):
    table = {"train": "train_triplets", "evaluate": "evaluate_sts", "scaling": "scaling_report"}.get(
        benchmark, benchmark
    )
    done = run_command("-m", f"benchmarks.{benchmark}", *options, "--out", tmp_path)
    rows = json.loads((tmp_path / f"{table}.json").read_text())["rows"]
    assert len(rows) == ways
    assert all(list(row.values())[1] > 0 for row in rows)  # a rate, seconds, or memory
    assert (tmp_path / f"{table}.png").stat().st_size > 1000
    assert "Traceback" not in done.stderr


@SLOW
def test_benchmarks_of_the_plain_backbone_run(run_command, make_masked_language_model, tmp_path):
    gensim_sample()
    shutil.copytree(cache_folder(), cache := tmp_path / "simcse_pl", ignore=shutil.ignore_patterns("tokens*"))
    shutil.copytree(make_masked_language_model("bert"), cache / "mini_backbone" / "encoder")
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES * 5))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{one}\t{one[:20]}\t{k}\n" for k, one in enumerate(SENTENCES)))
    common = ["--seeds", "0", "--steps", "2", "--out", tmp_path]
    own = ["--text", tmp_path / "text.txt", "--dev", pairs, "--test", pairs, "--stage", "2"]
    run_command("-m", "benchmarks.domain", *common, *own, XDG_CACHE_HOME=str(tmp_path))
    run_command("-m", "benchmarks.postprocessing", *common, XDG_CACHE_HOME=str(tmp_path))
    tables = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("domain", "postprocessing")]
    assert [len(table["rows"]) for table in tables] == [4, 4]
    assert "before the stage" in tables[0]["notes"][0]


def test_quantized_vectors_have_a_recall_for_each_precision(run_command, tmp_path):
    run_command("-m", "benchmarks.quantization", "--sentences", "40", "--dims", "384", "96", "--out", tmp_path)
    rows = json.loads((tmp_path / "quantization.json").read_text())["rows"]
    assert [row["MB per million vectors"] for row in rows] == [1536, 384, 48, 384, 96, 12]
    recalls = {(row["dimensions"], row["precision"]): row["recall@10"] for row in rows}
    assert recalls["384", "float32"] == 1 > recalls["96", "float32"]
    assert 0.5 < recalls["384", "binary"] < recalls["384", "int8"] <= 1


def test_the_cost_of_a_method_is_relative_to_simcse_of_its_setting():
    seconds = {
        "simcse": [1.0, 2.0, 4.0],
        "sup_simcse": [2.0, 2.0, 2.0],
        "diffcse": [3.0, 4.0, 8.0],
        "angle": [3.0, 1.0, 2.0],
    }
    memory = {"simcse": 5, "sup_simcse": 4, "diffcse": 10, "angle": 6}
    settings = {name: "supervised" if name in ("sup_simcse", "angle") else "unsupervised" for name in memory}
    costs = {name: Cost(0.0, own * 10**6, settings[name]) for name, own in memory.items()}
    rows = {row.pop("method"): row for row in methods.table(seconds, costs, "").frame.to_dict("records")}
    assert [*rows["diffcse"].values()] == [4000, 2, 2, 3, 10, 2, "simcse"]
    assert [*rows["angle"].values()] == [2000, 1, 0.5, 1.5, 6, 1.5, "sup_simcse"]
    assert [*rows["simcse"].values()] == [2000, 1, 1, 1, 5, 1, "simcse"]


def test_a_table_over_seeds_has_the_extremes_and_differences_that_are_paired():
    first = pd.DataFrame([Scores(70, 60), Scores(74, 62)], index=[0, 1])
    second = pd.DataFrame([Scores(75, 60), Scores(73, 64)], index=[1, 0])
    made = over_seeds.table("x", "x", {"none": Scores(50, 40)}, {"a": first, "b": second}, [])
    none, one, two = made.frame.to_dict("records")
    assert (none["dev"], none["test"], none["seeds"]) == (50, 40, 0)
    assert (one["dev"], one["lowest"], one["highest"], one["test"], one["seeds"]) == (72, 70, 74, 61, 2)
    assert (two["dev"], two["lowest"], two["highest"], two["test"], two["seeds"]) == (74, 73, 75, 62, 2)
    assert math.isnan(one["difference"]) and two["difference"] == 2  # 3 with seed 0, and 1 with seed 1
    assert two["+-"] == pytest.approx(12.7062, abs=1e-4)  # t with 1 degree of freedom, times the standard error of 1


def test_a_run_over_seeds_gives_the_scores_of_its_results_and_leaves_no_checkpoint(tmp_path, monkeypatch):
    def run(command, check):
        assert {"seed=3", "trainer.max_steps=8", "val_every=4", "senteval_dir=null", "x=1"} < set(command)
        (tmp_path / "checkpoints").mkdir()
        splits = {"before": 0.1, "test_before": 0.2, "best": 0.3, "test": 0.4}
        results = {split: {"spearman": score} for split, score in splits.items()}
        (tmp_path / "results.json").write_text(json.dumps(results))

    monkeypatch.setattr(over_seeds.subprocess, "run", run)
    given = over_seeds.options("", steps=8).parse_args([])
    assert over_seeds.train(tmp_path, given, 3, "x=1") == (Scores(10, 20), Scores(30, 40))
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("way", distillation.WAYS)
def test_each_way_of_distillation_trains_the_first_3_layers(way):
    config = composed(*distillation.STUDENT, *distillation.WAYS[way])
    assert config.model.num_layers == 3 and config.model.pooling == "mean"


def test_the_state_of_training_has_all_weights_once_and_those_of_fixed_networks():
    linear = torch.nn.Linear(3, 5)
    module = torch.nn.ModuleList([linear, linear, torch.nn.BatchNorm1d(2)])
    module[0].__dict__["fixed"] = torch.nn.Sequential(torch.nn.Linear(7, 1, bias=False))
    optimizer = torch.optim.SGD(linear.parameters(), lr=1.0, momentum=0.5)
    linear(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    linears, norm, fixed = 4 * (15 + 5), 4 * 4 * 2 + 8, 4 * 7
    assert methods.state_bytes(module, optimizer) == 2 * linears + norm + fixed


def test_the_record_of_the_allocator_has_the_peak_and_not_the_end():
    record = AllocatorRecord()
    record.start()
    kept = torch.ones(1000)
    torch.ones(3000)
    torch.ones(2000)
    assert record.peak() == 4 * 4000 and len(kept) == 1000


def test_the_page_has_each_table_with_its_command(tmp_path):
    run = all_benchmarks.commands("/somewhere/senteval", None)
    tables = [table for _, own in run for table in own]
    for table in tables:
        (tmp_path / f"{table}.md").write_text(f"**{table}**\n")
    page = all_benchmarks.page(tmp_path, run)
    assert [page.count(f"**{table}**") for table in tables] == [1] * len(tables)
    assert "    python -m benchmarks.encode --rounds 3 --sentences 512\n" in page
    assert "--senteval-dir senteval --tasks" in page and "/somewhere" not in page
    assert "--triplets nli.csv\n" in page
