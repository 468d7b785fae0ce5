"""What workers of a fleet take along: certificates, routes and tuned shapes, in one file."""

from __future__ import annotations

import platform
from typing import Any, Iterable, NamedTuple, Optional

from . import _vyre
from .columns import Columns, OnTable


def bundle(kernels: Iterable[Any], path: Any, origin: Optional[str] = None) -> None:
    """Writes what was learnt of these kernels, or functions of columns, into a file for workers.

    A worker that is started with `VYRE_BUNDLE=path` takes certificates, routes and tuned shapes from it. `origin` says where it
    comes from; without one it is the name of this machine.
    """
    found = []
    for kernel in kernels:
        if isinstance(kernel, OnTable):
            kernel = kernel.function
        found.append(kernel.kernel if isinstance(kernel, Columns) else kernel)
    _vyre.bundle(found, path, platform.node() if origin is None else origin)


class Certified(NamedTuple):
    """A backend that is known to be right, and who found that out."""

    backend: str
    device: str
    driver: str
    #: The bundle that the certificate came in, by its origin; None if it was made on this machine.
    origin: Optional[str]
    #: Why the certificate that a bundle has does not hold here.
    instead_of: Optional[str]
    #: All of it as a line.
    text: str

    def __str__(self) -> str:
        return self.text


def certified() -> list[Certified]:
    """The backends of this process, each with who certified it. A worker whose device or driver is not that of its bundle
    certifies itself and says so here."""
    return [Certified._make((*row, text)) for row, text in _vyre.certified()]
