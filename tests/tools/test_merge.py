"""`simcse merge` and `simcse distill-static`: from folders to a folder."""

from itertools import pairwise

import pytest
import torch

from simcse_pl import SimCSE
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.tools.merge import greedy_soup, merge
from tests.conftest import SENTENCES


@pytest.fixture
def folders(make_model, tmp_path):
    for name in ("a", "b"):
        encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean")
        torch.nn.init.normal_(encoder.backbone.embeddings.word_embeddings.weight)
        encoder.save_pretrained(tmp_path / name)
    return [tmp_path / "a", tmp_path / "b"]


def test_merge_writes_the_mean(folders, command, tmp_path):
    out = tmp_path / "out"
    assert command("merge", *folders, out, "--weights", 3, 1).out.strip() == str(out)
    expected = merge([SentenceEncoder.from_pretrained(folder) for folder in folders], [0.75, 0.25])
    assert torch.equal(SentenceEncoder.from_pretrained(out).encode(SENTENCES), expected.encode(SENTENCES))
    assert f"{out} exists" in command("merge", *folders, out, status=2).err
    assert "one number per encoder" in command("merge", *folders, tmp_path / "new", "--weights", 1, status=2).err


def test_distill_static_writes_an_encoder(folders, command, tmp_path):
    command("distill-static", folders[0], tmp_path / "static", "--dim", 5)
    simcse = SimCSE(tmp_path / "static")
    assert simcse.encode(SENTENCES).shape == (len(SENTENCES), 5)


def test_merge_keeps_the_encoders_of_a_greedy_soup(folders, command, tmp_path):
    (tmp_path / "dev.tsv").write_text("".join(f"{s}\t{t}\t{i}\n" for i, (s, t) in enumerate(pairwise(SENTENCES))))
    printed = command("merge", *folders, tmp_path / "soup", "--greedy", tmp_path / "dev.tsv").out
    assert "Spearman x 100 on dev.tsv" in printed and "mean with it" in printed
    encoders = [SentenceEncoder.from_pretrained(folder) for folder in folders]
    pairs = ScoredPairs(validation=str(tmp_path / "dev.tsv"))
    soup = greedy_soup(encoders, lambda encoder: pairs(encoder.encode, "validation")["spearman"])
    expected = merge([encoders[number] for number in soup.index[soup["kept"]]])
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path / "soup").encode(SENTENCES), expected.encode(SENTENCES))
