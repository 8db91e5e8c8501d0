"""Search options with Optuna: each job of a sweep is a trial, and all jobs share a study in a file."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytorch_lightning import Callback, LightningModule, Trainer

from simcse_pl.utils.distributed import is_first_process
from simcse_pl.utils.errors import UserError, first_line, reraise_as

if TYPE_CHECKING:
    import optuna

STUDY_FILE = "study.journal"
_TRIAL = "SIMCSE_PL_TRIAL"


class OptunaTrial:
    """One trial of a study, which proposes values for options based on the scores of earlier trials.

    Args:
        folder: folder of the sweep, where the study is kept. Several jobs can use it at once.
        space: ranges by option, nested like the config: `{low, high}`, with `log` for a logarithmic scale, or
            `{choices}`.
        trial: number of the job. An interrupted job abandons its trial and starts a new one.
        seed: seed of the sampler. The same seed gives the same trials if jobs run one at a time.
        startup: number of first trials that are drawn at random and not pruned.
        mode: `max` if higher scores are better, or `min`.

    Attributes:
        values: the proposed values, nested like `space`.
        callback: reports each validation, and stops training if the median of the other trials is better.

    Raises:
        UserError: Optuna is not installed, or a range is invalid.
    """

    def __init__(
        self,
        folder: str | Path,
        space: Mapping[str, Any],
        trial: int = 0,
        seed: int = 42,
        startup: int = 5,
        mode: str = "max",
    ) -> None:
        optuna = _import_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = {name: _distribution(name, given) for name, given in _leaves(space)}
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = Path(folder) / STUDY_FILE
        backend = optuna.storages.journal.JournalFileBackend(str(file))
        if not is_first_process() and _TRIAL not in os.environ:
            raise UserError(
                "a search starts the ranks of its jobs itself: do not use torchrun, and use one SLURM task per job"
            )
        with reraise_as(f"{file} is damaged or belongs to another search; remove it to start again"):
            self._study = optuna.create_study(
                study_name="search",
                storage=optuna.storages.JournalStorage(backend),
                load_if_exists=True,
                direction="maximize" if mode == "max" else "minimize",
                sampler=optuna.samplers.TPESampler(seed=seed + trial, n_startup_trials=startup),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=startup),
            )
            if is_first_process():
                self._abandon_interrupted(trial)
                self._trial = self._study.ask(distributions)
                self._trial.set_user_attr("job", trial)
                os.environ[_TRIAL] = str(self._trial.number)  # the ranks that this process starts read it
            params = self._study.trials[int(os.environ[_TRIAL])].params
        self.values = _nested(params)
        self.callback = Pruning(self._trial if is_first_process() else None)

    def tell(self, score: float) -> dict[str, Any]:
        """Finish the trial with its best score on dev (NaN: as failed), and return its entry in results.json."""
        optuna = _import_optuna()
        pruned = self.callback.pruned
        states = optuna.trial.TrialState
        state = states.PRUNED if pruned else states.FAIL if math.isnan(score) else states.COMPLETE
        self._study.tell(self._trial, score if state == states.COMPLETE else None, state=state)
        return {"values": self._trial.params, "pruned": pruned}

    def _abandon_interrupted(self, job: int) -> None:
        optuna = _import_optuna()
        for trial in self._study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
            if trial.user_attrs.get("job") == job:
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


class Pruning(Callback):
    """Reports each validation to a trial, and stops training if the trial is pruned.

    Args:
        trial: the trial on rank 0, which decides for all ranks; None on other ranks.
    """

    def __init__(self, trial: "optuna.Trial | None") -> None:
        self._trial = trial
        self.pruned = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the score; the validation before training is not reported."""
        if trainer.state.fn != "fit":
            return
        if self._trial is not None:
            score = trainer.callback_metrics[trainer.checkpoint_callback.monitor]  # type: ignore[union-attr, index]
            self._trial.report(float(score), step=trainer.global_step)
            self.pruned = not trainer.should_stop and bool(self._trial.should_prune())  # a finished trial is complete
        self.pruned = trainer.strategy.broadcast(self.pruned)
        if self.pruned:
            trainer.should_stop = True


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("a search needs Optuna: pip install optuna") from None
    return optuna


def _leaves(space: Mapping[str, Any], place: str = "") -> list[tuple[str, Mapping[str, Any]]]:
    """Return the ranges of a space by dotted option name."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for name, given in space.items():
        if not isinstance(given, Mapping):
            raise UserError(f"search.space.{place}{name}={given}: give low and high, or choices")
        own = [(f"{place}{name}", given)] if {"low", "choices"} & given.keys() else _leaves(given, f"{place}{name}.")
        found += own
    return found


def _distribution(name: str, given: Mapping[str, Any]) -> Any:
    optuna = _import_optuna()
    try:
        if "choices" in given:
            return optuna.distributions.CategoricalDistribution(list(given["choices"]))
        whole = isinstance(given["low"], int) and isinstance(given["high"], int)
        kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
        return kind(given["low"], given["high"], log=given.get("log", False))
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"search.space.{name}: {first_line(error)}") from error


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{"a": {"b": 1}}` for `{"a.b": 1}`."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parents, leaf = name.split(".")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return nested
