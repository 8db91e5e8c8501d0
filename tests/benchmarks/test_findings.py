"""The plan of the findings, a run of it, and the page that is made of the records."""

import importlib
import json
import math
import re
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t, ttest_rel

from benchmarks import findings
from tests.conftest import ROOT
from tests.support.senteval_bundle import WORDS, write_bundle

CLAIMS = [claim for group in findings.PLAN["claims"].values() for claim in group]


@pytest.fixture(scope="module")
def page():
    sys.path.insert(0, str(ROOT / "docs"))
    yield importlib.import_module("findings")
    sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("size", findings.PLAN["sizes"])
def test_every_claim_is_about_runs_of_the_plan_and_equal_configs_are_trained_once(size, monkeypatch):
    monkeypatch.setattr(findings, "weights", lambda model: "a")
    rows = {job.row: job.config for job in findings.planned(size, seeds=[0])}
    assert {claim[side].removeprefix("before/") for claim in CLAIMS for side in ("better", "worse")} <= rows.keys()
    unsupervised, supervised = rows["table_3_dropout/0.1"], rows["table_7_hard_negative/contradiction 1.0"]
    assert unsupervised == rows["table_6_pooling/unsupervised/CLS with MLP in training only"] != supervised
    assert supervised == rows["table_6_pooling/supervised/CLS with MLP"] or size == "paper"
    assert rows["table_3_dropout/0.2"] != unsupervised


def test_runs_are_chosen_by_table_or_row_and_come_in_this_order_for_each_seed(monkeypatch):
    monkeypatch.setattr(findings, "weights", lambda model: "a")
    jobs = findings.planned("mini", ["table_7_hard_negative/none", "table_3_dropout/0.1", "random_weights"], [2, 1])
    rows = ["table_7_hard_negative/none", "table_3_dropout/0.1"]
    rows += ["random_weights/pretrained weights", "random_weights/random weights"]
    assert [(job.about["seed"], job.row) for job in jobs] == [(seed, row) for seed in (1, 2) for row in rows]
    assert jobs[1].run == jobs[2].run and len({job.run for job in jobs}) == 6
    with pytest.raises(SystemExit, match="table_3_dropout/0.3: benchmarks/findings.yaml has no such table or row"):
        findings.planned("mini", ["table_3_dropout", "table_3_dropout/0.3"])


def test_the_plan_has_the_regime_that_the_protocol_chooses(page, monkeypatch):
    monkeypatch.setattr(findings, "weights", lambda model: "a")
    chosen = page.regimes(findings.read_records(findings.PROTOCOL))
    for own in chosen[chosen.chosen].itertuples():
        (job,) = findings.planned("mini", [own.row], [0])
        options = dict(option.split("=", 1) for option in job.overrides)
        assert (float(options["optimizer.lr"]), int(options["trainer.max_steps"])) == (own.rate, own.steps)


def test_the_regime_has_the_largest_gain_among_those_that_do_not_fall(page, monkeypatch):
    monkeypatch.setitem(findings.PLAN["protocol"], "steps", [40, 60, 80])
    paths = {1e-4: [50, 52, 54, 55, 55], 4e-4: [50, 60, 58, 57, 56]}  # at the steps 0, 20, ... 80
    records = []
    for seed, (rate, dev) in enumerate(paths.items()):
        own = record("0.1", seed, 0.0)
        points = [own["path"][0] | {"step": 20 * i, "score": score / 100} for i, score in enumerate(dev)]
        own["results"]["settings"] = {"learning rate": f"{rate:g}"}
        records.append(own | {"path": points})
    found = page.regimes(records).set_index(["rate", "steps"])
    assert found.gain.round(6).to_dict() == {
        **{(1e-4, steps): gain for steps, gain in ((40, 4), (60, 5), (80, 5))},
        **{(4e-4, steps): 10 for steps in (40, 60, 80)},
    }
    assert found.fall.round(6).tolist() == [0, 0, 0, 2, 3, 4]
    assert found.chosen[found.chosen].index.tolist() == [(1e-4, 60)]


def record(row, seed, after, before=0.5, table="table_3_dropout", column=None, best=0.0):
    metrics = {"alignment": 0.2, "largest_eigenvalue": 2.0, "trace": 4.0}
    sweep = {"table": table, "column": column, "row": row, "size": "mini"}
    results = {"sweep": sweep, "seed": seed, "best": {"spearman": after + best}, "before": {}, "test": {}}
    results |= {
        "settings": {"device": "1 x cpu", "precision": "32-true", "versions": "simcse_pl c0ffee"},
        "choices": {},
        "overrides": [f"sweep.row='{row}'", f"seed={seed}"],
        "steps": 2,
        "best_step": 1,
    }
    results |= {"validation": "STS-B", "monitor": "spearman", "mode": "max", "precision": "32-true"}
    scores = (before, after + best, after)
    path = [metrics | {"step": s, "uniformity": -s * after / 2, "score": score} for s, score in enumerate(scores)]
    about = {"config": f"{row}{seed}", "backbone": "a", "seconds": 36}
    return about | {"results": results, "path": path}


def test_differences_are_paired_over_seeds_and_lower_geometry_is_better(page):
    pairs = {0: (0.8, 0.7), 1: (0.83, 0.75), 2: (0.79, 0.7)}
    records = [record(row, seed, pairs[seed][k]) for k, row in enumerate(("0.1", "0.0")) for seed in pairs]
    other = record("0.0", 7, 0.1) | {"backbone": "b"}  # of another backbone: not a pair
    records += [record("0.1", 7, 0.1), other]
    frame = page.scores(records)
    last = frame[frame["at"] == page.LAST]
    claim = {"better": "table_3_dropout/0.1", "worse": "table_3_dropout/0.0"}
    own = page.difference(last, claim)
    test = ttest_rel(*zip(*([100 * x for x in pair] for pair in pairs.values()), strict=True))
    interval, mean, half = test.confidence_interval(0.95), own.mean(), page.margin(own)
    assert (mean - half, mean + half) == pytest.approx(interval) and len(own) == 3
    assert 2 * min(page.p_values(own, equal=False)) == pytest.approx(test.pvalue)
    geometry = page.difference(last, claim | {"score": "uniformity"})
    assert geometry.mean() == pytest.approx(mean / 100)
    change = page.difference(last, claim | {"worse": "before/table_3_dropout/0.1", "score": "uniformity"})
    assert change.mean() == pytest.approx((0.8 + 0.83 + 0.79 + 0.1) / 4)
    better = page.scores([record("0.1", 0, 0.8, best=0.05), record("0.0", 0, 0.7, best=0.01)])
    assert page.difference(better[better["at"] == page.BEST], claim).item() == pytest.approx(14)
    assert page.papers_number("table_7_hard_negative/none", "dev") == 84.9
    assert page.papers_number("table_2_objective/two encoders/delete one word", "dev") == 73.1


@pytest.mark.parametrize(("mean", "verdict"), [(0.0, 0), (0.5, 0), (0.79, None), (1.2, 1), (-1.2, 1)])
def test_equality_is_tested_against_the_margin(page, mean, verdict):
    """The margin is the deviation of numbers whose range is that of simple-simcse's 50 seeds."""
    places = np.linspace(-10, 10, 20_001)
    below = norm.cdf(places) ** 50
    above = norm.sf(places) ** 50
    span = np.trapezoid(1 - below - above, places)  # the expected range of 50 normal numbers
    assert findings.PLAN["margin"] == pytest.approx((76.70 - 73.16) / span, abs=0.005)
    margin, gains = findings.PLAN["margin"], mean + pd.Series([-0.1, 0.1, 0.05, -0.05, 0.0])
    inside, outside = page.p_values(gains, equal=True)
    error = gains.std() / math.sqrt(5)
    assert inside == pytest.approx(1 - t.cdf((margin - abs(mean)) / error, 4))
    assert outside == pytest.approx(1 - t.cdf((abs(mean) - margin) / error, 4))
    decided = [p < 0.025 for p in (inside, outside)]
    assert decided == [verdict == 0, verdict == 1]


def test_adjusted_p_values_reject_what_holms_procedure_rejects(page):
    values = pd.Series([0.04, 0.001, 0.012, 0.3, 0.012, 0.9], index=list("abcdef"))
    adjusted = page.holm(values, len(values))
    for level in np.linspace(0.003, 0.997, 143):
        rejected, left = set(), sorted(values.index, key=values.get)
        while left and values[left[0]] * len(left) <= level:  # from the smallest to the first that is not rejected
            rejected.add(left.pop(0))
        assert {*adjusted.index[adjusted <= level]} == rejected
    smallest = values.sort_values()[:3]  # of claims of which others have no runs yet
    assert page.holm(smallest, len(values)).equals(adjusted[smallest.index])


@pytest.mark.parametrize("score", [0.4, 0.55, 0.7])
def test_a_claim_is_marked_if_one_of_its_runs_is_worse_than_its_start(page, score):
    records = [record(row, seed, score - 0.1 * (row == "0.0")) for row in ("0.1", "0.0") for seed in (0, 1)]
    found = page.tested(page.scores(records), page.BEST, seeds=2)
    (own,) = [row for row in found.itertuples() if row.claim["claim"].endswith("better positives than none")]
    assert own.fell == (score < 0.6)


def test_the_page_is_what_its_records_give(page, tmp_path):
    assert page.page(findings.RECORDS, tmp_path) == page.PAGE.read_text()


def test_the_table_of_the_decoder_has_means_and_intervals_of_its_records(page):
    records = page.read_records(page.PROTOCOL.with_name("findings_decoder.jsonl"))
    own = [record for record in records if record["results"]["seed"] >= 110]
    dev = {}
    for record in own:
        seed, row = record["results"]["seed"], record["results"]["sweep"]["row"]
        dev.setdefault(row, {})[seed] = 100 * max(point["score"] for point in record["path"][1:])
    (line,) = [line for line in page.decoder(records).splitlines() if line.startswith("| fixed 0.1 | 0.0003 | ")]
    test = ttest_rel(*([dev[row][seed] for seed in sorted(dev["0.1"])] for row in ("0.1", "fixed 0.1")))
    low, high = test.confidence_interval(0.95)
    assert f"| {np.mean([*dev['fixed 0.1'].values()]):.1f} | {(low + high) / 2:+.2f} ± {(high - low) / 2:.2f} |" in line


def test_the_page_has_verdicts_tables_and_figures_of_the_records(page, tmp_path, monkeypatch):
    monkeypatch.setitem(findings.PLAN["sizes"]["mini"], "seeds", [0, 1, 2])
    spread, gain = (-0.0004, 0.0001, 0.0003), {"0.1": 0.1, "fixed 0.1": 0.0, "0.0": 0.0, "0.2": 0.1}
    records = [
        record(row, seed, 0.7 + own + noise * (row in ("0.1", "0.0")), best=0.01 if row == "0.1" else 0.0)
        for row, own in gain.items()
        for seed, noise in enumerate(spread[: 2 if row == "0.2" else 3])
        for noise in [noise if row == "0.1" else -noise]
    ]
    records.append(record("none", 0, 0.7, table="table_7_hard_negative"))
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(own) + "\n" for own in records))
    page.main(str(tmp_path / "records.jsonl"), str(tmp_path / "page.md"))
    text = (tmp_path / "page.md").read_text()
    line = "| Dropout of 0.1 makes better positives than none | +11.4 | +11.00 ± "
    (found,) = [own for own in text.splitlines() if own.startswith(line)]
    assert found.count("reproduced") == 2 and "| +10.00 ± " in found and found.endswith("|  |")
    assert "Hard negatives help" not in text and "<!--" not in text  # one seed proves nothing
    assert "Versions: simcse_pl c0ffee." in text and "fewer than 3 seeds so far" in text
    (few,) = [own for own in text.splitlines() if own.startswith("| Dropout of 0.1 is better than 0.2 | ")]
    assert re.search(r"undecided \(\S+\) \| (> )?\d+ \|$", few)
    assert {path.name for path in tmp_path.glob("figures/*.png")} == {"findings_paths.png", "findings_encoders.png"}
    assert "### Table 3: dropout\n\n| dropout " in text and "### Table 7: hard negatives" in text


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
    assert "2 rows of tables left: 2 runs of about 12 minutes" in said
    findings.main([*given, "--seeds", "0", "1"])
    assert "2 rows of tables left" in capsys.readouterr().out  # those of seed 1
    records = findings.read_records(findings.WORK / "paper.jsonl")
    assert [record["results"]["seed"] for record in records] == [0, 0, 1, 1]
    assert [point["step"] for point in records[0]["path"]] == [0, 1, 2]
    page.main(str(findings.WORK / "paper.jsonl"), "findings.md")
    text = (tmp_path / "findings.md").read_text()
    assert "From random weights, training improves uniformity | " in text
    assert "| From random weights | 2 | " in text
