"""Partials: the same bits for any cut, order and number of workers, and exact compared with
rationals."""

import pickle
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import vyre


def numbers(seed, rows, dtype):
    random = np.random.default_rng(seed)
    spread = {0: 3, 1: 60, 2: 30}[seed % 3] if dtype == np.float32 else {0: 3, 1: 900, 2: 60}[seed % 3]
    x = random.normal(0, 1, rows) * np.exp2(random.integers(-spread, spread, rows).astype(float))
    return x.astype(dtype)


def rounded(exact, dtype):
    """The float nearest to a rational number: dividing integers rounds once, to nearest, ties to
    even."""
    if dtype == np.float64:
        return np.float64(exact.numerator / exact.denominator)
    near = np.float32(exact.numerator / exact.denominator)
    # Rounded twice, so a neighbour can be nearer.
    candidates = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    finite = [x for x in candidates if np.isfinite(x)]
    return min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), int(np.float32(x).view(np.uint32)) & 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(12))
def test_exact_sums_are_those_of_rational_numbers(seed, dtype):
    x = numbers(seed, 1 + seed * 379, dtype)
    exact = sum(map(Fraction, x.astype(float).tolist()))
    found = vyre.exact_sum(x)
    assert found.dtype == dtype
    assert found == rounded(exact, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint16, np.int32, np.uint64, np.int64])
@pytest.mark.parametrize("kind", ["sum", "min", "max"])
def test_any_number_of_workers_gives_the_same_bits(kind, dtype):
    if np.dtype(dtype).kind == "f":
        x = numbers(1, 5001, dtype)
        x[[5, 77]], x[200] = -0.0, np.nan if kind != "sum" else 0.0
    else:
        info = np.iinfo(dtype)
        x = np.random.default_rng(3).integers(info.min, info.max, 5001, dtype, endpoint=True)
    whole = vyre.partial(kind, x).value
    random = Random(4)
    for workers in [1, 2, 7]:
        cuts = sorted(random.sample(range(5001), workers - 1))
        parts = [vyre.partial(kind, x[a:b]) for a, b in zip([0, *cuts], [*cuts, 5001])]
        parts = [pickle.loads(pickle.dumps(part)) for part in parts]
        random.shuffle(parts)
        found = vyre.combined([vyre.partial(kind), *parts])
        assert repr(found.value) == repr(whole)
        assert found == vyre.partial(kind, x)
    if kind == "sum" and np.dtype(dtype).kind != "f":
        assert whole == sum(x.tolist())
    if kind != "sum":
        assert whole == getattr(np, "nan" + kind)(x)


def test_histograms_add_up():
    x = np.random.default_rng(5).integers(0, 256, 10_000).astype(np.uint8)
    whole = vyre.partial("histogram", x, bins=256)
    np.testing.assert_array_equal(whole.value, np.bincount(x, minlength=256))
    parts = [vyre.partial("histogram", part, bins=256) for part in np.array_split(x, 7)]
    np.testing.assert_array_equal(vyre.combined(parts[::-1]).value, whole.value)
    assert vyre.partial("histogram", bins=4).value.tolist() == [0, 0, 0, 0]


def test_special_sums():
    def total(*x):
        return repr(float(vyre.exact_sum(np.array(x, np.float64))))

    assert total() == "0.0" and total(-0.0, -0.0) == "-0.0" and total(0.0, -0.0) == "0.0" and total(1.0, -1.0) == "0.0"
    assert total(1e308, 1e308, -1e308) == "1e+308" and total(1e308, 1e308) == "inf"
    assert total(float("inf"), 1.0) == "inf" and total(float("inf"), -float("inf")) == "nan" and total(float("nan")) == "nan"


def test_nulls_are_left_out():
    column = pa.chunked_array([pa.array([1.5, None, 2.0]), pa.array([None, 4.0])])
    assert vyre.exact_sum(column) == 7.5
    assert vyre.partial("max", column).value == 4.0
    assert vyre.partial("min", pa.array([None, None], pa.float32())).value is None
    assert vyre.partial("sum", pa.array([2**62, None, 2**62], pa.int64())).value == 2**63


def test_what_does_not_combine_is_refused():
    for wrong in [
        lambda: vyre.partial("mean"),
        lambda: vyre.partial("histogram"),
        lambda: vyre.partial("sum", bins=3),
        lambda: vyre.partial("sum") + vyre.partial("min"),
        lambda: vyre.partial("sum", np.ones(2)) + vyre.partial("sum", np.ones(2, np.float32)),
        lambda: vyre.exact_sum(np.ones(3, np.int32)),
    ]:
        with pytest.raises(vyre.ArgumentError):
            wrong()
