"""Kernels over columns: Arrow arrays in, Arrow arrays out, wherever an engine cuts them.

`arrow(kernel, g=2.2)` accepts only kernels that are proved elementwise, so neither batch boundaries nor the values under a
column's nulls can change a result. Values are bound in place; booleans, which Arrow packs, are unpacked. NumPy arrays, pandas
series and Polars series are accepted too, and results have the same kind. docs/scale.md has recipes for engines.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import _vyre
from .errors import ArgumentError
from .kernels import Kernel

#: Maximum number of elements per dispatch: indices in a kernel are u32.
MOST = 1 << 31

#: Element types of kernels: NumPy and Arrow types by name. Arrow has no bf16, which is passed as
#: bits.
_TYPES = {
    "bool": ("bool", "bool_"),
    "u8": ("uint8", "uint8"),
    "i8": ("int8", "int8"),
    "u16": ("uint16", "uint16"),
    "i16": ("int16", "int16"),
    "u32": ("uint32", "uint32"),
    "i32": ("int32", "int32"),
    "u64": ("uint64", "uint64"),
    "i64": ("int64", "int64"),
    "f16": ("float16", "float16"),
    "bf16": ("uint16", "uint16"),
    "f32": ("float32", "float32"),
    "f64": ("float64", "float64"),
}

_pa: Any = None
_pc: Any = None


def _pyarrow() -> Any:
    global _pa, _pc
    if _pa is None:
        try:
            import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]
            import pyarrow.compute  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError as error:
            raise ArgumentError("Arrow arrays need pyarrow: pip install pyarrow") from error
        _pa, _pc = pyarrow, pyarrow.compute
    return _pa


class _Column(NamedTuple):
    """A column of a kernel."""

    name: str
    #: Index among the kernel's parameters.
    place: int
    access: str
    dtype: Any
    #: Name of its type, for messages.
    element: str
    #: The Arrow type, and pyarrow's id for it.
    arrow: Any
    arrow_id: int

    @property
    def is_bool(self) -> bool:
        return self.element == "bool"


def arrow(kernel: Any, **parameters: Any) -> Columns:
    """Turns an elementwise kernel into a function of columns, with values for the parameters that
    all elements share.

    `vyre.arrow(gain, g=2.2)(column)` returns a column. `kernel` comes from `vyre.kernel`, and is refused with the reason if it is
    not elementwise, or is a function from `vyre.elementwise`, whose other arguments are the columns.
    """
    return Columns(*_of_function(kernel, parameters))


def _of_function(function: Any, parameters: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The kernel of an elementwise function with these arguments as numbers, and the arguments by
    the kernel's names."""
    from .translate import Elementwise

    if not isinstance(function, Elementwise):
        return function, parameters
    for name in parameters:
        if name not in function.parameters:
            raise ArgumentError(f"`{name}` of `{function.__name__}` is not a parameter")
    if len(parameters) == len(function.parameters):
        raise ArgumentError(f"`{function.__name__}` needs a column: leave out one of {', '.join(parameters)}")
    kernel = function.variant("".join("n" if name in parameters else "a" for name in function.parameters))
    own = zip(kernel.parameters, function.parameters)
    return kernel, {parameter[0]: parameters[name] for parameter, name in own if name in parameters}


class Columns:
    """An elementwise kernel as a function of columns. It pickles, as its kernel does."""

    def __init__(self, kernel: Any, parameters: Any) -> None:
        if not isinstance(kernel, Kernel):
            raise ArgumentError(f"vyre.arrow takes a kernel, not {type(kernel).__name__}; make one with vyre.kernel")
        columns, shared, self._ends = _vyre.elementwise_proof(kernel)
        self.kernel, self.parameters = kernel, dict(parameters)
        self.__name__ = kernel.__name__
        for name in shared:
            if name not in parameters:
                raise ArgumentError(f"`{name}` of `{self.__name__}` is missing: vyre.arrow({self.__name__}, {name}=...)")
        for name in parameters:
            if name not in shared:
                what = "is a column, which a call takes" if name in columns else "is not a parameter"
                raise ArgumentError(f"`{name}` of `{self.__name__}` {what}")
        self._inputs: list[_Column] = []
        self._outputs: list[_Column] = []
        self._arguments: list[Any] = []
        for place, (name, access, element, _) in enumerate(kernel.parameters):
            self._arguments.append(parameters.get(name))
            if name in columns:
                column = _Column(name, place, access, np.dtype(_TYPES[element][0]), element, None, -1)
                if access != "output":
                    self._inputs.append(column)
                if access != "read":
                    self._outputs.append(column)
        if not self._inputs or not self._outputs:
            raise ArgumentError(f"`{self.__name__}` needs a column to read and one to write")
        self._knows_arrow = False
        # Engines count the parameters of a function.
        takes = [inspect.Parameter(column.name, inspect.Parameter.POSITIONAL_ONLY) for column in self._inputs]
        self.__signature__ = inspect.Signature(takes)

    def __reduce__(self) -> Any:
        return Columns, (self.kernel, self.parameters)

    def __repr__(self) -> str:
        takes = ", ".join(column.name for column in self._inputs)
        gives = ", ".join(column.name for column in self._outputs)
        return f"<vyre.arrow {self.__name__}({takes}) -> {gives}>"

    @property
    def inputs(self) -> list[str]:
        """Names of the columns that a call takes, in order."""
        return [column.name for column in self._inputs]

    @property
    def outputs(self) -> list[str]:
        """Names of the columns that a call returns, in order."""
        return [column.name for column in self._outputs]

    @property
    def output_types(self) -> list[Any]:
        """Arrow types of the columns that a call returns."""
        self._learn_arrow()
        return [column.arrow for column in self._outputs]

    def __call__(self, *columns: Any) -> Any:
        """Runs the kernel on columns of one length and kind; returns a column of that kind, or a
        tuple of several."""
        if len(columns) != len(self._inputs):
            raise ArgumentError(f"{self!r} takes {len(self._inputs)} columns, not {len(columns)}")
        first = columns[0]
        if not self._knows_arrow:
            if isinstance(first, np.ndarray):
                return _single(self._on_numpy(columns))
            self._learn_arrow()
        if isinstance(first, _pa.Array):
            return _single(self._on_arrays(columns))
        if isinstance(first, _pa.ChunkedArray):
            return _single(self._on_chunks(columns))
        if isinstance(first, np.ndarray):
            return _single(self._on_numpy(columns))
        return self._on_others(columns)

    def on_table(self, *columns: str, out: Union[str, Sequence[str], None] = None) -> OnTable:
        """A function of tables (Arrow, pandas, Polars, or dicts of arrays) that adds its results as
        columns.

        `columns` names the table's columns for the kernel's inputs, in order, and defaults to the kernel's own names. `out`
        names the results.
        """
        return OnTable(self, columns or tuple(self.inputs), self.outputs if out is None else out)

    def warm(self, *columns: Any, rounds: int = 24) -> None:
        """Calls it on the first 1, 2, 4, ... elements of these columns, until every size up to
        theirs is verified and timed.

        A bundle made afterwards has a row for each size, which workers with `VYRE_FROZEN=on` need.
        """
        from . import settle

        rows = len(columns[0])
        size = 1
        while size <= rows:
            part = [column[:size] for column in columns]
            for _ in range(rounds):
                self(*part)
                settle()
            size *= 2

    def _learn_arrow(self) -> None:
        if not self._knows_arrow:
            pa = _pyarrow()

            def learnt(column: _Column) -> _Column:
                kind = getattr(pa, _TYPES[column.element][1])()
                return column._replace(arrow=kind, arrow_id=kind.id)

            self._inputs = [learnt(column) for column in self._inputs]
            self._outputs = [learnt(column) for column in self._outputs]
            self._knows_arrow = True

    # Arrow

    def _on_arrays(self, arrays: Sequence[Any]) -> list[Any]:
        rows = len(arrays[0])
        values, nullable = [], None
        for array, column in zip(arrays, self._inputs):
            # `type` is the most expensive part here, but a wrong type would misread memory.
            if not isinstance(array, _pa.Array) or array.type.id != column.arrow_id:
                array = self._fitting(array, column)
            if len(array) != rows:
                raise self._uneven(arrays)
            if array.null_count:
                nullable = [array] if nullable is None else [*nullable, array]
            values.append(_bits_of(array, rows) if column.is_bool else _values_of(array, rows, column.dtype))
        if rows == 0:
            return [_pa.array([], column.arrow) for column in self._outputs]
        validity = None
        if nullable is not None:
            validity = _validity(nullable, rows)
            if not self._ends:
                filled = _filled(values, validity, rows)
                if filled is None:
                    return [_pa.nulls(rows, column.arrow) for column in self._outputs]
                values = filled
        memory: list[Any] = []
        results: list[Any] = []
        for column in self._outputs:
            if column.is_bool:
                memory.append(None)
                results.append(np.empty(rows, np.bool_))
            else:
                buffer = _pa.allocate_buffer(rows * column.dtype.itemsize)
                memory.append(buffer)
                results.append(np.frombuffer(buffer, column.dtype))
        self._run(values, results, rows)
        given = []
        for column, buffer, result in zip(self._outputs, memory, results):
            if buffer is None:
                buffer = _pa.py_buffer(np.packbits(result, bitorder="little"))
            given.append(_pa.Array.from_buffers(column.arrow, rows, [validity, buffer]))
        return given

    def _on_chunks(self, columns: Sequence[Any]) -> list[Any]:
        """The results, cut wherever any of the columns is."""
        if all(isinstance(column, _pa.ChunkedArray) and column.num_chunks == 1 for column in columns):
            return [_pa.chunked_array([result]) for result in self._on_arrays([column.chunk(0) for column in columns])]
        for column in columns:
            if not isinstance(column, (_pa.ChunkedArray, _pa.Array)):
                raise ArgumentError(f"the columns of {self!r} are Arrow arrays, all or none")
            if len(column) != len(columns[0]):
                raise self._uneven(columns)
        lists = [column.chunks if isinstance(column, _pa.ChunkedArray) else [column] for column in columns]
        lengths = [[len(chunk) for chunk in chunks] for chunks in lists]
        if any(other != lengths[0] for other in lengths):
            cuts = sorted({0}.union(*(np.cumsum(part).tolist() for part in lengths)))
            whole = [column if isinstance(column, _pa.ChunkedArray) else _pa.chunked_array([column]) for column in columns]
            lists = [[_one(column.slice(a, b - a)) for a, b in zip(cuts, cuts[1:])] for column in whole]
        parts = [self._on_arrays(chunks) for chunks in zip(*lists)]
        return [
            _pa.chunked_array([part[k] for part in parts], column.arrow)
            for k, column in enumerate(self._outputs)
        ]

    def _fitting(self, array: Any, column: _Column) -> Any:
        """Converts an array of only nulls to the column's type; raises for any other mismatch."""
        if isinstance(array, _pa.Array) and _pa.types.is_null(array.type):
            return _pa.nulls(len(array), column.arrow)
        found = f"of {array.type}" if isinstance(array, _pa.Array) else type(array).__name__
        help = f"; cast it: .cast(pyarrow.{_TYPES[column.element][1]}())" if isinstance(array, _pa.Array) else ""
        raise ArgumentError(
            f"the column `{column.name}` of `{self.__name__}` is an Arrow array of {column.arrow}, not {found}{help}"
        )

    # NumPy, and types built on it

    def _on_numpy(self, arrays: Sequence[Any]) -> list[Any]:
        shape = np.shape(arrays[0])
        values = []
        for array, column in zip(arrays, self._inputs):
            if not isinstance(array, np.ndarray) or array.dtype != column.dtype:
                found = f"of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
                raise ArgumentError(
                    f"the column `{column.name}` of `{self.__name__}` is an array of {column.dtype}, not {found}"
                )
            if array.shape != shape:
                raise self._uneven(arrays)
            # A block that an engine cut out of a larger one can be non-contiguous.
            values.append(np.ascontiguousarray(array).reshape(-1))
        results = [np.empty(values[0].size, column.dtype) for column in self._outputs]
        if values[0].size > 0:
            self._run(values, results, values[0].size)
        return [result.reshape(shape) for result in results]

    def _on_others(self, columns: Sequence[Any]) -> Any:
        """The results for pandas or Polars series, as series of the same kind."""
        first = columns[0]
        package = type(first).__module__.partition(".")[0]
        if package == "polars":
            import polars  # type: ignore[import-not-found, import-untyped, unused-ignore]

            arrays = [_pa.chunked_array(column) for column in columns]
            return _single([polars.Series(first.name, result) for result in self._on_chunks(arrays)])
        if package == "pandas":
            import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]

            if all(isinstance(column.dtype, np.dtype) for column in columns):
                results = self._on_numpy([column.to_numpy() for column in columns])
            else:
                arrays = [_pa.array(column) for column in columns]
                made = self._on_chunks(arrays) if any(isinstance(a, _pa.ChunkedArray) for a in arrays) else self._on_arrays(arrays)
                results = [pandas.arrays.ArrowExtensionArray(result) for result in made]
            return _single([pandas.Series(result, index=first.index) for result in results])
        raise ArgumentError(
            f"the columns of {self!r} are arrays of Arrow or NumPy, or series of pandas or Polars, not {type(first).__name__}"
        )

    def _uneven(self, columns: Sequence[Any]) -> ArgumentError:
        shown = ", ".join(f"`{column.name}` has {np.shape(array)}" for column, array in zip(self._inputs, columns))
        return ArgumentError(f"the columns of `{self.__name__}` differ in length: {shown}")

    def _run(self, values: list[Any], results: list[Any], rows: int) -> None:
        """Runs the kernel on memory; read-write columns are first copied to the result."""
        if rows > MOST:
            for start in range(0, rows, MOST):
                part = slice(start, start + MOST)
                self._run([x[part] for x in values], [x[part] for x in results], min(MOST, rows - start))
            return
        arguments = self._arguments.copy()
        for column, array in zip(self._inputs, values):
            arguments[column.place] = array
        for column, array in zip(self._outputs, results):
            if column.access == "read_write":
                np.copyto(array, arguments[column.place])
            arguments[column.place] = array
        self.kernel(*arguments)


class OnTable:
    """A function of tables that adds columns, for engines that pass tables. It pickles."""

    def __init__(self, function: Columns, columns: Sequence[str], out: Union[str, Sequence[str]]) -> None:
        self.function, self.columns = function, tuple(columns)
        self.out = (out,) if isinstance(out, str) else tuple(out)
        self.__name__ = function.__name__
        if len(self.columns) != len(function.inputs) or len(self.out) != len(function.outputs):
            raise ArgumentError(
                f"{function!r} takes {len(function.inputs)} columns and returns {len(function.outputs)}, "
                f"not {len(self.columns)} and {len(self.out)}"
            )

    def __reduce__(self) -> Any:
        return OnTable, (self.function, self.columns, self.out)

    def __call__(self, table: Any) -> Any:
        package = "" if isinstance(table, dict) else type(table).__module__.partition(".")[0]
        if package not in ("", "pyarrow", "pandas", "polars"):
            found = type(table).__name__
            raise ArgumentError(f"a table is an Arrow, pandas or Polars table, or a dict of arrays, not {found}")
        results = self.function(*(table[name] for name in self.columns))
        named = dict(zip(self.out, results if len(self.out) > 1 else (results,)))
        if package == "":
            return {**table, **named}
        if package == "pandas":
            return table.assign(**named)
        if package == "polars":
            return table.with_columns([result.alias(name) for name, result in named.items()])
        for name, result in named.items():
            place = table.schema.get_field_index(name)
            table = table.append_column(name, result) if place < 0 else table.set_column(place, name, result)
        return table


def _single(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _one(column: Any) -> Any:
    """A chunked column with at most one chunk, as an array."""
    return column.chunk(0) if column.num_chunks == 1 else _pa.concat_arrays(column.chunks)


def _values_of(array: Any, rows: int, dtype: Any) -> Any:
    """The values in place, with arbitrary values under nulls."""
    if rows == 0:
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, rows, array.offset * dtype.itemsize)


def _bits_of(array: Any, rows: int) -> Any:
    """A boolean column, one byte per element."""
    if rows == 0:
        return np.empty(0, np.bool_)
    start = array.offset
    packed = np.frombuffer(array.buffers()[1], np.uint8)[start // 8 : (start + rows + 7) // 8]
    return np.unpackbits(packed, count=start % 8 + rows, bitorder="little")[start % 8 :].view(np.bool_)


def _validity(arrays: list[Any], rows: int) -> Any:
    """A bitmap of the rows in which all of these arrays have a value."""
    if len(arrays) == 1 and arrays[0].offset % 8 == 0:
        return arrays[0].buffers()[0].slice(arrays[0].offset // 8)
    valid = _pc.is_valid(arrays[0])
    for array in arrays[1:]:
        valid = _pc.and_(valid, _pc.is_valid(array))
    if valid.offset == 0:
        return valid.buffers()[1]
    return _pa.py_buffer(np.packbits(_bits_of(valid, rows), bitorder="little"))


def _filled(values: list[Any], validity: Any, rows: int) -> Optional[list[Any]]:
    """The values, with rows that miss one replaced by a complete row: a loop might not end on the
    values under a null. None if no row is complete."""
    valid = np.unpackbits(np.frombuffer(validity, np.uint8), count=rows, bitorder="little").view(np.bool_)
    row = int(valid.argmax())
    if not valid[row]:
        return None
    return [np.where(valid, array, array[row]) for array in values]
