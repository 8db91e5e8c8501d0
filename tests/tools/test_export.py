"""`simcse export`: the exported encoder in every tool, and error messages."""

import json

import pytest
import torch
from transformers import AutoModel

from simcse_pl.evaluation.sts import load_sample
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import fingerprint
from simcse_pl.postprocessing.linear import RemoveComponents
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


def test_an_empty_repository_is_an_error_before_anything_is_written(saved, command, tmp_path):
    assert "--push-to-hub is empty" in command("export", saved, tmp_path / "new", "--push-to-hub", "", status=2).err
    assert not (tmp_path / "new").exists()


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
