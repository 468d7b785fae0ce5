"""Random functions give the same bits as NumPy and the interpreter."""

import linecache
import os
import warnings

import functions
import numpy as np
import pytest

import vyre

CASES = int(os.environ.get("VYRE_CASES", "500"))
SEED = int(os.environ.get("VYRE_SEED", "1"))
#: Functions are spread over this many tests, so that a failure is easy to locate.
PARTS = 10
ELEMENTS = 12


def bits(array):
    """The array's bits, with all NaNs alike."""
    array = np.where(np.isnan(array), np.nan, array).astype(array.dtype) if array.dtype.kind == "f" else array
    return array.view(f"u{array.itemsize}").tolist()


def made(text, name):
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names = dict(vyre.names.__dict__)
    exec(compile(text, name, "exec"), names)
    return names["made"]


@pytest.mark.parametrize("part", range(PARTS))
def test_functions(part):
    random = np.random.default_rng(SEED * PARTS + part)
    for case in range(CASES * part // PARTS, CASES * (part + 1) // PARTS):
        seed = SEED * 1_000_000 + case
        text, parameters, result = functions.Maker(seed).function()
        arguments = [functions.values(ty, ELEMENTS, random) for ty in parameters.values()]
        kernel = vyre.elementwise(made(text, f"<function {seed}>"))
        native = kernel(*arguments)
        names = functions.host()
        exec(text, names)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = [names["made"](*each) for each in zip(*arguments)]
        expected = np.array(expected, functions.NUMPY[result])
        assert bits(native) == bits(expected), f"seed {seed}: {arguments}\n{text}\n{native}\n{expected}"
        interpreted, _ = kernel.run(*arguments, on="cpu-ref")
        assert bits(native) == bits(interpreted), f"seed {seed}: {arguments}\n{text}"
