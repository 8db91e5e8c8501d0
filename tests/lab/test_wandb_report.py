"""The W&B report of a sweep, built without a network."""

import json

import pytest
import yaml

from simcse_pl.lab.seed_groups import read_sweeps
from simcse_pl.lab.sweep_tables import sweep_table
from simcse_pl.lab.wandb_report import sweep_report
from simcse_pl.utils.errors import UserError
from tests.lab.conftest import write_sweep
from tests.lab.invented import job

__all__ = ["write_sweep"]


def test_a_report_has_the_table_and_plots_of_the_runs_in_the_groups(write_sweep):
    grid = [(0.7, 0, "1e-5", "mlp"), (0.8, 1, "3e-5", "mlp"), (0.6, 0, "3e-5", "none")]
    jobs = [
        job(dev, seed=seed, options={"optimizer.lr": lr, "model/adapter": name}, choices={"model/adapter": name})
        for dev, seed, lr, name in grid
    ]
    folder = write_sweep("grid", *jobs, job(options={"optimizer.lr": "1"}))
    (sweep,) = read_sweeps({"my grid": folder})
    with pytest.raises(UserError, match="0 has no W&B run"):
        sweep_report(sweep)
    for number in range(3):
        config = {"logger": {"wandb": {"group": f"group {number // 2}"}}}
        (folder / f"{number}/config/resolved.yaml").write_text(yaml.safe_dump(config))
        run = {"id": f"run{number}", "project": "mine", "entity": "team", "summary": {}}
        (folder / f"{number}/wandb_run.json").write_text(json.dumps(run))
    report = sweep_report(sweep)._to_model().model_dump(mode="json", by_alias=True)
    assert report["project"] | {"name": "mine", "entityName": "team"} == report["project"]
    assert report["displayName"] == "my grid"
    _, table, grid, _ = report["spec"]["blocks"]
    assert table["content"] == sweep_table(sweep).markdown()
    (runset,) = grid["metadata"]["runSets"]
    (chosen,) = runset["filters"]["filters"]
    assert (chosen["key"]["name"], chosen["op"], chosen["value"]) == ("group", "IN", ["group 0", "group 1"])
    curves, options = (panel["config"] for panel in grid["metadata"]["panelBankSectionConfig"]["panels"])
    assert (curves["xAxis"], curves["metrics"]) == ("trainer/global_step", ["val/spearman"])
    axes = ["config:optimizer.value.lr", "config:choices.value.model/adapter", "summary:val/spearman"]
    assert [column["accessor"] for column in options["columns"]] == axes
