"""`simcse export`: the exported encoder in every tool, its model card, and error messages."""

import json
import re

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModel

from simcse_pl.evaluation.results import Result
from simcse_pl.evaluation.sts import load_sample
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import fingerprint
from simcse_pl.postprocessing.linear import RemoveComponents
from simcse_pl.tools.export import read_training, write_card
from simcse_pl.utils.files import write_json
from simcse_pl.utils.tensors import unit_vectors
from tests.conftest import SENTENCES
from tests.lab.invented import make_report

TEXTS = [*SENTENCES, "word " * 300, "", "🙂 שלום"]


@pytest.fixture
def saved(make_model, tmp_path):
    SentenceEncoder.from_pretrained(make_model("bert"), "mean", max_length=20).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def test_an_exported_folder_scores_as_evaluated(make_model, run_command, command, tmp_path, monkeypatch):
    monkeypatch.setattr("simcse_pl.tools.export.encoder_figures", lambda *_: {})  # slow to draw
    encoder, exported, fit_on = tmp_path / "encoder", tmp_path / "exported", tmp_path / "fit_on.txt"
    options = {"max_length": 20, "normalize": True}
    SentenceEncoder.from_pretrained(make_model("bert"), "first_last", **options).save_pretrained(encoder)
    fit_on.write_text("\n".join(load_sample("dev").sentences))
    given = [f"encoder={encoder}", "postprocess=whitening", f"fit_on={fit_on}", "tasks=[sts]"]
    run_command("evaluate.py", *given, f"hydra.run.dir={tmp_path}/measured")
    score = json.loads((tmp_path / "measured" / "results.json").read_text())["sts"][0]["all"]["spearman"]
    options = ["--postprocess", tmp_path / "measured" / "postprocess", "--results", tmp_path / "measured"]
    command("export", encoder, exported, *options)
    found = load_sample("test")(SentenceEncoder.from_pretrained(exported).encode).all.spearman
    assert found == pytest.approx(score, abs=1e-6)
    assert f" {100 * score:.2f} " in (exported / "README.md").read_text()


def test_results_of_another_encoder_raise_an_error(saved, command, tmp_path):
    own, other = SentenceEncoder.from_pretrained(saved), SentenceEncoder.from_pretrained(saved, "cls", max_length=20)
    for name, measured in {"right": own, "wrong": other}.items():
        write_json(tmp_path / name / "results.json", make_report(fingerprint=fingerprint(measured)))
    command("export", saved, tmp_path / "exported", "--results", tmp_path / "right")
    assert fingerprint(SentenceEncoder.from_pretrained(tmp_path / "exported")) == fingerprint(own)
    error = command("export", saved, tmp_path / "new", "--results", tmp_path / "wrong", status=2).err
    assert "not measured with the weights" in error


def test_fingerprints_depend_on_all_that_changes_the_vectors(saved):
    def load(**options):
        return SentenceEncoder.from_pretrained(saved, **options)

    postprocess = RemoveComponents(1).fit(load().encode(TEXTS))
    changed = load()
    with torch.no_grad():
        changed.backbone.encoder.layer[2].output.dense.bias[0] += 1e-3
    template = {"template": "The hall : {sentence} ."}
    different = [load(), changed, load(pooling="max"), load(max_length=19), load(normalize=True), load(num_layers=2)]
    different += [load(**template), load(**template, template_bias="always"), load(**template, final_period=True)]
    different.append(load(**template, template_as_text="always"))
    found = [fingerprint(encoder) for encoder in different] + [fingerprint(load(), postprocess)]
    assert len({*found}) == 11 and found[0] == fingerprint(load())
    assert fingerprint(load(**template, template_bias="train_only")) == found[6]
    different[0].postprocess = postprocess
    assert fingerprint(different[0]) == found[-1]
    assert fingerprint(load(), RemoveComponents(1)) is None


def test_an_export_can_be_exported_again_but_takes_no_second_post_processing(saved, command, tmp_path):
    once, twice = tmp_path / "once", tmp_path / "twice"
    RemoveComponents(1).fit(SentenceEncoder.from_pretrained(saved).encode(TEXTS)).save(tmp_path / "postprocess")
    assert command("export", saved, once, "--postprocess", tmp_path / "postprocess").out.strip() == str(once)
    assert f"{once} exists" in command("export", saved, once, status=2).err
    command("export", once, twice, "--normalize")
    vectors, normalized = (SentenceEncoder.from_pretrained(folder).encode(TEXTS) for folder in (once, twice))
    assert torch.equal(normalized, unit_vectors(vectors)) and not torch.equal(normalized, vectors)
    error = command("export", once, tmp_path / "third", "--postprocess", tmp_path / "postprocess", status=2).err
    assert "already has one (remove_components)" in error
    theirs, ours = AutoModel.from_pretrained(once), SentenceEncoder.from_pretrained(saved).backbone.state_dict()
    assert all(torch.equal(theirs.state_dict()[name], weight) for name, weight in ours.items())


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), "cls", head="mlp")


@pytest.fixture
def run(tmp_path):
    """The folder of a run, as train.py writes it."""
    folder = tmp_path / "run"
    (folder / "config").mkdir(parents=True)
    (folder / "encoder").mkdir()
    scores = {"spearman": 0.5, "alignment": 0.25, "uniformity": -1.5}
    overrides = ["data=text", "data.train=/home/me/secret/my_sentences.txt", "model=roberta"]
    config = {
        "seed": 3,
        "run_dir": "/home/me/outputs",
        "model": {"_target_": "x", "name": "FacebookAI/roberta-base", "dropout": 0.1, "head": "mlp"},
        "data": {
            "train": "hf://datasets/someone/sentences/all.txt",
            "columns": ["/data/a/b.txt", "a/b", "/home/my name/b.txt"],
        },
        "optimizer": {"lr": 1e-5},
    }
    results = {"best": scores, "test": scores, "before": scores, "validation": "STS-B", "steps": 10, "best_step": 9}
    (folder / "results.json").write_text(json.dumps(results | {"overrides": overrides, "choices": {}}))
    (folder / "config" / "resolved.yaml").write_text(yaml.safe_dump(config))
    (folder / "metrics.csv").write_text(
        "step,val/alignment,val/uniformity,val/spearman\n0,0.2,-1,0.4\n9,0.25,-1.5,0.5\n"
    )
    return folder


def test_the_card_of_an_unknown_encoder_has_usage_only(encoder, tmp_path):
    write_card(tmp_path, "mine", encoder)
    card = ModelCard.load(tmp_path / "README.md")
    assert "sentence-transformers" in card.data.tags and card.data.pipeline_tag == "sentence-similarity"
    assert "SimCSE](" not in card.text and "## Citation" not in card.text
    assert "## Scores" not in card.text and "## Training" not in card.text and "ONNX" not in card.text
    assert "| Pooling | cls |" in card.text and "Linear and Tanh" in card.text and 'SimCSE("mine")' in card.text
    for code in re.findall("```python\n(.*?)```", card.text, re.DOTALL):
        compile(code, "card", "exec")


def test_the_card_shows_the_run_and_its_results_without_paths_of_the_machine(encoder, run, tmp_path):
    stsb = {"task": "STS-B", "pairs": 1379, "all": {"spearman": 0.81}}
    paper = {"table": "table_5_sts", "row": "unsupervised/SimCSE-BERT-base"}
    result = Result.model_validate({"label": "my encoder", "sts": [stsb], "paper": paper})
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"")
    where = (tmp_path, "mine", encoder, read_training(str(run / "encoder")), [result])
    write_card(*where, repository="me/mine", license="mit", language="en")
    card = ModelCard.load(tmp_path / "README.md")
    assert (card.data.license, card.data.language, card.data.base_model) == ("mit", "en", "FacebookAI/roberta-base")
    assert "contrastive learning as in [SimCSE]" in card.text and "simcse" in card.data.tags
    assert card.data.datasets == ["someone/sentences"] and {"onnx", "transformers.js"} < {*card.data.tags}
    assert 'AutoModel.from_pretrained("me/mine", { dtype: "fp32" })' in card.text
    assert re.search(r"\| my encoder +\| +81.00", card.text)
    assert re.search(r"\| paper, Table 5: SimCSE-BERT-base \(unsupervised\) +\| +76.85", card.text)
    assert re.search(r"\| best, step 9 of 10 \| dev +\| +50.00 \| +0.250 \| +-1.500 \|", card.text)
    assert 'SentenceTransformer("me/mine")' in card.text
    assert "my name" not in card.text and "/home/me" not in card.text and "/data/a" not in card.text
    assert "simcse train data=text data.train=my_sentences.txt model=roberta" in card.text
    recipe = yaml.safe_load(re.search("```yaml\n(.*?)```", card.text, re.DOTALL)[1])
    assert recipe == {
        "model": {"name": "FacebookAI/roberta-base", "dropout": 0.1, "head": "mlp"},
        "data": {"train": "hf://datasets/someone/sentences/all.txt", "columns": ["b.txt", "a/b", "b.txt"]},
        "optimizer": {"lr": 1e-5},
        "seed": 3,
    }
    shown = re.findall(r"!\[.*?\]\((.*?)\)", card.text)
    assert shown and all((tmp_path / figure).stat().st_size > 5000 for figure in shown)


def test_a_checkpoint_belongs_to_a_run_and_other_encoders_to_none(run, tmp_path):
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "best.ckpt").write_bytes(b"")
    assert read_training(str(run / "checkpoints" / "best.ckpt")).results.steps == 10
    assert read_training("princeton-nlp/sup-simcse-bert-base-uncased") is None and read_training(str(tmp_path)) is None
