"""Errors by who has to act: the author of a kernel, its caller, or the administrator of the
machine."""

from __future__ import annotations

from typing import Any, Optional


class Error(Exception):
    """Base class of vyre's errors. `code` is stable; see `vyre explain <code>`. `help` says what to
    do, if that is known."""

    code: Optional[str] = None
    help: Optional[str] = None


class ProgramError(Error):
    """A kernel is invalid. `diagnostics` has every fault as a dict: code, severity, message, help,
    line, column."""

    def __init__(self, message: str, diagnostics: Optional[list[dict[str, Any]]] = None) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics or []
        self.code = self.diagnostics[0]["code"] if self.diagnostics else None
        self.help = self.diagnostics[0]["help"] if self.diagnostics else None

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.diagnostics)


class ArgumentError(Error, ValueError):
    """The arguments of a call do not fit. Nothing has run."""


class DeviceError(Error, RuntimeError):
    """A device, its driver or a call on it failed."""


class Timeout(DeviceError, TimeoutError):
    """A call took longer than its `timeout`."""


class Trapped(Error, RuntimeError):
    """A kernel reached a `trap`."""


class AssertFailed(Error, AssertionError):
    """An `assert` in a kernel failed. The kernel ran on, and memory contains what it wrote."""


_OF_CALL: dict[str, type[Error]] = {
    "DeviceError": DeviceError,
    "Timeout": Timeout,
    "Trapped": Trapped,
    "AssertFailed": AssertFailed,
}


def of_call(
    kind: str,
    message: str,
    code: str,
    help: Optional[str],
    at: Optional[tuple[int, int]],
    kernel: Any,
) -> Error:
    """The exception for a failed call; a position in a translated text becomes the position in
    Python."""
    origin = getattr(kernel, "origin", None)
    if at is not None and origin is not None:
        line, column = at
        place = origin.place(line)
        message = message.replace(f" at {line}:{column}", f" at {place}" if place else "", 1)
    error = _OF_CALL[kind](message)
    error.code, error.help = code, help
    return error
