"""Checkpoints: the best, atomic writes, and from which one an interrupted run resumes."""

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from simcse_pl.config import in_sweep
from simcse_pl.loggers import read_curve_rows, write_curve_rows
from simcse_pl.results import TEST, VALIDATION, TrainingRun, read_shape, split_and_metric
from simcse_pl.run_folder import CURVES_FILE, RESOLVED_CONFIG, RESULTS_FILE, WANDB_FILE
from simcse_pl.utils.distributed import gather_objects
from simcse_pl.utils.errors import SweepError, UserError, reraise_as
from simcse_pl.utils.files import atomic_open
from simcse_pl.utils.processes import is_first_process
from simcse_pl.utils.tensors import hash_tensors, read_torch_file

log = logging.getLogger(__name__)

BEST_CHECKPOINT, LAST_CHECKPOINT = Path("checkpoints") / "best.ckpt", Path("checkpoints") / "last.ckpt"

# The groups whose options decide the weights; options of them that do not, because the content of files is compared and
# that of the model in the checkpoint, or because they only cost time or memory; and options that decide no result, or
# copy another one.
_DECIDING = (
    *("model", "encoders", "module", "objective", "objectives", "auxiliary", "queue", "views", "data"),
    *("optimizer", "scheduler", "seed", "segmenter", "speed", "monitor"),
)
_OF_TRAINER = ("precision", "gradient_clip_val", "gradient_clip_algorithm")
_COSTS = (
    r"data\.(sets\.[^.]+\.)?(num_workers|tokenizing_processes)"
    r"|module\.(chunk_size|gradient_checkpointing|compile|cuda_graph)"
)
_NOT_DECIDING = re.compile(rf"(model\.name|data\.(sets\.[^.]+\.)?(train|validation|test)|{_COSTS})(\..*)?")
_NOT_IN_RESULTS = re.compile(
    rf"({_COSTS}|run_dir|run_name|resume|debug|jobs|keep_checkpoints|logger|log_every|sample|search\.folder"
    r"|trainer\.(accelerator|devices|num_nodes|strategy|plugins|log_every_n_steps|enable_\w+)"
    r"|callbacks\.(last|preemption|curves|geometry|speed|progress)|sweep\.(?!(table|column|row)$).*"
    r"|data\.seed|trainer\.val_check_interval|callbacks\.(seeds|cpu)|.*\.(dirpath|senteval_dir))(\..*)?"
)
_OTHER_TIMES = {"every_n_train_steps", "train_time_interval", "every_n_epochs", "save_on_train_epoch_end"}
_TOKENIZER = "the content of the tokenizer"


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint, which also stores the step and the metrics of the best checkpoint.

    It is saved after validations only, because the metrics of other times are those of earlier weights. UserError is
    raised for options that set another time, or save none.
    """

    best_step: int = 0
    best_metrics: dict[str, float] = {}  # noqa: RUF012 - replaced as a whole, never changed

    def __init__(self, **options: Annotated[Any, ModelCheckpoint]) -> None:
        for name in sorted(options.keys() & _OTHER_TIMES):
            raise UserError(f"{name}: the best checkpoint is saved after validations: set val_every instead")
        if options.get("save_top_k") == 0:
            raise UserError("save_top_k=0: the run ends with its best checkpoint, which must be saved")
        super().__init__(**options, save_on_train_epoch_end=False)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save a checkpoint if this validation is the best one."""
        score = self.best_model_score
        super().on_validation_end(trainer, pl_module)
        if self.best_model_score != score:
            curves = trainer.callback_metrics.items()
            metrics = {name: float(value) for name, value in curves if split_and_metric(name)[0] == VALIDATION}
            self.best_step, self.best_metrics = trainer.global_step, metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return super().state_dict() | {"best_step": self.best_step, "best_metrics": self.best_metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state, also if the run's folder was moved; without the file, there is no best checkpoint yet."""

        def here(path: str) -> str:
            return str(Path(self.dirpath or "") / Path(path).name)

        if not Path(here(state_dict["best_model_path"])).is_file():
            return  # the run continues in another folder
        paths = {name: here(state_dict[name]) for name in ("best_model_path", "kth_best_model_path")}
        models = {here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict(state_dict | paths | {"dirpath": self.dirpath, "best_k_models": models})
        self.best_step, self.best_metrics = state_dict["best_step"], state_dict["best_metrics"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints atomically: the previous one survives a kill or a full disk.

    If the temporary folder is on another file system, Lightning copies over the old checkpoint.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint; raise WriteError if the system cannot write the file."""
        with atomic_open(Path(path), "wb") as file:
            torch.save(checkpoint, file)  # given a path, torch does not say why it cannot write


class RunMetadata(Callback):
    """Store in checkpoints what the run trains with, and the metrics before training.

    Args:
        config: the config of the run, resolved; None for a run without one.

    Attributes:
        before: metrics measured before training, by name.
        trained_with: the options that decide the weights, and the fingerprints of data and of frozen encoders, by name.
    """

    state_key = "run"  # its key in checkpoints

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.before: dict[str, float] = {}
        deciding: dict[str, Any] = {name: (config or {}).get(name) for name in _DECIDING}
        deciding["trainer"] = {name: (config or {}).get("trainer", {}).get(name) for name in _OF_TRAINER}
        self.trained_with = _values(deciding, _NOT_DECIDING)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Add the fingerprints of the data, which are read by then, and of what else checkpoints do not have.

        Raise UserError if they, or the options, differ between ranks.
        """
        if _TOKENIZER in self.trained_with:
            return  # an earlier stage has added them
        data: Any = getattr(trainer, "datamodule", None)
        if evaluators := getattr(data, "evaluators", None):  # whose scores choose the checkpoint
            measured = [
                (name, *((prompt, list(sentences)) for prompt, sentences in evaluator.by_prompt(VALIDATION).items()))
                for name, evaluator in evaluators.items()
            ]
            self.trained_with["the content of data.validation"] = hash_tensors({}, measured)
            scored = [(name, _scores_of(evaluator)) for name, evaluator in evaluators.items()]
            self.trained_with["the scores of data.validation and data.test"] = hash_tensors({}, scored)
        for name, rows in getattr(data, "rows", {}).items():
            train = f"data.{f'sets.{name}.' if name else ''}train"
            self.trained_with[f"the content of {train}"] = rows.cache.fingerprint
            self.trained_with[f"the prompts of {train}"] = str([*rows.collate.prompts])
        for name, part in pl_module.named_modules():
            if hasattr(part, "content"):  # a FrozenEncoder
                self.trained_with[f"the content of {name}"] = str(part.content)
        if encoder := getattr(pl_module, "encoder", None):
            words = sorted(encoder.tokenizer.get_vocab().items())
            self.trained_with[_TOKENIZER] = hash_tensors({}, words)
            if not pl_module.strict_loading:  # checkpoints lack the base model of an adapter
                from simcse_pl.models.adapters import HASHED

                weights = {
                    name: weight for name, weight in encoder.backbone.named_parameters() if not weight.requires_grad
                }
                parts = {name: weight.flatten()[:HASHED] for name, weight in weights.items() if not weight.is_meta}
                # only the first rank has weights that will be sharded
                self.trained_with["the content of the base model"] = gather_objects(hash_tensors(parts))[0]
        trainer_options = {f"trainer.{name}": str(getattr(trainer, name, None)) for name in ("max_steps", "precision")}
        ranks = gather_objects(self.trained_with | trainer_options)
        for number, other_rank in enumerate(ranks[1:], 1):
            message = f"{{}} is {{}} on rank 0, {{}} on rank {number}: start all ranks with the same options and data"
            _check_equal(ranks[0], other_rank, message)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"before": self.before, "trained_with": self.trained_with}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the metrics; raise UserError if the run was trained with other options or data."""
        self.check(state_dict["trained_with"])
        self.before = state_dict["before"]

    def check(self, trained_with: Mapping[str, str], options_only: bool = False) -> None:
        """Raise UserError if a checkpoint was trained with other options or data.

        With `options_only`, data are not compared, because they are not read yet.
        """
        before = {name: value for name, value in trained_with.items() if not (options_only and name.startswith("the "))}
        new = {name for name, value in self.trained_with.items() if value == "None"}
        now = {name: value for name, value in self.trained_with.items() if name not in new - before.keys()}
        message = "resume: {} is {}, and was {} when the checkpoint was written: restore it, or start another run"
        _check_equal(now, before, message)


def _scores_of(evaluator: Any) -> str | None:
    """Return the data of both splits, with scores and grades; None for a user's class with other than plain values."""
    with suppress(TypeError, ValueError):
        return json.dumps(getattr(evaluator, "sets", None), default=asdict)
    return None


def _values(options: Mapping[str, Any], left_out: re.Pattern[str]) -> dict[str, str]:
    """Return the options of a resolved config by their names, such as `optimizer.lr`, without some."""
    values = pd.json_normalize(dict(options)).iloc[0].items()
    return {name: str(value) for name, value in values if not left_out.fullmatch(str(name))}


def _check_equal(
    first: Mapping[str, str], second: Mapping[str, str], message: str, kind: type[UserError] = UserError
) -> None:
    """Raise an error with the name and both values of the first option that differs."""
    for name, _ in sorted(first.items() ^ second.items())[:1]:
        raise kind(message.format(name, first.get(name), second.get(name)))


def finished_job(folder: Path, config: DictConfig) -> dict[str, Any] | None:
    """Return the results of a job of this config if it has finished, or None.

    Raises:
        SweepError: the folder holds the results of a job with other options.
        UserError: the results are damaged.
    """
    path = folder / RESULTS_FILE
    if not path.is_file():
        return None
    with reraise_as(f"{path} is damaged, remove it to run the job again", users_too=True):
        run = read_shape(TrainingRun, path)
        trained = OmegaConf.load(folder / RESOLVED_CONFIG)
    searched = config.copy()
    for option, value in (run.trial or {"values": {}})["values"].items():
        OmegaConf.update(searched, option, value)
    now, before = map(_deciding_results, (searched, trained))
    message = f"{folder} holds a finished job whose {{0}} is {{2}}, and not {{1}}: choose another folder"
    _check_equal(now, before, message, SweepError)
    return run.content()


def _deciding_results(config: Any) -> dict[str, str]:
    """Return the options that decide the results of a job, by name; folders may be others.

    An option that is null is left out, because another version may lack it.
    """
    options: Any = OmegaConf.to_container(config, resolve=True)
    options["senteval_dir"] = options["senteval_dir"] and "set"
    values = _values(options, _NOT_IN_RESULTS).items()
    return {name: value.replace(options["run_dir"], "") for name, value in values if value != "None"}


def resume_option(given: str | None) -> str | None:
    """Return the option `resume`, which is `auto` by default in a sweep, so that the same command continues it."""
    return given or ("auto" if in_sweep() else None)


@dataclass(frozen=True)
class Start:
    """Where a run starts.

    Args:
        checkpoint: to resume from; None to start from the beginning.
        step: that of the checkpoint; -1 without one.
        continues: whether the run continues its folder's curves after the step, and its W&B run.
    """

    checkpoint: Path | None = None
    step: int = -1
    continues: bool = False


def find_start(given: str | None, folder: Path, search: bool = False) -> Start:
    """Return where a run starts, without a change of its folder.

    A run continues if it resumes from the last checkpoint of its folder, whose run has not finished. A finished run has
    no best checkpoint to compare with.

    Args:
        given: the option `resume`: a checkpoint; `auto` for the folder's last checkpoint, if it exists;
            None to start from the beginning, but `auto` in a sweep.
        folder: the run's folder.
        search: whether this is a trial of a search, which ignores the folder's last checkpoint.

    Raises:
        UserError: if the checkpoint is missing or damaged, or the folder holds another run.
    """
    resume, last = resume_option(given), folder / LAST_CHECKPOINT
    interrupted = last.is_file() and not search and not (folder / RESULTS_FILE).exists()
    if resume == "auto":
        checkpoint = last if last.is_file() and not search else None
    else:
        checkpoint = Path(resume) if resume else None
    continues = checkpoint is not None and interrupted and checkpoint.resolve() == last.resolve()
    if is_first_process() and not continues and resume != "auto" and _holds_run(folder):
        raise UserError(f"{folder} already holds a run: choose another hydra.run.dir, or continue with resume=auto")
    if checkpoint is None:
        return Start()
    start = Start(checkpoint, _step_of(checkpoint), continues)
    why = f"resume={given}" if given else "this is a job of a sweep, where resume=auto is the default"
    log.info("resuming from step %d, because %s: %s", start.step, why, checkpoint)
    return start


def prepare_folder(folder: Path, start: Start, search: bool = False) -> None:
    """Remove from a run's folder what the run does not continue. The arguments are those of `find_start`."""
    if search:
        (folder / LAST_CHECKPOINT).unlink(missing_ok=True)
    if not start.continues:
        (folder / WANDB_FILE).unlink(missing_ok=True)
    _cut_curves(folder / CURVES_FILE, start.step if start.continues else -1)


def remove_checkpoints(folder: Path) -> None:
    """Remove what a finished run does not need: best.ckpt, whose weights `encoder` has, and in a sweep last.ckpt."""
    (folder / BEST_CHECKPOINT).unlink(missing_ok=True)
    if in_sweep():
        (folder / LAST_CHECKPOINT).unlink(missing_ok=True)
        with suppress(OSError):  # it has checkpoints of the user's callbacks
            (folder / LAST_CHECKPOINT.parent).rmdir()


def _holds_run(folder: Path) -> bool:
    """Return whether a folder has results, checkpoints or curves after step 0. A run that failed earlier has none."""
    curves = folder / CURVES_FILE
    trained = curves.exists() and any(int(row["step"]) > 0 for row in read_curve_rows(curves))
    return trained or (folder / RESULTS_FILE).exists() or any((folder / LAST_CHECKPOINT.parent).glob("*"))


def _step_of(checkpoint: Path) -> int:
    """Return the step of a checkpoint; raise UserError if no run can resume from it."""
    match read_torch_file(checkpoint, mmap=True):
        case {"global_step": int(step), "callbacks": {"run": {"before": dict(), "trained_with": dict()}}}:
            return step
        case _:
            raise UserError(f"{checkpoint} is not a checkpoint to resume from: choose a last.ckpt of 0.5.0 or later")


def _cut_curves(path: Path, steps: int) -> None:
    """Remove the points after `steps`, and the results of the test after training, from a file of curves."""
    if not path.exists():
        return

    def stays(row: Mapping[str, str]) -> bool:
        step = int(row["step"])
        tested_after_training = step > 0 and any(row[name] for name in row if split_and_metric(name)[0] == TEST)
        return step <= steps and not tested_after_training

    rows = read_curve_rows(path)
    write_curve_rows(path, rows[0] if rows else [], filter(stays, rows))
