"""The model card: README.md with what an encoder is, how to use it, what it scores and how it was trained."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import yaml
from huggingface_hub import EvalResult, ModelCardData
from omegaconf import OmegaConf

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.evaluation_report import encoder_figures, encoder_tables
from simcse_pl.reports.figures.style import figure_files
from simcse_pl.reports.sweeps.sweep_results import TrainingRun
from simcse_pl.reports.tables.run_table import run_table
from simcse_pl.results.evaluation_results import Result, read, validated
from simcse_pl.results.run_files import CURVES_FILE, RESOLVED_CONFIG, RESULTS_FILE
from simcse_pl.results.trajectory import TrainingTrajectory
from simcse_pl.utils.files import read_json
from simcse_pl.utils.yaml_files import read_yaml

CARD_FILE = "README.md"
_RECIPE = (
    "model",
    "data",
    "views",
    "objective",
    "auxiliary",
    "queue",
    "optimizer",
    "encoders",
    "shared_dropout_mask",
    "seed",
)
_HUB_DATA = re.compile(r"hf://datasets/([^/]+/[^/]+)")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class TrainedBy:
    """The run of train.py that an encoder is of.

    Args:
        path: of its validations.
        scores: that it wrote.
        command: that started it.
        config: all options; of files the names alone.
    """

    path: TrainingTrajectory
    scores: TrainingRun
    command: str
    config: dict[str, Any]

    @property
    def recipe(self) -> str:
        """The options that say how it was trained, as YAML."""
        chosen = {group: self.config[group] for group in _RECIPE if self.config.get(group) not in (None, {}, [])}
        return str(yaml.safe_dump(chosen, sort_keys=False, allow_unicode=True)).rstrip()


def trained_by(encoder: str) -> TrainedBy | None:
    """What the run left beside its encoder; None where the encoder is of no run.

    Args:
        encoder: the folder `encoder` of a run, or one of its checkpoints.

    Raises:
        UserError: what is there is damaged.
    """
    path = Path(encoder).absolute()
    folder = path.parent.parent if path.is_file() else path.parent
    if not all((folder / file).is_file() for file in (RESULTS_FILE, CURVES_FILE, RESOLVED_CONFIG)):
        return None
    scores = validated(TrainingRun, read_json(folder / RESULTS_FILE), folder / RESULTS_FILE, "train.py")
    run = read(folder)
    assert isinstance(run, TrainingTrajectory)  # the curves are there
    options = " ".join(str(_public(option)) for option in scores.overrides)
    config = OmegaConf.to_container(read_yaml(folder / RESOLVED_CONFIG))
    return TrainedBy(run, scores, f"python train.py {options}".rstrip(), _public(config))


def _public(value: Any) -> Any:
    """Return options without the folders of the user's machine and without the names of classes."""
    match value:
        case dict():
            return {key: _public(own) for key, own in value.items() if key != "_target_"}
        case list():
            return [_public(own) for own in value]
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
    """Write README.md, and the figures that it shows.

    Args:
        folder: of the exported encoder, whose other files are there.
        name: of the encoder.
        encoder: that is exported.
        run: that trained it.
        results: that evaluate.py measured of it; the paper's stand beside them where its row is known.
        repository: on the hub, for the examples; the folder's name where None.
        license, language: for the hub.

    Raises:
        UserError: two results with one label, or one that names a row that the paper does not have.
    """
    figures = encoder_figures(results, [replace(run.path, label=name)] if run else [])
    if figures:
        (folder / "figures").mkdir()
    for title, figure in figures.items():
        (folder / "figures" / f"{title}.png").write_bytes(figure_files(title, figure)[f"{title}.png"])
    onnx = sorted(path.name for path in (folder / "onnx").glob("*.onnx"))
    loader = jinja2.Environment(
        loader=jinja2.PackageLoader("simcse_pl.export", "."),
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    card = loader.get_template("model_card.md.jinja").render(
        metadata=_metadata(name, run, results, bool(onnx), license, language).to_yaml(),
        name=name,
        place=repository or name,
        encoder=encoder,
        architecture=type(encoder.backbone).__name__,
        layers=encoder.backbone.config.num_hidden_layers,
        parameters=sum(p.numel() for p in encoder.parameters()),
        run=run,
        trained=run_table(run.scores.model_dump()).markdown() if run else None,
        tables=[table.markdown() for table in encoder_tables(results)],
        figures=sorted(figures),
        onnx=onnx,
    )
    (folder / CARD_FILE).write_text(card, encoding="utf-8")


def _metadata(
    name: str, run: TrainedBy | None, results: Sequence[Result], onnx: bool, license: str | None, language: str | None
) -> ModelCardData:
    """What the hub reads."""
    config = run.config if run else {}
    base, data = str(config.get("model", {}).get("name", "")), str(config.get("data", {}).get("train", ""))
    dataset = _HUB_DATA.match(data)
    scores = [
        EvalResult(
            task_type="semantic-similarity",
            task_name="Semantic Similarity",
            dataset_type=own.task.lower(),
            dataset_name=f"{own.task} {own.split}",
            metric_type="spearman_cosine",
            metric_name="Spearman's correlation of cosine similarities, all pairs at once",
            metric_value=own.all.spearman,
        )
        for result in results
        for own in result.sts
        if own.all.spearman is not None
    ]
    tags = ["sentence-transformers", "feature-extraction", "sentence-similarity", "transformers"]
    return ModelCardData(
        language=language,
        license=license,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=tags + ["simcse"] * (run is not None) + ["onnx"] * onnx,
        base_model=base if _HUB_NAME.fullmatch(base) else None,
        datasets=[dataset[1]] if dataset else None,
        model_name=name,
        eval_results=scores or None,
    )
