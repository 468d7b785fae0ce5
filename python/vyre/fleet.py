"""Bundles for the workers of a fleet: certificates, routes and tuned shapes, in one file."""

from __future__ import annotations

import platform
from typing import Any, Iterable, NamedTuple, Optional

from . import _vyre
from .columns import Columns, OnTable


def bundle(kernels: Iterable[Any], path: Any, origin: Optional[str] = None) -> None:
    """Writes the measurements of these kernels, or functions of columns, to a file for workers.

    A worker started with `VYRE_BUNDLE=path` loads certificates, routes and tuned shapes from it. `origin` labels the bundle and
    defaults to the name of this machine.
    """
    found = []
    for kernel in kernels:
        if isinstance(kernel, OnTable):
            kernel = kernel.function
        found.append(kernel.kernel if isinstance(kernel, Columns) else kernel)
    _vyre.bundle(found, path, platform.node() if origin is None else origin)


class Certified(NamedTuple):
    """A certified backend, and where it was certified."""

    backend: str
    device: str
    driver: str
    #: Origin of the bundle that the certificate came in; None if it was made on this machine.
    origin: Optional[str]
    #: Why the certificate in a bundle does not apply here.
    instead_of: Optional[str]
    #: All of this as one line.
    text: str

    def __str__(self) -> str:
        return self.text


def certified() -> list[Certified]:
    """The backends of this process, each with the origin of its certificate. A worker whose device
    or driver differs from its
    bundle's certifies itself, and that is recorded here."""
    return [Certified._make((*row, text)) for row, text in _vyre.certified()]
