"""Each method computes what its official code computed of the same weights and sentences, in float64."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from hydra.utils import instantiate
from safetensors.torch import load_file

from simcse_pl.cli.train import build_module
from simcse_pl.losses.mlm import TokenMaskingLoss
from simcse_pl.methods import dclr, gs_infonce, whitenedcse
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import compose_config

FOLDER = Path(__file__).parent / "records"
RECORDS = yaml.safe_load((FOLDER / "records.yaml").read_text(encoding="utf-8"))["records"]


def built(record, tmp_path):
    """Return the module and the rows that `simcse train` makes from the options of a record, without dropout."""
    file = tmp_path / "rows.jsonl"
    names = [f"sentence{number}" for number in range(len(record["sentences"][0]))]
    rows = [dict(zip(names, row, strict=True)) for row in record["sentences"]]
    scored = [f"data.columns={names}".replace(" ", ""), "data.score_column=score"] if "scores" in record else []
    for row, score in zip(rows, record.get("scores", []), strict=False):
        row["score"] = score
    file.write_text("\n".join(map(json.dumps, rows)))
    model = [f"model={record['model']}", f"model.name={FOLDER / record['model']}", "model.num_layers=null"]
    no_dropout = ["model.dropout=0", "model.max_length=null"]
    guide = tmp_path / "guide"
    if "{guide}" in str(record["options"]):
        SentenceEncoder.from_pretrained(FOLDER / "bert", pooling="cls").save_pretrained(guide)
    options = [option.format(bert=FOLDER / "bert", guide=guide) for option in record["options"]]
    config = compose_config("train", *options, *model, *no_dropout, "data=text", f"data.train={file}", *scored)
    encoder = instantiate(config.model)
    data = instantiate(config.data, tokenizer=encoder.tokenizer, templates=encoder.templates, evaluators={})
    [dataset] = data.sets.values()
    dataset.read(encoder.tokenizer, data.max_length, 0, {}, encoder.templates)
    module = build_module(config, encoder).double()
    module.prepare(data.row_kinds)
    return module, dataset.batch([(0, row) for row in range(len(rows))])


def ours(name, names):
    """Return what an official parameter is called here."""
    names = {"bert.": "encoder.backbone.", "roberta.": "encoder.backbone.", **names}
    prefix = max((prefix for prefix in names if name.startswith(prefix)), key=len)
    return names[prefix] + name.removeprefix(prefix)


@pytest.fixture
def random_numbers(monkeypatch):
    """Make the losses draw what the official code drew."""

    def set_(tensors):
        drawn = {name.removeprefix("input/"): x for name, x in tensors.items()}
        if "mlm_input_ids" in drawn:
            masked = drawn["mlm_input_ids"].flatten(0, -2), drawn["mlm_labels"].flatten(0, -2)
            monkeypatch.setattr(TokenMaskingLoss, "mask", lambda self, ids: tuple(x.view_as(ids) for x in masked))
        if "noise" in drawn:
            for method in (dclr, gs_infonce):
                monkeypatch.setattr(method, "from_first_rank", lambda noise: drawn["noise"].double())
        if "orders" in drawn:
            monkeypatch.setattr(whitenedcse, "from_first_rank", lambda orders: drawn["orders"])

    return set_


@pytest.mark.parametrize("name", RECORDS)
def test_the_loss_and_its_gradients(name, tmp_path, random_numbers):
    record, tensors = RECORDS[name], load_file(FOLDER / f"{name}.safetensors")
    module, rows = built(record, tmp_path)
    ids, mask = tensors["input/input_ids"], tensors["input/attention_mask"]
    if "views" in record:  # the first view is the sentence
        length = int(mask[:, 0].sum(dim=-1).max())
        assert torch.equal((rows["input_ids"] * rows["attention_mask"])[:, 0, :length], ids[:, 0, :length])
        rows = {"roles": rows.get("roles"), "input_ids": ids, "attention_mask": mask}
    assert torch.equal(rows["input_ids"], ids)
    weights = dict(module.named_parameters())
    with torch.no_grad():
        for official, tensor in tensors.items():
            if official.startswith("weight/"):
                weights[ours(official.removeprefix("weight/"), record.get("names", {}))].copy_(tensor)
    random_numbers(tensors)
    loss = module.loss(module.batch_of(rows, queue=tensors.get("input/queue")))
    loss.backward()
    torch.testing.assert_close(loss, tensors["loss"], rtol=1e-10, atol=1e-10)
    gradients = {}
    for key, gradient in tensors.items():
        if key.startswith("gradient/"):
            weight = ours(key.removeprefix("gradient/"), record.get("names", {}))
            gradients[weight] = gradients.get(weight, 0) + gradient  # of weights that are tied here
    computed = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
    for weight, gradient in gradients.items():
        torch.testing.assert_close(
            computed.pop(weight), gradient, rtol=1e-9, atol=1e-9, msg=lambda text, weight=weight: f"{weight}: {text}"
        )
    assert not any(gradient.any() for gradient in computed.values())
