"""Compute kernels written once, checked, and run on the backend measured fastest, on arrays where they are.

    import numpy as np, vyre
    from vyre import In, Out, f32, i32, invocation

    @vyre.kernel
    def blur(x: In[f32], y: Out[f32, "x"]):
        i = i32(invocation.x)
        acc = 0.0
        for d in range(-1, 2):
            acc += x[i + d]
        y[i] = acc / 3.0

    y = blur(np.ones(1000, np.float32))

`vyre.kernel(TEXT)` makes a kernel of text, `@vyre.elementwise` of a function of numbers; `vyre.sort`, `vyre.scan`, `vyre.sum`
and their kin are ready. docs/python.md in the repository has all of it.
"""

import atexit as _atexit
import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _vyre
from ._vyre import Report, Resident, __version__, backends, refused, save, settle
from .errors import (
    ArgumentError,
    AssertFailed,
    DeviceError,
    Error,
    ProgramError,
    Timeout,
    Trapped,
)
from .kernels import Explanation, Kernel, elementwise, func, kernel
from .names import *  # noqa: F403
from .names import __all__ as _names
from .ops import (
    argmax,
    compact,
    dot,
    gather,
    histogram,
    matmul,
    max,
    min,
    scan,
    scan_exclusive,
    scatter,
    softmax_rows,
    sort,
    sort_pairs,
    sum,
    transpose,
)

if _TYPE_CHECKING:
    from .columns import Columns, OnTable, arrow
    from .fleet import Certified, bundle, certified
    from .partials import Partial, combined, exact_sum, partial

#: What needs NumPy is imported when it is first asked for.
_LATER = {
    "Columns": "columns",
    "OnTable": "columns",
    "arrow": "columns",
    "Certified": "fleet",
    "bundle": "fleet",
    "certified": "fleet",
    "Partial": "partials",
    "combined": "partials",
    "exact_sum": "partials",
    "partial": "partials",
}


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_importlib.import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = found
    return found


def resident(array):
    """A copy of an array that stays on the device which first runs a call on it."""
    return Resident(array)


# Drivers that are new to the machine are met by this command, in a process of its own.
if _sys.executable:
    _vyre.set_command([_sys.executable, "-m", "vyre"])
# What was learnt is kept for the next process.
_atexit.register(_vyre.close)

# `from vyre import *` leaves `min`, `max` and `sum` to Python: in a kernel they are those of numbers anyway.
__all__ = [
    "ArgumentError",
    "AssertFailed",
    "DeviceError",
    "Error",
    "Explanation",
    "Kernel",
    "ProgramError",
    "Report",
    "Resident",
    "Timeout",
    "Trapped",
    "elementwise",
    "func",
    "kernel",
    "resident",
    *_names,
]
