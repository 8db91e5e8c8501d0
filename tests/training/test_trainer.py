"""The choice of device and precision."""

import pytest
import torch

from simcse_pl.training.trainer import has_bf16, make_trainer


def cpu_with(monkeypatch, bf16, amx=False):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)


def gpu_with(monkeypatch, bf16):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16 or including_emulation)


@pytest.mark.parametrize(("bf16", "amx"), [(True, False), (False, True), (False, False)])
def test_a_cpu_has_bf16_with_avx512_or_amx(bf16, amx, monkeypatch):
    cpu_with(monkeypatch, bf16, amx)
    assert has_bf16("cpu") is (bf16 or amx)
    assert make_trainer(accelerator="cpu", logger=False).precision == ("bf16-mixed" if bf16 or amx else "32-true")


@pytest.mark.parametrize("bf16", [True, False])
def test_a_gpu_has_bf16_unless_it_is_emulated(bf16, monkeypatch):
    gpu_with(monkeypatch, bf16)
    assert has_bf16("cuda") is bf16
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not has_bf16("cuda") and not has_bf16("mps")


@pytest.mark.parametrize(
    ("accelerator", "cuda", "mps", "expected"),
    [
        ("auto", True, False, "cuda"),
        ("gpu", True, False, "cuda"),
        ("auto", False, True, "mps"),
        ("auto", False, False, "cpu"),
        ("cpu", True, False, "cpu"),
        ("cuda", True, False, "cuda"),
    ],
)
def test_auto_precision_is_chosen_for_lightnings_device(accelerator, cuda, mps, expected, monkeypatch):
    asked = []
    monkeypatch.setattr("simcse_pl.training.trainer.has_bf16", lambda device: asked.append(device) or False)
    monkeypatch.setattr("simcse_pl.training.trainer.Trainer", lambda **options: options)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert make_trainer(accelerator=accelerator) == {"precision": "32-true", "accelerator": accelerator}
    assert asked == [expected]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "64-true"])
def test_a_given_precision_is_used(precision, monkeypatch):
    cpu_with(monkeypatch, True)
    assert make_trainer(precision, "cpu", logger=False).precision == precision
