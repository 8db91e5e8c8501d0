"""Post-processing of a plain backbone, and of the encoder that SimCSE makes of it: scores on STS-B, over seeds.

    python -m benchmarks.postprocessing --senteval-dir SentEval/data/downstream

The backbone is that of size=mini (`simcse train experiment=mini_backbone`). Each post-processing is fitted on the
sentences that it is measured on.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch

from benchmarks.over_seeds import Scores, options, train
from simcse_pl.data.sample import mini_backbone
from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed
from simcse_pl.evaluation.suite import evaluate_suite, load_suite
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.flow import Flow
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.reports.evaluation_report import save
from simcse_pl.reports.sweeps.paired import Difference
from simcse_pl.utils.tables import Table, show

WAYS = {
    "none": lambda: None,
    "removal of 3 components": lambda: RemoveComponents(3),
    "whitening": Whitening,
    "flow": Flow,
}


def scores_by_way(encoder: SentenceEncoder, senteval_dir: str | None) -> dict[str, Scores]:
    """Return the scores of an encoder after each post-processing."""
    found = {}
    suites = [load_suite(["STS-B" if senteval_dir else "sts"], senteval_dir, split) for split in ("dev", "test")]
    encodes = [EncodeOnce(encoder.encode, suite.sentences()) for suite in suites]
    for way, make in WAYS.items():
        scores = []
        for suite, encode in zip(suites, encodes, strict=True):
            torch.manual_seed(0)
            made = make()
            after = Postprocessed(encode, made, torch.device("cpu"), normalize=False) if made else encode
            scores.append(100 * evaluate_suite(after, suite).sts[0].all.spearman)
        found[way] = Scores(*scores)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = options(__doc__, steps=100).parse_args(arguments)
    backbones = (SentenceEncoder.from_pretrained(mini_backbone(), pooling) for pooling in ("cls", "first_last"))
    cls, first_last = (scores_by_way(backbone, given.senteval_dir) for backbone in backbones)
    after: dict[str, dict[int, Scores]] = {way: {} for way in WAYS}
    with TemporaryDirectory() as folder:
        for seed in given.seeds:
            train(run := Path(folder, str(seed)), given, seed, "setting=unsupervised", "size=mini")
            for way, scores in scores_by_way(
                SentenceEncoder.from_pretrained(run / "encoder"), given.senteval_dir
            ).items():
                after[way][seed] = scores
    trained = {way: pd.DataFrame(own.values(), own.keys()) for way, own in after.items()}
    rows = []
    for way, own in trained.items():
        change = Difference(own.dev - trained["none"].dev if way != "none" else pd.Series(dtype=float))
        row = {"post-processing": way, "[CLS]": cls[way].dev, "first-last": first_last[way].dev}
        row |= {"trained": own.dev.mean(), "seeds": len(own)}
        rows.append(row | {"change": change.mean, "+-": change.margin})
    notes = [
        "Spearman x 100 on dev; [CLS], first-last: the backbone with these poolings; trained: SimCSE with [CLS]",
        "change: of the trained encoder, paired over seeds; +-: half the width of its 95 % t-interval",
    ]
    decimals = {column: 0 if column == "seeds" else 2 for column in rows[0]}
    made = Table("postprocessing", "Post-processing before and after training", pd.DataFrame(rows), decimals, notes)
    show(made.printed())
    save(given.out, [made], {})


if __name__ == "__main__":
    main()
