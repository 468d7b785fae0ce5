"""Kernels: of text, and of Python functions."""

from __future__ import annotations

import html
import json
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from . import _vyre
from .errors import ArgumentError, ProgramError


class Kernel(_vyre.Kernel):
    """A checked kernel. Call it on numbers and arrays; it is compiled at its first call, in each process.

    A call binds arrays where they are. Results (`output` parameters) that are not given, by position or as `out=`, are made; a
    call gives its results.
    """

    #: Where the text comes from, if it was translated from Python.
    origin: Any
    __name__: str
    #: The constants that were set.
    constants: dict[str, str]

    #: Parameters that are the length of an axis of another one's array: their names, the other's, and the axis.
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
        """Why a call over so many elements, or over this array, goes where it goes."""
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
    """Why calls go where they go. Reads as text; `data` has all of it as a dict."""

    data: dict[str, Any]

    def __new__(cls, text: str, data: str) -> Explanation:
        self = super().__new__(cls, text)
        self.data = json.loads(data)
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), json.dumps(self.data)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


#: Kernels of text by text and constants: whoever makes one twice, or unpickles it, gets the same one.
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
            f"the kernel `{made.__name__}` was pickled by a vyre that reads its text otherwise; make it anew"
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
    raise ArgumentError(f"the constant `{name}` is a number or a truth value, not {type(value).__name__}")


def kernel(
    source: Union[str, Callable[..., Any], None] = None,
    /,
    *,
    over: Any = None,
    workgroup: Any = None,
    **constants: Any,
) -> Any:
    """Makes a kernel of text, or of a Python function.

    `vyre.kernel(TEXT, SIDE=32)` reads a text and sets its constants. `@vyre.kernel` translates a function with typed
    parameters; `@vyre.kernel(over=..., workgroup=64)` also says what it runs over.
    """
    if isinstance(source, str):
        if over is not None or workgroup is not None:
            raise ArgumentError("a text says itself what it runs `over`, and its `workgroup`")
        return of_text(source, {name: _spelt(name, value) for name, value in constants.items()})
    if constants:
        raise ArgumentError(f"`{next(iter(constants))}`: only a text has constants to set")
    if source is None:
        return lambda function: kernel(function, over=over, workgroup=workgroup)
    from . import translate

    return translate.kernel(source, over=over, workgroup=workgroup)


def elementwise(function: Callable[..., Any]) -> Any:
    """Makes a kernel of a function of numbers that gives a number: it runs once per element of its arrays."""
    from . import translate

    return translate.elementwise(function)


def func(function: Callable[..., Any]) -> Any:
    """Lets kernels call a function of numbers. Outside of kernels it stays an ordinary function."""
    from . import translate

    return translate.func(function)
