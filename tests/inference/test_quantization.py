"""Stored values against sentence-transformers, dequantized ones against loops, and equal vectors as candidates."""

import numpy as np
import pytest
from sentence_transformers.util.quantization import quantize_embeddings

from simcse_pl.inference import quantization
from simcse_pl.inference.quantization import BINARY, FLOAT32, INT8, PRECISIONS, RANGED, UINT8, Quantizer, stored_width
from simcse_pl.utils.errors import UserError

DIM = 24


@pytest.fixture
def generator():
    return np.random.default_rng(3)


def vectors_of(generator, n, dim=DIM):
    """Return vectors whose dimensions have different ranges; dimension 2 is constant."""
    vectors = generator.normal(size=(n, dim)) * np.exp(generator.normal(size=dim)) + generator.normal(size=dim)
    vectors[:, 2] = 0.25
    return vectors.astype(np.float32)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_values_equal_those_of_sentence_transformers(precision, generator):
    calibration, vectors = vectors_of(generator, 300), 2 * vectors_of(generator, 100)  # some are outside the ranges
    vectors[0] = 0.0
    quantizer = Quantizer.calibrated(precision, np.split(calibration, [1, 200]))
    theirs = "ubinary" if precision == BINARY else precision
    expected = quantize_embeddings(vectors, theirs, calibration_embeddings=calibration)
    codes = quantizer.quantize(vectors)
    assert codes.dtype == quantizer.dtype == expected.dtype and codes.shape[1] == stored_width(precision, DIM)
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(quantizer.quantize(calibration), quantize_embeddings(calibration, theirs))
    if precision in RANGED:
        low, high = quantizer.ranges
        assert (vectors < low).any() and (vectors > high).any()
    assert quantizer.quantize(vectors[:0]).shape == expected[:0].shape


@pytest.mark.parametrize("precision", RANGED)
def test_a_dequantized_value_is_the_middle_of_its_interval(precision, generator):
    vectors = vectors_of(generator, 300)
    quantizer = Quantizer.calibrated(precision, [vectors])
    codes = quantizer.quantize(vectors)
    back = quantizer.dequantize(codes[:, None])[:, 0]
    assert back.dtype == np.float32
    for dim in range(DIM):
        values = [float(value) for value in vectors[:, dim]]
        step = (max(values) - min(values)) / 255
        levels = [int(code) + 128 * (precision == INT8) for code in codes[:, dim]]
        assert min(levels) == 0 and max(levels) in ((0,) if dim == 2 else (254, 255))  # by rounding
        middles = [min(values) + (level + 0.5) * step for level in levels]
        np.testing.assert_allclose(back[:, dim], middles, rtol=1e-5, atol=1e-6)
        assert all(abs(x - y) <= step / 2 + 1e-6 for x, y in zip(values, middles, strict=True) if x < max(values))
    np.testing.assert_array_equal(back[:, 2], vectors[:, 2])


def test_binary_stands_for_the_signs_and_float32_for_itself(generator):
    vectors = vectors_of(generator, 50)
    binary = Quantizer(BINARY)
    np.testing.assert_array_equal(binary.dequantize(binary.quantize(vectors)), np.where(vectors > 0, 1, -1))
    assert binary.quantize(np.eye(16, dtype=np.float32)[[0, 9]]).tolist() == [[128, 0], [0, 64]]  # as packbits
    assert Quantizer().quantize(vectors) is vectors is Quantizer().dequantize(vectors)


@pytest.mark.parametrize("precision", RANGED)
@pytest.mark.parametrize("dim", [DIM, 1500])
def test_equal_vectors_are_candidates_by_position(precision, dim, generator, monkeypatch):
    monkeypatch.setattr(quantization, "_BLOCK", 37)
    distinct = vectors_of(generator, 2, dim)
    quantizer = Quantizer.calibrated(precision, [distinct])
    codes = quantizer.quantize(np.tile(distinct, (100, 1)))
    for own in (0, 1):
        [places] = quantizer.candidates(distinct[own : own + 1] - distinct[1 - own], codes, 30)
        assert sorted(places) == [*range(own, 60, 2)]
    [places] = quantizer.candidates(np.zeros((1, dim), np.float32), codes, 5)
    assert sorted(places) == [0, 1, 2, 3, 4]


def test_invalid_arguments_raise_errors(generator):
    vectors = vectors_of(generator, 9)
    broken = np.where(np.arange(DIM) == 3, np.nan, vectors).astype(np.float32)
    calibrated = Quantizer.calibrated(UINT8, [vectors])
    for call, message in (
        (lambda: Quantizer("float16"), "precision=float16: choose one of float32, int8, uint8, binary"),
        (lambda: Quantizer(INT8), "precision=int8 needs the ranges"),
        (lambda: Quantizer.calibrated(INT8, []), "at least 2 sentences, not 0"),
        (lambda: Quantizer.calibrated(UINT8, [vectors, broken]), "not finite"),
        (lambda: calibrated.quantize(broken), "not finite"),
        (lambda: Quantizer(BINARY).quantize(broken), "not finite"),
        (lambda: stored_width("ubinary", 8), "precision=ubinary: choose one of"),
    ):
        with pytest.raises(UserError, match=message):
            call()
    assert stored_width(FLOAT32, 20) == stored_width(INT8, 20) == 20
