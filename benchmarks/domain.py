"""Compare SimCSE on a domain's text with and without masked language modelling before it, over seeds.

    python -m benchmarks.domain --text domain.txt --dev dev.tsv --test test.tsv

The files of pairs have two sentences of the domain and a score in each row. The backbone is that of size=mini (`simcse
train experiment=mini_backbone`).
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.over_seeds import figure, options, table, train_all
from simcse_pl.reports.evaluation_report import save
from simcse_pl.results.run_files import RESULTS_FILE
from simcse_pl.utils.terminal import show


def pretrain(folder: Path, text: str, steps: int) -> tuple[float, float]:
    """Train the backbone as a masked language model, and return its perplexity on held-out rows before and after."""
    command = [sys.executable, "-m", "simcse_pl", "train", "setting=mlm", "model=mini", f"data.train={text}"]
    command += [
        f"trainer.max_steps={steps}",
        f"val_every={steps}",
        "data.validation=[sample]",
        "data.hold_out=0.05",
        "data.max_length=64",
    ]
    subprocess.run([*command, "logger=csv", "seed=0", f"hydra.run.dir={folder}"], check=True)
    results = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    return results["before"]["perplexity"], results["best"]["perplexity"]


def main() -> None:
    """Run the command line."""
    command_line = options(__doc__, steps=100)
    command_line.add_argument("--text", required=True, help="sentences of the domain, one per line")
    command_line.add_argument("--dev", required=True, help="scored pairs that choose the checkpoint")
    command_line.add_argument("--test", required=True, help="scored pairs")
    command_line.add_argument("--stage", type=int, default=500, help="steps of masked language modelling (%(default)s)")
    given = command_line.parse_args()
    common = ("setting=unsupervised", "data=text", f"data.train={given.text}", f"data.test={given.test}")
    common += (f"data.validation={given.dev}",)
    with TemporaryDirectory() as folder:
        before, after = pretrain(Path(folder, "stage"), given.text, given.stage)
        of_stage = ("model=checkpoint", f"model.name={folder}/stage/encoder")
        ways = {"SimCSE": (*common, "model=mini"), "masked language modelling, then SimCSE": (*common, *of_stage)}
        untrained, scores = train_all(ways, given)
    fixed = {f"before training: {way}": own for way, own in untrained.items()}
    note = f"perplexity on held-out sentences of the domain: {before:.1f} before the stage, {after:.1f} after it"
    made = table("domain", "A domain's text first, Spearman x 100", fixed, scores, [note])
    show(made.printed())
    save(given.out, [made], {"domain": figure({}, scores)})


if __name__ == "__main__":
    main()
