"""vyre compared with NumPy, Numba, numexpr and JAX, if they are installed: `python -m vyre.bench`.

All peers run the same work on the same arrays, in rounds, in random order; results are checked first. Times are medians of the
rounds, with the fastest in brackets. `--first` also measures the first call in fresh processes, without imports.
"""

# The peers are not type-checked.
# mypy: ignore-errors

from __future__ import annotations

import argparse
import importlib
import math
import random
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Optional

import numpy as np

import vyre
from vyre import In, InOut, Out, f32, f64, func, i32, invocation, kernel, u32

Work = Callable[[], Any]


def module(name: str) -> Any:
    """The module, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Row:
    """A workload: what each peer runs, and the allowed difference of results. The first peer,
    NumPy, is the baseline."""

    def __init__(self, name: str, peers: dict[str, Work], within: float) -> None:
        self.name, self.peers, self.within = name, peers, within


# Kernels.


@kernel
def saxpy(a: f32, x: In[f32], y: InOut[f32]) -> None:
    y[invocation.x] = a * x[invocation.x] + y[invocation.x]


@func
def normal(x: f32) -> f32:
    return 0.5 + 0.5 * math.erf(x * 0.7071067811865476)


@func
def normal64(x: f64) -> f64:
    return 0.5 + 0.5 * math.erf(x * 0.7071067811865476)


@kernel
def black_scholes(price: In[f32], strike: In[f32], years: In[f32], call: Out[f32, "price"], put: Out[f32, "price"]) -> None:
    i = invocation.x
    s, k, t = price[i], strike[i], years[i]
    root = math.sqrt(t)
    d1 = (math.log(s / k) + (0.02 + 0.5 * 0.3 * 0.3) * t) / (0.3 * root)
    d2 = d1 - 0.3 * root
    later = k * math.exp(-0.02 * t)
    c = s * normal(d1) - later * normal(d2)
    call[i] = c
    put[i] = c - s + later


@kernel
def black_scholes64(price: In[f64], strike: In[f64], years: In[f64], call: Out[f64, "price"], put: Out[f64, "price"]) -> None:
    i = invocation.x
    s, k, t = price[i], strike[i], years[i]
    root = math.sqrt(t)
    d1 = (math.log(s / k) + (0.02 + 0.5 * 0.3 * 0.3) * t) / (0.3 * root)
    d2 = d1 - 0.3 * root
    later = k * math.exp(-0.02 * t)
    c = s * normal64(d1) - later * normal64(d2)
    call[i] = c
    put[i] = c - s + later


@kernel(over=("width", "width"))
def mandelbrot(width: u32, counts: Out[i32, "width", "width"]) -> None:
    x = -2.0 + 3.0 * f32(invocation.x) / f32(width)
    y = -1.5 + 3.0 * f32(invocation.y) / f32(width)
    a, b, n = 0.0, 0.0, 0
    while n < 256:
        aa, bb = a * a, b * b
        if aa + bb > 4.0:
            break
        b = 2.0 * a * b + y
        a = aa - bb + x
        n += 1
    counts[invocation.y, invocation.x] = n


# The same for the peers.


def _normal(x: Any, erf: Any) -> Any:
    return 0.5 + 0.5 * erf(x * x.dtype.type(0.7071067811865476))


def numpy_erf(x: Any) -> Any:
    """Abramowitz and Stegun 7.1.26, in the array's precision; NumPy has no `erf`. Accurate to
    1.5e-7."""
    one = x.dtype.type
    t = one(1) / (one(1) + one(0.3275911) * np.abs(x))
    poly = ((((one(1.061405429) * t - one(1.453152027)) * t + one(1.421413741)) * t - one(0.284496736)) * t + one(0.254829592)) * t
    return np.sign(x) * (one(1) - poly * np.exp(-x * x))


def numpy_black_scholes(s: Any, k: Any, t: Any) -> tuple[Any, Any]:
    one = s.dtype.type
    root = np.sqrt(t)
    d1 = (np.log(s / k) + one(0.02 + 0.5 * 0.3 * 0.3) * t) / (one(0.3) * root)
    d2 = d1 - one(0.3) * root
    later = k * np.exp(one(-0.02) * t)
    c = s * _normal(d1, numpy_erf) - later * _normal(d2, numpy_erf)
    return c, c - s + later


def numpy_mandelbrot(width: int) -> Any:
    column = np.arange(width, dtype=np.float32)
    x = (np.float32(-2) + np.float32(3) * column / np.float32(width))[None, :].repeat(width, 0)
    y = (np.float32(-1.5) + np.float32(3) * column / np.float32(width))[:, None].repeat(width, 1)
    counts = np.zeros((width, width), np.int32)
    a, b, places = np.zeros(width * width, np.float32), np.zeros(width * width, np.float32), np.arange(width * width)
    x, y, flat = x.ravel(), y.ravel(), counts.ravel()
    for _ in range(256):
        aa, bb = a * a, b * b
        stays = aa + bb <= 4
        a, b, x, y, places, aa, bb = (v[stays] for v in (a, b, x, y, places, aa, bb))
        b = np.float32(2) * a * b + y
        a = aa - bb + x
        flat[places] += 1
    return counts


def numpy_softmax(x: Any) -> Any:
    made = np.exp(x - x.max(1, keepdims=True))
    return made / made.sum(1, keepdims=True)


NUMBA = '''
import math, numba as nb, numpy as np

@nb.njit(parallel=True)
def saxpy(a, x, y):
    for i in nb.prange(len(y)):
        y[i] = a * x[i] + y[i]

def _black_scholes(one):
    half, rate, volatility, slope = one(0.5), one(0.02), one(0.3), one(0.7071067811865476)
    drift = one(0.02 + 0.5 * 0.3 * 0.3)
    @nb.njit(parallel=True)
    def run(s, k, t, call, put):
        for i in nb.prange(len(s)):
            root = math.sqrt(t[i])
            d1 = (math.log(s[i] / k[i]) + drift * t[i]) / (volatility * root)
            d2 = d1 - volatility * root
            later = k[i] * math.exp(-rate * t[i])
            c = s[i] * (half + half * math.erf(d1 * slope)) - later * (half + half * math.erf(d2 * slope))
            call[i] = c
            put[i] = c - s[i] + later
        return call, put
    return run

black_scholes, black_scholes64 = _black_scholes(np.float32), _black_scholes(np.float64)

@nb.njit(parallel=True)
def mandelbrot(width):
    counts = np.zeros((width, width), np.int32)
    four, two, three = np.float32(4), np.float32(2), np.float32(3)
    for row in nb.prange(width):
        y = np.float32(-1.5) + three * np.float32(row) / np.float32(width)
        for column in range(width):
            x = np.float32(-2) + three * np.float32(column) / np.float32(width)
            a, b, n = np.float32(0), np.float32(0), 0
            while n < 256:
                aa, bb = a * a, b * b
                if aa + bb > four:
                    break
                b = two * a * b + y
                a = aa - bb + x
                n += 1
            counts[row, column] = n
    return counts

@nb.njit(parallel=True)
def softmax(x):
    y = np.empty_like(x)
    for row in nb.prange(x.shape[0]):
        most = x[row, 0]
        for column in range(x.shape[1]):
            most = max(most, x[row, column])
        total = np.float32(0)
        for column in range(x.shape[1]):
            y[row, column] = math.exp(x[row, column] - most)
            total += y[row, column]
        for column in range(x.shape[1]):
            y[row, column] /= total
    return y

@nb.njit
def sort(keys):
    return np.sort(keys)
'''


def numba_peers() -> Any:
    """Numba's functions, or None if it is not installed."""
    if module("numba") is None:
        return None
    made: dict[str, Any] = {}
    exec(compile(NUMBA, "<numba>", "exec"), made)
    return made


def rows(names: list[str], quick: bool) -> list[Row]:
    """The workloads, built one at a time."""
    seeded = np.random.default_rng(1)
    numba, numexpr, jax = numba_peers(), module("numexpr"), module("jax")
    if jax is not None:
        jax.config.update("jax_enable_x64", True)
    found = []

    def add(name: str, within: float, **peers: Optional[Work]) -> None:
        found.append(Row(name, {peer: work for peer, work in peers.items() if work is not None}, within))

    for power in (10, 20 if quick else 24):
        if "saxpy" not in names:
            break
        x = seeded.standard_normal(2**power).astype(np.float32)
        ys = {peer: np.zeros_like(x) for peer in ("numpy", "vyre", "numba", "numexpr")}

        def numpy_saxpy(x: Any = x, y: Any = ys["numpy"]) -> Any:
            np.add(np.multiply(x, np.float32(0.5)), y, out=y)
            return y

        def vyre_saxpy(x: Any = x, y: Any = ys["vyre"]) -> Any:
            saxpy(0.5, x, y)
            return y

        def numba_saxpy(x: Any = x, y: Any = ys["numba"]) -> Any:
            numba["saxpy"](np.float32(0.5), x, y)
            return y

        def numexpr_saxpy(x: Any = x, y: Any = ys["numexpr"], a: Any = np.float32(0.5)) -> Any:
            return numexpr.evaluate("a * x + y", out=y)

        jitted, state = (jax.jit(lambda x, y: np.float32(0.5) * x + y), [None]) if jax else (None, [None])

        def jax_saxpy(x: Any = jax.numpy.asarray(x) if jax else None, state: Any = state, run: Any = jitted) -> Any:
            state[0] = run(x, jax.numpy.zeros_like(x) if state[0] is None else state[0]).block_until_ready()
            return state[0]

        add(
            f"saxpy 2^{power}",
            1e-4,
            numpy=numpy_saxpy,
            vyre=vyre_saxpy,
            numba=numba_saxpy if numba else None,
            numexpr=numexpr_saxpy if numexpr else None,
            jax=jax_saxpy if jax else None,
        )
    for dtype, run, ours in (("f32", np.float32, black_scholes), ("f64", np.float64, black_scholes64)):
        if "black_scholes" not in names:
            break
        count = 2 ** (16 if quick else 20)
        s, k, t = (seeded.uniform(low, high, count).astype(run) for low, high in ((10, 100), (10, 100), (0.1, 2)))
        out = np.empty_like(s), np.empty_like(s)
        other = np.empty_like(s), np.empty_like(s)
        theirs = numba and numba["black_scholes" if dtype == "f32" else "black_scholes64"]
        jax_work = None
        if jax:
            lax, jnp = jax.scipy.special, jax.numpy

            def priced(s: Any, k: Any, t: Any, one: Any = run) -> Any:
                root = jnp.sqrt(t)
                d1 = (jnp.log(s / k) + one(0.02 + 0.5 * 0.3 * 0.3) * t) / (one(0.3) * root)
                d2 = d1 - one(0.3) * root
                later = k * jnp.exp(one(-0.02) * t)
                half, slope = one(0.5), one(0.7071067811865476)
                c = s * (half + half * lax.erf(d1 * slope)) - later * (half + half * lax.erf(d2 * slope))
                return c, c - s + later

            compiled, held = jax.jit(priced), tuple(map(jnp.asarray, (s, k, t)))
            jax_work = lambda compiled=compiled, held=held: jax.block_until_ready(compiled(*held))
        add(
            f"black_scholes {dtype} 2^{count.bit_length() - 1}",
            1e-3,
            numpy=lambda s=s, k=k, t=t: numpy_black_scholes(s, k, t),
            vyre=lambda s=s, k=k, t=t, out=out, ours=ours: ours(s, k, t, out=out),
            numba=(lambda s=s, k=k, t=t, out=other, run=theirs: run(s, k, t, *out)) if numba else None,
            jax=jax_work,
        )
    if "mandelbrot" in names:
        width = 256 if quick else 1024
        counts = np.empty((width, width), np.int32)
        add(
            f"mandelbrot {width}",
            0.0,
            numpy=lambda: numpy_mandelbrot(width),
            vyre=lambda: mandelbrot(width, out=counts),
            numba=(lambda: numba["mandelbrot"](width)) if numba else None,
        )
    if "softmax" in names:
        scores = seeded.standard_normal((1024 if quick else 4096, 1024)).astype(np.float32)
        softened = np.empty_like(scores)
        jax_softmax, jax_scores = (jax.jit(jax.nn.softmax), jax.numpy.asarray(scores)) if jax else (None, None)
        add(
            f"softmax {scores.shape[0]}x1024",
            1e-5,
            numpy=lambda: numpy_softmax(scores),
            vyre=lambda: vyre.softmax_rows(scores, out=softened),
            numba=(lambda: numba["softmax"](scores)) if numba else None,
            jax=(lambda: jax_softmax(jax_scores).block_until_ready()) if jax else None,
        )
    if "sort" in names:
        keys = seeded.integers(0, 2**32, 2 ** (18 if quick else 22), dtype=np.uint32)
        ordered = np.empty_like(keys)
        jax_sort, jax_keys = (jax.jit(jax.numpy.sort), jax.numpy.asarray(keys)) if jax else (None, None)
        add(
            f"sort u32 2^{keys.size.bit_length() - 1}",
            0.0,
            numpy=lambda: np.sort(keys),
            vyre=lambda: vyre.sort(keys, out=ordered),
            numba=(lambda: numba["sort"](keys)) if numba else None,
            jax=(lambda: jax_sort(jax_keys).block_until_ready()) if jax else None,
        )
    return found


def apart(a: Any, b: Any) -> float:
    """The largest difference between two results."""
    pairs = zip(a, b) if isinstance(a, tuple) else [(a, b)]
    return max(float(np.max(np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)))) for x, y in pairs)


def timed(work: Work, least: float = 5e-4) -> float:
    """Seconds per call; short calls are repeated."""
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    count = int(least / max(took, 1e-9))
    if count < 1:
        return took
    began = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - began) / count


def measure(row: Row, rounds: int) -> dict[str, list[float]]:
    """Times of each peer, in rounds."""
    expected = None
    for peer, work in row.peers.items():
        result = work()
        if expected is None:
            expected = tuple(map(np.array, result)) if isinstance(result, tuple) else np.array(result)
        distance = apart(expected, result)
        # The edges of a picture depend on the last bit.
        share = np.mean(np.asarray(result) != np.asarray(expected)) if row.name.startswith("mandelbrot") else 0
        if distance > row.within and not 0 < share < 1e-3:
            raise SystemExit(f"{row.name}: {peer} is {distance} away from numpy")
        # Hot code is recompiled here.
        until = time.perf_counter() + 0.3
        for _ in range(30):
            if time.perf_counter() < until:
                work()
    times: dict[str, list[float]] = {peer: [] for peer in row.peers}
    for _ in range(rounds):
        for peer in random.sample(list(row.peers), len(row.peers)):
            times[peer].append(timed(row.peers[peer]))
    return times


def shown(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


FIRST = """
import time, numpy as np
{imports}
x, y = np.ones(1024, np.float32), np.zeros(1024, np.float32)
began = time.perf_counter()
{work}
print(time.perf_counter() - began)
"""

FIRST_CALLS = {
    "vyre": (
        "import vyre",
        "vyre.kernel('kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y "
        "{ y[invocation.x] = a * x[invocation.x] + y[invocation.x] }')(0.5, x, y)",
    ),
    "numba": (
        "import numba as nb",
        "@nb.njit(parallel=True)\ndef saxpy(a, x, y):\n    for i in nb.prange(len(y)): y[i] = a * x[i] + y[i]\n"
        "saxpy(np.float32(0.5), x, y)",
    ),
    "jax": ("import jax", "jax.jit(lambda x, y: np.float32(0.5) * x + y)(x, y).block_until_ready()"),
}


def first_calls(tries: int) -> dict[str, float]:
    """Seconds that the first call takes in a fresh process, after the imports."""
    found = {}
    for peer, (imports, work) in FIRST_CALLS.items():
        if module(peer) is None:
            continue
        text = FIRST.format(imports=imports, work=work)
        times = []
        for _ in range(tries):
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
            times.append(float(done.stdout))
        found[peer] = statistics.median(times)
    return found


def main() -> None:
    every = ["saxpy", "black_scholes", "mandelbrot", "softmax", "sort"]
    parser = argparse.ArgumentParser(prog="python -m vyre.bench", description="Compares vyre with NumPy, Numba, numexpr and JAX.")
    parser.add_argument("names", nargs="*", default=every, help=f"which of {', '.join(every)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--first", action="store_true", help="also the first call of fresh processes")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in every]
    if unknown:
        parser.error(f"no workload is called {unknown[0]}")
    for row in rows(options.names, options.quick):
        times = measure(row, options.rounds)
        middle = {peer: statistics.median(own) for peer, own in times.items()}
        words = [f"{peer} {shown(middle[peer])} ({shown(min(times[peer]))})" for peer in sorted(middle, key=middle.__getitem__)]
        print(f"{row.name:<24} {', '.join(words)}", flush=True)
    if options.first:
        words = [f"{peer} {shown(took)}" for peer, took in first_calls(5).items()]
        print(f"{'first call':<24} {', '.join(words)}")


if __name__ == "__main__":
    main()
