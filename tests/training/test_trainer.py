"""The choice of device and precision."""

import pytest
import torch

from simcse_pl.training.trainer import has_bf16, make_trainer


@pytest.mark.parametrize(("avx512", "amx"), [(True, False), (False, True), (False, False)])
def test_a_cpu_has_bf16_with_avx512_or_amx(avx512, amx, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert has_bf16("cpu") is (avx512 or amx)
    assert make_trainer(accelerator="cpu", logger=False).precision == ("bf16-mixed" if avx512 or amx else "32-true")
    assert make_trainer("64-true", "cpu", logger=False).precision == "64-true"


@pytest.mark.parametrize(("available", "bf16"), [(True, True), (True, False), (False, True)])
def test_a_gpu_has_bf16_unless_it_is_emulated(available, bf16, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16 or including_emulation)
    assert has_bf16("cuda") is (available and bf16)
    assert not has_bf16("mps")


@pytest.mark.parametrize(
    ("accelerator", "cuda", "mps", "expected"),
    [
        ("auto", True, False, "cuda"),
        ("gpu", False, True, "mps"),
        ("auto", False, False, "cpu"),
        ("cpu", True, False, "cpu"),
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
