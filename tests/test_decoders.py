"""Training decoders, with and without LoRA: resumed to the bit, on two ranks as on one device, and saved."""

import pytest
import torch
from omegaconf import OmegaConf

from simcse_pl.models.adapters import adapter_parameters
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES
from tests.runs import assert_resumed_to_the_bit, build, fit, gradients, gradients_on_two_ranks
from tests.test_config import composed
from tests.tiny_models import DECODERS

PROMPT_EOL = '\'This sentence : "{sentence}" means in one word:"\''
KINDS = [(architecture, adapter) for architecture in DECODERS for adapter in (None, "lora")]


@pytest.fixture(scope="session")
def triplets(tmp_path_factory):
    """Anchors, positives and hard negatives, and scored pairs to validate on."""
    folder = tmp_path_factory.mktemp("triplets")
    rows = zip(SENTENCES, SENTENCES[1:] + SENTENCES[:1], SENTENCES[::-1], strict=True)
    lines = [",".join(f'"{text}"' for text in row) for row in rows]
    (folder / "triplets.csv").write_text("\n".join(["sent0,sent1,hard_neg", *lines]))
    (folder / "pairs.tsv").write_text("".join(f"{one}\t{one[:20]}\t{k}\n" for k, one in enumerate(SENTENCES)))
    return folder


def config_of(architecture, adapter, folder, triplets, *further):
    """Return the config of a supervised run of 3 steps with PromptEOL's template."""
    model = [f"model.name={folder}", "model.pooling=last_token", f"model.template={PROMPT_EOL}"]
    options = ["model=checkpoint", *model, "trainer=cpu", "trainer.max_steps=3", "data.batch_size=4"]
    options += ["optimizer.lr=1e-2", "data=nli", f"data.train={triplets}/triplets.csv", "data.test=null"]
    options += [f"model/adapter={adapter}", "model.adapter.r=4"] if adapter else []
    config = composed(*options, f"data.validation={triplets}/pairs.tsv", *further)
    OmegaConf.resolve(config)
    return config


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("adapter", [None, "lora"])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(adapter, make_model, triplets, tmp_path):
    config = config_of("llama", adapter, make_model("llama"), triplets)
    start = {name: weight.clone() for name, weight in build(config)[0].encoder.backbone.named_parameters()}
    module, state = fit(config)
    backbone = module.encoder.backbone
    changed = {name for name, weight in backbone.named_parameters() if not weight.equal(start[name])}
    assert changed == adapter_parameters(backbone) if adapter else len(changed) > 0.8 * len(start)
    assert_resumed_to_the_bit(config, module, state, tmp_path)
    encoder = module.encoder.eval()
    encoder.save_pretrained(tmp_path / "encoder")
    loaded = SentenceEncoder.from_pretrained(tmp_path / "encoder")
    torch.testing.assert_close(loaded.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-6, rtol=0)


def test_two_ranks_have_the_gradients_of_one_device(make_model, triplets, tmp_path):
    without_dropout = {"lora": ["model.adapter.lora_dropout=0"]}
    configs = {
        kind: config_of(*kind, make_model(kind[0]), triplets, *without_dropout.get(kind[1], []), *zero(kind[0]))
        for kind in KINDS
    }
    ranks = gradients_on_two_ranks(configs, tmp_path, torch.float64)  # but norms are computed in float32
    for kind, own in configs.items():
        one_device = gradients(own, 0, 8, torch.float64)
        means = {name: (ranks[0][kind][name] + ranks[1][kind][name]) / 2 for name in one_device}
        torch.testing.assert_close(
            means, one_device, atol=1e-6, rtol=1e-4, msg=lambda text, kind=kind: f"{kind}: {text}"
        )


def zero(architecture):
    """Return the options that switch an architecture's dropout off."""
    return ["model.dropout=0"] if architecture in ("gpt2", "opt") else []
