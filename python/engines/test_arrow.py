"""Arrow arrays in, Arrow arrays out: offsets, nulls, chunks, booleans, lengths, and refusals."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from conftest import TABLE, assert_same, assert_same_column, mix, mixed, price, spots

import vyre
from vyre import columns


def with_nulls(values, valid):
    return pa.array(values, mask=~valid)


def test_values_are_those_of_the_kernel():
    x = spots(5000)
    expected = vyre.kernel(price().kernel.text)(100.0, 0.05, 0.2, 1.0, x)
    found = price()(pa.array(x))
    assert found.type == pa.float32()
    assert_same_column(found, expected)
    assert_same(price()(x), expected)


@pytest.mark.parametrize("seed", range(40))
def test_cuts_offsets_nulls_and_chunks_change_nothing(seed):
    random = np.random.default_rng(seed)
    rows = int(random.choice([0, 1, 2, 7, 8, 9, 63, 64, 65, 1000, 5000]))
    a, b = mixed(rows, seed)
    expected = mix()(a, b)
    valid = [random.random(rows) > share for share in random.choice([0.0, 0.0, 0.3, 1.0], 2)]
    whole = [with_nulls(a, valid[0]), with_nulls(b, valid[1])]
    # A column can hold any value under its nulls.
    assert_same_column(mix()(*whole), expected, valid[0] & valid[1])
    before = int(random.integers(0, 20))
    padded = [pa.concat_arrays([pa.nulls(before, x.type), x, x]).slice(before, rows) for x in whole]
    assert_same_column(mix()(*padded), expected, valid[0] & valid[1])

    def chunked(array):
        cuts = sorted(random.integers(0, rows + 1, 3).tolist())
        return pa.chunked_array([array.slice(x, y - x) for x, y in zip([0, *cuts], [*cuts, rows])], array.type)

    found = mix()(chunked(padded[0]), chunked(padded[1]))
    assert isinstance(found, pa.ChunkedArray)
    assert_same_column(found.combine_chunks(), expected, valid[0] & valid[1])
    found = mix()(chunked(whole[0]), whole[1])
    assert_same_column(found.combine_chunks(), expected, valid[0] & valid[1])


def test_values_are_bound_where_they_are():
    # A kernel that reads and writes gets a copy; one that only reads does not, and no input is ever
    # written.
    twice = vyre.arrow(vyre.kernel("kernel twice(x: read_write f32[]) { x[invocation.x] *= 2.0 }"))
    x = pa.array([1.0, 2.5, None], pa.float32())
    assert twice(x).to_pylist() == [2.0, 5.0, None]
    assert x.to_pylist() == [1.0, 2.5, None]
    both = pa.array(spots(100))
    assert columns._values_of(both, 100, np.dtype("f4")).ctypes.data == both.buffers()[1].address


BOOLS = "kernel flip(x: read bool[], y: read bool[], both: output bool[], other: output u8[] len_of x) over x {\n let i = invocation.x\n both[i] = x[i] && y[i]\n other[i] = select(x[i] != y[i], 7u32, 9u32)\n}"


@pytest.mark.parametrize("rows", [0, 1, 8, 13, 1000])
@pytest.mark.parametrize("before", [0, 3, 8])
def test_booleans_are_unpacked(rows, before):
    random = np.random.default_rng(rows)
    x, y = random.random((2, rows)) > 0.5
    valid = random.random(rows) > 0.2
    flip = vyre.arrow(vyre.kernel(BOOLS))
    given = pa.concat_arrays([pa.array([True] * before, pa.bool_()), with_nulls(x, valid)]).slice(before)
    both, other = flip(given, pa.array(y, pa.bool_()))
    assert both.type == pa.bool_() and other.type == pa.uint8()
    assert_same_column(both, x & y, valid)
    assert_same_column(other, np.where(x != y, 7, 9).astype(np.uint8), valid)


@pytest.mark.parametrize("element", ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "f32", "f64"])
def test_every_type(element):
    copy = vyre.arrow(vyre.kernel(f"kernel same(x: read {element}[], y: output {element}[]) {{ y[invocation.x] = x[invocation.x] }}"))
    dtype = np.dtype(columns._TYPES[element][0])
    x = np.arange(1000).astype(dtype)
    assert_same_column(copy(pa.array(x)), x)
    assert_same(copy(x.reshape(10, 100)), x.reshape(10, 100))
    assert copy(pa.array(x)[:0]).type == pa.array(x).type
    assert copy(pa.nulls(3)).null_count == 3


def test_what_is_not_elementwise_is_refused_with_the_reason():
    shift = vyre.kernel("kernel shift(x: read f32[], y: output f32[]) {\n  y[invocation.x] = x[invocation.x + 1]\n}")
    with pytest.raises(vyre.ProgramError, match="is not elementwise: it reads `x` at a position other than its own"):
        vyre.arrow(shift)
    with pytest.raises(vyre.ProgramError, match="A001"):
        vyre.arrow(vyre.kernel("kernel c(x: read u32[], h: output u32[16]) over x { let old = atomic_add(h, x[invocation.x], 1) }"))


@vyre.elementwise
def gain(x: vyre.f32, g: vyre.f32) -> vyre.f32:
    return pow(max(x, 0.0), 1.0 / g)


def test_functions_of_elements():
    x = np.linspace(-1, 4, 999, dtype=np.float32)
    f = vyre.arrow(gain, g=2.2)
    assert f.inputs == ["x"]
    assert_same_column(f(pa.array(x)), gain(x, 2.2))
    both = vyre.arrow(gain)
    assert_same(both(x, x[::-1].copy()), gain(x, x[::-1].copy()))
    assert_same(pickle.loads(pickle.dumps(f))(x), gain(x, 2.2))
    refused(lambda: vyre.arrow(gain, x=1.0, g=2.2), "needs a column")
    refused(lambda: vyre.arrow(gain, h=2.2), "`h` of `gain` is not a parameter")


def refused(call, *messages):
    with pytest.raises(vyre.ArgumentError) as error:
        call()
    for message in messages:
        assert message in str(error.value)


def test_what_does_not_fit_is_refused():
    f, x = mix(), pa.array([1.0, 2.0])
    refused(lambda: f(x), "takes 2 columns, not 1")
    refused(lambda: f(x, pa.array([1.0, 2.0])), "`b`", "int32", "not of double", "cast")
    refused(lambda: f(x, pa.array([1], pa.int32())), "differ in length")
    refused(lambda: f(np.zeros(2), np.zeros(2)), "`b`", "int32", "float64")
    refused(lambda: f(np.zeros(2), np.zeros(3, np.int32)), "differ in length")
    refused(lambda: f([1.0], [2]), "not list")
    refused(lambda: vyre.arrow(f.kernel, scale=1.0), "`table` of `mix` is missing")
    refused(lambda: vyre.arrow(f.kernel, scale=1.0, table=TABLE, b=1), "`b` of `mix` is a column")
    refused(lambda: vyre.arrow(f.kernel, scale=1.0, table=TABLE, c=1), "`c` of `mix` is not a parameter")
    refused(lambda: vyre.arrow("kernel"), "takes a kernel, not str")
    refused(lambda: f.on_table("a", out="z"), "takes 2 columns")
    refused(lambda: f.on_table("a", "b", out="z")(7), "not int")


def test_a_loop_does_not_run_on_what_is_under_a_null():
    # Endless for a negative number, which occurs only under the null.
    text = "kernel halve(x: read i32[], y: output i32[]) {\n  let i = invocation.x\n  let n = x[i]\n  let k = 0i32\n  while n != 0i32 { n = select(n < 0i32, n, n / 2i32); k = k + 1i32 }\n  y[i] = k\n}"
    halve = vyre.arrow(vyre.kernel(text))
    values = np.array([5, -1, 8, -7], np.int32)
    valid = np.array([True, False, True, False])
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    column = pa.Array.from_buffers(pa.int32(), 4, [bitmap, pa.py_buffer(values)])
    assert halve(column).to_pylist() == [3, None, 4, None]
    assert halve(column.filter(pa.array([False, True, False, True]))).to_pylist() == [None, None]


def test_columns_longer_than_positions_are_split(monkeypatch):
    x = spots(1000)
    expected = price()(x)
    monkeypatch.setattr(columns, "MOST", 96)
    assert_same(price()(x), expected)
    assert_same_column(price()(pa.array(x)), expected)


def test_functions_of_columns_and_tables_pickle():
    x = spots(300)
    again = pickle.loads(pickle.dumps(price()))
    assert_same(again(x), price()(x))
    on_table = pickle.loads(pickle.dumps(price().on_table("x", out="y")))
    assert_same_column(on_table(pa.table({"x": x})).column("y").combine_chunks(), price()(x))
    # A text that now means something else than when it was pickled is refused.
    other = pickle.dumps(vyre.kernel("kernel k(x: read_write f32[]) { x[invocation.x] += 1.0 }"))
    with pytest.raises(vyre.ProgramError, match="create it again"):
        pickle.loads(other.replace(b"+= 1.0", b"+= 2.0"))


def test_tables_of_every_kind():
    x = spots(400)
    expected = price()(x)
    f = price().on_table("x", out="y")
    table = pa.table({"k": np.arange(400), "x": x})
    assert f(table).column_names == ["k", "x", "y"]
    assert_same_column(f(table)["y"].combine_chunks(), expected)
    assert f(f(table)).column_names == ["k", "x", "y"]
    batch = table.to_batches()[0]
    assert_same_column(f(batch).column("y"), expected)
    assert_same(f({"x": x, "k": np.arange(400)})["y"], expected)
    two = mix().on_table("a", "b")
    a, b = mixed(50)
    assert two(pa.table({"a": a, "b": b})).column_names == ["a", "b", "z"]
    assert price().outputs == ["price"] and price().inputs == ["spot"] and price().output_types == [pa.float32()]


def test_blocks_with_gaps_and_axes():
    x = spots(1200).reshape(30, 40)
    expected = price()(x.copy())
    assert expected.shape == (30, 40)
    assert_same(price()(x[::2, ::3]), expected[::2, ::3])
    assert_same(price()(x.T), expected.T)
