"""The private parts of libraries: each test fails if a version of the library moves or changes one."""

import inspect
import subprocess
import sys
from contextlib import contextmanager

import datasets
import pytest
import torch
import torch.distributed as dist
import wandb
from datasets import Dataset
from hydra.core.override_parser.overrides_parser import OverridesParser
from peft import LoraConfig
from pytorch_lightning import LightningModule
from pytorch_lightning.loggers.csv_logs import ExperimentWriter
from pytorch_lightning.trainer.call import _call_lightning_module_hook
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import AutoModel, BertConfig, BertModel

from simcse_pl.utils import private
from tests.conftest import quiet_trainer

TINY = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@contextmanager
def one_rank():
    """Make a process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def test_the_jobs_of_a_sweep_have_each_pair_of_values():
    overrides = OverridesParser.create().parse_overrides(["a=1,2", "b=3", "c=range(4,6)"])
    assert private.jobs_of_sweep(overrides) == [[f"a={a}", "b=3", f"c={c}"] for a in (1, 2) for c in (4, 5)]


def test_lightning_asks_no_rank_for_its_signals_in_a_step():
    trainer = quiet_trainer()
    loop = trainer.fit_loop.epoch_loop
    assert "_broadcast_sigterm_tensor" in loop.advance.__code__.co_names and "_broadcast_sigterm_tensor" in dir(loop)
    private.ignore_lightnings_sigterm(trainer)
    assert loop._broadcast_sigterm_tensor() is None


def test_lightning_logs_at_the_step_that_is_set():
    trainer = quiet_trainer()
    assert trainer.fit_loop.epoch_loop._batches_that_stepped == 0
    private.set_logged_step(trainer, 7)
    assert trainer.fit_loop.epoch_loop._batches_that_stepped == 7
    assert "_batches_that_stepped" in trainer._logger_connector.log_metrics.__code__.co_names


def test_lightning_sets_the_name_of_a_hook_in_an_attribute_of_the_module():
    names = _call_lightning_module_hook.__code__.co_names
    assert private.HOOK_NAME in names and private.HOOK_NAME in vars(LightningModule())


def test_lightnings_writer_of_curves_asks_the_methods_that_ours_overrides(tmp_path):
    class Writer(ExperimentWriter):
        def _check_log_dir_exists(self):
            self.metrics = [{"a": 1}]

    writer = Writer(str(tmp_path))
    writer.log_metrics({"b": 2.0}, step=3)
    writer._record_new_keys()
    assert writer.metrics == [{"a": 1}, {"b": 2.0, "step": 3}] and set(writer.metrics_keys) == {"a", "b", "step"}


def test_lightning_tells_what_started_the_ranks():
    environment = private.cluster_environment(quiet_trainer())
    assert environment.world_size() == 1 and environment.creates_processes_externally is False
    found = [private.forks_or_spawns(quiet_trainer(strategy=name, devices=2).strategy) for name in ("ddp_spawn", "ddp")]
    assert found == [True, False]


def test_torch_tells_whether_the_cpu_has_bfloat16():
    assert private.cpu_has_bf16() == (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def test_ddp_leaves_out_what_is_ignored():
    module = nn.BatchNorm1d(2)
    private.ignore_in_ddp(module, ["running_mean", "running_var"])
    with one_rank():
        wrapped = nn.parallel.DistributedDataParallel(module)
    assert list(wrapped.named_module_buffers) == ["num_batches_tracked"]


def test_a_sharded_module_becomes_an_ordinary_one():
    with one_rank():
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


@pytest.mark.parametrize("bias", [None, torch.randn(4)])
def test_onednn_multiplies_matrices(bias):
    x, weight = torch.randn(5, 3), torch.randn(4, 3)
    expected = nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(private.linear_by_onednn(x, weight, bias), expected)


def test_a_module_applies_functions_to_its_own_tensors_by_the_method_that_frozen_networks_override():
    called = []

    class Frozen(nn.Linear):
        def _apply(self, fn, recurse=True):
            called.append(recurse)
            return super()._apply(fn, recurse)

    nn.Sequential(Frozen(1, 1)).to(torch.float64)
    assert called == [True]


def test_transformers_finds_an_attention_and_its_mask_by_their_name():
    calls = []
    attention, mask = private.attention_functions("sdpa")
    private.register_attention(
        "test_of_private",
        lambda *given, **options: calls.append("attention") or attention(*given, **options),
        lambda **options: calls.append("mask") or mask(**options),
    )
    model = AutoModel.from_config(BertConfig(vocab_size=9, **TINY)).eval()
    batch = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    expected = model(**batch).last_hidden_state
    assert private.attention_of(model.config) == "sdpa"
    private.set_attention(model.config, "test_of_private")
    assert torch.equal(model(**batch).last_hidden_state, expected) and calls == ["mask", "attention"]


def test_transformers_tells_flash_attention():
    config = BertConfig()
    found = []
    for name in ("sdpa", "flash_attention_2", "kernels-community/flash-attn2"):
        private.set_attention(config, name)
        found.append(private.uses_flash_attention(config))
    assert found == [False, True, True]


def test_a_model_whose_adapter_is_forgotten_saves_all_weights(tmp_path):
    model = BertModel(BertConfig(vocab_size=9, **TINY))
    model.add_adapter(LoraConfig(target_modules=["query"]))
    assert model._hf_peft_config_loaded is True
    for name, module in list(model.named_modules()):
        if hasattr(module, "get_base_layer"):
            model.set_submodule(name, module.get_base_layer())
    private.forget_adapter(model)
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


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


def test_wandb_has_a_folder_for_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    private.make_wandb_staging()
    assert list(tmp_path.rglob("*"))


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
