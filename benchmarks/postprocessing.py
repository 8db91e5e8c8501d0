"""Post-processing of a plain backbone, and of the encoder that SimCSE makes of it: scores on STS-B, over seeds.

    python -m benchmarks.postprocessing --senteval-dir SentEval/data/downstream

The backbone is that of size=mini (`simcse train experiment=mini_backbone`). Each post-processing is fitted on the
sentences that it is measured on.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from benchmarks.over_seeds import options, train
from simcse_pl.data.sample import mini_backbone
from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed
from simcse_pl.evaluation.suite import evaluate_suite, load_suite
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.flow import Flow
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.reports.evaluation_report import save
from simcse_pl.reports.sweeps.paired import Difference
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import show

WAYS = {
    "none": lambda: None,
    "removal of 3 components": lambda: RemoveComponents(3),
    "whitening": Whitening,
    "flow": Flow,
}


def scores_by_way(encoder: SentenceEncoder, senteval_dir: str | None) -> dict[str, float]:
    """Return Spearman x 100 on dev after each post-processing."""
    suite = load_suite(["STS-B" if senteval_dir else "sts"], senteval_dir, "dev")
    encode = EncodeOnce(encoder.encode, suite.sentences())
    found = {}
    for way, make in WAYS.items():
        made = make()
        after = Postprocessed(encode, made) if made else encode
        found[way] = 100 * evaluate_suite(after, suite).sts[0].all.spearman
    return found


def main() -> None:
    """Run the command line."""
    given = options(__doc__, steps=100).parse_args()
    backbones = (SentenceEncoder.from_pretrained(mini_backbone(), pooling) for pooling in ("cls", "first_last"))
    cls, first_last = (scores_by_way(backbone, given.senteval_dir) for backbone in backbones)
    after: dict[int, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        for seed in given.seeds:
            train(run := Path(folder, str(seed)), given, seed, "setting=unsupervised", "size=mini")
            after[seed] = scores_by_way(SentenceEncoder.from_pretrained(run / "encoder"), given.senteval_dir)
    trained = pd.DataFrame(after).T
    rows = []
    for way in WAYS:
        change = Difference(trained[way] - trained["none"] if way != "none" else pd.Series(dtype=float))
        row = {"post-processing": way, "[CLS]": cls[way], "first-last": first_last[way], "trained": trained[way].mean()}
        rows.append(row | {"seeds": len(trained), "change": change.mean, "+-": change.margin})
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
