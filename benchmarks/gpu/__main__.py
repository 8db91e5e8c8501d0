"""Compare a GPU with the CPU, and measure its speed; write records and docs/gpu.md. It takes less than 9 minutes.

    python -m benchmarks.gpu                                               make gpu
    python -m benchmarks.gpu --device cpu --tiny --out records --page gpu.md     try the code out without a GPU

Each part is a process with a time limit, and its records are written as soon as each of them is there.
"""

import argparse
import importlib
import json
import logging
import os
import platform
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

PAGE = Path("docs/gpu.md")
RECORDS = Path(__file__).parent / "records"
PARTS = {  # the function of each part, and its limit in seconds; those of a tuple run at the same time
    ("losses", "kernels", "runs"): 180,
    ("training",): 150,
    ("encoding",): 60,
    ("profiles",): 60,
    ("compiled",): 150,
}
FUNCTIONS = {"losses": "correctness", "kernels": "correctness", "runs": "runs"}  # their modules; others: speed
TOTAL = 530  # seconds


def machine(device: str) -> dict[str, Any]:
    """Return the name of the card and the versions of what computes on it."""
    import torch

    packages = ("torch", "transformers", "pytorch-lightning", "sentence-transformers")
    found = {own.metadata["name"]: own.version for own in importlib.metadata.distributions()}
    about = {"card": "CPU", "count": 1, "python": platform.python_version(), "cores": os.cpu_count()}
    about["versions"] = {name: found[name] for name in packages if name in found}
    if device == "cpu":
        return about
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()[:1]
    card = torch.cuda.get_device_properties(0)
    about |= {"card": card.name, "count": torch.cuda.device_count(), "memory": card.total_memory}
    return about | {"driver": driver[0] if driver else None, "cuda": torch.version.cuda}


def run_part(part: str, device: str, tiny: bool, out: Path) -> None:
    """Run a part in this process, and write its records each time there is a new one."""
    import torch
    import transformers

    for name in ("simcse_pl", "pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    transformers.logging.disable_progress_bar()
    if device != "cpu":
        torch.cuda.init()
    begin, records = time.monotonic(), []
    content = {"part": part, "date": f"{datetime.now(timezone.utc):%Y-%m-%d}", "machine": machine(device)}
    measure = getattr(importlib.import_module(f"benchmarks.gpu.{FUNCTIONS.get(part, 'speed')}"), part)
    for record in measure(device, tiny):
        records.append(record)
        print(f"{part}: {record['case']}{'' if record.get('passed', True) else ' FAILED'}", flush=True)
        content |= {"seconds": round(time.monotonic() - begin), "complete": False, "records": records}
        write(out, content)
    write(out, content | {"complete": True})


def write(out: Path, content: dict[str, Any]) -> None:
    """Write the records of a part."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1) + "\n"
    (out / f"{content['part']}.json").write_text(text, encoding="utf-8")


def run_parts(given: argparse.Namespace) -> None:
    """Run each part in a process of its own, until its time limit."""
    end = time.monotonic() + TOTAL
    common = ["--device", given.device, "--out", str(given.out), *(["--tiny"] if given.tiny else [])]
    for parts, limit in PARTS.items():
        started = {}
        for part in parts:
            (given.out / f"{part}.json").unlink(missing_ok=True)
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu", "--part", part, *common]
            environment = dict(os.environ)
            if len(parts) == 1:  # one card; transformers' trainer would use all
                environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
            started[part] = subprocess.Popen(command, env=environment, start_new_session=True)
        until = min(end, time.monotonic() + limit)
        for part, process in started.items():
            try:
                status = process.wait(max(0.0, until - time.monotonic()))
                print(f"{part}: {'failed' if status else 'done'}", flush=True)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)  # with the processes that it started
                print(f"{part}: its time is over", flush=True)


def main() -> None:
    """Run the command line."""
    command_line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command_line.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    command_line.add_argument("--tiny", action="store_true", help="tiny sizes")
    command_line.add_argument("--out", type=Path, default=RECORDS, help="folder for the records (%(default)s)")
    command_line.add_argument("--page", type=Path, default=PAGE, help="the page to bring up to date (%(default)s)")
    command_line.add_argument("--part", help=argparse.SUPPRESS)  # one part, in this process
    given = command_line.parse_args()
    if given.part:
        run_part(given.part, given.device, given.tiny, given.out)
        return
    from benchmarks.gpu.page import updated

    run_parts(given)
    given.page.write_text(updated(given.page.read_text(encoding="utf-8"), given.out), encoding="utf-8")


if __name__ == "__main__":
    main()
