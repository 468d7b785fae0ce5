"""Kernels from text and from Python functions."""

from __future__ import annotations

import html
import json
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from . import _vyre
from .errors import ArgumentError, ProgramError


class Kernel(_vyre.Kernel):
    """A validated kernel. Call it on numbers and arrays; each process compiles it at its first
    call.

    A call binds arrays in place. Results (`output` parameters) that are not passed, by position or as `out=`, are allocated; a
    call returns its results.
    """

    #: Python origin of the text, if it was translated.
    origin: Any
    __name__: str
    #: Constants that were set.
    constants: dict[str, str]

    #: Parameters that are the length of an axis of another parameter's array: their name, the
    #: other's, and the axis.
    axes: list[tuple[str, str, int]]

    def __new__(
        cls,
        text: str,
        constants: Optional[Mapping[str, str]] = None,
        origin: Any = None,
        axes: Sequence[tuple[str, str, int]] = (),
    ) -> Kernel:
        self: Kernel = super().__new__(cls, text, dict(constants or {}), list(axes))
        self.constants, self.origin, self.axes = dict(constants or {}), origin, list(axes)
        self.__name__ = self.name or "kernel"
        return self

    def __init__(self, *arguments: Any) -> None:
        pass

    def explain(self, elements: Any) -> Explanation:
        """Explains the routing of a call over this number of elements, or over this array."""
        count = elements if isinstance(elements, int) else getattr(elements, "size", None)
        return Explanation(*self.explained(len(elements) if count is None else int(count)))

    def __reduce__(self) -> Any:
        return _restored, (
            self.text,
            self.constants,
            self.fingerprint,
            self.origin,
            self.axes,
            self.__doc__,
        )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {access} {element}" for name, access, element, _ in self.parameters)
        return f"<vyre.Kernel {self.__name__}({shown})>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


class Explanation(str):
    """Explains the routing of calls. It is a string; `data` has the same as a dict."""

    data: dict[str, Any]

    def __new__(cls, text: str, data: str) -> Explanation:
        self = super().__new__(cls, text)
        self.data = json.loads(data)
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), json.dumps(self.data)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


#: Kernels by text and constants: making or unpickling the same kernel again returns the existing
#: one.
_made: dict[Any, Kernel] = {}


def of_text(
    text: str,
    constants: Mapping[str, str],
    origin: Any = None,
    axes: Sequence[tuple[str, str, int]] = (),
) -> Kernel:
    key = text, tuple(sorted(constants.items())), tuple(map(tuple, axes))
    found = _made.get(key)
    if found is None:
        found = _made[key] = Kernel(text, constants, origin, axes)
    return found


def _restored(
    text: str,
    constants: Mapping[str, str],
    fingerprint: str,
    origin: Any,
    axes: Sequence[tuple[str, str, int]],
    doc: Optional[str],
) -> Kernel:
    made = of_text(text, constants, origin, axes)
    if made.fingerprint != fingerprint:
        raise ProgramError(
            f"the kernel `{made.__name__}` was pickled by another version of vyre, which reads its text differently; create it again"
        )
    made.__doc__ = doc
    return made


def _spelt(name: str, value: Any) -> str:
    """A constant's value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if hasattr(value, "item"):
        return _spelt(name, value.item())
    raise ArgumentError(f"the constant `{name}` is a number or a bool, not {type(value).__name__}")


def kernel(
    source: Union[str, Callable[..., Any], None] = None,
    /,
    *,
    over: Any = None,
    workgroup: Any = None,
    **constants: Any,
) -> Any:
    """Makes a kernel from text or from a Python function.

    `vyre.kernel(TEXT, SIDE=32)` parses a text and sets its constants. `@vyre.kernel` translates a function with typed
    parameters; `@vyre.kernel(over=..., workgroup=64)` also specifies its domain.
    """
    if isinstance(source, str):
        if over is not None or workgroup is not None:
            raise ArgumentError("a text declares `over` and `workgroup` itself; remove these arguments")
        return of_text(source, {name: _spelt(name, value) for name, value in constants.items()})
    if constants:
        raise ArgumentError(f"`{next(iter(constants))}`: only kernels made from text have constants")
    if source is None:
        return lambda function: kernel(function, over=over, workgroup=workgroup)
    from . import translate

    return translate.kernel(source, over=over, workgroup=workgroup)


def elementwise(function: Callable[..., Any]) -> Any:
    """Makes a kernel from a function of numbers that returns a number: it runs once per element of
    its arrays."""
    from . import translate

    return translate.elementwise(function)


def func(function: Callable[..., Any]) -> Any:
    """Lets kernels call a function of numbers. Outside kernels it remains an ordinary function."""
    from . import translate

    return translate.func(function)
