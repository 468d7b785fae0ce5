"""Names for writing kernels: types, kinds of parameters, positions of an invocation, and statements
with effects.

The translator gives them their meaning inside a kernel; outside, a type makes a NumPy scalar, and the others only report where
they can be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Optional, Union

#: Element types and their NumPy names.
NUMPY = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "bf16": "uint16",
    "f32": "float32",
    "f64": "float64",
}

#: Types that narrow elements are widened to when they are read.
WIDE = {"u8": "u32", "u16": "u32", "i8": "i32", "i16": "i32", "f16": "f32", "bf16": "f32"}


class Type:
    """An element type such as `f32`. In a kernel `f32(x)` converts; outside it makes a NumPy
    scalar."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.value = WIDE.get(name, name)

    def __call__(self, value: Any = 0) -> Any:
        import numpy

        return getattr(numpy, "bool_" if self.name == "bool" else NUMPY[self.name])(value)

    def __getitem__(self, count: Any) -> Private:
        return Private(self, count)

    def __repr__(self) -> str:
        return f"vyre.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class Private:
    """`f32[8]`: an array private to an invocation."""

    def __init__(self, element: Type, count: Any) -> None:
        self.element, self.count = element, count


class Parameter:
    """The annotation of a parameter: its access, its element type, and further arguments."""

    def __init__(self, access: str, element: Type, arguments: tuple[Any, ...]) -> None:
        self.access, self.element, self.arguments = access, element, arguments


class Access:
    """`In`, `InOut`, `Out`, `Uniform`, `Shared`: the access that a kernel has to a parameter."""

    def __init__(self, name: str, access: str) -> None:
        self.name, self.access = name, access

    def __getitem__(self, items: Any) -> Parameter:
        element, *arguments = items if isinstance(items, tuple) else (items,)
        if element is bool:
            element = bool_
        if not isinstance(element, Type):
            raise TypeError(f"{self.name}[...] takes an element type such as vyre.f32 first, not {element!r}")
        return Parameter(self.access, element, tuple(arguments))

    def __repr__(self) -> str:
        return f"vyre.{self.name}"


class Intrinsic:
    """A name that is only meaningful inside a kernel."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        raise TypeError(f"`{self.__name__}` can be used only inside a kernel")

    def __repr__(self) -> str:
        return f"vyre.{self.__name__}"


class Builtin(Intrinsic):
    """`invocation.x` and similar names."""

    def __getattr__(self, axis: str) -> Any:
        if axis in ("x", "y", "z"):
            raise TypeError(f"`{self.__name__}.{axis}` can be used only inside a kernel")
        raise AttributeError(axis)


if TYPE_CHECKING:
    from typing import Annotated as Out
    from typing import Annotated as Shared
    from typing import Annotated as Uniform

    from ._typing import (
        In,
        InOut,
        atomic_add,
        atomic_and,
        atomic_compare_exchange,
        atomic_exchange,
        atomic_load,
        atomic_max,
        atomic_min,
        atomic_or,
        atomic_store,
        atomic_xor,
        barrier,
        bf16,
        bool_,
        f16,
        f32,
        f64,
        grid_size,
        i8,
        i16,
        i32,
        i64,
        invocation,
        local,
        select,
        trap,
        u8,
        u16,
        u32,
        u64,
        workgroup,
        workgroup_size,
    )
else:
    bool_ = Type("bool")
    for _name in NUMPY:
        if _name != "bool":
            globals()[_name] = Type(_name)
    In = Access("In", "read")
    InOut = Access("InOut", "read_write")
    Out = Access("Out", "output")
    Uniform = Access("Uniform", "uniform")
    Shared = Access("Shared", "workgroup")
    for _name in ("invocation", "local", "workgroup", "grid_size", "workgroup_size"):
        globals()[_name] = Builtin(_name)
    for _name in (
        "atomic_add atomic_and atomic_compare_exchange atomic_exchange atomic_load atomic_max atomic_min "
        "atomic_or atomic_store atomic_xor barrier select trap"
    ).split():
        globals()[_name] = Intrinsic(_name)

__all__ = [
    "In",
    "InOut",
    "Out",
    "Shared",
    "Uniform",
    "atomic_add",
    "atomic_and",
    "atomic_compare_exchange",
    "atomic_exchange",
    "atomic_load",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_store",
    "atomic_xor",
    "barrier",
    "bf16",
    "bool_",
    "f16",
    "f32",
    "f64",
    "grid_size",
    "i8",
    "i16",
    "i32",
    "i64",
    "invocation",
    "local",
    "select",
    "trap",
    "u8",
    "u16",
    "u32",
    "u64",
    "workgroup",
    "workgroup_size",
]
