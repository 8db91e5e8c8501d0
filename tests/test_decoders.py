"""Training decoders, with and without LoRA: resumed to the bit, and saved."""

import pytest
import torch
from omegaconf import OmegaConf

from simcse_pl.models.adapters import adapter_parameters
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES
from tests.helpers import composed
from tests.runs import assert_resumed_to_the_bit, build, fit

PROMPT_EOL = '\'This sentence : "{sentence}" means in one word:"\''


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("adapter", [None, "lora"])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(adapter, make_model, tmp_path):
    rows = zip(SENTENCES, SENTENCES[1:] + SENTENCES[:1], SENTENCES[::-1], strict=True)
    lines = [",".join(f'"{text}"' for text in row) for row in rows]
    (tmp_path / "triplets.csv").write_text("\n".join(["sent0,sent1,hard_neg", *lines]))
    (tmp_path / "pairs.tsv").write_text("".join(f"{one}\t{one[:20]}\t{k}\n" for k, one in enumerate(SENTENCES)))
    model = [f"model.name={make_model('llama')}", "model.pooling=last_token", f"model.template={PROMPT_EOL}"]
    options = ["model=checkpoint", *model, "trainer=cpu", "trainer.max_steps=3", "data.batch_size=4"]
    options += ["optimizer.lr=1e-2", "data=nli", f"data.train={tmp_path}/triplets.csv", "data.test=null"]
    options += [f"model/adapter={adapter}", "model.adapter.r=4"] if adapter else []
    config = composed(*options, f"data.validation={tmp_path}/pairs.tsv")
    OmegaConf.resolve(config)
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
