"""Shared by the engine tests: kernels, columns, and comparison of columns."""

from pathlib import Path

import numpy as np
import pytest

import vyre

EXAMPLES = Path(__file__).parents[2] / "examples"
MARKET = dict(strike=100.0, rate=0.05, volatility=0.2, years=1.0)
#: Black-Scholes: the price of a call option for each spot price.
PRICE = (EXAMPLES / "black_scholes.vyre").read_text()
#: Two columns, a table, a branch, and a loop that depends on values.
MIX = """
kernel mix(scale: f64 uniform, table: read f64[4], a: read f64[], b: read i32[], z: output f64[] len_of a) over a {
  let i = invocation.x
  let x = a[i] * scale
  let rounds = b[i] & 7
  for k in 0..rounds { x = x * 0.5 + table[u32(k) % 4] }
  if x < 0.0 { x = -x }
  z[i] = sqrt(x)
}
"""
TABLE = np.array([0.25, -1.5, 3.0, 1e-3])


def price():
    return vyre.arrow(vyre.kernel(PRICE), **MARKET)


def mix():
    return vyre.arrow(vyre.kernel(MIX), scale=1.25, table=TABLE)


def spots(rows, seed=1):
    """Spot prices of all magnitudes, including some that no market has."""
    random = np.random.default_rng(seed)
    x = np.exp(random.normal(4.6, 0.5, rows)).astype(np.float32)
    odd = np.array([0.0, -1.0, np.inf, np.nan, 1e-40, 3e38], np.float32)
    x[: min(rows, 6)] = odd[: min(rows, 6)]
    return x


def mixed(rows, seed=2):
    random = np.random.default_rng(seed)
    return random.normal(0.0, 100.0, rows), random.integers(-1000, 1000, rows).astype(np.int32)


def bits(array):
    """The bits of floats, for comparison."""
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "f" else array


def assert_same(found, expected):
    np.testing.assert_array_equal(bits(found), bits(expected))


def assert_same_column(found, expected, valid=None):
    """Checks that an Arrow column has these values, and nulls where `valid` is false."""
    if valid is None:
        valid = np.ones(len(expected), bool)
    assert len(found) == len(expected)
    assert found.null_count == int((~valid).sum())
    np.testing.assert_array_equal(found.is_valid().to_numpy(zero_copy_only=False), valid)
    present = found.drop_null()
    present = present.to_numpy() if hasattr(present, "chunks") else present.to_numpy(zero_copy_only=False)
    assert_same(present, np.asarray(expected)[valid])


@pytest.fixture(scope="session")
def one_process():
    """The prices of ten million spots, computed in this process."""
    x = spots(10_000_000)
    return x, price()(x)
