"""Compute kernels written once, validated, and run in place on arrays by the backend measured
fastest.

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

`vyre.kernel(TEXT)` makes a kernel from text, `@vyre.elementwise` from a function of numbers; `vyre.sort`, `vyre.scan`,
`vyre.sum` and others are ready-made. See docs/python.md in the repository.
"""

import atexit as _atexit
import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import _vyre
from ._vyre import Report, Resident
from ._vyre import __version__ as __version__
from ._vyre import backends as backends
from ._vyre import refused as refused
from ._vyre import save as save
from ._vyre import settle as settle
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
from .ops import argmax as argmax
from .ops import compact as compact
from .ops import dot as dot
from .ops import gather as gather
from .ops import histogram as histogram
from .ops import matmul as matmul
from .ops import max as max
from .ops import min as min
from .ops import scan as scan
from .ops import scan_exclusive as scan_exclusive
from .ops import scatter as scatter
from .ops import softmax_rows as softmax_rows
from .ops import sort as sort
from .ops import sort_pairs as sort_pairs
from .ops import sum as sum
from .ops import transpose as transpose

if _TYPE_CHECKING:
    from .columns import Columns as Columns
    from .columns import OnTable as OnTable
    from .columns import arrow as arrow
    from .fleet import Certified as Certified
    from .fleet import bundle as bundle
    from .fleet import certified as certified
    from .partials import Partial as Partial
    from .partials import combined as combined
    from .partials import exact_sum as exact_sum
    from .partials import partial as partial

#: Names that need NumPy are imported on first use.
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


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_importlib.import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = found
    return found


def resident(array: _Any) -> Resident:
    """Copies an array to memory that stays on the device which first runs a call on it."""
    return Resident(array)


# This command opens drivers that are new to the machine, in a separate process.
if _sys.executable:
    _vyre.set_command([_sys.executable, "-m", "vyre"])
# Measurements are saved for the next process.
_atexit.register(_vyre.close)

# `from vyre import *` does not shadow Python's `min`, `max` and `sum`; in a kernel those work on
# numbers anyway.
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
