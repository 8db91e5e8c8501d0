"""Checkpoints, seeding, warnings, speed, and the curves of batches, geometry and speed."""

import io
import itertools
import logging
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from rich.console import Console
from rich.progress import Progress
from torch import nn
from torch.utils.data import DataLoader

from simcse_pl.callbacks import (
    BatchCurves,
    CountSteps,
    GeometryCurves,
    ProgressBar,
    SeedEveryStep,
    SpeedCurves,
    mean_similarities,
    share_of_duplicates,
)
from simcse_pl.checkpoints import BestCheckpoint
from simcse_pl.data.collator import ViewCollator
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.evaluation.metrics import gram_bound
from simcse_pl.loggers import CurvesLogger
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.methods.matryoshka import MatryoshkaLoss
from simcse_pl.methods.whitenedcse import WhitenedContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.speed.cpu import CpuSpeed, Speed
from simcse_pl.speed.dropout import FastDropout
from simcse_pl.step import TrainingStep
from simcse_pl.trainer import make_trainer
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Role, default_roles
from tests.conftest import SENTENCES, adamw, quiet_trainer, ready_data
from tests.support.helpers import composed

QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0, "logger": False}


class Scripted(pl.LightningModule):
    """A module whose validations return given scores."""

    def __init__(self, scores):
        super().__init__()
        self.scores = iter(scores)
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch, batch_idx):
        self.log("train/loss", self.global_step)
        return (self.weight * batch).sum()

    def on_validation_epoch_start(self):
        self.score = next(self.scores)

    def validation_step(self, batch, batch_idx):
        self.log_dict({"val/spearman": self.score, "val/alignment": self.score / 2})

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder, scores, steps=6, every=2, resume=None, further=(), **options):
    """Train for some steps with the checkpoints of the default config; an epoch has 4 steps."""
    config = composed(f"run_dir={folder}").callbacks
    made = [*(instantiate(config[name]) for name in ("steps", "best", "last")), *further]
    intervals = {"max_steps": steps, "val_check_interval": every, "check_val_every_n_epoch": None}
    trainer = make_trainer(accelerator="cpu", callbacks=made, **intervals | QUIET | options)
    written, save = [], trainer.save_checkpoint

    def recorded(path, *more):
        written.append((Path(path).stem, trainer.global_step))
        save(path, *more)

    trainer.save_checkpoint = recorded
    module, loader = Scripted(scores), DataLoader(torch.ones(4))
    if resume is None:
        trainer.validate(module, loader, verbose=False)
    trainer.fit(module, loader, loader, ckpt_path=resume, weights_only=True)
    return trainer.checkpoint_callback, written


def checkpoint(folder, name):
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)


@pytest.mark.parametrize("option", [{"every_n_train_steps": 3}, {"every_n_epochs": 2}, {"save_top_k": 0}])
def test_a_best_checkpoint_that_is_not_saved_after_each_validation_is_an_error(option):
    with pytest.raises(UserError, match=f"^{next(iter(option))}"):
        BestCheckpoint(monitor="val/spearman", **option)


def test_best_is_also_found_if_validations_are_at_the_ends_of_epochs(tmp_path):
    best, _ = fit(tmp_path, [0.9, 0.25, 0.5], 8, every=1.0, check_val_every_n_epoch=1)
    assert best.best_step == 8 and best.best_metrics["val/spearman"] == 0.5


@pytest.mark.parametrize(("scores", "best_step"), [([0.25, 0.5, 0.5], 4), ([0.1, 0.2, 0.5], 6)])
def test_best_is_the_highest_and_last_is_written_at_every_validation(tmp_path, scores, best_step):
    best, written = fit(tmp_path, [0.9, *scores])
    assert best.best_step == checkpoint(tmp_path, "best")["global_step"] == best_step
    assert best.best_metrics == pytest.approx({"val/spearman": max(scores), "val/alignment": max(scores) / 2})
    assert [step for name, step in written if name == "last"] == [2, 4, 6]
    assert checkpoint(tmp_path, "last")["global_step"] == 6
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert "optimizer_states" not in checkpoint(tmp_path, "best") and "optimizer_states" in checkpoint(tmp_path, "last")


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
@pytest.mark.parametrize(("folder", "expected"), [("moved", (2, 0.5)), ("linked", (2, 0.5)), ("second", (8, 0.4))])
def test_the_best_checkpoint_is_that_of_the_folder_after_resuming(tmp_path, folder, expected):
    fit(tmp_path / "first", [0.9, 0.5, 0.25], steps=4)
    last = tmp_path / "first" / "checkpoints" / "last.ckpt"
    if folder == "moved":
        last = (tmp_path / "first").rename(tmp_path / "moved") / "checkpoints" / "last.ckpt"
    if folder == "linked":
        (tmp_path / "linked").symlink_to(tmp_path / "first")
    best, _ = fit(tmp_path / folder, [0.3, 0.4], steps=8, resume=last)
    assert (best.best_step, best.best_metrics["val/spearman"]) == pytest.approx(expected)
    assert Path(best.best_model_path).parent.samefile(tmp_path / folder / "checkpoints")
    assert checkpoint(tmp_path / folder, "best")["global_step"] == best.best_step


def test_one_bar_counts_the_steps_of_all_epochs_and_a_resumed_run_continues_it(monkeypatch, tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr("simcse_pl.callbacks.counting_bar", lambda *columns: Progress(*columns, console=console))
    seen = []

    class Bar(ProgressBar):
        def on_train_batch_end(self, *given):
            super().on_train_batch_end(*given)
            seen.append([(task.completed, task.total) for task in self._bar.tasks])

    options = {"further": [Bar()], "enable_progress_bar": True, "every": 5}
    fit(tmp_path / "whole", [0.5] * 3, -1, max_epochs=2, **options)
    assert seen == [[(step, 8)] for step in range(1, 9)]  # the bars of validations are removed
    fit(tmp_path / "first", [0.5] * 2, 5, **options)
    seen.clear()
    fit(tmp_path / "first", [0.5], 7, resume=tmp_path / "first" / "checkpoints" / "last.ckpt", **options)
    assert seen == [[(6, 7)], [(7, 7)]]


def test_curves_are_logged_at_the_number_of_steps_done(tmp_path):
    """Breaks if Lightning renames `_batches_that_stepped`."""
    logger = CurvesLogger(tmp_path, name="", version="")
    best, _ = fit(tmp_path, [0.1, 0.2, 0.5, 0.4], 10, every=4, max_epochs=1, log_every_n_steps=5, logger=logger)
    curves = pandas.read_csv(tmp_path / "metrics.csv")
    validated, trained = (curves.dropna(subset=name)["step"].tolist() for name in ("val/spearman", "train/loss"))
    assert (validated, trained) == ([0, 4, 8, 10], [5, 10])
    assert best.best_step == 8


def test_geometry_curves_cover_all_validation_embeddings(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    stsb = ScoredPairs("sample")
    trainer = quiet_trainer(callbacks=[GeometryCurves()])
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    bound = gram_bound(encoder.encode(list(dict.fromkeys(stsb.sentences("validation")))))
    bound["nonnegative_cosines"] = bound.pop("nonnegative")
    (logged,) = trainer.validate(module, ready_data(encoder, stsb), verbose=False)
    assert {name: logged[f"geometry/{name}"] for name in bound} == pytest.approx(bound, rel=1e-4)


def test_speed_counts_all_views_and_excludes_validation(monkeypatch):
    clock = iter([10.0, 13.0, 14.0, 18.0, 30.0, 31.0])  # a step from 10 to 13, one from 14 to 18; validation; 30 to 31
    monkeypatch.setattr("simcse_pl.callbacks.time.perf_counter", lambda: next(clock))
    logged, module = [], object.__new__(SimCSEModule)
    trainer = SimpleNamespace(log_every_n_steps=1, global_step=1, should_stop=False)
    batch = {"input_ids": torch.zeros(5, 2, 7)}
    speed = SpeedCurves()
    for validated in (False, False, True):
        if validated:
            speed.on_validation_end(trainer, module)
        speed.on_train_batch_start(trainer, module, batch, 0)
        vars(module)["step"] = TrainingStep(1, EmbeddedBatch(None, {}), torch.zeros(()), None, 0.0)
        speed.on_train_batch_end(trainer, module, None, batch, 0)
        logged += module.step.batch.curves.values()
    assert logged == pytest.approx([10 / 3, 0, 10 / 5, 1 / 5, 10 / 1, 0])  # sentences per second, share of waiting


def test_each_batch_is_seeded_by_seed_number_and_rank():
    def drawn(seed, batch, rank=0):
        strategy, loop = SimpleNamespace(root_device=torch.device("cpu")), SimpleNamespace(total_batch_idx=batch)
        trainer = SimpleNamespace(fit_loop=loop, global_rank=rank, strategy=strategy)
        torch.rand(batch + 3)  # earlier draws have no effect
        SeedEveryStep(seed).on_train_batch_start(trainer, None, None, 0)
        return tuple(torch.rand(4).tolist())

    cases = [(seed, batch, rank) for seed in (0, 42) for batch in range(4) for rank in range(2)]
    assert len({drawn(*case) for case in cases}) == len(cases)
    assert [drawn(*case) for case in cases] == [drawn(*case) for case in cases]


@pytest.mark.parametrize("wrap", [lambda loss: loss, lambda loss: MatryoshkaLoss(loss, [8])])
def test_duplicates_are_reported_once_with_the_option_that_masks_them(wrap, caplog):
    curves, module = BatchCurves(), nn.Module()
    module.objective = wrap(ContrastiveLoss())
    for share in (0.0, 0.25, 0.5):
        if curves.duplicates is not None:
            curves.duplicates.append(torch.tensor(share))
        curves.on_validation_end(SimpleNamespace(is_global_zero=True), module)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("25.00% of the rows of logged steps had their own sentence among their negatives")
    (option,) = re.findall("[a-z.]+mask_duplicates(?==true leaves out)", warning)
    assert module.get_submodule(option.rpartition(".")[0]).mask_duplicates is False


def test_duplicates_of_a_loss_without_the_option_are_reported(caplog):
    curves, module = BatchCurves(), nn.Module()
    curves.duplicates, module.objective = [torch.tensor(0.5)], WhitenedContrastiveLoss()
    curves.on_validation_end(SimpleNamespace(is_global_zero=True), module)
    assert "this loss cannot leave them out" in caplog.text and "mask_duplicates" not in caplog.text


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", num_layers=1)


def test_similarities_are_mean_cosines_with_the_own_positives_and_with_all_negatives_without_copies():
    x = torch.randn(4, 5, 6)  # an anchor, two positives and two negatives
    copies = torch.zeros(4, 5, dtype=torch.bool)
    copies[[0, 1, 2, 2], [4, 2, 2, 4]] = True
    roles = (Role.ANCHOR, Role.POSITIVE, Role.POSITIVE, Role.NEGATIVE, Role.NEGATIVE)
    batch = EmbeddedBatch.of(*x.unbind(dim=1), roles=roles).replaced(copies=copies)
    cosines = {"positive_similarity": [], "negative_similarity": []}
    for anchor, row, view in itertools.product(range(4), range(4), range(1, 5)):
        if not copies[row, view]:
            own = row == anchor and view < 3
            first, second = x[anchor, 0].double().numpy(), x[row, view].double().numpy()
            cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
            cosines[f"{'positive' if own else 'negative'}_similarity"].append(cosine)
    assert {name: float(mean) for name, mean in mean_similarities(batch).items()} == pytest.approx(
        {name: np.mean(of_name) for name, of_name in cosines.items()}, abs=1e-6
    )
    one = mean_similarities(EmbeddedBatch.of(*x[:1, :2].unbind(dim=1)))
    assert one["negative_similarity"].isnan() and not one["positive_similarity"].isnan()


def test_duplicates_are_rows_with_one_of_their_sentences_among_their_negatives(encoder, on_ranks):
    rows = [(0, 1), (2, 0), (3, 4), (3, 5), (6, 6)]  # the last row's two views may be equal
    views = ViewCollator(encoder.tokenizer, 16)([(SENTENCES[first], SENTENCES[second]) for first, second in rows])
    batch = EmbeddedBatch(encoder, views, default_roles(2))
    assert share_of_duplicates(batch) == pytest.approx(4 / 5)
    assert on_ranks(_duplicates_of_rank, 2, encoder, views) == {0: 1, 1: 0.5}


@pytest.mark.parametrize(
    ("templates", "copied", "share"),
    [([], False, 0.5), ("AAA", False, 0.5), ("AAB", False, 0), ("ABB", False, 0.5), ([], True, 0)],
)
def test_a_negative_in_a_template_of_its_own_and_a_copy_are_no_duplicates(templates, copied, share, make_model):
    template = [f"{word} {{sentence}}" for word in templates] or None
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", template=template)
    rows = [(SENTENCES[0], SENTENCES[1], SENTENCES[0]), SENTENCES[2:5]]
    views = ViewCollator(encoder.tokenizer, 32, encoder.templates)(rows)
    copies = torch.tensor([[False, False, copied]] * 2)
    assert share_of_duplicates(EmbeddedBatch(encoder, views, default_roles(3), copies=copies)) == share


def _duplicates_of_rank(number, results, encoder, views):
    own = {name: x[3 * number :][: 3 - number] for name, x in views.items()}
    batch = EmbeddedBatch(encoder, own, default_roles(2), counts=(3, 2))
    batch.embed()
    results[number] = share_of_duplicates(batch).item()


@pytest.mark.parametrize(("steps", "logged"), [(7, [3, 6, 7]), (6, [3, 6])])
def test_curves_are_logged_with_the_loss_and_at_the_last_step(encoder, tmp_path, steps, logged):
    collate = ViewCollator(encoder.tokenizer, 16)
    loader = DataLoader([(text,) for text in SENTENCES], batch_size=2, collate_fn=collate)
    logs = {"logger": CurvesLogger(tmp_path, name="", version=""), "log_every_n_steps": 3}

    class Own(pl.Callback):
        """Logs the step, and reads the file, which has the step by the next one."""

        def on_train_batch_start(self, trainer, *_):
            path = tmp_path / "metrics.csv"
            steps = pandas.read_csv(path)["step"].tolist() if path.exists() else []
            assert max(steps, default=0) == trainer.global_step // 3 * 3

        def on_train_batch_end(self, trainer, pl_module, *_):
            pl_module.log("own", float(trainer.global_step))

    callbacks = [CountSteps(), BatchCurves(), Own()]
    trainer = quiet_trainer(max_epochs=-1, max_steps=steps, callbacks=callbacks, **logs)
    trainer.fit(SimCSEModule(encoder, ContrastiveLoss(), adamw()), loader)
    curves = pandas.read_csv(tmp_path / "metrics.csv").set_index("step")
    for name in ("loss", "positive_similarity", "negative_similarity", "duplicates"):
        assert curves[f"train/{name}"].dropna().index.tolist() == logged, name
    own = curves["own"].dropna()
    assert own.index.tolist() == own.tolist() == logged
    assert float(trainer.logged_metrics["train/loss"]) == pytest.approx(curves["train/loss"].dropna().iloc[-1])


def test_curves_of_accumulated_gradients_are_logged_once_a_step(encoder, tmp_path):
    collate = ViewCollator(encoder.tokenizer, 16)
    loader = DataLoader([(text,) for text in SENTENCES], batch_size=2, collate_fn=collate)
    logs = {"logger": CurvesLogger(tmp_path, name="", version=""), "log_every_n_steps": 1}
    callbacks = [CountSteps(), BatchCurves(), SpeedCurves()]
    trainer = quiet_trainer(max_epochs=2, accumulate_grad_batches=3, callbacks=callbacks, **logs)
    trainer.fit(SimCSEModule(encoder, ContrastiveLoss(), adamw()), loader)
    assert pandas.read_csv(tmp_path / "metrics.csv")["step"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("compiled", [False, True])
def test_training_applies_the_choice_before_its_first_step(compiled, make_model, caplog):
    caplog.set_level(logging.INFO)
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", dropout=0.1)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), compile=compiled)
    module.prepare()
    CpuSpeed(Speed(tokens_per_pass=128)).setup(quiet_trainer(), module, "validate")
    assert encoder.groups.tokens_per_pass == (math.inf if compiled else 128)
    kinds = {type(part) for part in encoder.modules() if isinstance(part, nn.Dropout)}
    assert kinds == {nn.Dropout if compiled else FastDropout}
    assert f"tokens_per_pass={math.inf if compiled else 128}, fast_dropout={not compiled}" in caplog.text
