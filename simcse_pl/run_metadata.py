"""Whether two runs are the same: what decides the weights of a run, and the results of a job."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning import Callback, LightningModule, Trainer

from simcse_pl.results import VALIDATION, TrainingRun, read_shape
from simcse_pl.run_folder import OF_LOGS, RESOLVED_CONFIG, RESULTS_FILE
from simcse_pl.utils.distributed import gather_objects
from simcse_pl.utils.errors import SweepError, UserError, reraise_as
from simcse_pl.utils.tensors import hash_tensors

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
    rf"({_COSTS}|{'|'.join(OF_LOGS)}|run_dir|sample|search\.folder"
    r"|trainer\.(accelerator|devices|num_nodes|strategy|plugins|log_every_n_steps|enable_\w+)"
    r"|callbacks\.(last|preemption|curves|geometry|speed|progress)|sweep\.(?!(table|column|row)$).*"
    r"|data\.seed|trainer\.val_check_interval|callbacks\.(seeds|cpu)|.*\.(dirpath|senteval_dir))(\..*)?"
)
_TOKENIZER = "the content of the tokenizer"


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
