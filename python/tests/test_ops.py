"""Ready-made ops, compared with NumPy."""

import numpy as np
import pytest

import vyre

RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.float32])
def test_sort(dtype):
    keys = (RANDOM.standard_normal(5000) * 1000).astype(dtype)
    assert np.array_equal(vyre.sort(keys), np.sort(keys))
    values = np.arange(5000, dtype=np.uint32)
    sorted_keys, moved = vyre.sort_pairs(keys, values)
    assert np.array_equal(sorted_keys, np.sort(keys)) and np.array_equal(moved, np.argsort(keys, kind="stable"))
    out = keys.copy()
    assert vyre.sort(out, out=out) is out and np.array_equal(out, np.sort(keys))


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint64, np.int64, np.float32, np.float64])
def test_reductions_and_scans(dtype):
    x = RANDOM.integers(0, 100, 3000).astype(dtype)
    assert vyre.sum(x) == x.sum() and vyre.sum(x).dtype == dtype
    assert (vyre.min(x), vyre.max(x), vyre.argmax(x)) == (x.min(), x.max(), x.argmax())
    assert vyre.dot(x, x) == np.dot(x, x)
    assert np.array_equal(vyre.scan(x), np.cumsum(x, dtype=dtype))
    assert np.array_equal(vyre.scan_exclusive(x)[1:], np.cumsum(x, dtype=dtype)[:-1])
    assert np.array_equal(vyre.compact(x, x > 50), x[x > 50])
    matrix = x.reshape(50, 60)
    assert np.array_equal(vyre.transpose(matrix), matrix.T)
    index = RANDOM.permutation(3000).astype(np.uint32)
    assert np.array_equal(vyre.gather(x, index), x[index])
    assert np.array_equal(vyre.scatter(vyre.gather(x, index), index, np.zeros_like(x)), x)


def test_matrices():
    a, b = RANDOM.integers(-9, 9, (7, 5)).astype(np.float32), RANDOM.integers(-9, 9, (5, 11)).astype(np.float32)
    assert np.array_equal(vyre.matmul(a, b), a @ b)
    x = RANDOM.standard_normal((6, 33)).astype(np.float32)
    exact = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(vyre.softmax_rows(x), exact / exact.sum(1, keepdims=True), rtol=1e-5)
    with pytest.raises(vyre.ArgumentError, match="`a` of `matmul` has 5 columns but `b` has 7 rows"):
        vyre.matmul(a, a)


def test_histogram():
    x = RANDOM.integers(0, 256, 4000).astype(np.uint8)
    assert np.array_equal(vyre.histogram(x, 256), np.bincount(x, minlength=256))
    with pytest.raises(vyre.ArgumentError, match="1 to 1024 bins"):
        vyre.histogram(x, 0)


def test_resident_arrays_stay_resident():
    r = vyre.resident(np.array([3, 1, 2], np.float32))
    made = vyre.scan(vyre.sort(r))
    assert isinstance(made, vyre.Resident) and made.read().tolist() == [1, 3, 6] and vyre.max(made) == 6


def test_nothing_is_converted():
    with pytest.raises(vyre.ArgumentError, match="`sort` takes elements of u32, i32, f32, not f64"):
        vyre.sort(np.ones(3))
    with pytest.raises(vyre.ArgumentError, match="not contiguous"):
        vyre.sum(np.ones(8, np.float32)[::2])
    with pytest.raises(vyre.ArgumentError, match="takes arrays, not a list"):
        vyre.sum([1.0])
    with pytest.raises(vyre.ArgumentError, match="at least one element"):
        vyre.min(np.ones(0, np.float32))
    assert vyre.sum(np.ones(0, np.float32)) == 0
