"""simcse export, as a user runs it: what train.py trained, in every tool; and what is refused."""

import shutil
import sys

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from simcse_pl import SimCSE
from simcse_pl.__main__ import main
from simcse_pl.cli.info import describe
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.errors import UserError
from simcse_pl.module import SimCSEModule
from simcse_pl.objective import ContrastiveObjective
from simcse_pl.optimizer import LinearAdamW
from simcse_pl.postprocess.components import RemoveComponents
from simcse_pl.postprocess.flow import Flow
from tests.conftest import SENTENCES, tiny

TEXTS = [*SENTENCES, "word " * 300, "", "🙂 שלום"]


@pytest.fixture
def saved(make_model, tmp_path):
    SentenceEncoder.from_pretrained(make_model("bert"), "mean", max_length=20).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def export(monkeypatch, capsys):
    """Run the command in this process: what it printed, and its errors where it ends with a status."""

    def run(*arguments, status=None):
        monkeypatch.setattr(sys, "argv", ["simcse_pl", "export", *map(str, arguments)])
        if status is None:
            main()
        else:
            with pytest.raises(SystemExit) as exit_:
                main()
            assert exit_.value.code == status
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


@pytest.mark.slow
def test_what_train_trains_is_the_same_in_every_tool(train, run_command, make_model, sentences, tmp_path):
    """The README's own way: train, export with whitening, ONNX and 8 bits; four tools read the folder."""
    import onnxruntime
    import sentence_transformers as library

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
    saved, make_model, export, tmp_path, monkeypatch
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
        printed, error = export(*arguments, status=2)
        (line,) = error.splitlines()
        assert line.startswith("error: ") and message in line
        assert not new.exists() and printed == ""
    assert [path.name for path in full.iterdir()] == ["notes.txt"]


def test_what_was_exported_can_be_exported_again_but_not_processed_twice(saved, export, tmp_path):
    once, twice = tmp_path / "once", tmp_path / "twice"
    RemoveComponents(1).fit(SentenceEncoder.from_pretrained(saved).encode(TEXTS)).save(tmp_path / "postprocess")
    assert export(saved, once, "--postprocess", tmp_path / "postprocess")[0].strip() == str(once)
    export(once, twice)
    assert torch.equal(SimCSE(once).encode(TEXTS), SimCSE(twice).encode(TEXTS))
    error = export(once, tmp_path / "third", "--postprocess", tmp_path / "postprocess", status=2)[1]
    assert "has one already (remove_components)" in error
    assert describe(SimCSE(once).encoder)["postprocess"] == "remove_components"
    shutil.rmtree(once / "1_Pooling")
    assert torch.equal(SimCSE(once).encode(TEXTS), SimCSE(twice).encode(TEXTS))  # ours needs no module of theirs


def test_an_encoder_with_post_processing_is_not_trained_on(saved):
    encoder = SentenceEncoder.from_pretrained(saved)
    encoder.postprocess = RemoveComponents(1).fit(encoder.encode(TEXTS))
    with pytest.raises(UserError, match="this encoder has a post-processing"):
        SimCSEModule(encoder, ContrastiveObjective(), LinearAdamW(lr=1e-3))
