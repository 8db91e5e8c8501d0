import itertools
from pathlib import Path

import pytest
import torch
import yaml

from simcse_pl.cli.report_neighbours import find_neighbours, rebuild_encoder_before_training
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.html.runs import read_runs
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

MODEL = "simcse_pl.models.encoder.SentenceEncoder.from_pretrained"


@pytest.fixture
def run_of(write_sweep, job):
    """Make a sweep from configs and encoders, and return its runs."""

    numbers = itertools.count()

    def make(*configs, encoders=(), dev=(0.7, 0.8, 0.9), **more):
        folder = write_sweep(f"s{next(numbers)}", *(job(dev[place], **more) for place in range(len(configs))))
        for place, config in enumerate(configs):
            (folder / str(place) / "config" / "config.yaml").write_text(yaml.safe_dump({"seed": 1, **config}))
        for place, encoder in enumerate(encoders):
            encoder.save_pretrained(folder / str(place) / "encoder")
        return read_runs({"s": folder})[0]

    return make


def model(name, **options):
    return {"model": {"_target_": MODEL, "name": str(name), "pooling": "mean", **options}}


def nearest(encoder, query, count=5):
    """Return the nearest of SENTENCES by cosine, without an index."""
    vectors = torch.nn.functional.normalize(encoder.encode(SENTENCES), dim=-1)
    cosines = vectors @ vectors[SENTENCES.index(query)]
    order = [place for place in cosines.argsort(descending=True).tolist() if SENTENCES[place] != query]
    return [SENTENCES[place] for place in order[:count]], cosines[order[:count]].tolist()


def test_neighbours_are_the_nearest_by_cosine_of_each_encoder(run_of, make_model, sentences):
    start, end = make_model("bert"), SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean")
    found = find_neighbours(run_of(model(start, num_layers=2), encoders=[end]), str(sentences))
    assert (found.run, found.corpus, found.sentences, found.problem) == ("0", "sentences.txt", 8, None)
    assert [query.sentence for query in found.queries] == SENTENCES[::2]
    before = SentenceEncoder.from_pretrained(start, pooling="mean", num_layers=2)
    for query in found.queries:
        for neighbours, encoder in ((query.before, before), (query.after, end)):
            sentences, cosines = nearest(encoder, query.sentence)
            assert [own.sentence for own in neighbours] == sentences
            assert [own.similarity for own in neighbours] == pytest.approx(cosines, abs=1e-5)
        new = [own.sentence for own in query.after if query.is_new(own)]
        assert new == [own.sentence for own in query.after if own.sentence not in nearest(before, query.sentence)[0]]


def test_the_best_run_with_an_encoder_is_chosen(run_of, make_model, sentences):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls")
    config = model(make_model("bert"))
    assert find_neighbours(run_of(config, config, config, encoders=[encoder, encoder]), str(sentences)).run == "1"
    lowest = run_of(config, config, encoders=[encoder, encoder], mode="min")
    assert find_neighbours(lowest, str(sentences)).run == "0"


def test_new_weights_are_those_of_the_runs_seed(run_of, make_model):
    config = model(make_model("bert"), head="mlp", pretrained=False)
    first, second, other = run_of(config, config, {**config, "seed": 2})
    state = torch.get_rng_state()
    vectors = [rebuild_encoder_before_training(run.job).encode(SENTENCES) for run in (first, second, other)]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    expected = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", head="mlp", pretrained=False)
    assert torch.equal(vectors[0], expected.encode(SENTENCES))
    assert torch.equal(vectors[0], vectors[1]) and not torch.allclose(vectors[0], vectors[2])


def test_the_row_of_a_sweep_and_values_chosen_by_a_search_are_set(run_of, make_model):
    rows = {"one": {"model": {"num_layers": 2}}, "two": {"model": {"num_layers": 1}}}
    config = model(make_model("bert"), num_layers=None)
    config |= {"sweep": {"row": "two", "rows": rows}, "optimizer": {"lr": 1}}
    trial = {"values": {"model.pooling": "cls", "optimizer.lr": 0.1}, "pruned": False}
    (run,) = run_of(config, trial=trial)
    encoder = rebuild_encoder_before_training(run.job)
    assert (encoder.pooling, encoder.backbone.config.num_hidden_layers) == ("cls", 1)


def test_a_config_can_only_build_a_sentence_encoder(run_of, tmp_path):
    mark = tmp_path / "mark"
    runs = run_of(
        {"model": {"_target_": "pathlib.Path.touch", "_args_": [str(mark)]}},
        model("x", callback={"_target_": "pathlib.Path.touch", "self": str(mark)}),
        model({"_target_": "pathlib.Path.touch", "self": str(mark)}),
    )
    messages = "model._target_=pathlib.Path.touch is not", "callback=.*: Unexpected keyword argument", "training: "
    for run, message in zip(runs, messages, strict=True):
        with pytest.raises(UserError, match=message):
            rebuild_encoder_before_training(run.job)
    assert not mark.exists() and not Path("mark").exists()


@pytest.mark.parametrize("content", [yaml.safe_dump(model("nobody/nothing")), "model: {name: x}", "- 1", "a: [", None])
def test_problems_with_the_config_are_shown_in_one_line(content, run_of, make_model, sentences):
    end = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls")
    runs = run_of(model("x"), encoders=[end])
    file = runs[0].job.folder / "config" / "config.yaml"
    file.unlink() if content is None else file.write_text(content)
    found = find_neighbours(runs, str(sentences))
    assert (found.run, found.queries) == ("0", [])
    assert "config.yaml: cannot rebuild the encoder before training: " in found.problem and "\n" not in found.problem


def test_without_an_encoder_there_are_no_neighbours(run_of, make_model, sentences):
    assert "no run has a saved encoder" in find_neighbours(run_of(model("x")), str(sentences)).problem


def test_the_corpus_is_a_file_or_the_packaged_sample(tmp_path):
    pairs = load_sample("test").pairs
    assert find_neighbours([], None).sentences == len({s for p in pairs for s in (p.first, p.second)}) > 500
    (tmp_path / "one.txt").write_text("same\nsame\n")
    with pytest.raises(UserError, match="one.txt has only one distinct sentence"):
        find_neighbours([], str(tmp_path / "one.txt"))
