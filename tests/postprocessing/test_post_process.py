"""Claims of every post-processing: types, shapes, order of calls and errors."""

import math

import pytest
import torch

from simcse_pl.postprocessing.flow import Flow
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError

MAKE = {
    "whitening": lambda: Whitening(dim=4),
    "remove_components": lambda: RemoveComponents(count=2, center=False),
    "flow": lambda: Flow(epochs=1, hidden=8, seed=3),
}
every_kind = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        (Whitening, "dim", 0),
        (RemoveComponents, "count", 0),
        *((Flow, option, value) for option, value in (("hidden", 0), ("epochs", -1), ("lr", 0.0), ("lr", math.nan))),
    ],
)
def test_options_out_of_range_are_errors(kind, option, value):
    with pytest.raises(UserError, match=f"postprocess.{option}={value}: it must be"):
        kind(**{option: value})


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_result_has_the_dtype_of_the_input(make, dtype):
    x = torch.randn(60, 6).to(dtype)
    z = make().fit(x).transform(x)
    assert z.dtype == dtype and len(z) == 60 and torch.isfinite(z).all()


@every_kind
def test_rows_are_mapped_one_by_one_without_a_gradient_and_stay_the_same(make):
    x = torch.randn(60, 6, requires_grad=True)
    before = x.detach().clone()
    fitted = make().fit(x)
    z = fitted.transform(x)
    torch.testing.assert_close(fitted.transform(x[7:8]), z[7:8])
    assert fitted.transform(x[:0]).shape == (0, z.shape[1])
    assert torch.equal(x.detach(), before) and not z.requires_grad


@every_kind
def test_nothing_works_before_fit(make, tmp_path):
    postprocess = make()
    assert not postprocess.fitted
    with pytest.raises(UserError, match=f"{postprocess.name}: fit it on embeddings first"):
        postprocess.transform(torch.randn(3, 6))
    with pytest.raises(UserError, match="fit it before saving it"):
        postprocess.save(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    assert postprocess.fit(torch.randn(60, 6)).fitted


@every_kind
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.randn(1, 6), "1 embeddings are too few"),
        (torch.randn(6), r"takes floats .n, dim., not torch.float32 \[6\]"),
        (torch.randn(6, 0), r"\[6, 0\]"),
        (torch.ones(6, 6, dtype=torch.int64), "torch.int64"),
        (torch.randn(6, 6).index_fill(0, torch.tensor([4]), torch.nan), "embedding 4 has a value that is not"),
    ],
)
def test_unfit_embeddings_are_errors(make, x, message):
    postprocess = make()
    with pytest.raises(UserError, match=message):
        postprocess.fit(x)
    assert not postprocess.fitted


@every_kind
def test_embeddings_that_do_not_fit_the_map_are_errors(make):
    fitted = make().fit(torch.randn(60, 6))
    with pytest.raises(UserError, match="fitted on 6 dimensions, but the embeddings have 5"):
        fitted.transform(torch.randn(3, 5))
    with pytest.raises(UserError, match="embedding 0"):
        fitted.transform(torch.full((3, 6), torch.nan))


@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(60, 6),
        torch.full((60, 6), 0.1),
        torch.randn(60, 6).sign() * 6e4,
        torch.randn(60, 6) * 1e-6,
        torch.randn(60, 6).index_fill(0, torch.tensor([3]), 0),
        torch.randn(60, 6).mul(1e-3).index_fill(0, torch.tensor([3]), 6e4),
    ],
    ids=["zeros", "all equal", "large", "small", "a row of zeros", "a row far away"],
)
def test_a_map_is_finite_or_an_error(make, x, dtype):
    x = x.to(dtype)
    error = ""
    try:
        z = make().fit(x).transform(x)
        assert torch.isfinite(z).all() and z.dtype == dtype
    except UserError as raised:
        error = str(raised)
    assert not error or any(reason in error for reason in ("all the same", "none would be left", "overflows"))


def test_an_overflow_of_the_dtype_is_an_error():
    removal = RemoveComponents(count=1).fit(torch.tensor([[1e3, 0.0], [-1e3, 0.0], [0.0, 1.0]]) - 60_000)
    far = torch.full((2, 2), 60_000.0)  # 120,000 from the mean
    assert removal.transform(far).max() == pytest.approx(120_000, rel=1e-4)
    with pytest.raises(UserError, match="^remove_components: the result overflows torch.float16; pass"):
        removal.transform(far.half())
