"""Types of values during translation, and the notation of numbers in the text.

An untyped number takes the type of the value it is combined with, and so does a variable that is assigned one: `n = 0` is as wide as
what `n` is added to. A number combined with nothing is `i32`, or `f32` if it has a decimal point.
"""

from __future__ import annotations

import ast
import math
import struct
from fractions import Fraction
from typing import Any, Optional, Union

INTEGERS = ("u32", "i32", "u64", "i64")
FLOATS = ("f32", "f64")
Number = Union[bool, int, float]


class Ty:
    """The type of a value: known by name, or a kind of number to be unified with others."""

    def __init__(self, name: Optional[str] = None, kind: Optional[str] = None) -> None:
        self.name = name
        self.kind = kind or ("int" if name in INTEGERS else "float" if name in FLOATS else "bool")
        self.same: Optional[Ty] = None
        #: Numbers that must fit once the name is known, and their nodes.
        self.numbers: list[tuple[Number, ast.AST]] = []

    def root(self) -> Ty:
        found = self
        while found.same is not None:
            found = found.same
        return found

    def known(self) -> str:
        """The name; a kind that was never unified has a default."""
        root = self.root()
        if root.name is None:
            root.name = "i32" if root.kind == "int" else "f32"
        return root.name

    def __str__(self) -> str:
        root = self.root()
        return root.name or ("i32" if root.kind == "int" else "f32")

    def meet(self, other: Ty) -> bool:
        """Unifies two types, if possible."""
        a, b = self.root(), other.root()
        if a is b:
            return True
        if a.kind != b.kind or (a.name and b.name and a.name != b.name):
            return False
        if b.name and not a.name:
            a, b = b, a
        b.same = a
        a.numbers += b.numbers
        return True


BOOL = Ty("bool")


def limits(name: str) -> tuple[int, int]:
    width = int(name[1:])
    return (0, 2**width - 1) if name[0] == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)


def wrapped(value: int, name: str) -> int:
    """An integer wrapped to that type."""
    low, high = limits(name)
    return (value - low) % (high - low + 1) + low


def single(value: float) -> float:
    """The nearest 32-bit float."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def spelt(value: Number, name: str) -> str:
    """A number of that type in the notation of the text."""
    if name == "bool":
        return "true" if value else "false"
    if name in INTEGERS:
        return f"{int(value)}{name}"
    value = float(value)
    suffix = "" if name == "f32" else "_f64"
    if math.isnan(value):
        return f"nan{suffix}"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}inf{suffix}"
    if name == "f64":
        return f"{value!r}f64"
    rounded = single(value)
    if math.isinf(rounded):
        return f"{'-' if rounded < 0 else ''}inf"
    return f"{value!r}f32" if _reads_as(repr(value), rounded) else f"{rounded!r}f32"


def _reads_as(text: str, rounded: float) -> bool:
    """Whether the digits are nearest to this 32-bit float: they are rounded once, a Python number
    twice."""
    exact, near = Fraction(text), Fraction(rounded)
    bits = struct.unpack("<I", struct.pack("<f", rounded))[0]
    for beside in (bits - 1, bits + 1):
        if beside < 0 or beside & 0x7FFFFFFF >= 0x7F800000:
            return False
        other = Fraction(struct.unpack("<f", struct.pack("<I", beside))[0])
        if abs(exact - near) >= abs(exact - other):
            return False
    return True


def misfit(value: Number, name: str) -> Optional[str]:
    """Why a number does not fit that type."""
    if name in INTEGERS:
        if isinstance(value, float):
            return f"expected {name}, but {value} is not a whole number; convert one of them"
        low, high = limits(name)
        if not low <= value <= high:
            return f"{value} does not fit {name}, the type it is combined with here; convert that operand"
    return None


def of_number(value: Any) -> Optional[tuple[Number, Optional[str]]]:
    """A Python or NumPy number, and its type if it has one."""
    if isinstance(value, bool):
        return value, "bool"
    if isinstance(value, (int, float)):
        return (float(value) if isinstance(value, float) else int(value)), None
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        named = {
            "bool": "bool",
            "uint32": "u32",
            "int32": "i32",
            "uint64": "u64",
            "int64": "i64",
            "float32": "f32",
            "float64": "f64",
        }.get(value.dtype.name)
        return None if named is None else (value.item(), named)
    return None
