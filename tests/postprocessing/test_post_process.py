"""Claims of every post-processing: types, shapes, saving and loading; and the rank of principal directions."""

import pytest
import torch

from simcse_pl.postprocessing.flow import Flow
from simcse_pl.postprocessing.linear import RemoveComponents, Whitening, principal_directions
from simcse_pl.postprocessing.post_process import load
from simcse_pl.utils.errors import UserError

MAKE = {
    "whitening": lambda: Whitening(dim=4),
    "remove_components": lambda: RemoveComponents(count=2, center=False),
    "flow": lambda: Flow(seed=3),
}
every_kind = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_rows_are_mapped_one_by_one_in_their_dtype_without_a_gradient(make, dtype):
    x = torch.randn(60, 6, dtype=dtype, requires_grad=True)
    before = x.detach().clone()
    fitted = make().fit(x)
    z = fitted.transform(x)
    assert z.dtype == dtype and z.isfinite().all() and not z.requires_grad
    torch.testing.assert_close(fitted.transform(x[7:8]), z[7:8])
    assert fitted.transform(x[:0]).shape == (0, z.shape[1])
    assert torch.equal(x.detach(), before)


@pytest.mark.parametrize(("kind", "option"), [(Whitening, "dim"), (RemoveComponents, "count"), (Flow, "epochs")])
def test_options_from_python_are_checked(kind, option):
    with pytest.raises(UserError, match=f"^{option}=-1: it should be"):
        kind(**{option: -1})


def test_embeddings_of_another_width_are_an_error():
    with pytest.raises(UserError, match="flow: it needs 5 dimensions or more, not 4"):
        Flow().fit(torch.randn(60, 4))
    with pytest.raises(UserError, match="fitted on 6 dimensions, but the embeddings have 5"):
        Whitening().fit(torch.randn(60, 6)).transform(torch.randn(3, 5))


@every_kind
@pytest.mark.parametrize("x", [torch.randn(1, 6), torch.full((50, 6), 0.1)], ids=["one", "equal"])
def test_one_embedding_or_equal_ones_are_an_error(make, x):
    with pytest.raises(UserError, match="all embeddings that it is fitted on are equal"):
        make().fit(x)


def test_embeddings_that_differ_by_rounding_are_an_error():
    with pytest.raises(UserError, match="whitening: the embeddings differ by no more than rounding"):
        Whitening().fit(torch.tensor([[1.0, 1.0], [1.0, 1.0 + 2**-23]]))


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


@pytest.mark.parametrize("size", [1e-3, 1e4])
@pytest.mark.parametrize(
    ("embeddings", "rank"),
    [
        (lambda: torch.randn(50, 8) + 100, 8),
        (lambda: torch.randn(5, 8), 4),
        (lambda: torch.cat([torch.randn(50, 5), torch.full((50, 3), 0.3)], dim=1), 5),
        (lambda: torch.randn(50, 8) * torch.logspace(0, -4, 8), 8),
        (lambda: torch.full((50, 8), 0.1), 0),
    ],
)
def test_directions_without_variance_are_left_out(embeddings, rank, size):
    mean, variances, directions = principal_directions(embeddings() * size)
    assert variances.shape == (rank,) and directions.shape == (8, rank) and mean.shape == (8,)
    assert (variances.diff() <= 0).all()
