"""The best and the last checkpoint of a real run on a made-up model, the curves of geometry, and the speed."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import pytorch_lightning as pl
import torch
import yaml
from hydra.utils import instantiate
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from simcse_pl.config import CONF
from simcse_pl.data.collators import PairCollator, ViewCollator
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.evaluation.metrics import uniformity
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import tokenize
from simcse_pl.tracking.csv_logger import CurvesLogger
from simcse_pl.training.callbacks import (
    BestCheckpoint,
    GeometryCurves,
    ProgressBar,
    SeedEveryStep,
    Speed,
    ValidateAtEnd,
    WarnOnCollapse,
    WarnOnDuplicates,
    WarnOnMaskedNegatives,
)
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.optimizer import LinearAdamW
from simcse_pl.training.resume import RunMetadata, find_checkpoint
from simcse_pl.training.trainer import make_trainer
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES


class Scripted(pl.LightningModule):
    """Its validations score what they are told to."""

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


def fit(folder, scores, resume=None, steps=6):
    """Train for some steps, validated at every second one; the best callback."""
    best = BestCheckpoint(folder, "best", "val/spearman", mode="max", enable_version_counter=False)
    last = ModelCheckpoint(folder, "last", enable_version_counter=False)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0, "logger": False}
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=steps,
        max_epochs=-1,
        val_check_interval=2,
        check_val_every_n_epoch=None,
        callbacks=[ValidateAtEnd(), best, last],
        **quiet,
    )
    loader = DataLoader(torch.ones(4))
    trainer.fit(Scripted(scores), loader, loader, ckpt_path=resume, weights_only=True)
    assert trainer.checkpoint_callback is best
    return best


def step_of(path):
    return torch.load(path, weights_only=True)["global_step"]


@pytest.mark.parametrize(("scores", "best_step"), [([0.5, 0.25, 0.25], 2), ([0.25, 0.5, 0.5], 4), ([0.1, 0.2, 0.5], 6)])
def test_best_is_the_highest_and_last_is_the_last(tmp_path, scores, best_step):
    best = fit(tmp_path, scores)
    assert best.best_step == step_of(tmp_path / "best.ckpt") == best_step
    assert best.best_metrics == pytest.approx({"val/spearman": max(scores), "val/alignment": max(scores) / 2})
    assert step_of(tmp_path / "last.ckpt") == 6
    assert {path.name for path in tmp_path.iterdir()} == {"best.ckpt", "last.ckpt"}


def test_best_holds_weights_alone_and_last_is_written_at_every_second_validation(tmp_path):
    callbacks = yaml.safe_load((CONF / "callbacks" / "default.yaml").read_text())
    config = OmegaConf.create({"run_dir": str(tmp_path), "callbacks": callbacks})
    best = instantiate(config.callbacks.best)
    last = instantiate(config.callbacks.last, every_n_validations=2)
    written = []
    trainer = make_trainer(
        accelerator="cpu",
        max_steps=10,
        val_check_interval=2,
        check_val_every_n_epoch=None,
        callbacks=[ValidateAtEnd(), best, last, RunMetadata([])],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    save = trainer.save_checkpoint

    def record(path, *more):
        written.append((Path(path).name, trainer.global_step))
        save(path, *more)

    trainer.save_checkpoint = record
    module, loader = Scripted([0.1, 0.2, 0.5, 0.1, 0.1, 0.1]), DataLoader(torch.ones(4))
    trainer.validate(module, loader, verbose=False)
    trainer.fit(module, loader, loader)
    assert [step for name, step in written if name == "last.ckpt"] == [4, 8, 10]
    assert [step for name, step in written if name == "best.ckpt"] == [2, 4]
    for name, whole in (("best.ckpt", False), ("last.ckpt", True)):
        checkpoint = torch.load(tmp_path / "checkpoints" / name, weights_only=True)
        assert ("optimizer_states" in checkpoint) == whole
    with pytest.raises(UserError, match="best.ckpt: it holds weights without the optimizer's state: give a last.ckpt"):
        find_checkpoint(str(tmp_path / "checkpoints" / "best.ckpt"), tmp_path / "another", [])


def test_the_last_step_is_validated_whatever_the_interval(tmp_path):
    assert fit(tmp_path, [0.1, 0.2, 0.3], steps=5).best_step == 5


def test_in_the_same_folder_the_best_of_before_stays(tmp_path):
    fit(tmp_path, [0.5, 0.25], steps=4)
    best = fit(tmp_path, [0.3, 0.4], resume=tmp_path / "last.ckpt", steps=8)
    assert (best.best_step, best.best_metrics["val/spearman"]) == (2, 0.5)
    assert step_of(best.best_model_path) == 2


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_in_another_folder_what_is_reported_is_what_is_there(tmp_path):
    fit(tmp_path / "first", [0.5, 0.25], steps=4)
    best = fit(tmp_path / "second", [0.3, 0.4], resume=tmp_path / "first" / "last.ckpt", steps=8)
    assert best.best_metrics["val/spearman"] == pytest.approx(0.4)
    assert best.best_step == step_of(tmp_path / "second" / "best.ckpt") == 8


def test_the_best_step_is_a_point_of_the_curves_and_steps_are_those_done(tmp_path):
    """With max_epochs reached long before max_steps: 4 steps make an epoch."""
    best = BestCheckpoint(tmp_path, "best", "val/spearman", mode="max", enable_version_counter=False)
    trainer = make_trainer(
        accelerator="cpu",
        max_steps=10,
        max_epochs=1,
        val_check_interval=4,
        check_val_every_n_epoch=None,
        log_every_n_steps=5,
        callbacks=[ValidateAtEnd(), best, RunMetadata([])],
        logger=CurvesLogger(tmp_path, name="", version=""),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    module, loader = Scripted([0.1, 0.2, 0.5, 0.4]), DataLoader(torch.ones(4))
    trainer.validate(module, loader, verbose=False)
    trainer.fit(module, loader, loader)
    curves = pandas.read_csv(tmp_path / "metrics.csv")
    validated, trained = (curves.dropna(subset=name)["step"].tolist() for name in ("val/spearman", "train/loss"))
    assert (validated, trained) == ([0, 4, 8, 10], [5, 10])
    assert best.best_step == 8 and trainer.global_step == 10


@pytest.mark.parametrize(("max_epochs", "text"), [(-1, "Epoch 3"), (5, "Epoch 3/4"), (None, "Epoch 3")])
def test_the_bar_names_no_last_epoch_where_there_is_none(max_epochs, text):
    bar = ProgressBar()
    bar._trainer = SimpleNamespace(max_epochs=max_epochs, sanity_checking=False)
    assert bar._get_train_description(3).strip() == text


def section_5(embeddings):
    """What the paper's section 5 argues with, from the whole matrix of cosines."""
    w = embeddings.double().numpy()
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    cosines = w @ w.T
    return {
        "geometry/gram_sum": cosines.sum(),
        "geometry/largest_eigenvalue": np.linalg.eigvalsh(cosines)[-1],
        "geometry/nonnegative_cosines": (cosines >= 0).mean(),
        "geometry/trace": np.trace(cosines),
    }


def test_geometry_curves_are_of_all_validation_embeddings_at_each_validation(make_model):
    torch.manual_seed(0)
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    pairs = load_sample("dev").pairs[:60]
    sentences = [sentence for pair in pairs for sentence in (pair.first, pair.second)]
    with torch.no_grad():  # random weights put all sentences into one direction; after a shift some cosines are below 0
        encoder.backbone.encoder.layer[-1].output.LayerNorm.bias -= encoder.encode(sentences).mean(dim=0)
    first, second = (tokenize(encoder.tokenizer, sentences[side::2], 64) for side in (0, 1))
    tokenized = list(zip(first, second, [pair.score for pair in pairs], strict=True))
    validated = DataLoader(tokenized, batch_size=7, collate_fn=PairCollator(encoder.tokenizer))
    views = DataLoader([(text,) for text in SENTENCES], batch_size=4, collate_fn=ViewCollator(encoder.tokenizer, 16))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[GeometryCurves()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    module = SimCSEModule(encoder, ContrastiveObjective(), LinearAdamW(lr=1e-3))
    before = section_5(encoder.encode(sentences))
    assert 0.1 < before["geometry/nonnegative_cosines"] < 0.9
    logged = trainer.validate(module, validated, verbose=False)[0]
    assert {name: logged[name] for name in before} == pytest.approx(before, rel=1e-4)
    trainer.fit(module, views, validated)
    after = section_5(encoder.encode(sentences))
    assert {name: trainer.callback_metrics[name].item() for name in after} == pytest.approx(after, rel=1e-4)
    assert after["geometry/gram_sum"] != pytest.approx(before["geometry/gram_sum"], rel=1e-2)
    assert after["geometry/trace"] == pytest.approx(120)


def test_speed_counts_all_views_and_waiting_and_leaves_validation_out(monkeypatch):
    clock = iter([10.0, 13.0, 14.0, 18.0, 30.0, 31.0])  # a step from 10 to 13, one from 14 to 18; validation; 30 to 31
    monkeypatch.setattr("simcse_pl.training.callbacks.time.perf_counter", lambda: next(clock))
    logged = []
    module = SimpleNamespace(log=lambda name, value: logged.append((name, value)))
    batch = {"input_ids": torch.zeros(5, 2, 7)}
    speed = Speed()
    for validated in (False, False, True):
        if validated:
            speed.on_validation_end(None, module)
        speed.on_train_batch_start(None, module, batch, 0)
        speed.on_train_batch_end(None, module, None, batch, 0)
    rates = [float(value) for name, value in logged if name == "speed/sentences_per_second"]
    waited = [float(value) for name, value in logged if name == "speed/waiting_for_data"]
    assert rates == pytest.approx([10 / 3, 10 / 5, 10 / 1])
    assert waited == pytest.approx([0, 1 / 5, 0])


def test_chance_is_the_seeds_the_batchs_and_the_ranks_alone(monkeypatch):
    def drawn(seed, batch, rank=0):
        monkeypatch.setattr("simcse_pl.training.callbacks.rank", lambda: rank)
        trainer = SimpleNamespace(fit_loop=SimpleNamespace(total_batch_idx=batch))
        torch.rand(batch + 3)  # whatever was drawn before
        SeedEveryStep(seed).on_train_batch_start(trainer, None, None, 0)
        return tuple(torch.rand(4).tolist())

    cases = [(seed, batch, rank) for seed in (0, 42) for batch in range(4) for rank in range(2)]
    assert len({drawn(*case) for case in cases}) == len(cases)
    assert [drawn(*case) for case in cases] == [drawn(*case) for case in cases]


def told(callback, caplog, *steps):
    """What it warns of, where these are the metrics of steps, each with a validation after it."""
    module = SimpleNamespace(objective=ContrastiveObjective())
    for number, metrics in enumerate(steps):
        values = {name: torch.tensor(value) for name, value in metrics.items()}
        trainer = SimpleNamespace(callback_metrics=values, global_step=number, is_global_zero=True)
        callback.on_train_batch_end(trainer, module, None, None, number)
        callback.on_validation_end(trainer, module)
    return [record.getMessage() for record in caplog.records]


def test_duplicates_are_told_once_with_their_share(caplog):
    shares = [{"train/duplicates": share} for share in (0.0, 0.25, 0.5)]
    (line,) = told(WarnOnDuplicates(), caplog, *shares)
    assert line.startswith("25.00% of the rows so far had their own sentence among their negatives")


def test_duplicates_that_are_masked_are_not_told(caplog):
    callback = WarnOnDuplicates()
    module = SimpleNamespace(objective=ContrastiveObjective(mask_duplicates=True))
    trainer = SimpleNamespace(callback_metrics={"train/duplicates": torch.tensor(0.5)}, is_global_zero=True)
    callback.on_train_batch_end(trainer, module, None, None, 0)
    callback.on_validation_end(trainer, module)
    assert not caplog.records


def test_most_negatives_masked_is_told_once_and_names_a_guide(caplog):
    shares = [{"train/masked_negatives": share} for share in (0.4, 1.0, 1.0)]
    (line,) = told(WarnOnMaskedNegatives(), caplog, *shares)
    assert line.startswith("100.00% of the negatives so far were left out of the loss") and "objective.guide" in line


def test_a_collapse_is_told_once_and_not_of_what_was_there_before_training(caplog):
    """Equal embeddings have a uniformity of 0."""
    collapsed = {"val/uniformity": float(uniformity(torch.ones(5, 3)))}
    (line,) = told(WarnOnCollapse(), caplog, collapsed, {"val/uniformity": -0.02}, collapsed, collapsed)
    assert line.startswith("step 2: the embeddings have collapsed, val/uniformity is ")
