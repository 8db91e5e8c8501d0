"""The flow computes, and learns, what the official code of BERT-flow did from the same weights, in float64."""

import math

import pytest
import torch
import yaml
from safetensors.torch import load_file

from benchmarks.fidelity.compare import FOLDER
from simcse_pl.postprocessing.flow import Flow, Glow

FACTS = yaml.safe_load((FOLDER / "flow.yaml").read_text(encoding="utf-8"))
RECORD = load_file(FOLDER / "flow.safetensors")
PAIRS = RECORD["pairs"]
EMBEDDINGS = PAIRS.flatten(0, 1)
close = torch.testing.assert_close


@pytest.fixture
def glow():
    glow = Glow(PAIRS.shape[-1], FACTS["hidden"]).double()
    for weight, values in weights_of(glow, RECORD["weights"].double()):
        weight.data.copy_(values)
    return glow


def weights_of(glow, vector):
    """Yield each weight, and its part of an official vector, where matrices are [inputs, outputs]."""
    weights = list(glow.parameters())
    parts = vector.split([weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        yield weight, part.view(weight.shape[::-1]).T if weight.ndim == 2 else part


def test_the_gaussian_the_likelihood_and_its_gradient(glow):
    z, likelihood = glow(EMBEDDINGS)
    close(z, RECORD["z"].view(z.shape), rtol=0, atol=1e-10)
    close(-likelihood / (z.shape[1] * math.log(2)), RECORD["losses"], rtol=0, atol=1e-10)
    glow.loss(EMBEDDINGS).backward()
    for weight, official in weights_of(glow, RECORD["gradient"]):
        close(weight.grad, official, rtol=1e-9, atol=1e-9)


def test_the_weights_after_steps_of_its_optimizer(glow):
    flow = Flow(epochs=FACTS["steps"], batch_size=len(EMBEDDINGS), lr=FACTS["lr"])
    flow.maximize_likelihood(glow, EMBEDDINGS)
    for weight, official in weights_of(glow, RECORD["trained"]):
        close(weight.detach(), official, rtol=1e-9, atol=1e-9)


def test_the_data_dependent_initialization(glow):
    for step in glow.steps:
        for weight in step.shift[6:].parameters():  # as before a fit
            weight.data.zero_()
    glow.standardize(PAIRS[0])
    for weight, official in weights_of(glow, RECORD["standardized"]):
        close(weight.detach(), official, rtol=1e-9, atol=1e-9)
