"""Write a model card: README.md with an encoder's architecture, usage, scores and training recipe."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import yaml
from omegaconf import OmegaConf

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.evaluation_report import encoder_figures, encoder_tables
from simcse_pl.reports.figures.style import figure_files
from simcse_pl.reports.sweeps.sweep_results import TrainingRun
from simcse_pl.reports.tables.run_table import run_table
from simcse_pl.results.evaluation_results import Result, read_shape
from simcse_pl.results.run_files import CURVES_FILE, RESOLVED_CONFIG, RESULTS_FILE, TrainingTrajectory, read_run

_TEMPLATE = Path(__file__).with_name("model_card.md.jinja")
_GROUPS = ("model", "data", "views", "objective", "auxiliary", "queue", "module", "optimizer", "scheduler")
_RECIPE = (*_GROUPS, "encoders", "seed")
_HUB_DATA = re.compile(r"hf://datasets/([^/]+/[^/]+)")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class TrainedBy:
    """The training run of an encoder."""

    trajectory: TrainingTrajectory
    results: TrainingRun
    command: str
    config: dict[str, Any]  # all options, with file names instead of paths

    @property
    def recipe(self) -> str:
        """The options that determine the training, as YAML."""
        chosen = {group: self.config[group] for group in _RECIPE if self.config.get(group) not in (None, {}, [])}
        return str(yaml.safe_dump(chosen, sort_keys=False, allow_unicode=True)).rstrip()


def read_training(encoder: str) -> TrainedBy | None:
    """Read the training run whose folder contains an encoder or a checkpoint; None if there is none."""
    path = Path(encoder).absolute()
    folder = path.parent.parent if path.is_file() else path.parent
    if not all((folder / file).is_file() for file in (RESULTS_FILE, CURVES_FILE, RESOLVED_CONFIG)):
        return None
    results = read_shape(TrainingRun, folder / RESULTS_FILE)
    options = [_without_paths(option) for option in results.overrides]
    config = _without_paths(OmegaConf.to_container(OmegaConf.load(folder / RESOLVED_CONFIG)))
    return TrainedBy(read_run(folder), results, " ".join(["simcse train", *options]), config)


def _without_paths(value: Any) -> Any:
    """Return options without folders of the user's machine, and without names of classes."""
    match value:
        case dict():
            return {key: _without_paths(item) for key, item in value.items() if key != "_target_"}
        case list():
            return [_without_paths(item) for item in value]
        case str():
            return re.sub(r"(?<![\w./:])~?/(?:[^\n/,\]]+/)+", "", value)
    return value


def write_card(
    folder: Path,
    name: str,
    encoder: SentenceEncoder,
    run: TrainedBy | None = None,
    results: Sequence[Result] = (),
    repository: str | None = None,
    license: str | None = None,
    language: str | None = None,
) -> None:
    """Write README.md and its figures to the folder of an exported encoder.

    Args:
        folder, name, encoder: the exported encoder.
        run: the run that trained it.
        results: its evaluation results; the card compares them with the paper's if they name a row.
        repository: name on the hub, for the examples; None for `name`.
        license, language: metadata for the hub.
    """
    figures = encoder_figures(results, [replace(run.trajectory, label=name)] if run else [])
    for title, figure in figures.items():
        path = folder / "figures" / f"{title}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(figure_files(title, figure)[path.name])
    config = run.config if run else {}
    base, data = (str(config.get(group, {}).get(key, "")) for group, key in (("model", "name"), ("data", "train")))
    text = _TEMPLATE.read_text(encoding="utf-8")
    card = jinja2.Template(text, keep_trailing_newline=True, undefined=jinja2.StrictUndefined).render(
        license=license,
        language=language,
        base_model=base if _HUB_NAME.fullmatch(base) else None,
        dataset=dataset[1] if (dataset := _HUB_DATA.match(data)) else None,
        name=name,
        repository=repository or name,
        encoder=encoder,
        architecture=type(encoder.backbone).__name__,
        parameters=sum(p.numel() for p in encoder.parameters()),
        run=run,
        run_table=run_table(run.results.model_dump()).markdown() if run else None,
        tables=[table.markdown() for table in encoder_tables(results)],
        figures=sorted(figures),
        onnx=sorted(path.name for path in (folder / "onnx").glob("*.onnx")),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
