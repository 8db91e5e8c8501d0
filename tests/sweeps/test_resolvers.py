"""Groups and names of W&B runs in a sweep; test_rows.py has the names of rows."""

from hydra.core.hydra_config import HydraConfig

from simcse_pl.sweeps.rows import in_sweep, sweep_group


def test_the_group_is_the_table_and_the_folder_of_the_sweep(composed):
    config = composed("sweep=table_3_dropout", "hydra.job.num=0")
    assert sweep_group(config) == "table_3_dropout monday"
    assert sweep_group(composed("hydra.job.num=0")) == "monday"
    assert sweep_group(composed("hydra.mode=RUN")) is None and not in_sweep()
    HydraConfig.instance().cfg = None
    assert sweep_group(config) is None
