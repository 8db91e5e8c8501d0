"""python -m simcse_pl export, as a user runs it: what train.py trained, in every tool; and what is refused."""

import json
import shutil
import sys

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from simcse_pl import SimCSE
from simcse_pl.__main__ import main
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.postprocess.components import RemoveComponents
from simcse_pl.postprocess.flow import Flow
from tests.conftest import SENTENCES, tiny

TEXTS = [*SENTENCES, "word " * 300, "", "🙂 שלום"]


@pytest.fixture
def saved(make_model, tmp_path):
    SentenceEncoder.from_pretrained(make_model("bert"), "mean", max_length=20).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def test_what_train_trains_is_the_same_in_every_tool(train, run_command, make_model, sentences, tmp_path):
    """The README's own way: train, export with whitening, ONNX and 8 bits; four tools read the folder."""
    onnxruntime, library = pytest.importorskip("onnxruntime"), pytest.importorskip("sentence_transformers")
    options = ["data=text", f"data.train={sentences}", *tiny(make_model("bert")), "model.head=mlp", "logger=csv"]
    _, run = train(*options)
    encoder, folder = run / "encoder", tmp_path / "exported"
    # Fitted on what is spread more widely than these vectors are: else small differences would become large ones.
    postprocess = RemoveComponents(2).fit(torch.randn(200, 32, generator=torch.Generator().manual_seed(0)))
    postprocess.save(tmp_path / "postprocess")
    given = [encoder, folder, "--normalize", "--postprocess", tmp_path / "postprocess", "--int8"]
    done = run_command("-m", "simcse_pl", "export", *given)
    assert done.stdout.strip() == str(folder) and not list(tmp_path.glob(".saving*"))
    vectors = postprocess.transform(SentenceEncoder.from_pretrained(encoder).encode(TEXTS))
    expected = torch.nn.functional.normalize(vectors, dim=-1)
    theirs = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, show_progress_bar=False)
    torch.testing.assert_close(torch.from_numpy(theirs), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(SimCSE(folder).encode(TEXTS), expected, atol=1e-6, rtol=0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    for file, tolerance in (("sentence_encoder.onnx", 1e-4), ("sentence_encoder_int8.onnx", None)):
        session = onnxruntime.InferenceSession(folder / "onnx" / file, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        if tolerance:
            torch.testing.assert_close(torch.from_numpy(found), expected, atol=tolerance, rtol=0)
        assert torch.cosine_similarity(torch.from_numpy(found), expected).min() > 0.98
    theirs, ours = AutoModel.from_pretrained(folder), SentenceEncoder.from_pretrained(encoder).backbone
    for name, weight in ours.state_dict().items():
        assert torch.equal(theirs.state_dict()[name], weight)
    card = (folder / "README.md").read_text()
    assert (
        "python train.py data=text data.train=sentences.txt" in card
        and "| Post-processing | remove_components |" in card
    )
    assert str(tmp_path) not in card and (folder / "figures" / "training_paths.png").is_file()


def test_the_command_says_what_is_wrong_in_one_line_and_leaves_nothing(
    saved, make_model, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("simcse_pl.export.hub.get_token", lambda: None)
    full, flow, wide = tmp_path / "full", tmp_path / "flow", tmp_path / "wide"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    some = torch.randn(100, 32, generator=torch.Generator().manual_seed(0))
    Flow(epochs=1).fit(some).save(flow)
    RemoveComponents(1).fit(torch.cat([some, some], dim=1)).save(wide)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.csv").write_text("step,val/alignment,val/uniformity\n0,1,1\n")
    new = tmp_path / "new"
    for arguments, message in (
        ([saved, full], f"{full} is there already: give a new folder, or remove it first"),
        ([saved, new, "--push-to-hub", "me/x"], "--push-to-hub: nobody is logged in to the hub"),
        ([saved, new, "--postprocess", flow], "flow is not linear, and sentence-transformers has no module for it"),
        ([saved, new, "--postprocess", wide], "remove_components was fitted on 64 dimensions, and was given 32"),
        ([saved, new, "--postprocess", saved], f"no file {saved}/postprocess.json"),
        ([saved, new, "--results", tmp_path / "run"], "is a training run, whose scores are known"),
        ([make_model("bert"), new], "does not say how it is pooled"),
        ([tmp_path / "nothing", new], "nothing"),
    ):
        monkeypatch.setattr(sys, "argv", ["simcse_pl", "export", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        (line,) = printed.err.splitlines()
        assert exit_.value.code == 2 and line.startswith("error: ") and message in line
        assert not new.exists() and printed.out == ""
    assert [path.name for path in full.iterdir()] == ["notes.txt"]


def test_what_was_exported_can_be_exported_again_but_not_processed_twice(saved, run_command, tmp_path):
    once, twice = tmp_path / "once", tmp_path / "twice"
    RemoveComponents(1).fit(SentenceEncoder.from_pretrained(saved).encode(TEXTS)).save(tmp_path / "postprocess")
    run_command("-m", "simcse_pl", "export", saved, once, "--postprocess", tmp_path / "postprocess")
    run_command("-m", "simcse_pl", "export", once, twice)
    assert torch.equal(SimCSE(once).encode(TEXTS), SimCSE(twice).encode(TEXTS))
    again = ["export", once, tmp_path / "third", "--postprocess", tmp_path / "postprocess"]
    assert "has one already (remove_components)" in run_command("-m", "simcse_pl", *again, status=2).stderr
    about = json.loads(run_command("-m", "simcse_pl", "info", once, "--json").stdout)
    assert about["postprocess"] == "remove_components"
    shutil.rmtree(once / "1_Pooling")
    assert torch.equal(SimCSE(once).encode(TEXTS), SimCSE(twice).encode(TEXTS))  # ours needs no module of theirs


def test_an_encoder_with_post_processing_is_not_trained_on(saved, train, run_command, sentences, tmp_path):
    RemoveComponents(1).fit(SentenceEncoder.from_pretrained(saved).encode(TEXTS)).save(tmp_path / "postprocess")
    run_command("-m", "simcse_pl", "export", saved, tmp_path / "once", "--postprocess", tmp_path / "postprocess")
    options = ["data=text", f"data.train={sentences}", f"model.name={tmp_path / 'once'}", "model.num_layers=null"]
    done, _ = train(*options, "model.pooling=null", "model.max_length=null", "data.max_length=20", status=2)
    assert "error: this encoder has a post-processing" in done.stderr
