"""Ready-made ops: sorts, scans, reductions, matrices. Each gives the same bits on every strict
backend.

Arrays are NumPy arrays or anything else that exports memory; a `Resident` array stays on its device, and so do results made from it.
A result goes to `out` if that is given, which can be the input itself. `on` names a backend, `timeout` is in seconds.
"""

from __future__ import annotations

from typing import Any, Optional

from . import _vyre
from ._vyre import Resident
from .errors import ArgumentError
from .kernels import of_text

_NAMES = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "uint16": "u16",
    "int16": "i16",
    "uint32": "u32",
    "int32": "i32",
    "uint64": "u64",
    "int64": "i64",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
}


def _array(array: Any) -> Any:
    """The argument as an object with a shape and a type."""
    if isinstance(array, Resident) or hasattr(array, "__array_interface__"):
        return array
    import numpy

    if hasattr(array, "__dlpack__"):
        return numpy.from_dlpack(array)
    try:
        return numpy.asarray(memoryview(array))
    except TypeError:
        raise ArgumentError(f"an op takes arrays, not a {type(array).__name__}; pass a NumPy array") from None


def _element(op: str, array: Any) -> str:
    named = array.dtype if isinstance(array, Resident) else array.dtype.name
    if named not in _NAMES:
        raise ArgumentError(f"`{op}` does not take elements of {named}")
    return _NAMES[named]


def _size(array: Any) -> int:
    count = 1
    for axis in array.shape:
        count *= axis
    return count


def _made(like: Any, shape: tuple[int, ...], element: Any, out: Any) -> Any:
    """Destination of a result: `out`, or a new array of this shape, in the same place as `like`."""
    if out is not None:
        return out
    import numpy

    made = numpy.empty(shape, element)
    return Resident(numpy.zeros(shape, element)) if isinstance(like, Resident) else made


def _apart(array: Any, out: Any) -> Any:
    """The array, or a copy of it if the result goes to the same memory."""
    if out is None:
        return array
    if isinstance(array, Resident):
        return Resident(array.read()) if out is array else array
    import numpy

    overlap = not isinstance(out, Resident) and numpy.may_share_memory(array, _array(out))
    return array.copy() if overlap else array


def _rows(op: str, name: str, array: Any) -> tuple[int, int]:
    if len(array.shape) != 2:
        raise ArgumentError(f"`{name}` of `{op}` has two axes, not {len(array.shape)}")
    rows, columns = array.shape
    return rows, columns


def _same(op: str, names: str, first: Any, second: Any) -> None:
    if _size(first) != _size(second):
        raise ArgumentError(f"{names} of `{op}` must have the same number of elements, not {_size(first)} and {_size(second)}")


def _mapped(op: str, x: Any, out: Any, on: Optional[str], timeout: Optional[float]) -> Any:
    x = _array(x)
    made = _made(x, tuple(x.shape), x.dtype, out)
    size, element = _size(x), _element(op, x)
    _vyre.op(op, element, size, (0, 0), (_apart(x, out), made), on, timeout)
    return made


def _reduced(op: str, x: Any, on: Optional[str], timeout: Optional[float]) -> Any:
    import numpy

    x = _array(x)
    result = numpy.zeros(1, x.dtype)
    _vyre.op(op, _element(op, x), _size(x), (0, 0), (x, result), on, timeout)
    return result[0]


def sort(keys: Any, *, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """Sorts u32, i32 or f32 keys in ascending order, floats in the IEEE-754 total order; in place
    with `out=keys`."""
    return _mapped("sort", keys, out, on, timeout)


def sort_pairs(
    keys: Any, values: Any, *, on: Optional[str] = None, timeout: Optional[float] = None
) -> tuple[Any, Any]:
    """Sorts the keys in ascending order, and the u32 values with them; equal keys keep their
    order."""
    keys, values = _array(keys), _array(values)
    _same("sort_pairs", "keys and values", keys, values)
    to = _made(keys, tuple(keys.shape), keys.dtype, None), _made(values, tuple(values.shape), values.dtype, None)
    _vyre.op("sort_pairs", _element("sort_pairs", keys), _size(keys), (0, 0), (keys, values, *to), on, timeout)
    return to


def sum(x: Any, *, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """The sum of all elements, added in the same order on every backend; integers wrap."""
    return _reduced("sum", x, on, timeout)


def _extreme(op: str, x: Any, on: Optional[str], timeout: Optional[float]) -> Any:
    x = _array(x)
    if _size(x) == 0:
        raise ArgumentError(f"`{op}` needs at least one element")
    return _reduced(op, x, on, timeout)


def min(x: Any, *, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """The smallest element, ignoring NaNs."""
    return _extreme("min", x, on, timeout)


def max(x: Any, *, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """The largest element, ignoring NaNs."""
    return _extreme("max", x, on, timeout)


def dot(x: Any, y: Any, *, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """The sum of `x[i] * y[i]`, in the order of `sum`."""
    import numpy

    x, y = _array(x), _array(y)
    _same("dot", "x and y", x, y)
    result = numpy.zeros(1, x.dtype)
    _vyre.op("dot", _element("dot", x), _size(x), (0, 0), (x, y, result), on, timeout)
    return result[0]


def argmax(x: Any, *, on: Optional[str] = None, timeout: Optional[float] = None) -> Optional[int]:
    """The index of the largest element, the first of equals, ignoring NaNs; `None` if there is no
    number."""
    import numpy

    x = _array(x)
    index = numpy.zeros(1, numpy.uint32)
    _vyre.op("argmax", _element("argmax", x), _size(x), (0, 0), (x, index), on, timeout)
    return None if index[0] == 0xFFFFFFFF else int(index[0])


def scan(x: Any, *, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """Inclusive prefix sums: `y[i] = x[0] + … + x[i]`."""
    return _mapped("scan", x, out, on, timeout)


def scan_exclusive(
    x: Any, *, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None
) -> Any:
    """Exclusive prefix sums: `y[i] = x[0] + … + x[i - 1]`."""
    return _mapped("scan_exclusive", x, out, on, timeout)


def compact(x: Any, keep: Any, *, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """The elements `x[i]` for which `keep[i]` is not zero, in order. `keep` is u32, or bool, which
    is copied."""
    import numpy

    x, keep = _array(x), _array(keep)
    _same("compact", "x and keep", x, keep)
    if not isinstance(keep, Resident) and keep.dtype == numpy.bool_:
        keep = keep.astype(numpy.uint32)
    to, count = numpy.empty(_size(x), x.dtype), numpy.zeros(1, numpy.uint32)
    _vyre.op("compact", _element("compact", x), _size(x), (0, 0), (x, keep, to, count), on, timeout)
    return to[: int(count[0])]


def histogram(
    x: Any, bins: int, *, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None
) -> Any:
    """Counts the values 0 to `bins - 1`, as u32, ignoring others. Takes u8, u16 and u32; 1 to 1024
    bins."""
    x = _array(x)
    if not 1 <= bins <= 1024:
        raise ArgumentError(f"`histogram` takes 1 to 1024 bins, not {bins}")
    counts = _made(x, (bins,), "uint32", out)
    _vyre.op("histogram", _element("histogram", x), _size(x), (bins, 0), (x, counts), on, timeout)
    return counts


def transpose(x: Any, *, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """The matrix with rows and columns exchanged, in new memory."""
    x = _array(x)
    rows, columns = _rows("transpose", "x", x)
    y = _made(x, (columns, rows), x.dtype, out)
    arguments = _apart(x, out), y
    _vyre.op("transpose", _element("transpose", x), rows, (columns, 0), arguments, on, timeout)
    return y


def softmax_rows(x: Any, *, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """`exp(x - max) / Σ exp(x - max)` within each row, for f32."""
    x = _array(x)
    rows, columns = _rows("softmax_rows", "x", x)
    y = _made(x, (rows, columns), x.dtype, out)
    arguments = _apart(x, out), y
    _vyre.op("softmax_rows", _element("softmax_rows", x), rows, (columns, 0), arguments, on, timeout)
    return y


def matmul(
    a: Any, b: Any, *, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None
) -> Any:
    """The product of two f32 matrices, each element summed in order."""
    a, b = _array(a), _array(b)
    (rows, depth), (beside, columns) = _rows("matmul", "a", a), _rows("matmul", "b", b)
    if depth != beside:
        raise ArgumentError(f"`a` of `matmul` has {depth} columns but `b` has {beside} rows; these must be equal")
    c = _made(a, (rows, columns), a.dtype, out)
    arguments = _apart(a, out), _apart(b, out), c
    _vyre.op("matmul", _element("matmul", a), rows, (depth, columns), arguments, on, timeout)
    return c


_GATHER = """kernel gather(x: read {0}[], index: read u32[], y: output {0}[] len_of index) {{
  y[invocation.x] = x[index[invocation.x]]
}}"""

_SCATTER = """kernel scatter(x: read {0}[], index: read u32[], y: read_write {0}[]) over index {{
  y[index[invocation.x]] = x[invocation.x]
}}"""


def gather(
    x: Any, index: Any, *, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None
) -> Any:
    """`y[i] = x[index[i]]`, zero for an index out of range; indices are u32."""
    kernel = of_text(_GATHER.format(_element("gather", _array(x))), {})
    named = {} if out is None else {"out": out}
    return kernel.run(x, index, on=on, timeout=timeout, **named)[0]


def scatter(x: Any, index: Any, out: Any, *, on: Optional[str] = None, timeout: Optional[float] = None) -> Any:
    """`out[index[i]] = x[i]`, ignoring indices out of range; indices are u32, and those in range
    are distinct."""
    x, index = _array(x), _array(index)
    _same("scatter", "x and index", x, index)
    of_text(_SCATTER.format(_element("scatter", x)), {}).run(x, index, out, on=on, timeout=timeout)
    return out
