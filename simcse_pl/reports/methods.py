"""The published scores of methods (methods.yaml), and the methods that the others are compared with."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

_FILE = Path(__file__).parent / "methods.yaml"
_OTHER_MODELS = "BERT-base"  # whose scores stand beside those of a model that no paper has


@dataclass(frozen=True)
class PublishedScore:
    """Published scores of a method with one model: Spearman x 100 on test sets."""

    setting: str  # unsupervised or supervised
    model: str  # such as BERT-base
    average: float  # over STS12 to STS16, STS-B and SICK-R
    source: str  # a key of `sources` in methods.yaml
    scores: Mapping[str, float]  # by task, and Avg; empty if only the average is known
    variant: str | None = None  # distinguishes it from other scores with this setting and model
    deviation: float | None = None  # of the average over seeds
    note: str | None = None
    doubt: str | None = None  # why the score is not certain


@functools.cache
def methods_file() -> Any:
    """Return the content of methods.yaml, such as the method that the others of a setting are compared with."""
    return OmegaConf.to_container(OmegaConf.load(_FILE))


@functools.cache
def published_scores() -> Mapping[str, tuple[PublishedScore, ...]]:
    """Return the scores of each method of methods.yaml by its name in conf/method."""
    content = methods_file()

    def score(given: Mapping[str, Any]) -> PublishedScore:
        scores = dict(zip(content["columns"], given["scores"], strict=True)) if "scores" in given else {}
        return PublishedScore(**{"average": scores.get("Avg"), **given, "scores": scores})

    return {name: tuple(map(score, method["scores"])) for name, method in content["methods"].items()}


def setting_of(choices: Mapping[str, str | None]) -> str:
    """Return the setting of a run by its choices in the config groups; the data without a setting are labelled."""
    return choices.get("setting") or "supervised"


def published_score(method: str, setting: str, model: str | None) -> PublishedScore | None:
    """Return the published score to show beside a run with these choices of conf/; None if there is none."""
    published = methods_file()["models"].get(model, _OTHER_MODELS)
    scores = published_scores().get(method, ())
    return next((score for score in scores if (score.setting, score.model) == (setting, published)), None)
