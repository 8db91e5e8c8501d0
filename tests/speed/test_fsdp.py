"""FSDP on two CPU ranks against one process: weights, resuming, and the saved encoder."""

import json
import math
from contextlib import nullcontext, suppress
from functools import partial

import peft
import pytest
import torch
from pytorch_lightning.strategies import DDPStrategy

from simcse_pl.callbacks import SeedEveryStep
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.methods.momentum_queue import MomentumQueue
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.run_metadata import RunMetadata
from simcse_pl.speed.fsdp import FullyShardedStrategy
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, linear, quiet_trainer, tiny
from tests.support.runs import StopAfter, StoppedError

WITHOUT_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
CASES = {  # the architecture, and options of the encoder and of the module
    "head": ("bert", WITHOUT_DROPOUT | {"pooling": "cls", "head": "mlp"}, {}),
    "chunks": ("llama", {"pooling": "last_token"}, {"chunk_size": 2, "gradient_checkpointing": True}),
    "lora": ("qwen3", {"pooling": "mean", "adapter": ["q_proj", "v_proj"]}, {}),
    # each rank draws its own tokens and dropout masks, so it is compared with DDP
    "tied": ("bert", {"pooling": "mean"}, {"mlm": True}),
}
RANKS = 2
SGD, ADAMW = partial(torch.optim.SGD, lr=0.01, momentum=0.9), adamw(1e-3)


def make_parts(case, model, pairs, strategy, ranks=RANKS, optimizer=SGD, callbacks=(), **further):
    """Return a trainer of 3 steps, a module and batches of 7 pairs."""
    torch.manual_seed(0)
    _, options, of_module = CASES[case]
    how = {"strategy": strategy, "devices": ranks, "max_steps": 3, "limit_val_batches": 0, "gradient_clip_val": 0.5}
    callbacks = [SeedEveryStep(1), RunMetadata(), *callbacks]
    trainer = quiet_trainer(callbacks=callbacks, default_root_dir=pairs.parent, use_distributed_sampler=False, **how)
    if "adapter" in options:
        options = options | {"adapter": peft.LoraConfig(r=2, target_modules=options["adapter"])}
    with getattr(trainer.strategy, "loading_weights", nullcontext)():
        encoder = SentenceEncoder.from_pretrained(model, **options)
    files = {"evaluators": {"sts": ScoredPairs}, "validation": str(pairs), "columns": [0, 1]}
    data = SentenceDataModule(encoder.tokenizer, str(pairs), batch_size=7, max_length=16, **files)
    if "mlm" in of_module:
        of_module = {"auxiliary": {"mlm": MaskedLanguageModeling(0.5, head="new")}}
    return trainer, SimCSEModule(encoder, ContrastiveLoss(), optimizer, linear(), **of_module, **further), data


def curves_of(trainer):
    return {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("train/")}


def check_resumed(model, pairs):
    """Stop after two steps, resume, and compare the whole weights and the optimizer's state with those of one run."""
    last, states = pairs.parent / "last.ckpt", []
    for callbacks in ([], [StopAfter(2, last)]):
        parts = partial(make_parts, "tied", model, pairs, optimizer=ADAMW)
        trainer, module, data = parts(FullyShardedStrategy(), callbacks=callbacks)
        with suppress(StoppedError):
            trainer.fit(module, data)
        if callbacks:
            trainer, module, data = parts(FullyShardedStrategy())
            trainer.fit(module, data, ckpt_path=last, weights_only=True)
        strategy = trainer.strategy
        states.append([strategy.lightning_module_state_dict(), strategy.optimizer_state(trainer.optimizers[0])])
    torch.testing.assert_close(*states, atol=0, rtol=0)


def _one_rank(number, results, folder, models, pairs):
    for case in CASES:
        trainer, module, data = make_parts(case, models[case], pairs, FullyShardedStrategy())
        trainer.fit(module, data)
        results[case, number] = sum(p.to_local().numel() for p in module.parameters()), curves_of(trainer)
        trainer.strategy.gather()
        if number == 0:
            torch.save(module.state_dict(), folder / f"{case}.pt")
            module.encoder.save_pretrained(folder / case)
        if case == "tied":
            trainer, of_ddp, data = make_parts(case, models[case], pairs, DDPStrategy())
            trainer.fit(of_ddp, data)
            if number == 0:
                torch.testing.assert_close(module.state_dict(), of_ddp.state_dict(), atol=1e-6, rtol=1e-5)
    check_resumed(models["tied"], pairs)
    parts = partial(make_parts, "head", models["head"], pairs)
    trainer, module, data = parts(FullyShardedStrategy(), queue=MomentumQueue(5))
    with pytest.raises(UserError, match=r"^queue: its copy of the encoder needs whole weights: set queue=null"):
        trainer.fit(module, data)
    # layers return bfloat16, which the head in float32 gets
    _, module, data = parts(FullyShardedStrategy())
    half = {"precision": "bf16-mixed", "inference_mode": False, "use_distributed_sampler": False}
    (validated,) = quiet_trainer(strategy=FullyShardedStrategy(), devices=RANKS, **half).validate(module, data)
    assert math.isfinite(validated["val/spearman"])


def test_ranks_equal_one_process_and_each_holds_a_part(on_ranks, make_model, tmp_path, pairs):
    models = {case: make_model(architecture) for case, (architecture, *_) in CASES.items()}
    results = on_ranks(_one_rank, RANKS, tmp_path, models, pairs)
    for case, model in models.items():
        trainer, module, data = make_parts(case, model, pairs, "auto", 1)
        trainer.fit(module, data)
        total = sum(p.numel() for p in module.parameters())
        assert sum(results[case, number][0] for number in range(RANKS)) == total
        assert max(results[case, number][0] for number in range(RANKS)) < 1.1 * total / RANKS
        if case == "tied":
            continue
        expected = module.state_dict()
        torch.testing.assert_close(torch.load(tmp_path / f"{case}.pt"), expected, atol=1e-6, rtol=1e-5)
        for number in range(RANKS):
            assert results[case, number][1] == pytest.approx(curves_of(trainer), rel=1e-5, abs=1e-5)
        saved = SentenceEncoder.from_pretrained(tmp_path / case).encode(SENTENCES)
        torch.testing.assert_close(saved, module.encoder.encode(SENTENCES), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_run_tests_and_saves_the_best_checkpoint_and_continues(run_command, make_model, sentences, pairs, tmp_path):
    given = ["data=text", f"data.train={sentences}", f"data.validation={pairs}", f"data.test={pairs}"]
    given += [*tiny(make_model("bert")), "model.dropout=0", "model.attention_dropout=0", "encoders=two", "logger=csv"]
    given += ["data.batch_size=3", "val_every=1", "trainer.max_epochs=2", "trainer.precision=32-true"]
    sharded = ["trainer=fsdp", "trainer.accelerator=cpu", "trainer.devices=2"]
    for name, options in (("sharded", sharded), ("one", ["trainer=cpu"])):
        run_command("train.py", *given, *options, f"hydra.run.dir={tmp_path}/{name}")
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("sharded", "one")]
    assert results[0]["best_step"] == results[1]["best_step"]
    for metrics in ("before", "best", "test"):
        assert results[0][metrics] == pytest.approx(results[1][metrics], rel=1e-4), metrics
    encoders = (SentenceEncoder.from_pretrained(tmp_path / name / "encoder") for name in ("sharded", "one"))
    torch.testing.assert_close(*(own.encode(SENTENCES) for own in encoders), atol=1e-4, rtol=1e-4)
