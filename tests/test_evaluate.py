"""evaluate.py as a user runs it."""

import json

import pytest

from simcse_pl.data.sts import load_sample
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.evaluation.sts import evaluate_sts


def test_the_sample_where_there_is_no_bundle(run_command, tmp_path, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=20)
    encoder.save_pretrained(tmp_path / "encoder")
    output = tmp_path / "new" / "scores.json"
    done = run_command(
        "evaluate.py",
        f"encoder={tmp_path}/encoder",
        "split=dev",
        f"output={output}",
        f"hydra.run.dir={tmp_path}/run",
        SENTEVAL_DIR="",
    )
    expected = evaluate_sts(encoder.encode, [load_sample("dev")])
    written = json.loads(output.read_text())
    assert written["encoder"] == f"{tmp_path}/encoder"
    assert [score["spearman"] for score in written["sts"]] == pytest.approx([r.spearman for r in expected], abs=1e-5)
    assert "measuring on the project's own sample" in done.stdout
    for result in expected:
        assert f"{100 * result.spearman:.2f}" in done.stdout


def test_the_bundle_where_there_is_one(run_command, tmp_path, make_model):
    folder = tmp_path / "bundle" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    lines = [f"g\tf\ty\t{i}\t{i % 6}\tA man sings {'a ' * i}.\tA dog runs {'the ' * (9 - i)}." for i in range(9)]
    (folder / "sts-test.csv").write_text("\n".join(lines) + "\n")
    arguments = [f"encoder={make_model('roberta')}", "pooling=cls", "num_layers=1", f"hydra.run.dir={tmp_path}/run"]
    done = run_command("evaluate.py", *arguments, f"senteval_dir={tmp_path}/bundle")
    assert "STS-B" in done.stdout and "9 pairs" in done.stdout
    assert json.loads((tmp_path / "run" / "results.json").read_text())["sts"][0]["pairs"] == 9


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["encoder={model}"], "does not say how it is pooled: add pooling="),
        (["encoder={model}", "pooling=mean", "senteval_dir=nowhere"], "error: senteval_dir: no folder nowhere\n"),
        (["encoder=nowhere", "pooling=mean"], "error: model nowhere: no such folder, no copy in the local cache"),
        (["encoder=a/mistyped/folder"], "error: model a/mistyped/folder: no such folder"),
        ([], "error: encoder is missing: add encoder=VALUE (--help says what it is)\n"),
    ],
)
def test_a_users_mistake_is_one_line(run_command, make_model, arguments, line, tmp_path):
    given = [argument.format(model=make_model("bert")) for argument in arguments]
    done = run_command("evaluate.py", *given, f"hydra.run.dir={tmp_path}/run", status=2)
    assert line in done.stderr and done.stderr.count("\n") == 1
