"""What made an encoder: training.json, the model card, and `simcse show`."""

import json
import re

import pytest
import yaml
from huggingface_hub import ModelCard

from simcse_pl.evaluation.results import Result
from simcse_pl.lab.encoder_tables import encoder_tables
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.saved_encoder import TRAINING_FILE
from simcse_pl.tools.model_card import _without_paths, read_training, write_card
from tests.conftest import SENTENCES


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), "cls", head="mlp")


@pytest.fixture
def run(tmp_path):
    """The folder of a run, as train.py writes it."""
    folder = tmp_path / "run"
    (folder / "config").mkdir(parents=True)
    (folder / "encoder").mkdir()
    scores = {"spearman": 0.5, "alignment": 0.25, "uniformity": -1.5}
    overrides = ["data=text", "data.train=/home/me/secret/my_sentences.txt", "model=roberta"]
    config = {
        "seed": 3,
        "run_dir": "/home/me/outputs",
        "model": {"_target_": "simcse_pl.x", "name": "FacebookAI/roberta-base", "dropout": 0.1, "head": "mlp"},
        "data": {"train": "hf://datasets/me/set/all.txt", "columns": ["/data/a/b.txt", "a/b", "/home/my name/b.txt"]},
        "optimizer": {"lr": 1e-5},
    }
    results = {"best": scores, "test": scores, "before": scores, "validation": "STS-B", "steps": 10, "best_step": 9}
    settings = {"data": "/home/me/my_sentences.txt, 8 rows", "content": 16 * "ab12"}
    settings |= {"versions": "simcse_pl 9.9.9 c0ffee"}
    results |= {"settings": settings, "sts": {"STS12": 0.625}, "overrides": overrides, "choices": {}}
    results |= {"config_dir": "/home/me/my_conf"}
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "config" / "resolved.yaml").write_text(yaml.safe_dump(config))
    (folder / "metrics.csv").write_text("step,val/alignment,val/uniformity,val/spearman\n0,.2,-1,.4\n9,.25,-1.5,.5\n")
    return folder


def test_the_card_of_an_unknown_encoder_has_usage_only(encoder, tmp_path):
    write_card(tmp_path, "mine", encoder)
    card = ModelCard.load(tmp_path / "README.md")
    assert "sentence-transformers" in card.data.tags and card.data.pipeline_tag == "sentence-similarity"
    assert "SimCSE](" not in card.text and "## Citation" not in card.text
    assert "## Scores" not in card.text and "## Training" not in card.text and "ONNX" not in card.text
    assert "| Pooling | cls |" in card.text and "Linear and Tanh" in card.text and 'SimCSE("mine")' in card.text
    for code in re.findall("```python\n(.*?)```", card.text, re.DOTALL):
        compile(code, "card", "exec")


def test_the_card_has_the_prompts_and_the_layers_of_the_head(make_model, tmp_path):
    prompts = {"query": "Find it's answer.\nQuery: ", "document": "text: "}
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", head="linear_8_gelu", prompts=prompts)
    write_card(tmp_path, "mine", encoder)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| Projection head at test time | linear_8_gelu |" in card and "a vector of 8 dimensions" in card
    assert "| Prompts by `prompt_name` | `query`: `Find it's answer.\\nQuery: ` `document`: `text: ` |" in card
    assert '"Someone is making music."], prompt_name="query")' in card


def test_the_card_shows_the_run_and_its_results_without_paths_of_the_machine(encoder, run, tmp_path):
    stsb = {"task": "STS-B", "pairs": 1379, "all": {"spearman": 0.81}}
    paper = {"table": "table_5_sts", "row": "unsupervised/SimCSE-BERT-base"}
    result = Result.model_validate({"label": "my encoder", "sts": [stsb], "paper": paper})
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"")
    where = (tmp_path, "mine", encoder, read_training(str(run / "encoder")), encoder_tables([result]), {"a_b": b"png"})
    write_card(*where, repository="me/mine", license="mit", language="en")
    card = ModelCard.load(tmp_path / "README.md")
    assert (card.data.license, card.data.language, card.data.base_model) == ("mit", "en", "FacebookAI/roberta-base")
    assert "contrastive learning as in [SimCSE]" in card.text and "simcse" in card.data.tags
    recipe = {"objective": {"_target_": "my_package.Mine"}, "model": {"_target_": "simcse_pl.models.x", "name": "a"}}
    assert _without_paths(recipe) == {"objective": {"_target_": "my_package.Mine"}, "model": {"name": "a"}}
    assert card.data.datasets == ["me/set"] and {"onnx", "transformers.js"} < {*card.data.tags}
    assert 'AutoModel.from_pretrained("me/mine", { dtype: "fp32" })' in card.text
    assert re.search(r"\| my encoder +\| +81.00", card.text)
    assert re.search(r"\| paper, Table 5: SimCSE-BERT-base \(unsupervised\) +\| +76.85", card.text)
    assert re.search(r"\| best, step 9 of 10 \| dev +\| +50.00 \| +0.250 \| +-1.500 \|", card.text)
    assert 'SentenceTransformer("me/mine")' in card.text
    assert "my name" not in card.text and "/home/me" not in card.text and "/data/a" not in card.text
    assert "simcse train --config-dir my_conf data=text data.train=my_sentences.txt model=roberta" in card.text
    recipe = yaml.safe_load(re.search("```yaml\n(.*?)```", card.text, re.DOTALL)[1])
    assert recipe == {
        "model": {"name": "FacebookAI/roberta-base", "dropout": 0.1, "head": "mlp"},
        "data": {"train": "hf://datasets/me/set/all.txt", "columns": ["b.txt", "a/b", "b.txt"]},
        "optimizer": {"lr": 1e-5},
        "seed": 3,
    }
    settings = {"data": "my_sentences.txt, 8 rows", "data hash": "ab12ab12ab12", "versions": "simcse_pl 9.9.9 c0ffee"}
    assert all(f"| {name} | {value} |" in card.text for name, value in settings.items())
    assert "- STS12: 62.50" in card.text
    assert "![a b](figures/a_b.png)" in card.text and (tmp_path / "figures" / "a_b.png").read_bytes() == b"png"


def test_what_made_an_encoder_moves_with_its_folder_and_into_its_export_and_is_not_needed(
    encoder, run, command, tmp_path, caplog
):
    moved = tmp_path / "elsewhere" / "mine"
    encoder.save_pretrained(moved)
    write_card(moved, "mine", encoder, read_training(str(run / "encoder")))
    shown = command("show", moved).out
    options = "--config-dir my_conf data=text data.train=my_sentences.txt model=roberta"
    assert shown.startswith(f"command       simcse train {options}\n")
    assert "\nversions      simcse_pl 9.9.9 c0ffee\n" in shown and "50.00" in shown
    assert command("show", run).out == command("show", run / "encoder").out == shown
    command("export", moved, tmp_path / "exported")
    assert command("show", tmp_path / "exported").out == shown
    command("export", moved, tmp_path / "short", "--truncate-dim", 4)
    assert "not trained with objective=matryoshka" in caplog.text
    (moved / TRAINING_FILE).write_text("{")
    assert f"{moved / TRAINING_FILE} is not valid JSON" in command("show", moved, status=2).err
    assert SentenceEncoder.from_pretrained(moved).encode(SENTENCES).isfinite().all()
    encoder.save_pretrained(moved)  # other weights, perhaps
    assert "nothing says what made it" in command("show", moved, status=2).err


def test_a_run_with_rows_of_python_is_a_call(run):
    results = json.loads((run / "results.json").read_text())
    rows = 'data.train="/home/me/.cache/simcse_pl/rows/0123456789abcdef/rows.jsonl"'
    results["overrides"] = ["data=text", "data=text", "seed=1", rows]
    (run / "results.json").write_text(json.dumps(results))
    training = read_training(str(run / "encoder"))
    assert training.command == "simcse_pl.train(['data=text', 'seed=1'], config_dir='my_conf', rows=rows)"


def test_a_checkpoint_belongs_to_a_run_and_other_encoders_to_none(run, tmp_path):
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "best.ckpt").write_bytes(b"")
    assert read_training(str(run / "checkpoints" / "best.ckpt")).steps == 10
    assert read_training("princeton-nlp/sup-simcse-bert-base-uncased") is None and read_training(str(tmp_path)) is None
