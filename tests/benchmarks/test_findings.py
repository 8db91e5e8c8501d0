"""The plan of the findings, a run of it, and the page that is made of the records."""

import importlib
import json
import sys

import pytest
from scipy.stats import ttest_rel

from benchmarks import findings
from tests.conftest import ROOT
from tests.senteval_bundle import WORDS, write_bundle

EVERYTHING = list(findings.PLAN["tables"])


@pytest.fixture(scope="module")
def page():
    sys.path.insert(0, str(ROOT / "docs"))
    yield importlib.import_module("findings")
    sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("size", findings.PLAN["sizes"])
def test_every_claim_is_about_runs_of_the_plan_and_equal_configs_are_trained_once(size, monkeypatch):
    monkeypatch.setattr(findings, "weights", lambda model: "a")
    jobs = [*findings.planned(size, EVERYTHING, [0]), *findings.planned(size, ["table_7_hard_negative"], [2, 1])]
    places = [json.loads(job.place) for job in jobs]
    places = [place[1:] for place in places]
    runs = {"/".join(filter(None, place[:3])) for place in places}
    claims = [claim for group in findings.PLAN["claims"].values() for claim in group]
    assert {claim[side].removeprefix("before/") for claim in claims for side in ("better", "worse")} <= runs
    of_row = {(*place[:3], place[3]): job.config for place, job in zip(places, jobs, strict=True)}
    base = of_row["table_3_dropout", None, "0.1", 0]
    assert base == of_row["table_6_pooling", "unsupervised", "CLS with MLP in training only", 0]
    assert base != of_row["table_3_dropout", None, "0.2", 0]
    first, second = (of_row["table_7_hard_negative", None, "contradiction 1.0", seed] for seed in (0, 1))
    assert first != second


def record(row, seed, after, before=0.5, table="table_3_dropout", column=None):
    metrics = {"alignment": 0.2, "uniformity": -after, "largest_eigenvalue": 2.0, "trace": 4.0}
    best, first = metrics | {"spearman": 0.9}, metrics | {"spearman": before, "uniformity": 0.0}
    sweep = {"table": table, "column": column, "row": row, "size": "mini"}
    results = {"sweep": sweep, "seed": seed, "best": best, "before": first, "test": best, "test_before": first}
    results |= {"choices": {}, "overrides": [f"sweep.row='{row}'", f"seed={seed}"], "steps": 2, "best_step": 2}
    results |= {"validation": "STS-B", "monitor": "spearman", "mode": "max", "precision": "32-true"}
    path = [metrics | {"step": s, "uniformity": -s * after / 2, "score": after} for s in (0, 1, 2)]
    return {"config": f"{row}{seed}", "backbone": "a", "results": results, "path": path, "seconds": 36}


def test_differences_are_paired_over_seeds_and_lower_geometry_is_better(page):
    pairs = {0: (0.8, 0.7), 1: (0.83, 0.75), 2: (0.79, 0.7)}
    records = [record(row, seed, pairs[seed][k]) for k, row in enumerate(("0.1", "0.0")) for seed in pairs]
    other = record("0.0", 7, 0.1) | {"backbone": "b"}  # of another backbone: not a pair
    frame = page.scores([*records, record("0.1", 7, 0.1), other])
    claim = {"better": "table_3_dropout/0.1", "worse": "table_3_dropout/0.0", "score": "dev"}
    own = page.difference(frame, claim)
    interval = ttest_rel(*zip(*([100 * x for x in pair] for pair in pairs.values()), strict=True)).confidence_interval(
        0.95
    )
    mean, half = own.mean(), page.margin(own)
    assert (mean - half, mean + half) == pytest.approx(interval) and len(own) == 3
    geometry = page.difference(frame, claim | {"score": "uniformity"})
    assert geometry.mean() == pytest.approx(mean / 100)
    change = page.difference(frame, {**claim, "worse": "before/table_3_dropout/0.1", "score": "uniformity"})
    assert change.mean() == pytest.approx((0.8 + 0.83 + 0.79 + 0.1) / 4)
    assert page.papers_number("table_d2_mlm/0.1", "transfer") == 86.2
    assert page.papers_number("table_2_objective/two encoders/delete one word", "dev") == 73.1


def test_the_page_has_claims_tables_and_figures_of_the_records(page, tmp_path):
    dropout, negatives = ("0.0", "0.1"), ("none", "contradiction 1.0")
    gains = [("table_3_dropout", dropout, 0.1), ("dropout_path", dropout, 0.0)]
    gains += [("table_7_hard_negative", negatives, -0.1), ("table_7_snli", negatives, 0.2)]
    records = [
        record(row, seed, after, table=table)
        for table, rows, gain in gains
        for row, after in zip(rows, (0.7, 0.7 + gain), strict=True)
        for seed in (0, 1)
    ]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(own) + "\n" for own in records))
    text = page.updated((ROOT / "docs" / "findings.md").read_text(), tmp_path / "records.jsonl", tmp_path)
    assert "| Dropout of 0.1 makes better positives than none | [Table 3](#table-3-dropout) | +11.4 | +10.00" in text
    assert "not reproduced; 743 triplets of SNLI: +20.00 ± 0.00 (2 seeds)" in text
    assert text.count("### Table 3: dropout") == 1 and "table_7_snli" not in text
    assert {path.name for path in tmp_path.glob("*.png")} == {
        f"findings_{name}.png" for name in ("table_3_dropout", "table_7_hard_negative", "paths", "encoders")
    }


@pytest.mark.slow  # trains four times
def test_the_full_size_is_estimated_trained_and_continued_in_the_same_format(
    page, make_model, tmp_path, monkeypatch, capsys
):
    write_bundle(tmp_path / "senteval")
    (tmp_path / "text.txt").write_text("".join(f"a man plays in the {word}\n" for word in WORDS))
    model, text = make_model("bert"), tmp_path / "text.txt"
    monkeypatch.chdir(tmp_path)
    options = [f"model.name={model}", f"data.train={text}", "data.batch_size=4", "trainer.max_steps=2", "val_every=1"]
    given = ["--size", "paper", "--senteval-dir", "senteval", "--options", *options, "--only", "random_weights"]
    findings.main([*given, "table_7_hard_negative", "--seeds", "0"])
    said = capsys.readouterr().out
    assert "table_7_hard_negative is left out: it needs outputs/findings/two_hard_negatives.csv" in said
    assert "2 rows of tables left: 2 runs of about 11 minutes" in said
    findings.main([*given, "--seeds", "0", "1"])
    assert "2 rows of tables left" in capsys.readouterr().out  # those of seed 1
    records = findings.read_records(findings.WORK / "paper.jsonl")
    assert [record["results"]["seed"] for record in records] == [0, 0, 1, 1]
    assert [point["step"] for point in records[0]["path"]] == [0, 1, 2]
    page.main(str(findings.WORK / "paper.jsonl"), "findings.md")
    text = (tmp_path / "findings.md").read_text()
    assert "From random weights, training improves uniformity | Random weights | " in text
    assert "**From random weights**" in text
