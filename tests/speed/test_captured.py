"""Runs of captured steps are eager runs, to the bit; what excludes a CUDA graph is said. The CPU records the graphs."""

from types import SimpleNamespace

import pandas
import pytest
import pytorch_lightning as pl
import torch

from simcse_pl.callbacks import BatchCurves, SeedEveryStep
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.loggers import CurvesLogger
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import Loss
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.methods.momentum_queue import MomentumQueue
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.speed import captured
from simcse_pl.utils.errors import UserError
from tests.conftest import adamw, quiet_trainer
from tests.support.recorded_step import RecordedGraph

STEPS = 12


class Capture(pl.Callback):
    def on_fit_start(self, trainer, module):
        module.captured = captured.CapturedSteps(module, RecordedGraph)
        self.graphs = module.captured._graphs


@pytest.fixture
def trained(make_model, sentences, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda _: False), raising=False)  # take a GPU's ways

    def train(*callbacks, precision="32-true", **options):
        torch.manual_seed(0)  # of the head
        encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp_train_only")
        encoder.templates.multiple_of = 8
        own = {"evaluators": {"sts": ScoredPairs}, "validation": str(pairs), "templates": encoder.templates}
        data = SentenceDataModule(encoder.tokenizer, sentences, batch_size=4, max_length=24, seed=1, **own)
        made = {name: make() for name, make in options.items()}
        module = SimCSEModule(encoder, ContrastiveLoss(), adamw(lr=2**-10), **made)
        path = tmp_path / str(len(callbacks))
        of_run = {"max_steps": STEPS, "max_epochs": -1, "gradient_clip_val": 1.0, "precision": precision}
        of_run |= {"check_val_every_n_epoch": None, "val_check_interval": 5, "log_every_n_steps": 3}
        logger = CurvesLogger(path, name="", version="")
        callbacks = [SeedEveryStep(3), BatchCurves(), *callbacks]
        quiet_trainer(callbacks=callbacks, logger=logger, **of_run).fit(module, data)
        return module, pandas.read_csv(path / "metrics.csv")

    return train


class ScaledByProgress(Loss):
    capturable = True

    def forward(self, batch):
        return batch.progress * batch.embeddings.mean()


class Undeclared(Loss):
    def forward(self, batch):
        return batch.embeddings.mean()


OPTIONS = {
    "simcse": {},
    "progress": {"auxiliary": lambda: {"own": ScaledByProgress()}},
    "mlm": {"auxiliary": lambda: {"mlm": MaskedLanguageModeling(weight=0.1, head="new")}},
    "queue": {"queue": lambda: MomentumQueue(size=8)},
    "bf16": {"precision": "bf16-mixed"},
    "bf16 weights": {"precision": "bf16-mixed", "half_weights": lambda: True},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_a_run_of_captured_steps_is_an_eager_run(case, trained):
    capture = Capture()
    (eager, expected), (module, curves) = trained(**OPTIONS[case]), trained(capture, **OPTIONS[case])
    made = [graph for graph in capture.graphs.values() if graph]
    assert sum(graph.replays for _, graph in made) >= STEPS / 3
    assert expected["train/loss"].notna().sum() == STEPS / 3
    pandas.testing.assert_frame_equal(expected, curves, check_exact=True)
    for name, weight in eager.state_dict().items():
        assert torch.equal(torch.as_tensor(weight), torch.as_tensor(module.state_dict()[name])), name
    assert {type(group["lr"]) for group in module.trainer.optimizers[0].param_groups} == {float}


@pytest.mark.parametrize("asked", ["auto", True])
def test_a_step_that_cannot_be_captured_is_eager_unless_a_graph_is_asked_for(asked, trained, caplog, monkeypatch):
    def fail(function, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nfurther lines")

    class Asked(Capture):
        def on_fit_start(self, trainer, module):
            module.cuda_graph, module.captured = asked, captured.CapturedSteps(module, fail)

    if asked == "auto":
        module, _ = trained(Asked())
        assert module.captured is None and module.global_step == STEPS
        assert "no CUDA graph of this step is possible: operation not permitted when" in caplog.text
    else:
        with pytest.raises(UserError, match=r"^module.cuda_graph=true: .* capturing: set it to false$"):
            trained(Asked())


class ReadsGradients(pl.Callback):
    def on_before_optimizer_step(self, *_):
        pass


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"device": "cpu"}, "the device cpu"),
        ({"world_size": 2}, "several devices"),
        ({"precision": "16-mixed"}, "16-mixed"),
        ({"callbacks": [ReadsGradients()]}, "the callback ReadsGradients"),
        ({"chunk_size": 2}, "module.chunk_size"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing"),
        ({"compile": "reduce-overhead"}, "graphs of its own"),
        ({"objective": Undeclared()}, "Undeclared, which is not declared"),
        ({}, None),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_what_excludes_a_cuda_graph_is_said(make_model, changed, said, caplog):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls")
    strategy = SimpleNamespace(root_device=torch.device(changed.pop("device", "cuda")))
    of_trainer = {"world_size": 1, "precision": "bf16-mixed", "callbacks": [SeedEveryStep(0)]}
    of_trainer |= {name: changed.pop(name) for name in list(changed) if name in of_trainer}
    trainer = SimpleNamespace(strategy=strategy, **of_trainer)
    objective = changed.pop("objective", ContrastiveLoss())
    module = SimCSEModule(encoder, objective, adamw(), cuda_graph="auto", **changed)
    with caplog.at_level("INFO"):
        made = captured.captured_steps(module, trainer)
    assert (made is None) == (said is not None) and (said or "") in caplog.text
    module.cuda_graph = True
    if said:
        with pytest.raises(UserError, match=f"^module.cuda_graph=true: .*{said}"):
            captured.captured_steps(module, trainer)
    else:
        assert encoder.templates.multiple_of == 8
