"""train.py on small models with random weights."""

import hashlib
import json
import re
from pathlib import Path
from typing import ClassVar

import pandas
import pytest
import torch
import yaml
from omegaconf import OmegaConf
from pytorch_lightning.loggers import CSVLogger
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

import simcse_pl
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.train_job import contents
from tests.conftest import tiny
from tests.support.offline_wandb import offline_runs
from tests.support.senteval_bundle import write_bundle

CURVES = [
    *("train/loss", "train/lr", "train/positive_similarity", "train/negative_similarity", "train/grad_norm"),
    *("val/spearman", "val/alignment", "val/uniformity", "speed/sentences_per_second", "speed/waiting_for_data"),
    *("geometry/gram_sum", "geometry/largest_eigenvalue", "geometry/nonnegative_cosines", "geometry/trace"),
]


def test_a_run_ends_with_its_scores_and_everything_in_its_folder(train, sentences, make_model):
    given = ["data=text", f"data.train={sentences}", *tiny(make_model("bert"))]
    done, folder = train(*given, "model.head=mlp", "keep_checkpoints=true", FORCE_COLOR="1")
    assert "scored pairs from the project's own sample, which is not STS-B" in done.stdout
    assert "before training" in done.stdout and "of 4" in done.stdout
    assert (
        "the rows are single sentences, and the values those of pairs: setting=unsupervised sets the paper's"
        in done.stdout
    )
    settings = re.findall(r"^(head|steps|device|W&B) +(.+)$", done.stdout.partition("step 0")[0], re.M)
    expected = {"head": "mlp", "steps": "4, validated every 3", "device": "1 x cpu"}
    assert dict(settings) == expected | {"W&B": f"offline: wandb sync {folder}/wandb"}
    assert re.findall(r"step (\d+): val/spearman \d\.\d{4}\n", done.stdout) == ["0", "3", "4"]
    assert not re.search("Validation|Testing|Epoch", done.stdout + done.stderr)  # no progress bars
    for name in ("encoder", "checkpoints", "metrics.csv", "results.json"):
        assert f"{folder}/{name}" in done.stdout
        assert (folder / name).exists()
    assert done.stderr.count("Warning") == 0, done.stderr
    assert {path.name for path in folder.iterdir()} >= {"config", "train.log", "wandb"}
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert "8 rows of 1 sentence from" in (folder / "train.log").read_text()
    assert yaml.safe_load((folder / "config" / "config.yaml").read_text())["data"]["train"] == str(sentences)

    curves = pandas.read_csv(folder / "metrics.csv")
    assert (curves[CURVES].count() >= 2).all()
    assert curves["val/spearman"].count() == 3  # before, at step 3, and at the end
    results = json.loads((folder / "results.json").read_text())
    best = curves.loc[curves["step"] > 0, "val/spearman"].max()
    assert results["best"]["spearman"] == pytest.approx(best)
    assert results["steps"] == 4 and results["best_step"] in (3, 4)

    (run,) = offline_runs(folder)
    assert (run.started.display_name, run.started.job_type, run.exit) == (f"{folder.parent.name}/run", "train", 0)
    assert f"W&B          wandb sync {folder}/wandb" in done.stdout
    for name in CURVES:
        assert run.curve(name) == pytest.approx(curves[name].dropna().tolist()), name
    assert run.config["choices"] == results["choices"] and run.config["seed"] == 42
    assert run.config["trainer"]["precision"] == "auto" != run.config["settings"]["precision"]
    assert run.config["settings"] == results["settings"]
    assert re.match(r"simcse_pl [\d.]+( \w+(-dirty)?)?, torch 2.+, transformers 5", results["settings"]["versions"])
    assert run.summary["test/spearman"] == pytest.approx(results["test"]["spearman"])
    assert all(run.image(f"evaluation/{name}").is_file() for name in ("training_paths", "spectra", "similarities"))

    assert results["settings"]["content"] == hashlib.sha256(sentences.read_bytes()).hexdigest()
    made = json.loads((folder / "encoder" / "training.json").read_text())
    assert made["best"] == results["best"] and made["settings"]["content"] == results["settings"]["content"]
    assert str(folder.parent) not in (folder / "encoder" / "README.md").read_text() + json.dumps(made)
    encoder = SentenceEncoder.from_pretrained(folder / "encoder")
    assert (encoder.pooling, encoder.head, encoder.backbone.config.num_hidden_layers) == ("mean", "mlp", 2)
    checkpoint = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, checkpoint[f"encoder.{name}"]), name


def test_a_run_on_the_papers_data_ends_with_the_sts_tasks(train, pairs, make_model, tmp_path):
    given = ["data=nli", "data.train=simcse_pl/data/sample/nli.csv", "data.limit=8", "logger=csv", "log_every=4"]
    given += ["model=bert", *tiny(make_model("bert")), f"data.validation={pairs}"]
    bundle = write_bundle(tmp_path / "bundle")
    done, folder = train(*given, f"senteval_dir={bundle}")
    assert "STS, test: Spearman x 100" in done.stdout and "will not be measured" not in done.stdout
    assert "paper, Table 5" not in done.stdout, "model.name is another model"
    results = json.loads((folder / "results.json").read_text())
    assert [*results["sts"]] == ["STS12", "STS13", "STS-B", "SICK-R"] and results["choices"]["setting"] == "supervised"
    done, _ = train(*given, folder="without")
    line = "the mean of the STS tasks will not be measured: set SENTEVAL_DIR or senteval_dir=FOLDER"
    assert line in done.stdout.partition("step 0")[0] and "STS, test" not in done.stdout


def test_a_damaged_test_task_ends_a_run_before_it_trains(train, sentences, make_model, tmp_path):
    (tmp_path / "MR").mkdir()
    for file in ("rt-polarity.pos", "rt-polarity.neg"):
        (tmp_path / "MR" / file).write_text("fine\n")
    given = ["data=text", f"data.train={sentences}", f"senteval_dir={tmp_path}", "test_tasks=[MR,CR]", "logger=csv"]
    done, folder = train(*given, *tiny(make_model("bert")), status=2)
    assert "error: test_tasks: CR: no file" in done.stderr and not (folder / "metrics.csv").exists()


def test_a_sweep_runs_every_combination_and_seeds_fix_everything(train, short_run):
    done, sweep = train("-m", "model.dropout=0.05,0.1", *short_run, folder="sweep")
    lines = [line for line in done.stdout.splitlines() if line.startswith("│ ")]
    table = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    scores = [json.loads((sweep / str(job) / "results.json").read_text())["best"]["spearman"] for job in range(2)]
    for value, score in zip(("0.05", "0.1"), scores, strict=True):
        assert any(row[0] == value and f"{100 * score:.2f} (1)" in row[1] for row in table), done.stdout
    assert not any((sweep / str(job) / "checkpoints").exists() for job in range(2))

    _, alone = train("model.dropout=0.1", *short_run, folder="alone")
    assert [path.name for path in (alone / "checkpoints").iterdir()] == ["last.ckpt"]
    timeless = [column for column in CURVES if not column.startswith("speed")]
    curves = [pandas.read_csv(folder / "metrics.csv")[timeless] for folder in (sweep / "1", alone, sweep / "0")]
    pandas.testing.assert_frame_equal(curves[0], curves[1], check_exact=True)
    assert not curves[0].equals(curves[2])
    weights = [load_file(folder / "encoder" / "model.safetensors") for folder in (sweep / "1", alone)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_a_language_model_is_trained_on_whole_words_and_saved(train, sentences, make_masked_language_model):
    """ICU splits at the marks. To the tokenizer, a row is one word, which is an error without the segmenter."""
    sentences.write_text(sentences.read_text().replace(" ", "!"))
    given = ["experiment=mlm", f"data.train={sentences}", "data.hold_out=0.3", "logger=csv", "data.max_length=32"]
    given += ["keep_checkpoints=true", "segmenter=icu", "objective.whole_words=true"]
    done, folder = train(*given, *tiny(make_masked_language_model("roberta")), folder="stage")
    results = json.loads((folder / "results.json").read_text())
    assert (results["monitor"], results["mode"]) == ("perplexity", "min") and "perplexity" in done.stdout
    curves = pandas.read_csv(folder / "metrics.csv")
    assert results["best"]["perplexity"] == pytest.approx(curves.loc[curves["step"] > 0, "val/perplexity"].min())
    assert curves["train/loss"].between(1, 20).sum() >= 2
    model, info = AutoModelForMaskedLM.from_pretrained(folder / "encoder", output_loading_info=True)
    assert not info["missing_keys"] and model.config.architectures == ["RobertaForMaskedLM"]
    trained = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    for name, tensor in model.roberta.state_dict().items():
        assert torch.equal(tensor, trained[f"encoder.backbone.{name}"]), name


class OnceFailing(CSVLogger):
    """A logger whose first logging of results is interrupted, as by a kill."""

    logged: ClassVar[list[bool]] = []

    def log_results(self, run, measured):
        self.logged.append((Path(self.save_dir) / "results.json").exists())
        if len(self.logged) == 1:
            raise InterruptedError


def test_results_json_is_written_last_so_that_a_run_is_resumed_until_it_is_whole(short_run, tmp_path):
    given = [*short_run, "trainer.max_steps=1", "trainer=cpu", f"hydra.run.dir={tmp_path}", "resume=auto"]
    given += [f"+logger.late={{_target_: {__name__}.OnceFailing, save_dir: {tmp_path}}}"]
    with pytest.raises(InterruptedError):
        simcse_pl.train(given)
    best = tmp_path / "checkpoints" / "best.ckpt"
    assert best.exists() and not (tmp_path / "results.json").exists()
    whole = simcse_pl.train(given)
    assert OnceFailing.logged == [False, False] and not best.exists()
    best.touch()  # of a run that was killed after it had written results.json
    assert simcse_pl.train(given) == whole and not best.exists()


def test_the_contents_are_those_of_all_sets_and_of_the_files_that_measure(tmp_path):
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in "abc"}
    for name in hashes:
        (tmp_path / name).write_text(name)
    sets = {"first": {"train": str(tmp_path / "a")}, "second": {}}
    config = OmegaConf.create({"data": {"train": str(tmp_path / "b"), "sets": sets}, "evaluators": {"sts": None}})
    assert contents(config) == {"content": f"{hashes['a']}; {hashes['b']}"}
    config.data.validation = {"dev": {"file": str(tmp_path / "c")}}
    for train in ("hf://OWNER/NAME", str(tmp_path / "gone")):
        config.data.train = train
        assert contents(config) == {"measured on": hashes["c"]}
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    files = [tmp_path / "beir" / name for name in ("corpus.jsonl", "queries.jsonl", "qrels/dev.tsv")]
    for file in files:
        file.write_text("old")
    for validation in (str(tmp_path / "beir"), str(tmp_path / "*" / "*" / "d*.tsv")):
        config.data.validation = validation
        before = contents(config)
        files[-1].write_text(f"new for {validation}")
        assert contents(config)["measured on"] != before["measured on"]
    weights = [tmp_path / place / "model.safetensors" for place in ("model", "model/2_Dense", "guide")]
    for file in weights:
        file.parent.mkdir()
        file.write_text("old")
        (file.parent / "config.json").write_text("{}")
    config.model = {"name": str(tmp_path / "model"), "prompts": {"query": "long " * 900}}
    config.auxiliary = {"own": {"guide": str(tmp_path / "guide")}}
    for file in weights:
        before = contents(config)
        file.write_text("new")
        assert {name for name, now in contents(config).items() if before[name] != now} == {"models"}
    before, run = contents(config), tmp_path / "model" / "run" / "encoder"
    run.mkdir(parents=True)
    (run / "model.safetensors").write_text("of another encoder")
    assert contents(config) == before
