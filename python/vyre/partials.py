"""Reductions over a cluster: each worker makes a partial of its part, partials combine in any
order, and the result has the same
bits for any order, batching and number of workers.

    total = sum((vyre.partial("sum", batch) for batch in batches), vyre.partial("sum")).value
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, Iterable, Optional

import numpy as np

from . import ops
from ._vyre import ExactSum
from .errors import ArgumentError

#: Types in which a minimum or maximum is computed.
_WIDER = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32", "bool": "uint32", "float16": "float32"}


def exact_sum(array: Any) -> Any:
    """The sum of floats without error, rounded once to nearest, ties to even: f32 for f32 arrays,
    f64 otherwise.

    A NaN, or infinities of both signs, give NaN; an empty sum is 0.0, and so is any zero sum except one of only -0.0. Nulls of an
    Arrow array are skipped.
    """
    return partial("sum", _floats(array)).value


def partial(kind: str, array: Any = None, *, bins: Optional[int] = None) -> Partial:
    """A partial result over a NumPy or Arrow array: "sum", "min", "max" or "histogram" (of `bins`
    values).

    Partials combine with `+` in any order; `value` is the result. Sums of integers are exact, and so are sums of floats, rounded
    when read. Minima and maxima ignore NaN, and treat -0.0 as less than 0.0. Nulls are skipped.
    """
    made = Partial(kind, bins=bins)
    return made if array is None else made.add(array)


def combined(partials: Iterable[Partial]) -> Partial:
    """Combines these partials, of which there is at least one."""
    return reduce(operator.add, partials)


class Partial:
    """A partial reduction. It pickles; equal partials have equal bytes."""

    def __init__(self, kind: str, *, bins: Optional[int] = None) -> None:
        if kind not in ("sum", "min", "max", "histogram"):
            raise ArgumentError(f'a partial is "sum", "min", "max" or "histogram", not {kind!r}')
        if (bins is None) != (kind != "histogram"):
            raise ArgumentError("`bins` is required for a histogram and not allowed otherwise")
        self.kind, self.bins = kind, bins
        #: Type of the elements, once there are any.
        self.dtype: Any = None
        self._state: Any = None

    def add(self, array: Any) -> Partial:
        """This partial with the elements of an array added."""
        values = _values(array)
        if self.dtype is None:
            self.dtype = values.dtype
        elif self.dtype != values.dtype:
            raise ArgumentError(f"this partial is of {self.dtype}, but the array is of {values.dtype}")
        self._state = self._joined(self._state, self._of(values))
        return self

    def __add__(self, other: Any) -> Partial:
        if not isinstance(other, Partial):
            return NotImplemented
        if (self.kind, self.bins) != (other.kind, other.bins):
            raise ArgumentError(f"a {self.kind} and a {other.kind} cannot be combined")
        # NumPy treats `None` as a type, so it is not compared.
        both = self.dtype is not None and other.dtype is not None
        if both and self.dtype != other.dtype:
            raise ArgumentError(f"a {self.kind} of {self.dtype} and one of {other.dtype} cannot be combined")
        made = Partial(self.kind, bins=self.bins)
        made.dtype = other.dtype if self.dtype is None else self.dtype
        made._state = self._joined(self._state, other._state)
        return made

    @property
    def value(self) -> Any:
        """The result: an int, a NumPy float, or the counts; None for the minimum or maximum of
        nothing."""
        state = self._state
        if self.kind == "histogram":
            return np.zeros(self.bins, np.uint64) if state is None else state
        if isinstance(state, ExactSum):
            return np.float64(state.f64) if self.dtype == np.float64 else np.float32(state.f32)
        if state is None and self.kind == "sum":
            return 0 if self.dtype is None or self.dtype.kind in "iub" else self.dtype.type(0)
        return state

    def __getstate__(self) -> Any:
        return self.kind, self.bins, None if self.dtype is None else self.dtype.str, self._state

    def __setstate__(self, state: Any) -> None:
        self.kind, self.bins, dtype, self._state = state
        self.dtype = None if dtype is None else np.dtype(dtype)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Partial) and self._key() == other._key()

    def _key(self) -> Any:
        kind, bins, dtype, state = self.__getstate__()
        # NaN and the sign of a zero are significant.
        return kind, bins, dtype, bytes(state) if isinstance(state, ExactSum) else repr(np.asarray(state).tolist())

    def __repr__(self) -> str:
        return f"<vyre.Partial {self.kind} of {self.dtype}: {self.value}>"

    def _of(self, values: Any) -> Any:
        if self.bins is not None:
            return ops.histogram(values, self.bins).astype(np.uint64)
        if self.kind == "sum":
            return _float_sum(values) if values.dtype.kind == "f" else _integer_sum(values)
        if values.size == 0:
            return None
        wide = _WIDER.get(values.dtype.name)
        found = getattr(ops, self.kind)(values if wide is None else values.astype(wide))
        # In the array's type: a widened result fits it again.
        return values.dtype.type(found)

    def _joined(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        if self.kind in ("sum", "histogram"):
            return a + b
        return self._of(np.array([a, b], self.dtype))


def _float_sum(values: Any) -> Any:
    return ExactSum(values.astype(np.float32) if values.dtype == np.float16 else values)


def _integer_sum(values: Any) -> int:
    """The sum, which can exceed 64 bits: the halves of the words are summed separately."""
    if values.dtype.itemsize < 8:
        return int(np.sum(values, dtype=np.int64))
    low = int(np.sum(values & values.dtype.type(0xFFFFFFFF), dtype=np.uint64))
    return (int(np.sum(values >> values.dtype.type(32), dtype=np.int64)) << 32) + low


def _floats(array: Any) -> Any:
    values = _values(array)
    if values.dtype.kind != "f":
        raise ArgumentError(f"an exact sum takes f32 or f64, not {values.dtype}; integer sums are always exact")
    return values


def _values(array: Any) -> Any:
    """The elements as one NumPy array, without nulls; without a copy if possible."""
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array).reshape(-1)
    package = type(array).__module__.partition(".")[0]
    if package == "polars":
        array, package = array.to_arrow(), "pyarrow"
    if package == "pyarrow":
        present = array.drop_null() if array.null_count else array
        return np.ascontiguousarray(present.to_numpy() if hasattr(array, "chunks") else present.to_numpy(zero_copy_only=False))
    if package == "pandas" and isinstance(array.dtype, np.dtype):
        return np.ascontiguousarray(array.to_numpy())
    if package == "pandas":
        return np.ascontiguousarray(array.dropna().to_numpy(array.dtype.numpy_dtype))
    return np.ascontiguousarray(array)
