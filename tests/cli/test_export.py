"""simcse export, as a user runs it: what train.py trained, in every tool; and what is refused."""

import json
import logging
import shutil
import sys

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from simcse_pl import SimCSE
from simcse_pl.__main__ import main
from simcse_pl.cli import evaluate as evaluate_command
from simcse_pl.cli.info import describe
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.evaluation.sts import evaluate_sts
from simcse_pl.export.fingerprint import fingerprint
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.pooling import POOLINGS, Pooling, max_over_tokens
from simcse_pl.postprocessing.affine import AffinePostProcess
from simcse_pl.postprocessing.flow import Flow
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.saved import KINDS
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.optimizer import LinearAdamW
from simcse_pl.utils.errors import UserError
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


@pytest.fixture
def evaluate(monkeypatch, tmp_path):
    """Run `simcse evaluate` in this process on the packaged sample; the folder that it wrote."""
    handlers, level = logging.root.handlers[:], logging.root.level
    monkeypatch.delenv("SENTEVAL_DIR", raising=False)

    def run(*arguments, folder="measured"):
        options = ["tasks=[sts]", f"hydra.run.dir={tmp_path / folder}"]
        monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, arguments), *options])
        evaluate_command.main()
        return tmp_path / folder

    yield run
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if issubclass(kind, AffinePostProcess)])
@pytest.mark.parametrize("normalize", [True, False])
def test_an_exported_folder_scores_what_was_measured(
    kind, normalize, make_model, evaluate, export, tmp_path, monkeypatch
):
    monkeypatch.setattr("simcse_pl.export.model_card.encoder_figures", lambda *_: {})  # slow to draw
    encoder, exported, fit_on = tmp_path / "encoder", tmp_path / "exported", tmp_path / "fit_on.txt"
    options = {"max_length": 20, "normalize": normalize}
    SentenceEncoder.from_pretrained(make_model("bert"), "first_last", **options).save_pretrained(encoder)
    fit_on.write_text("\n".join(load_sample("dev").sentences))
    measured = evaluate(f"encoder={encoder}", f"postprocess={kind}", f"fit_on={fit_on}")
    score = json.loads((measured / "results.json").read_text())["sts"][0]["all"]["spearman"]
    export(encoder, exported, "--postprocess", measured / "postprocess", "--results", measured)
    found = evaluate_sts(SentenceEncoder.from_pretrained(exported).encode, load_sample("test")).all.spearman
    assert found == pytest.approx(score, abs=1e-6)
    assert f" {100 * score:.2f} " in (exported / "README.md").read_text()


def test_a_pooling_that_sentence_transformers_lacks_is_not_exported_as_another(
    saved, export, tmp_path, monkeypatch, caplog
):
    """As CONTRIBUTING.md says: a function of hidden states and mask, and its name in POOLINGS."""
    sums = Pooling(lambda states, mask: (states * mask.unsqueeze(-1)).sum(dim=1))
    several_maxima = Pooling(max_over_tokens, layers=(1, -1))  # not the maximum of the layers' mean
    for name, pooling in {"sum": sums, "first_last_max": several_maxima}.items():
        monkeypatch.setitem(POOLINGS, name, pooling)
        error = export(saved, tmp_path / "new", "--pooling", name, status=2)[1]
        line = f"pooling={name}: sentence-transformers has no such module, only simcse_pl loads it"
        assert error == f"error: {line}\n" and not (tmp_path / "new").exists()
        encoder = SentenceEncoder.from_pretrained(saved, name)
        caplog.clear()
        encoder.save_pretrained(tmp_path / name)  # training ends with this
        assert caplog.messages == [line] and not (tmp_path / name / "modules.json").exists()
        assert torch.equal(SentenceEncoder.from_pretrained(tmp_path / name).encode(TEXTS), encoder.encode(TEXTS))
        encoder.save_pretrained(saved)  # over one of another pooling
        assert not (saved / "modules.json").exists()


def test_results_of_another_encoder_are_not_on_the_card(saved, export, write_results, make_report, tmp_path):
    own, other = SentenceEncoder.from_pretrained(saved), SentenceEncoder.from_pretrained(saved, "cls", max_length=20)
    RemoveComponents(1).fit(own.encode(TEXTS)).save(tmp_path / "postprocess")
    right = write_results("right", make_report(fingerprint=fingerprint(own)))
    wrong = write_results("wrong", make_report(fingerprint=fingerprint(other)))
    export(saved, tmp_path / "exported", "--results", right)
    assert fingerprint(SentenceEncoder.from_pretrained(tmp_path / "exported")) == fingerprint(own)
    for given in (
        ["--results", wrong],
        ["--results", write_results("old", make_report())],
        ["--results", right, "--postprocess", tmp_path / "postprocess"],
    ):
        error = export(saved, tmp_path / "new", *given, status=2)[1]
        assert error.count("\n") == 1 and "measured with other weights, pooling" in error
        assert not (tmp_path / "new").exists()


def test_a_fingerprint_is_of_the_weights_the_settings_and_the_post_processing(saved):
    def load(**options):
        return SentenceEncoder.from_pretrained(saved, **options)

    postprocess = RemoveComponents(1).fit(load().encode(TEXTS))
    changed = load()
    with torch.no_grad():
        changed.backbone.encoder.layer[2].output.dense.bias[0] += 1e-3
    different = [load(), changed, load(pooling="max"), load(max_length=19), load(normalize=True), load(num_layers=2)]
    found = [fingerprint(encoder) for encoder in different] + [fingerprint(load(), postprocess)]
    assert len({*found}) == 7 and found[0] == fingerprint(load())
    different[0].postprocess = postprocess
    assert fingerprint(different[0]) == found[-1] and fingerprint(different[4], normalize=False) == found[0]
    assert fingerprint(load(), RemoveComponents(1)) is None


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
    assert done.stdout.strip() == str(folder) and "sentence_encoder.onnx: vectors differ from" in done.stderr
    assert not list(tmp_path.glob(".saving*"))
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
    monkeypatch.setattr("simcse_pl.export.push_to_hub.get_token", lambda: None)
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
        ([saved, new, "--postprocess", wide], "remove_components was fitted on 64 dimensions, but the"),
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
