"""A search over options with Optuna: the jobs of a sweep are its trials, and share its study by a file."""

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
_MONITOR = "val/spearman"
_TRIAL = "SIMCSE_PL_TRIAL"


class Search:
    """One trial of a study, which proposes values for options from what the trials before it scored.

    Args:
        folder: of the sweep; the study is kept there, and any number of jobs may use it at once.
        space: by the names of options, nested as the config is, `{low, high}` (with `log`, on a logarithmic scale) or
            `{choices}`.
        trial: the number of the job; a job that was interrupted gives its trial up and takes a new one.
        seed: of the sampler; with one job at a time, the same seed gives the same trials.
        startup: so many trials are drawn at random, and none of them is pruned.

    Attributes:
        values: what the study proposes for this trial, nested as `space` is.
        callback: reports each validation, and ends training where the median of the other trials did better by then.

    Raises:
        UserError: Optuna is not installed, or a range that it cannot take.
    """

    def __init__(
        self, folder: str | Path, space: Mapping[str, Any], trial: int = 0, seed: int = 42, startup: int = 5
    ) -> None:
        optuna = _import_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = {name: _distribution(name, given) for name, given in _leaves(space)}
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = Path(folder) / STUDY_FILE
        backend = optuna.storages.journal.JournalFileBackend(str(file))
        if not is_first_process() and _TRIAL not in os.environ:
            raise UserError("a search takes the ranks that it starts itself: no torchrun, and one SLURM task a job")
        with reraise_as(f"{file} is damaged or of another search, remove it to begin anew"):
            self._study = optuna.create_study(
                study_name="search",
                storage=optuna.storages.JournalStorage(backend),
                load_if_exists=True,
                direction="maximize",
                sampler=optuna.samplers.TPESampler(seed=seed + trial, n_startup_trials=startup),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=startup),
            )
            if is_first_process():
                self._give_up_what_was_interrupted(trial)
                self._trial = self._study.ask(distributions)
                self._trial.set_user_attr("job", trial)
                os.environ[_TRIAL] = str(self._trial.number)  # for the ranks that this process starts
            params = self._study.trials[int(os.environ[_TRIAL])].params
        self.values = _nested(params)
        self.callback = Pruning(self._trial if is_first_process() else None)

    def tell(self, score: float) -> dict[str, Any]:
        """Close the trial with its best score on dev, as failed where it is none; returns what results.json says."""
        optuna = _import_optuna()
        pruned = self.callback.pruned
        states = optuna.trial.TrialState
        state = states.PRUNED if pruned else states.FAIL if math.isnan(score) else states.COMPLETE
        self._study.tell(self._trial, score if state == states.COMPLETE else None, state=state)
        return {"values": self._trial.params, "pruned": pruned}

    def _give_up_what_was_interrupted(self, job: int) -> None:
        optuna = _import_optuna()
        for trial in self._study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
            if trial.user_attrs.get("job") == job:
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


class Pruning(Callback):
    """Reports each validation of a training run to its trial, and ends the run where the trial says so.

    Args:
        trial: that of rank 0, which all ranks follow; None on the others.
    """

    def __init__(self, trial: "optuna.Trial | None") -> None:
        self._trial = trial
        self.pruned = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare with the other trials at this step; the validation before training is none of them."""
        if trainer.state.fn != "fit":
            return
        if self._trial is not None:
            self._trial.report(float(trainer.callback_metrics[_MONITOR]), step=trainer.global_step)
            self.pruned = not trainer.should_stop and bool(self._trial.should_prune())  # at its end it is complete
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
    """The options of a space by their dotted names."""
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
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parents, leaf = name.split(".")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return nested
