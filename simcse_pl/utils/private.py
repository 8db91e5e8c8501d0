"""The private parts of Hydra, Lightning, torch, transformers, datasets and W&B that the project reads or replaces.

Each has a function here that says why, and a test fails when a version of the library moves it: one of what uses it,
or one in tests/utils/test_private.py. A library is imported when it is needed, because light commands import this file.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

HOOK_NAME = "_current_fx_name"  # the attribute of a LightningModule that Lightning sets before and after each hook


def jobs_of_sweep(options: list[str], loader: Any) -> list[list[str]]:
    """Return the options of each job of Hydra's basic sweeper. `loader` is Hydra's loader, or the folder of configs."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra._internal.utils import create_config_search_path
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if isinstance(loader, str):
        loader = ConfigLoaderImpl(create_config_search_path(loader))
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(options)
    return BasicSweeper.split_arguments(overrides, None)[0]


def ignore_lightnings_sigterm(trainer: Any) -> None:
    """Let no rank ask rank 0 in each step whether Lightning's handler of SIGTERM was called: ours takes its place."""
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None


def set_logged_step(trainer: Any, step: int) -> None:
    """Set the step of Lightning's logs; a logged value named `step`, the public way, would become a metric too."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = step


def cluster_environment(trainer: Any) -> Any:
    """Return what has started the ranks: no public attribute says how many they are."""
    return trainer._accelerator_connector.cluster_environment


def forks_or_spawns(strategy: Any) -> bool:
    """Return whether ranks are forks of this process or spawned by it, so that their results are lost."""
    from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher

    return isinstance(strategy.launcher, _MultiProcessingLauncher)


def cpu_has_bf16() -> bool:
    """Return whether the CPU multiplies in bfloat16, which torch tells nowhere else."""
    import torch

    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def ignore_in_ddp(module: Any, names: Iterable[str]) -> None:
    """Let DDP not broadcast some parameters and buffers in each step: there is no option for single ones."""
    from torch.nn.parallel import DistributedDataParallel

    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)


def own_tensors(module: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the buffers of a module alone, to replace them; setattr refuses other types."""
    return module._parameters, module._buffers


def undo_fully_shard(module: Any) -> None:
    """Remove the hooks and the class that fully_shard gave a module; torch cannot undo it."""
    from torch.distributed.fsdp import FSDPModule

    state = module._get_fsdp_state()
    state._pre_forward_hook_handle.remove()
    state._post_forward_hook_handle.remove()
    module.__class__ = type(module).__mro__[FSDPModule._orig_cls_mro_index]


def is_traced() -> bool:
    """Return whether a pass is recorded by torch.jit or transformed by torch.func, which know no operator of ours."""
    import torch

    return bool(torch._C._get_tracing_state() or torch._C._are_functorch_transforms_active())


def linear_by_onednn(x: Any, weight: Any, bias: Any = None) -> Any:
    """Return x @ weight.T + bias of float32 matrices by oneDNN; torch's own choice for float32 is MKL."""
    import torch

    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def attention_of(config: Any) -> str:
    """Return the name of the implementation of attention of a config."""
    return str(config._attn_implementation)


def set_attention(config: Any, name: str) -> None:
    """Choose the implementation of attention of a model that is made from a config."""
    config._attn_implementation = name


def uses_flash_attention(config: Any) -> bool:
    """Return whether a config's implementation of attention is one of FlashAttention."""
    from transformers.utils.generic import is_flash_attention_requested

    return is_flash_attention_requested(config)


def attention_functions(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions that an implementation of attention computes with, and makes its masks with."""
    from transformers import AttentionInterface, AttentionMaskInterface

    return AttentionInterface()[name], AttentionMaskInterface()[name]


def register_attention(name: str, attention: Callable[..., Any], mask: Callable[..., Any]) -> None:
    """Give an implementation of attention a name. Without a mask's function, the model would get no mask."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)


def forget_adapter(model: Any) -> None:
    """Let a model with a merged adapter save all of its weights; transformers deletes adapters, but merges none."""
    del model.peft_config
    model._hf_peft_config_loaded = False


def fingerprint_of(dataset: Any) -> str:
    """Return a string that changes with the content of a data set of the Hub."""
    return str(dataset._fingerprint)


@contextmanager
def datasets_offline(offline: bool) -> Iterator[None]:
    """Let `datasets` read its cache only, if the Hub is not available; it reads its own option at import."""
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or offline
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def wandb_settings(**settings: Any) -> Any:
    """Return settings with which a killed run loses the last second, not the last 15."""
    import wandb

    return wandb.Settings(x_transaction_log_flush_interval=1.0, **settings)


def make_wandb_staging() -> None:
    """Make the folder where W&B collects tables, which has no public name: an error now, and not after training."""
    from wandb.sdk.artifacts.staging import get_staging_dir

    get_staging_dir()


def summary_of(run: Any) -> dict[str, Any]:
    """Return the summary of a W&B run as plain values."""
    return {name: value for name, value in run.summary._as_dict().items() if not name.startswith("_")}


def at_exit(function: Callable[[], Any]) -> None:
    """Call a function before multiprocessing ends its children by SIGTERM and waits for them; `atexit` comes after."""
    from multiprocessing.util import Finalize

    Finalize(None, function, exitpriority=0)
