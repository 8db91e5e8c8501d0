"""Groups and names of W&B runs in a sweep; test_rows.py has the names of rows."""

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from simcse_pl.sweeps.rows import in_sweep, job_name, sweep_group


def test_the_group_is_the_table_and_the_folder_of_the_sweep(composed):
    config = composed("sweep=table_3_dropout", "hydra.job.num=0")
    assert sweep_group(config) == "table_3_dropout monday"
    assert sweep_group(composed("hydra.job.num=0")) == "monday"
    assert sweep_group(composed("hydra.mode=RUN")) is None and not in_sweep()
    HydraConfig.instance().cfg = None
    assert sweep_group(config) is None


def test_the_name_of_a_job_has_the_options_that_differ(composed, tmp_path):
    def sweep(*options):
        given = {"hydra": {"overrides": {"task": ["data.limit=100", *options]}}}
        OmegaConf.save(OmegaConf.create(given), tmp_path / "multirun.yaml")

    where = [f"hydra.sweep.dir={tmp_path}", "hydra.job.num=3"]
    job = ["data.limit=100", "model.dropout=0.1", "seed=1"]
    assert job_name(composed(*job)) == "minilm-nli_sample"
    assert job_name(composed(*job, *where)) == f"minilm-nli_sample {' '.join(job)}"
    sweep("model.dropout=0.1,0.2", "seed=1,2")
    assert job_name(composed(*job, *where)) == "minilm-nli_sample model.dropout=0.1 seed=1"
    sweep("sweep=table_3_dropout", "seed=1,2")
    row = composed("data.limit=100", "sweep=table_3_dropout", "seed=1", "sweep.row='fixed 0.1'", *where)
    assert job_name(row) == "table_3_dropout seed=1 sweep.row=fixed 0.1"
