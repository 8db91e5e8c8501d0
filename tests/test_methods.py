"""Every method of conf/method: its config, training, resuming and saving."""

import re
import sys
from types import SimpleNamespace

import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from benchmarks.methods import with_local_networks
from simcse_pl.config import CONF
from simcse_pl.lab.published import methods_file
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import ROOT, SENTENCES
from tests.support.helpers import composed, library_vectors
from tests.support.runs import assert_resumed_to_the_bit, build, fit

METHODS = sorted(file.stem for file in (CONF / "method").glob("*.yaml"))
TINY = {  # what a method needs for a model of 3 layers and 32 dimensions
    "declutr": ["objective.mlm.head=new", "data.max_length=32"],
    "denosent": ["auxiliary.noisy_reconstruction.layers=2", "auxiliary.noisy_reconstruction.head=new"],
    "diffcse": ["auxiliary.replaced_token_detection.generator=null"],
    "infocse": ["auxiliary.sentence_mlm.frozen_layers=2", "auxiliary.sentence_mlm.head=new"],
    "tsdae": ["objective.head=new"],
    "whitenedcse": ["objective.groups=16"],
}
WITH_STATE = (  # beyond the encoder's
    *("contrastive_tension", "declutr", "denosent", "diffcse", "esimcse", "infocse", "pcl", "promptbert", "rankcse"),
    *("tsdae", "whitenedcse"),
)
STEPS = 4


@pytest.mark.parametrize("name", METHODS)
def test_the_config_and_the_page_have_the_command(name):
    """tests/test_documentation.py composes it."""
    text = (CONF / "method" / f"{name}.yaml").read_text()
    assert re.match(rf"# @package _global_\n# simcse train method={name} model=\w+\n", text)
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    assert f"    simcse train method={name} model=" in page and len(page.split()) < 400, name


@pytest.fixture(scope="session")
def tiny_bert(make_model, tmp_path_factory):
    """A saved encoder with room for a template."""
    folder = tmp_path_factory.mktemp("tiny_bert")
    model = make_model("bert", max_position_embeddings=256)
    SentenceEncoder.from_pretrained(model, pooling="cls").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Sentences to train on, and scored pairs to validate on."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "sentences.txt").write_text("\n".join(SENTENCES))
    (folder / "pairs.tsv").write_text("".join(f"{one}\t{one[:20]}\t{k}\n" for k, one in enumerate(SENTENCES)))
    return folder


def config_of(name, tiny_bert, files, *further):
    """Return the config of a method, with a tiny model and a few rows."""
    options = [*further, f"method={name}", "model=bert", "size=mini", f"model.name={tiny_bert}", *TINY.get(name, [])]
    options += [f"trainer.max_steps={STEPS}", "trainer=cpu", "data.batch_size=3", "data.limit=8"]
    config = composed(*options, f"data.validation={files}/pairs.tsv", "data.test=null")
    if HydraConfig.get().runtime.choices.data in ("wiki", "wiki_sample"):
        config.data.train = str(files / "sentences.txt")
    for part in ("objective", "objectives", "auxiliary", "views", "queue", "module"):
        if config.get(part):
            with_local_networks(config[part], tiny_bert)
    OmegaConf.resolve(config)
    return config


@pytest.fixture(scope="module", params=METHODS)
def trained(request, tiny_bert, files):
    """A trained module of each method, and how it was trained."""
    config = config_of(request.param, tiny_bert, files)
    assert (HydraConfig.get().runtime.choices.setting or "supervised") in methods_file()["baselines"]
    start = build(config)[0].encoder.backbone.state_dict()
    module, state = fit(config)
    after = module.encoder.backbone.state_dict()
    assert not all(after[name].equal(weight) for name, weight in start.items())
    for name, weight in module.named_parameters():  # DDP waits for all of them
        assert not weight.requires_grad or (weight.grad is not None and weight.grad.isfinite().all()), name
    return SimpleNamespace(config=config, module=module, state=state)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trained", WITH_STATE, indirect=True)
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one_to_the_bit(trained, tmp_path):
    assert_resumed_to_the_bit(trained.config, trained.module, trained.state, tmp_path)


def test_the_saved_encoder_has_the_same_vectors_here_and_in_sentence_transformers(trained, tmp_path, caplog):
    encoder = trained.module.encoder.eval()
    with caplog.at_level("WARNING"):
        encoder.save_pretrained(tmp_path / "encoder")
    vectors = encoder.encode(SENTENCES)
    loaded = SentenceEncoder.from_pretrained(tmp_path / "encoder")
    torch.testing.assert_close(loaded.encode(SENTENCES), vectors, atol=1e-6, rtol=0)
    if caplog.messages:
        (message,) = caplog.messages
        assert message.endswith("only simcse_pl loads it") and "\n" not in message
        with pytest.raises(ValueError, match="only_SimCSE_loads_this_encoder"):
            library_vectors(tmp_path / "encoder", SENTENCES)
        return
    torch.testing.assert_close(library_vectors(tmp_path / "encoder", SENTENCES), vectors, atol=1e-5, rtol=0)


def test_a_loss_and_a_method_of_ones_own_in_the_documentation_train(tiny_bert, files, tmp_path, monkeypatch):
    text = (ROOT / "docs" / "extend.md").read_text()
    (module,) = re.findall(r"```python\n([^`]*\(Loss\):[^`]*)```", text)
    (method,) = re.findall(r"`my_conf/method/mine.yaml`:\n\n```yaml\n([^`]*)```", text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    (tmp_path / "my_package.py").write_text(module)
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text(method)
    trained, _ = fit(config_of("mine", tiny_bert, files, f"hydra.searchpath=[file://{tmp_path}]"))
    assert {*trained.auxiliary} == {"dimension_contrast", "mine"}
