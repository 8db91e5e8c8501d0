"""What made an encoder: training.json in its folder, which loading does not read, and its model card."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml
from omegaconf import DictConfig, OmegaConf

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.saved_encoder import TRAINING_FILE
from simcse_pl.results import TrainingRun, read_shape
from simcse_pl.run_folder import CURVES_FILE, RESOLVED_CONFIG, RESULTS_FILE, run_label
from simcse_pl.run_table import printed_settings, run_table
from simcse_pl.utils.code import LIBRARIES
from simcse_pl.utils.files import atomic_write, write_json
from simcse_pl.utils.tables import Table
from simcse_pl.utils.text import without_folders

_TEMPLATE = Path(__file__).with_name("model_card.md.jinja")
_GROUPS = ("model", "data", "views", "objective", "auxiliary", "queue", "module", "optimizer", "scheduler")
_RECIPE = (*_GROUPS, "encoders", "seed")
_HUB_DATA = re.compile(r"hf://datasets/([^/]+/[^/]+)")
_ROWS_OF_PYTHON = re.compile(r'data\.train=".*/simcse_pl/rows/[0-9a-f]{16}/rows\.jsonl"')
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class Training(TrainingRun):
    """What made an encoder: the results of its run, with file names in place of paths."""

    recipe: Mapping[str, Any]  # the options that determine the training
    base_model: str | None = None  # its name on the hub, if it has one
    has_rows: bool = False  # whether Python gave the rows, which are in no file of the user's

    @property
    def command(self) -> str:
        """The command or the call that trained the encoder."""
        if self.has_rows:
            return f"simcse_pl.train({self.overrides}, config_dir={self.config_dir!r}, rows=rows)"
        configs = ["--config-dir", self.config_dir] if self.config_dir else []
        return shlex.join(["simcse", "train", *configs, *self.overrides])


def run_folder(encoder: str) -> Path | None:
    """Return the folder of the training run that contains an encoder or a checkpoint; None if there is none."""
    path = Path(encoder).absolute()
    folder = path.parent.parent if path.is_file() else path.parent
    return folder if all((folder / file).is_file() for file in (RESULTS_FILE, CURVES_FILE, RESOLVED_CONFIG)) else None


def read_training(encoder: str) -> Training | None:
    """Read what made an encoder: training.json in its folder, or the files of its run; None if there are none."""
    if (file := Path(encoder) / TRAINING_FILE).is_file():
        return read_shape(Training, file)
    if folder := run_folder(encoder):
        return _training(read_shape(TrainingRun, folder / RESULTS_FILE), OmegaConf.load(folder / RESOLVED_CONFIG))
    return None


def write_training(run: TrainingRun, config: DictConfig, encoder: SentenceEncoder) -> None:
    """Write training.json and the model card of the encoder that a run has saved."""
    folder = Path(config.run_dir) / "encoder"
    with atomic_write(folder) as new:
        write_card(new, Path(config.run_dir).name, encoder, _training(run, config), repository=run_label(folder))


def _training(run: TrainingRun, config: Any) -> Training:
    options: Any = OmegaConf.to_container(config, resolve=True)
    content = run.content()
    if run.overrides and _ROWS_OF_PYTHON.fullmatch(run.overrides[-1]):
        content |= {"has_rows": True, "overrides": run.overrides[1:-1]}  # without the options that `train` adds
    if layers := content["settings"].get("model", "").rpartition(", ")[2]:
        content["settings"]["model"] = f"{options['model']['name']}, {layers}"  # not the folder of a package
    recipe = {name: options[name] for name in _RECIPE if options.get(name) not in (None, {}, [])}
    base = str(options["model"].get("name"))
    on_hub = _HUB_NAME.fullmatch(base) and not Path(base).exists()
    return Training.model_validate(_without_paths(content | {"recipe": recipe, "base_model": base if on_hub else None}))


def _without_paths(value: Any) -> Any:
    """Return options without folders of the user's machine, and without names of classes other than the user's."""
    match value:
        case dict():
            known = str(value.get("_target_")).startswith(LIBRARIES)
            return {key: _without_paths(item) for key, item in value.items() if not (known and key == "_target_")}
        case list():
            return [_without_paths(item) for item in value]
        case str():
            return without_folders(value)
    return value


def write_card(
    folder: Path,
    name: str,
    encoder: SentenceEncoder,
    run: Training | None = None,
    tables: Sequence[Table] = (),
    figures: Mapping[str, bytes] | None = None,
    repository: str | None = None,
    license: str | None = None,
    language: str | None = None,
) -> None:
    """Write the model card, README.md, with its figures, and training.json to the folder of an encoder.

    Args:
        folder, name, encoder: the saved encoder.
        run: what made it.
        tables: its scores.
        figures: files of PNG by their titles.
        repository: name on the hub, for the examples; None for `name`.
        license, language: metadata for the hub.
    """
    for title, content in (figures or {}).items():
        path = folder / "figures" / f"{title}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    recipe = run.recipe if run else {}
    data = str(recipe.get("data", {}).get("train", ""))
    text = _TEMPLATE.read_text(encoding="utf-8")
    card = jinja2.Template(text, keep_trailing_newline=True, undefined=jinja2.StrictUndefined).render(
        license=license,
        language=language,
        base_model=run.base_model if run else None,
        dataset=dataset[1] if (dataset := _HUB_DATA.match(data)) else None,
        name=name,
        repository=repository or name,
        encoder=encoder,
        architecture=type(encoder.backbone).__name__,
        parameters=sum(p.numel() for p in encoder.parameters()),
        run=run,
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).rstrip(),
        settings=printed_settings(run.settings) if run else None,
        run_table=run_table(run).markdown() if run else None,
        tables=[table.markdown() for table in tables],
        figures=sorted(figures or {}),
        onnx=sorted(path.name for path in (folder / "onnx").glob("*.onnx")),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    if run:
        write_json(folder / TRAINING_FILE, run.content())
