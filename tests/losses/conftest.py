"""A checkpoint with the head of a masked language model."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer


@pytest.fixture(scope="session")
def make_masked_language_model(make_model, tmp_path_factory):
    """Make the folder of a masked language model in which no two weights are equal."""
    made = {}

    def make(architecture, **settings):
        key = f"{architecture}-{sorted(settings.items())}"
        if key not in made:
            source, folder = make_model(architecture, **settings), tmp_path_factory.mktemp(f"{architecture}-mlm")
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(0)
                model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(source))
                for weight in model.parameters():
                    weight.add_(torch.randn_like(weight) * 0.1)
            model.save_pretrained(folder)
            AutoTokenizer.from_pretrained(source).save_pretrained(folder)
            made[key] = folder
        return made[key]

    return make
