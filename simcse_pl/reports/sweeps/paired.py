"""Differences between the methods of a sweep and SimCSE, paired over seeds."""

import math
from dataclasses import dataclass

import pandas as pd
from scipy.stats import t

from simcse_pl.reports.sweeps.seed_groups import METHOD, SeedGroups

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """The difference of a score between two groups, for each seed that both have."""

    by_seed: pd.Series

    @property
    def count(self) -> int:
        """The number of seeds."""
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        """The mean over seeds; NaN without seeds."""
        return float(self.by_seed.mean())

    @property
    def margin(self) -> float:
        """Half the width of the t-interval of the mean; NaN for fewer than two seeds.

        The interval excludes 0 if the p-value of the paired t-test is below 1 - CONFIDENCE.
        """
        return reach(self.count) * float(self.by_seed.std())


def reach(count: int) -> float:
    """Return half the width of a t-interval of the mean over seeds, in sample standard deviations."""
    return float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) / math.sqrt(count) if count > 1 else math.nan


def differences(groups: SeedGroups, score: str) -> list[Difference]:
    """Return the difference of one of SCORES between each group and SimCSE, in the order of the groups.

    SimCSE is that of the same setting and with the same other options. A difference has no seeds if SimCSE is not
    in the sweep, or if the group is SimCSE.
    """
    keys = groups.keys
    means = groups.runs.groupby([*keys, "is_baseline", "seed"], sort=False)[score].mean().reset_index()
    simcse = means[means["is_baseline"]].drop(columns=[METHOD, "is_baseline"])
    alike = [name for name in [*keys, "seed"] if name != METHOD]
    pairs = means[~means["is_baseline"]].merge(simcse, on=alike, suffixes=("", " of SimCSE"))
    pairs["difference"] = pairs[score] - pairs[f"{score} of SimCSE"]
    by_key = dict(iter(pairs.dropna(subset="difference").set_index("seed").groupby(keys)["difference"]))
    none = pd.Series(dtype=float)
    return [Difference(by_key.get(key, none)) for key in groups.groups[keys].itertuples(index=False, name=None)]
