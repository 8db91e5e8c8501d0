"""Private parts of libraries that no other test would miss, if a version of the library moved or changed one."""

import inspect
import subprocess
import sys

import datasets
import pytest
import torch
import torch.distributed as dist
import wandb
from datasets import Dataset
from pytorch_lightning import LightningModule
from pytorch_lightning.trainer.call import _call_lightning_module_hook
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from simcse_pl.utils import private
from tests.conftest import quiet_trainer


@pytest.fixture
def one_rank():
    """Make a process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_lightning_sets_the_name_of_a_hook_in_an_attribute_of_the_module():
    names = _call_lightning_module_hook.__code__.co_names
    assert private.HOOK_NAME in names and private.HOOK_NAME in vars(LightningModule())


def test_lightning_tells_what_started_the_ranks():
    environment = private.cluster_environment(quiet_trainer())
    assert environment.world_size() == 1 and environment.creates_processes_externally is False
    found = [private.forks_or_spawns(quiet_trainer(strategy=name, devices=2).strategy) for name in ("ddp_spawn", "ddp")]
    assert found == [True, False]


def test_a_sharded_module_becomes_an_ordinary_one(one_rank):
    module = nn.Linear(3, 2)
    weight, x = module.weight.detach().clone(), torch.randn(4, 3)
    expected = module(x)
    fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    assert isinstance(module, FSDPModule)
    private.undo_fully_shard(module)
    parameters, buffers = private.own_tensors(module)
    parameters["weight"], parameters["bias"] = nn.Parameter(weight), nn.Parameter(module.bias.full_tensor().detach())
    assert type(module) is nn.Linear and not buffers and torch.equal(module(x), expected)


def test_torch_tells_whether_a_pass_is_traced():
    found = []

    class Asks(nn.Module):
        def forward(self, x):
            found.append(private.is_traced())
            return x + 1

    Asks()(torch.ones(1))
    torch.jit.trace(Asks(), torch.ones(1), check_trace=False)
    torch.func.vmap(Asks())(torch.ones(1, 1))
    assert found == [False, True, True]


def test_a_module_applies_functions_to_its_own_tensors_by_the_method_that_frozen_networks_override():
    called = []

    class Frozen(nn.Linear):
        def _apply(self, fn, recurse=True):
            called.append(recurse)
            return super()._apply(fn, recurse)

    nn.Sequential(Frozen(1, 1)).to(torch.float64)
    assert called == [True]


def test_the_fingerprint_of_a_data_set_is_that_of_its_content():
    first, same, other = (private.fingerprint_of(Dataset.from_dict({"a": [text]})) for text in "xxy")
    assert first == same != other


def test_datasets_asks_no_hub_while_it_is_offline(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    with private.datasets_offline(False):
        assert datasets.config.HF_HUB_OFFLINE is False
    with private.datasets_offline(True):
        assert datasets.config.HF_HUB_OFFLINE is True
        assert "config.HF_HUB_OFFLINE" in inspect.getsource(datasets.load), "which `load_dataset` reads"
    assert datasets.config.HF_HUB_OFFLINE is False


def test_wandb_flushes_soon_and_has_the_summary_as_plain_values(tmp_path):
    settings = private.wandb_settings(silent=True)
    assert settings.silent is True and settings.x_transaction_log_flush_interval == 1.0
    with wandb.init(mode="offline", dir=tmp_path, settings=settings) as run:
        run.summary.update({"a": 1, "b": {"c": 2}})
        assert private.summary_of(run) == {"a": 1, "b": {"c": 2}}


def test_a_function_is_called_before_multiprocessing_waits_for_its_children():
    code = """
import multiprocessing, time
from simcse_pl.utils.private import at_exit
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=[600])
child.start()
at_exit(child.kill)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
