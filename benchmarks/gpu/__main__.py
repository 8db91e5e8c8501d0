"""Compare a GPU with the CPU, and measure its speed; write records and docs/gpu.md. It takes at most 16 minutes.

    python -m benchmarks.gpu                                              as `make gpu`
    python -m benchmarks.gpu --parts profiles compiled whole              some parts, here those of the last 8 minutes
    python -m benchmarks.gpu --device cpu --tiny --out OUT --page PAGE    try the code out without a GPU

Each part is a process with a time limit, and its records are written as soon as each of them is there.
"""

import argparse
import importlib
import json
import logging
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

PAGE, RECORDS = Path("docs/gpu.md"), Path(__file__).parent / "records"
STAGES = [  # parts that run at the same time, by their modules, and their time limit in seconds
    ({"losses": "correctness", "kernels": "correctness", "runs": "runs"}, 180),
    ({"training": "speed"}, 230),
    ({"encoding": "speed"}, 80),
    ({"profiles": "speed"}, 110),
    ({"compiled": "speed"}, 240),
    ({"whole": "runs"}, 110),
]
PARTS = {part: module for parts, _ in STAGES for part, module in parts.items()}
_SLOWER = 5  # factor of the limits for tiny sizes, which are for any CPU


def machine(device: str) -> dict[str, Any]:
    """Return the name of the card, and the versions of what computes on it."""
    import torch

    from simcse_pl.utils.code import versions

    about = {"card": "a CPU", "count": 1, "python": platform.python_version(), "versions": versions()}
    if device == "cpu":
        return about
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = "unknown"
    with suppress(OSError):  # a container may lack the program
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    about |= {"card": torch.cuda.get_device_name(), "count": torch.cuda.device_count()}
    return about | {"driver": driver, "cuda": torch.version.cuda}


def run_part(part: str, device: str, tiny: bool, out: Path) -> None:
    """Run a part in this process, and write its records each time there is a new one."""
    from transformers import logging as transformers_logging

    for name in ("simcse_pl", "pytorch_lightning", "lightning.pytorch", "sentence_transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    measure = getattr(importlib.import_module(f"benchmarks.gpu.{PARTS[part]}"), part)
    begin, records = time.monotonic(), []
    out.mkdir(parents=True, exist_ok=True)
    content = {"date": f"{date.today()}", "machine": machine(device), "complete": False, "records": records}

    def write() -> None:
        content["seconds"] = round(time.monotonic() - begin)
        (out / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    for record in measure(device, tiny):
        records.append(record)
        print(f"{part}: {record['case']}{'' if record.get('passed', True) else ' FAILED'}", flush=True)
        write()
    content["complete"] = True
    write()


def run_stages(given: argparse.Namespace) -> None:
    """Run each part in a process of its own, until its time limit."""
    factor = _SLOWER if given.tiny else 1
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu", f"--out={given.out}", f"--device={given.device}"]
    for stage, limit in STAGES:
        parts = [part for part in stage if part in given.parts]
        environment = dict(os.environ)
        if len(stage) > 1:  # processes with several threads each would wait for each other
            environment["OMP_NUM_THREADS"] = "1"
        else:  # the speed of one card; transformers' trainer would use all
            environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        processes = {}
        until = time.monotonic() + factor * limit
        try:
            for part in parts:
                (given.out / f"{part}.json").unlink(missing_ok=True)
                whole = [*command, f"--part={part}", *(["--tiny"] if given.tiny else [])]
                processes[part] = subprocess.Popen(whole, env=environment, start_new_session=True)
            for part, process in processes.items():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))
                print(f"{part}: status {process.poll()}", flush=True)  # None: its time is over
        finally:
            for process in processes.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started


def main() -> None:
    """Run the command line."""
    command_line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command_line.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    command_line.add_argument("--tiny", action="store_true", help="tiny sizes")
    command_line.add_argument("--out", type=Path, default=RECORDS, help="folder for the records (%(default)s)")
    command_line.add_argument("--page", type=Path, default=PAGE, help="the page to bring up to date (%(default)s)")
    command_line.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], help="what to measure (all)")
    command_line.add_argument("--only-page", action="store_true", help="measure nothing")
    command_line.add_argument("--part", help=argparse.SUPPRESS)  # one part, in this process
    given = command_line.parse_args()
    if given.part:
        run_part(given.part, given.device, given.tiny, given.out)
        return
    import torch

    from benchmarks.gpu.page import updated

    if given.device == "cuda" and not given.only_page and not torch.cuda.is_available():
        raise SystemExit("error: torch finds no GPU; --device cpu --tiny tries the code out")
    if not given.only_page:
        run_stages(given)
    given.page.write_text(updated(given.page.read_text(encoding="utf-8"), given.out), encoding="utf-8")


if __name__ == "__main__":
    main()
