"""Search options with Optuna: each job of a sweep is a trial, and all jobs share a study in a file.

Hydra's Optuna sweeper learns the score of a job only at its end, so it cannot prune.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from simcse_pl.utils.errors import SweepError, reraise_as
from simcse_pl.utils.processes import is_first_process

STUDY_FILE = "study.journal"
_TRIAL = "SIMCSE_PL_TRIAL"


class OptunaTrial:
    """One trial of an Optuna study. The study proposes values for options, based on the scores of earlier trials.

    Args:
        folder: folder of the sweep, where the study is kept. Several jobs can use it at once.
        space: ranges by option, nested like the config: `{low, high}`, with `log` for a logarithmic scale, or
            `{choices}`.
        trial: number of the trial, from 0.
        study: name of the study. Jobs that differ in more than `trial`, such as their model, have studies of their own.
        job: the job's folder. When an interrupted job starts again, its trial fails and a new one starts. None if each
            trial has one job.
        seed: seed of the sampler. The same seed gives the same trials if jobs run one at a time.
        startup: number of first trials that are drawn at random and not pruned.
        mode: `max` if higher scores are better, or `min`.

    Attributes:
        values: the proposed values, nested like `space`.
        callback: reports each validation, and stops training if the median of the other trials is better.
    """

    def __init__(
        self,
        folder: str | Path,
        space: Mapping[str, Any],
        trial: int = 0,
        study: str = "search",
        job: str | None = None,
        seed: int = 42,
        startup: int = 5,
        mode: str = "max",
    ) -> None:
        import optuna
        from optuna.storages.journal import JournalFileBackend

        if not is_first_process() and _TRIAL not in os.environ:
            raise SweepError("sweep=search: a rank of torchrun or SLURM has no trial: set trainer.devices=1")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = Path(folder) / STUDY_FILE
        with reraise_as(f"{file} is damaged or belongs to another search; remove it to start again"):
            self._study = optuna.create_study(
                study_name=study,
                storage=optuna.storages.JournalStorage(JournalFileBackend(str(file))),
                load_if_exists=True,
                direction="maximize" if mode == "max" else "minimize",
                sampler=optuna.samplers.TPESampler(seed=seed + trial, n_startup_trials=startup),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=startup),
            )
        if is_first_process():
            for running in self._study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
                if running.user_attrs.get("job") == (job or trial):  # interrupted
                    self._study.tell(running.number, state=optuna.trial.TrialState.FAIL)
            self._trial = self._study.ask()
            self._trial.set_user_attr("job", job or trial)
            os.environ[_TRIAL] = str(self._trial.number)  # the ranks that this process starts read it
            self.values = _values(self._trial, space)
        else:
            self.values = _values(self._study.trials[int(os.environ[_TRIAL])], space)
        self.callback = Pruning(self._trial if is_first_process() else None)

    def tell(self, score: float) -> dict[str, Any]:
        """Finish the trial with its best score on dev (NaN: as failed), and return its entry in results.json."""
        from optuna.trial import TrialState

        pruned = self.callback.pruned
        state = TrialState.PRUNED if pruned else TrialState.FAIL if math.isnan(score) else TrialState.COMPLETE
        self._study.tell(self._trial, score if state == TrialState.COMPLETE else None, state=state)
        return {"values": self._trial.params, "pruned": pruned}


class Pruning(Callback):
    """Reports each validation to a trial, and stops training if the trial is pruned.

    Args:
        trial: Optuna's trial on rank 0, which decides for all ranks; None on other ranks.
    """

    def __init__(self, trial: Any) -> None:
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


def _values(trial: Any, space: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a space with the values of a trial in place of its ranges."""
    values: dict[str, Any] = {}
    for name, given in space.items():
        option = f"{prefix}{name}"
        if "choices" in given:
            values[name] = trial.suggest_categorical(option, list(given["choices"]))
        elif "low" in given:
            whole = isinstance(given["low"], int) and isinstance(given["high"], int)
            suggest = trial.suggest_int if whole else trial.suggest_float
            values[name] = suggest(option, given["low"], given["high"], log=given.get("log", False))
        else:
            values[name] = _values(trial, given, f"{option}.")
    return values
