"""Jobs of a multirun in separate processes, if they have several ranks or run at once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from simcse_pl.cli import DEBUG_OPTION, readable
from simcse_pl.config import options_of_sweep, with_row
from simcse_pl.option_checks import check_options
from simcse_pl.run_folder import RESULTS_FILE
from simcse_pl.run_metadata import finished_job
from simcse_pl.utils.errors import Stopped
from simcse_pl.utils.hub import quiet
from simcse_pl.utils.private import jobs_of_sweep
from simcse_pl.utils.processes import available_cpus, is_one_of_several, submitits_signal
from simcse_pl.utils.terminal import hydra_text, report_error

_ROOT = str(Path(__file__).parents[2])  # of the package, which may be in a clone that is not installed
_RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK", "PL_GLOBAL_SEED")
_NOT_INHERITED = (*_RANK_VARIABLES, "SUBMITIT_EXECUTOR")


def check_jobs(config: DictConfig) -> int:
    """Check each value that the jobs of a sweep have for an option, before the first starts, and return their number.

    Hydra only checks that each job can be composed, so a wrong value of the last job would show after hours. An error
    here ends the process.
    """
    loader, values = GlobalHydra.instance().config_loader(), set[str]()
    jobs = jobs_of_sweep(options_of_sweep(config), loader)
    for number, options in enumerate(jobs):
        own, folder = None, Path(config.hydra.sweep.dir, str(number))
        # Hydra would write the options of this sweep over those of a finished job
        finished = config.hydra.job.config_name == "train" and (folder / RESULTS_FILE).is_file()
        try:
            if finished or not values.issuperset(options):
                values.update(options)
                job = loader.load_sweep_config(config, options)
                job.hydra.job.num, job.hydra.runtime.output_dir = number, str(folder.absolute())
                HydraConfig.instance().set_config(job)
                own = OmegaConf.masked_copy(job, [str(name) for name in job if name != "hydra"])
                own = with_row(own)
                with quiet(check_options.__module__) if number else nullcontext():  # warnings of all jobs, once
                    check_options(own)
                if finished:
                    finished_job(folder, own)
        except Exception as error:
            error = readable(error, config.hydra.job.config_name, own, options)
            sys.exit(report_error(error, config.debug is True, DEBUG_OPTION))
    return len(jobs)


@dataclass(frozen=True)
class Share:
    """What a job of a sweep gets of a machine, while `at_once` jobs run: `devices` of its GPUs, or CPU processes.

    GPUs are named as CUDA_VISIBLE_DEVICES names them. If there are none, a job sees those that this process sees.
    """

    at_once: int
    devices: int = 1
    gpus: Sequence[str] = ()


def share_of_job(trainer: Mapping[str, Any], jobs: int | None) -> Share:
    """Return the share of a job: as many jobs run at once as there are GPUs for, or one on a CPU.

    `jobs` is another number of jobs. If it exceeds the number of GPUs, jobs share GPUs. Jobs whose trainer has a list
    of GPUs run one by one.
    """
    gpus = gpus_of_machine() if trainer["accelerator"] in ("auto", "gpu", "cuda") else []
    given = str(trainer["devices"])
    if "," in given or "[" in given:
        return Share(max(1, jobs or 1), 1 + given.count(","))
    devices = max(1, len(gpus) if given in ("-1", "auto") else int(given))
    return Share(max(1, jobs or len(gpus) // devices), devices, gpus)


def gpus_of_machine() -> list[str]:
    """Return the GPUs that this process may use: numbers, UUIDs or MIG devices."""
    numbers = ",".join(map(str, range(torch.cuda.device_count())))
    names = os.environ.get("CUDA_VISIBLE_DEVICES", numbers).partition(",-1")[0]  # CUDA ignores what follows
    return [name.strip() for name in names.split(",")] if torch.cuda.is_available() else []


class _Job(subprocess.Popen[bytes]):
    gpus: list[str]
    output: Path | None  # None: the terminal


class Jobs:
    """Jobs of a sweep, each in a new process.

    A job on several devices leaves a process group and environment variables behind, so the next one needs another
    process. SIGINT and SIGTERM are passed on to the jobs, and submitit's signal as SIGTERM. The jobs write a
    checkpoint, and after the last of them has ended, `start` or `wait` raises Stopped.
    """

    def __init__(self) -> None:
        self._running: list[_Job] = []
        self._received: list[int] = []  # signals
        self._handlers: dict[int, Any] = {}  # that were set before

    def start(self, module: str, arguments: Sequence[str], folder: Path, share: Share) -> None:
        """Run `python -m module arguments` in a new process as soon as its share of the machine is free.

        If several jobs run at once, the output of each goes to a file in its folder.
        """
        self._wait_until(lambda: self._is_free(share))
        for number in (signal.SIGINT, signal.SIGTERM, submitits_signal() or signal.SIGUSR1):
            self._handlers.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._forward)
        taken = Counter(gpu for job in self._running for gpu in job.gpus)
        gpus = sorted(share.gpus, key=taken.__getitem__)[: share.devices]
        output = folder / "output.log" if share.at_once > 1 else None
        if output:
            where = f" on GPU {', '.join(gpus)}" if gpus else ""
            print(f"job {folder.name}{where}: {output}", flush=True)
        command, environment = [sys.executable, "-m", module, *arguments], _environment(share, gpus)
        with open(output, "ab") if output else nullcontext() as file:
            # In a session of its own, the job does not get a terminal's Ctrl-C twice.
            job = _Job(command, env=environment, stdout=file, stderr=file, start_new_session=True)
        job.gpus, job.output = gpus, output
        self._running.append(job)
        if self._received:  # while it started
            job.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait until all jobs have ended."""
        self._wait_until(lambda: not self._running)

    def _is_free(self, share: Share) -> bool:
        taken = sum(len(job.gpus) for job in self._running)
        room = max(len(share.gpus), share.at_once * share.devices)
        return len(self._running) < share.at_once and taken + share.devices <= room

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; after a signal, until all jobs have ended, and raise Stopped."""
        while not self._received and not condition():
            self._remove_ended()
        while self._received and self._running:
            self._remove_ended()
        while self._handlers and not self._running:
            signal.signal(*self._handlers.popitem())
        if self._received:
            if self._received[0] == submitits_signal():
                signal.raise_signal(self._received[0])  # submitit requeues the job
            raise Stopped(self._received[0])

    def _remove_ended(self) -> None:
        """Wait for a moment, and print how jobs have ended whose output goes to files."""
        time.sleep(0.05)
        for job in [job for job in self._running if job.poll() is not None]:
            self._running.remove(job)
            if job.output:
                lines = job.output.read_text(encoding="utf-8", errors="replace").strip().split("\n")
                said = [line for line in lines if line.startswith(("error: ", "stopped "))] or lines
                ending = f"status {job.returncode}: {said[-1]}" if job.returncode else "finished"
                print(f"job {job.output.parent.name}: {ending}", flush=True)

    def _forward(self, number: int, frame: Any) -> None:
        self._received.append(number)
        for job in self._running:
            job.send_signal(number if number == signal.SIGINT else signal.SIGTERM)
        if any(job.output for job in self._running):  # otherwise the job says it
            os.write(2, b"\ninterrupted: the jobs stop after this batch; Ctrl-C again stops them now\n")


def _environment(share: Share, gpus: Sequence[str]) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, environment.get("PYTHONPATH")]))
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if share.at_once > 1:
        threads = available_cpus() // (share.at_once * share.devices)
        environment.setdefault("OMP_NUM_THREADS", str(max(1, threads)))
    return environment


JOBS = Jobs()  # of this process


def start_elsewhere(config: DictConfig, hydra: Any) -> bool:
    """Run a job of a multirun in another process if it has several ranks, or if several jobs run at once.

    Returns:
        Whether the job has been started; it has ended unless several run at once.
    """
    # other launchers and sweepers start jobs in parallel themselves, or need their results
    choices, folder = hydra.runtime.choices, Path(config.run_dir)
    queued = choices["hydra/launcher"] == choices["hydra/sweeper"] == "basic"
    share = share_of_job(config.trainer, config.jobs if queued else 1)
    if share.at_once == 1 and (share.devices == 1 or is_one_of_several()):
        return False
    JOBS.start("simcse_pl.cli", job_arguments(hydra, folder), folder, share)
    if share.at_once == 1:
        JOBS.wait()
    return True


def job_arguments(hydra: Any, folder: Path) -> list[str]:
    """Return the command line that runs one job of a sweep, with its part of Hydra's config, in its folder."""
    flags = ["--config-name", hydra.job.config_name]
    for source in hydra.runtime.config_sources:
        if flag := {"main": "--config-path", "command-line": "--config-dir"}.get(source.provider):
            flags += [flag, source.path]
    folders = {"hydra.run.dir": folder, "hydra.sweep.dir": hydra.sweep.dir}
    return [
        *flags,
        *hydra.overrides.task,
        *(option for option in hydra.overrides.hydra if not option.startswith(("hydra.mode=", "hydra.sweep.dir="))),
        *(f"{name}={hydra_text(str(value))}" for name, value in folders.items()),
        f"hydra.job.num={hydra.job.num}",
    ]
