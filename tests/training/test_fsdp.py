"""FSDP on two and three CPU ranks against one process: weights, resuming, and the saved encoder."""

import os
import socket

import peft
import pytest
import torch
import torch.multiprocessing as mp
from torch.distributed.tensor import DTensor

from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.callbacks import SeedEveryStep
from simcse_pl.training.fsdp import FullyShardedStrategy, gather, weights_of_first_rank
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.trainer import make_trainer
from tests.forks import start_ranks
from tests.runs import StoppedError

WITHOUT_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
CASES = {  # the architecture, and options of the encoder and of the module
    "bert": ("bert", WITHOUT_DROPOUT | {"pooling": "cls", "head": "mlp"}, {}),
    "chunks": ("llama", {"pooling": "last_token"}, {"chunk_size": 2, "gradient_checkpointing": True}),
    "lora": ("qwen3", {"pooling": "mean", "adapter": ["q_proj", "v_proj"]}, {}),
    "mlm": ("bert", WITHOUT_DROPOUT | {"pooling": "mean"}, {"mlm": 0.5}),
}


def _train(case, model, pairs, strategy, ranks, steps=3, optimizer=None, callbacks=(), checkpoint=None):
    """Return the module after some steps of 7 pairs, and its trainer."""
    torch.manual_seed(0)
    _, options, of_module = CASES[case]
    trainer = make_trainer(
        **{"precision": "32-true", "accelerator": "cpu", "strategy": strategy, "devices": ranks, "max_steps": steps},
        **{"callbacks": [SeedEveryStep(1), *callbacks], "default_root_dir": pairs.parent, "limit_val_batches": 0},
        **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False),
        use_distributed_sampler=False,
        gradient_clip_val=0.5,
    )
    adapter = {"adapter": peft.LoraConfig(r=2, target_modules=options["adapter"])} if "adapter" in options else {}
    with weights_of_first_rank(trainer):
        encoder = SentenceEncoder.from_pretrained(model, **options | adapter)
    files = {"evaluators": {"sts": ScoredPairs}, "validation": str(pairs), "columns": [0, 1]}
    data = SentenceDataModule(encoder.tokenizer, str(pairs), batch_size=7, max_length=16, **files)
    of_module = dict(of_module)
    auxiliary = {"mlm": MaskedLanguageModeling(of_module.pop("mlm"), head="new")} if "mlm" in of_module else {}
    optimizer = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    module = SimCSEModule(encoder, ContrastiveLoss(), optimizer, auxiliary=auxiliary, **of_module)
    try:
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    except StoppedError:
        pass
    return module, trainer


def _one_rank(number, ranks, port, folder, models, pairs, results):
    variables = {"LOCAL_RANK": number, "WORLD_SIZE": ranks, "NODE_RANK": 0, "MASTER_ADDR": "127.0.0.1"}
    os.environ.update({name: str(value) for name, value in (variables | {"MASTER_PORT": port}).items()})
    torch.set_num_threads(1)
    for case, model in models.items():
        module, trainer = _train(case, model, pairs, FullyShardedStrategy(), ranks)
        held = sum(p.to_local().numel() for p in module.parameters() if isinstance(p, DTensor))
        losses = float(trainer.callback_metrics["train/loss"]), float(trainer.callback_metrics["train/grad_norm"])
        gather(module)
        if number == 0:
            module.encoder.save_pretrained(folder / case)
            torch.save(module.state_dict(), folder / f"{case}.pt")
        results[case, number] = losses, held


@pytest.mark.parametrize("ranks", [2, 3])
def test_weights_equal_those_of_one_process(ranks, make_model, tmp_path, pairs):
    models = {case: make_model(architecture) for case, (architecture, *_) in CASES.items()}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with mp.Manager() as manager:
        results = manager.dict()
        start_ranks(_one_rank, (ranks, port, tmp_path, models, pairs, results), ranks)
        results = dict(results)
    for case, model in models.items():
        module, trainer = _train(case, model, pairs, "auto", 1)
        expected = module.state_dict()
        torch.testing.assert_close(torch.load(tmp_path / f"{case}.pt"), expected, atol=1e-6, rtol=1e-5)
        losses = [float(trainer.callback_metrics[f"train/{name}"]) for name in ("loss", "grad_norm")]
        assert results[case, 0][0] == results[case, 1][0] == pytest.approx(losses, rel=1e-5)
        assert sum(results[case, number][1] for number in range(ranks)) == sum(p.numel() for p in module.parameters())
        assert results[case, 0][1] < 0.6 * sum(p.numel() for p in module.parameters())
        saved, ours = SentenceEncoder.from_pretrained(tmp_path / case), module.encoder.eval()
        torch.testing.assert_close(saved.encode(["A man."]), ours.encode(["A man."]), atol=1e-5, rtol=1e-5)
