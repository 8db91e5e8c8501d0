"""What several test modules use: configs, and what a run leaves."""

import json
import os
import zlib
from contextlib import contextmanager, suppress

import pandas
import pytest
import torch
from omegaconf import open_dict

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.module import SimCSEModule
from tests.conftest import adamw, compose_config, quiet_trainer


def random_vectors(texts, dim=6, prompt_name=None):
    """Return vectors [n, dim] that depend on each text alone, with any prompt."""
    seeds = [zlib.crc32(str(text).encode()) for text in texts]
    return torch.stack([torch.randn(dim, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def composed(*overrides, config="train"):
    """Return the config of a command without that of Hydra."""
    whole = compose_config(config, *overrides, *(["run_name=test"] if config == "train" else []))
    with open_dict(whole):
        del whole["hydra"]
    return whole


def everything_of(folder):
    """Return all that a run leaves, except times and paths."""
    speed = ["speed/sentences_per_second", "speed/waiting_for_data"]
    curves = pandas.read_csv(folder / "metrics.csv").drop(columns=speed)
    results = json.loads((folder / "results.json").read_text()) | {"overrides": None}
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    state = {"weights": checkpoint["state_dict"], "optimizer": checkpoint["optimizer_states"][0]["state"]}
    return curves, results, state, (folder / "encoder" / "model.safetensors").read_bytes()


def assert_same_run(folder, whole):
    """Check that a run left the same as another one, to the bit."""
    curves, results, state, encoder = everything_of(folder)
    pandas.testing.assert_frame_equal(curves, whole[0], check_exact=True)
    torch.testing.assert_close(state, whole[2], atol=0, rtol=0)
    assert results == whole[1] and encoder == whole[3]


def change_json(path, **values):
    """Replace some values of a file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def library_vectors(folder, texts, **options):
    """Return the vectors of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(texts, convert_to_tensor=True, **options)


def flip_bit(path):
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@contextmanager
def killed_while_moving(folder, moves=1):
    """End the block in `atomic_write` of a folder, after `moves` files are in it; 0: before the first."""

    def replace(old, new, replace=os.replace):
        if new.parent == folder:
            if len(moved) == moves:
                raise KeyboardInterrupt
            moved.append(new)
        replace(old, new)

    moved = []
    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(os, "replace", replace)
        yield


def save_checkpoint(encoder, path):
    """Save a checkpoint as Lightning's trainer writes it, and return the encoder in evaluation mode."""
    trainer = quiet_trainer()
    trainer.strategy.connect(SimCSEModule(encoder, ContrastiveLoss(), adamw()))
    trainer.save_checkpoint(path)
    return encoder.eval()
