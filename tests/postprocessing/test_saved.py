"""Post-processings saved and loaded: equal to the bit, and one line for damaged folders."""

import json
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file

from simcse_pl.postprocessing.post_process import SETTINGS_FILE, TENSORS_FILE, load
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError
from tests.postprocessing.test_post_process import every_kind

CONFIGS = Path(__file__).parents[2] / "conf" / "postprocess"


@every_kind
def test_a_saved_map_loads_equal_to_the_bit(make, tmp_path):
    x, new = torch.randn(2, 80, 6)
    postprocess = make().fit(x)
    postprocess.save(tmp_path / "a" / "b")
    loaded = load(tmp_path / "a" / "b")
    assert type(loaded) is type(postprocess) and loaded.fitted
    assert (loaded.options, loaded.width) == (postprocess.options, 6)
    assert torch.equal(loaded.transform(new), postprocess.transform(new))
    assert torch.equal(loaded.fit(new).transform(x), make().fit(new).transform(x))  # a second fit replaces it


@pytest.mark.parametrize("file", [SETTINGS_FILE, TENSORS_FILE])
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00" * 40])
def test_damaged_files_are_one_line(file, content, tmp_path):
    Whitening().fit(torch.randn(80, 6)).save(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=file):
        load(tmp_path)


@pytest.mark.parametrize(
    "settings", [[], {}, {"name": "pca"}, {"options": {"dim": 0}}, {"options": {"size": 3}}, {"options": None}]
)
def test_invalid_settings_are_one_line(settings, tmp_path):
    Whitening().fit(torch.randn(80, 6)).save(tmp_path)
    path = tmp_path / SETTINGS_FILE
    good = json.loads(path.read_text())
    path.write_text(json.dumps(good | settings if settings else settings))
    with pytest.raises(UserError, match=f"{SETTINGS_FILE} is damaged"):
        load(tmp_path)


@every_kind
@pytest.mark.parametrize("other", ["another width", "not finite", "tensors missing"])
def test_tensors_that_do_not_fit_are_one_line(make, other, tmp_path):
    make().fit(torch.randn(80, 6)).save(tmp_path)
    path = tmp_path / TENSORS_FILE
    tensors = load_file(path)
    if other == "another width":
        tensors = make().fit(torch.randn(80, 8)).tensors()
    elif other == "not finite":
        next(iter(tensors.values())).view(-1)[0] = torch.nan
    else:
        tensors.popitem()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    with pytest.raises(UserError, match=f"{TENSORS_FILE} is damaged or does not belong"):
        load(tmp_path)


def test_the_config_saved_loads_a_folder(tmp_path):
    Whitening(3).fit(torch.randn(80, 6)).save(tmp_path)
    assert instantiate(OmegaConf.load(CONFIGS / "saved.yaml"), folder=str(tmp_path)).options == {"dim": 3}
