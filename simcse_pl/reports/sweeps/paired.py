"""Differences between the methods of a sweep and SimCSE: measured, paired over seeds, and published."""

import math
from dataclasses import dataclass

import pandas as pd
from scipy.stats import t

from simcse_pl.reports.methods import PublishedScore, baselines, published_score
from simcse_pl.reports.sweeps.seed_groups import METHOD, Group, SeedGroups

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """The difference of a score between two groups.

    Args:
        by_seed: the difference for each seed that both groups have.
    """

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


def baseline_of(groups: SeedGroups, group: Group) -> Group | None:
    """Return SimCSE in the setting of a group and with the same other options; None for SimCSE itself."""
    wanted = {**group.options, METHOD: baselines().get(group.setting)}
    place = group.row, group.column, group.setting
    found = (own for own in groups.groups if (own.row, own.column, own.setting) == place and own.options == wanted)
    return None if group.is_baseline else next(found, None)


def difference(groups: SeedGroups, group: Group, score: str) -> Difference:
    """Return the difference of one of SCORES between a group and its baseline, without seeds if it has none."""
    baseline = baseline_of(groups, group)
    if baseline is None:
        return Difference(pd.Series(dtype=float))
    own, others = (one.runs.astype({score: float}).groupby("seed")[score].mean() for one in (group, baseline))
    return Difference((own - others).dropna())


def published_of(group: Group) -> PublishedScore | None:
    """Return the published score of a group's method, in its setting and for its model."""
    return published_score(group.options[METHOD], group.setting, group.choices.get("model"))


def published_difference(group: Group) -> float:
    """Return the published difference from SimCSE in the same setting; NaN if unknown."""
    own = published_of(group)
    simcse = published_score(baselines().get(group.setting, ""), group.setting, group.choices.get("model"))
    return own.average - simcse.average if own and simcse and not group.is_baseline else math.nan
