"""The methods written as LightningModules train, and compute what the framework computes for their configs."""

import runpy

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from examples.lightning.diffcse import DiffCSE
from examples.lightning.esimcse import ESimCSE
from examples.lightning.promptbert import PromptBERT
from examples.lightning.simcse import SimCSE
from examples.lightning.supervised_simcse import SupervisedSimCSE
from simcse_pl.data.collator import ViewCollator
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.train_job import build_module
from tests.conftest import ROOT, SENTENCES
from tests.support.helpers import composed

METHODS = {
    "simcse": SimCSE,
    "sup_simcse": SupervisedSimCSE,
    "promptbert": PromptBERT,
    "diffcse": DiffCSE,
    "esimcse": ESimCSE,
}
BATCHES = SENTENCES[:5], SENTENCES[5:]


def framework_of(name, model, example):
    """Return the module of a method's config, with the weights of an example."""
    without_generator = ["auxiliary.replaced_token_detection.generator=null"] if name == "diffcse" else []
    config = composed(f"method={name}", "model=bert", "size=mini", f"model.name={model}", *without_generator)
    OmegaConf.resolve(config)
    module = build_module(config, instantiate(config.model))
    module.encoder.load_state_dict(example.encoder.state_dict())
    if "replaced_token_detection" in module.auxiliary:
        module.auxiliary["replaced_token_detection"].load_state_dict(example.detection.state_dict())
    return module


def views_of(example, sentences):
    """Return the views of a batch, tensors [batch, views, tokens]."""
    if isinstance(example, ESimCSE):
        return example.collate(sentences)
    rows = [(text, text[:20], text[-9:]) if isinstance(example, SupervisedSimCSE) else (text,) for text in sentences]
    return ViewCollator(example.encoder.tokenizer, 16, example.encoder.templates)(rows)


def trained(module, loss_of, sentences_of):
    """Return the loss and the gradients of each batch; the weights change after each of them."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for number, views in enumerate(sentences_of):
        torch.manual_seed(number)  # of dropout, and of the tokens that DiffCSE replaces
        optimizer.zero_grad()
        loss = loss_of(views)
        loss.backward()
        yield loss.detach(), [p.grad for p in module.encoder.parameters() if p.grad is not None]
        optimizer.step()


@pytest.mark.filterwarnings("ignore:You are trying to `self.log\\(\\)`")
@pytest.mark.parametrize("name", METHODS)
def test_a_module_of_building_blocks_has_the_loss_and_the_gradients_of_the_framework(name, make_model, tmp_path):
    SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls").save_pretrained(tmp_path)
    example = METHODS[name](str(tmp_path))
    framework = framework_of(name, tmp_path, example)
    assert framework.encoder.training and example.encoder.training

    def framework_loss(views):
        queue = framework.queue and framework.queue.negatives()
        rows = framework.batch_of(views, queue=queue)
        loss = framework.loss(rows)
        if framework.queue:
            framework.queue.update(framework.encoder, rows.inputs)
        return loss

    batches = [views_of(example, list(sentences)) for sentences in BATCHES]
    ours = trained(example, lambda views: example.training_step(views, 0), batches)
    theirs = trained(framework, framework_loss, batches)
    for (loss, gradients), (expected, expected_gradients) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(loss, expected, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(gradients, expected_gradients, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_classes_train_without_configs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = runpy.run_path(str(ROOT / "examples" / "python_api.py"), run_name="__main__")
    assert done["trainer"].callback_metrics["val/spearman"] > 0.5
    saved = SentenceEncoder.from_pretrained(tmp_path / "outputs" / "python_api")
    torch.testing.assert_close(saved.encode(SENTENCES), done["encoder"].encode(SENTENCES), atol=1e-5, rtol=0)
