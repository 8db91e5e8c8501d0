"""Averages of encoders, static embeddings of one, and new tokenizers."""

import math
from itertools import pairwise

import pandas as pd
import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from simcse_pl import SimCSE
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.evaluation.ranking import Retrieval
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.linear import RemoveComponents
from simcse_pl.tools.common import new_folder
from simcse_pl.tools.merge import difference, greedy_soup, merge
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES


@pytest.fixture
def encoders(make_model):
    """Three encoders of one model with a head, whose weights differ."""
    made = [SentenceEncoder.from_pretrained(make_model("bert"), "cls", head="mlp") for _ in range(3)]
    for encoder in made:
        for weight in encoder.parameters():
            torch.nn.init.normal_(weight)
    return made


def test_weights_are_the_weighted_mean_and_the_encoders_stay(encoders):
    before = encoders[0].encode(SENTENCES)
    merged = merge(encoders, [1, 1, 2])
    states = [encoder.state_dict() for encoder in encoders]
    for name, x in merged.state_dict().items():
        torch.testing.assert_close(x, 0.25 * states[0][name] + 0.25 * states[1][name] + 0.5 * states[2][name])
    assert torch.equal(encoders[0].encode(SENTENCES), before)
    assert not torch.allclose(merged.encode(SENTENCES), before)


def test_a_killed_merge_can_be_repeated(tmp_path):
    (tmp_path / ".saving-x").mkdir()
    assert new_folder(str(tmp_path)) == tmp_path and not list(tmp_path.iterdir())


def test_encoders_that_differ_in_more_than_weights_cannot_be_averaged(encoders, make_model):
    first, other = encoders[:2]
    assert difference(first, other) is None
    load = SentenceEncoder.from_pretrained
    assert difference(first, load(make_model("bert"), "mean", head="mlp")) == "pooling=cls and mean"
    assert "shapes of their weights" in difference(first, load(make_model("bert"), "cls"))
    assert "shapes of their weights" in difference(first, load(make_model("roberta"), "cls", head="mlp"))
    other.postprocess = RemoveComponents(1).fit(other.encode(SENTENCES))
    assert "post-processing" in difference(first, other)
    other.postprocess = None
    other.tokenizer.add_tokens(["newword"])
    assert "tokenizers" in difference(first, other)


def test_a_greedy_soup_keeps_what_does_not_lower_the_score_of_the_mean(encoders):
    """Against a loop over the values of one weight, on which the score depends."""

    def value(encoder):
        return encoder.backbone.embeddings.word_embeddings.weight[5, 0].item()

    values = [value(encoder) for encoder in encoders]
    target = values[0] + 0.4 * (values[1] - values[0])
    expected, kept = {}, []
    for number in sorted(range(3), key=lambda i: abs(values[i] - target)):
        error = abs(sum([*kept, values[number]]) / (len(kept) + 1) - target)
        better = not kept or error <= abs(sum(kept) / len(kept) - target)
        expected[number] = {"alone": -abs(values[number] - target), "mean with it": -error, "kept": better}
        kept += [values[number]] * better
    soup = greedy_soup(encoders, lambda encoder: -abs(value(encoder) - target))
    assert list(soup.index) == list(expected) and soup["kept"].nunique() == 2
    pd.testing.assert_frame_equal(soup, pd.DataFrame(expected).T.infer_objects(), atol=1e-6, check_dtype=False)
    diverged = greedy_soup(encoders, lambda encoder: math.nan if encoder is encoders[0] else 1.0)
    assert list(diverged.index) == [1, 2, 0]
    with pytest.raises(UserError, match="--greedy: the score of every encoder is NaN"):
        greedy_soup(encoders, lambda encoder: math.nan)


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
    assert "give two encoders or more, and then the output" in command("merge", *folders, status=2).err
    for weights, problem in (([1], "one number per encoder"), ([1, -1], "a sum above 0"), (["nan", 1], "finite")):
        given = [*folders, tmp_path / "new", "--weights", *weights]
        assert problem in command("merge", *given, status=2).err


def test_distill_static_writes_an_encoder(folders, command, tmp_path):
    command("distill-static", folders[0], tmp_path / "static", "--dim", 5)
    simcse = SimCSE(tmp_path / "static")
    assert simcse.encode(SENTENCES).shape == (len(SENTENCES), 5)
    assert "have 32 dimensions" in command("distill-static", folders[0], tmp_path / "x", "--dim", 33, status=2).err


def test_merge_keeps_the_encoders_of_a_greedy_soup(folders, command, tmp_path):
    alone = command("merge", *folders, tmp_path / "soup", "--evaluator", "retrieval", status=2)
    assert "--evaluator: it needs --greedy" in alone.err
    (tmp_path / "dev.tsv").write_text("".join(f"{s}\t{t}\t{i}\n" for i, (s, t) in enumerate(pairwise(SENTENCES))))
    printed = command("merge", *folders, tmp_path / "soup", "--greedy", tmp_path / "dev.tsv").out
    assert "Spearman x 100 on dev.tsv" in printed and "mean with it" in printed
    encoders = [SentenceEncoder.from_pretrained(folder) for folder in folders]
    pairs = ScoredPairs(validation=str(tmp_path / "dev.tsv"))
    soup = greedy_soup(encoders, lambda encoder: pairs(encoder.encode, "validation")["spearman"])
    expected = merge([encoders[number] for number in soup.index[soup["kept"]]])
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path / "soup").encode(SENTENCES), expected.encode(SENTENCES))


def test_a_greedy_soup_takes_the_score_of_an_evaluator_with_its_prompts(make_model, command, tmp_path):
    (tmp_path / "dev.tsv").write_text("".join(f"{query}\t{answer}\n" for query, answer in pairwise(SENTENCES)))
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", prompts={"query": "dogs ", "document": "a "})
    encoder.save_pretrained(tmp_path / "a")
    data = f"{{file: {tmp_path}/dev.tsv, corpus: {tmp_path}/corpus.txt, header: false}}"
    given = [tmp_path / "a", tmp_path / "a", tmp_path / "soup", "--evaluator", "retrieval"]
    printed = command("merge", *given, "--greedy", data).out
    retrieval = Retrieval(str(tmp_path / "dev.tsv"), corpus=str(tmp_path / "corpus.txt"), header=False)
    assert f"mrr x 100 on dev.tsv ({len(SENTENCES)} candidates)" in printed
    assert f"{100 * retrieval(encoder.eval().encode, 'validation')['mrr']:.2f}" in printed


def test_an_encoder_that_diverged_is_the_worst_of_a_greedy_soup(folders, command, tmp_path):
    """A ranking of vectors that are NaN would be the best."""
    (tmp_path / "dev.tsv").write_text("".join(f"{query}\t{answer}\n" for query, answer in pairwise(SENTENCES)))
    diverged = SentenceEncoder.from_pretrained(folders[0])
    torch.nn.init.constant_(diverged.backbone.embeddings.word_embeddings.weight, math.nan)
    diverged.save_pretrained(tmp_path / "diverged")
    given = ["merge", tmp_path / "diverged", *folders[:1], tmp_path / "soup", "--evaluator", "retrieval"]
    command(*given, "--greedy", f"{{file: {tmp_path}/dev.tsv, header: false}}")
    expected = SentenceEncoder.from_pretrained(folders[0])
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path / "soup").encode(SENTENCES), expected.encode(SENTENCES))


TEXT = ["the zyxwv sat", "a zyxwv ran", "zyxwv and zyxwv"] * 3


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_frequent_words_of_the_text_are_tokens_and_random_weights_fit(architecture, make_model, command, tmp_path):
    (tmp_path / "text.tsv").write_text("anchor\tpositive\n" + "".join(f"{line}\tqqq {line}\n" for line in TEXT))
    old = AutoTokenizer.from_pretrained(make_model(architecture))
    given = [make_model(architecture), tmp_path / "text.tsv", tmp_path / "new", "--vocabulary", "400"]
    printed = command("prepare", "tokenizer", *given).out
    new, config = (auto.from_pretrained(tmp_path / "new") for auto in (AutoTokenizer, AutoConfig))
    assert printed.startswith(f"{len(new)} tokens in ") and len(new) == config.vocab_size
    assert set(new.all_special_tokens) == set(old.all_special_tokens)
    assert type(new) is type(old) and config.pad_token_id == new.pad_token_id
    assert any("zyxwv" in token for token in new.tokenize("a zyxwv")) and not any("zyxwv" in t for t in old.get_vocab())
    assert any("qqq" in token for token in new.get_vocab())
    encoder = SentenceEncoder.from_pretrained(tmp_path / "new", pooling="cls", pretrained=False)
    assert encoder.encode(["a zyxwv"]).isfinite().all()
    assert "new exists: give a new directory" in command("prepare", "tokenizer", *given, status=2).err
