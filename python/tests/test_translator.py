"""Kernels from Python functions: the translation of each part of the language."""

import math

import numpy as np
import pytest

import vyre
from vyre import *  # noqa: F403

GAIN = 0.5
COUNT = 3
SINGLE = np.float32(0.1)


def i32s(*values):
    return np.array(values, np.int32)


def f32s(*values):
    return np.array(values, np.float32)


def test_the_first_example():
    @vyre.kernel
    def blur(x: In[f32], y: Out[f32, "x"]):
        """Blurs."""
        i = i32(invocation.x)
        acc = 0.0
        for d in range(-1, 2):
            acc += x[i + d]
        y[i] = acc / 3.0

    x = f32s(3, 6, 9)
    assert blur(x).tolist() == [3, 6, 5]
    y = np.empty_like(x)
    assert blur(x, out=y) is y
    assert blur.__doc__ == "Blurs." and blur.__name__ == "blur"


def test_control_flow():
    @vyre.kernel
    def collatz(x: In[i32], y: Out[i32, "x"]):
        n, rounds = x[invocation.x], 0
        while True:
            if n == 1:
                break
            elif n % 2 == 0:
                n //= 2
            else:
                n = 3 * n + 1
            rounds += 1
            if rounds > 1000:
                return
            continue
        y[invocation.x] = rounds

    def plain(n):
        rounds = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            rounds += 1
        return rounds

    x = np.arange(1, 40, dtype=np.int32)
    assert collatz(x).tolist() == [plain(n) for n in range(1, 40)]


def test_variables_of_both_branches():
    @vyre.kernel
    def choose(x: In[f32], y: Out[f32, "x"]):
        i = invocation.x
        if x[i] > 0.0:
            low = x[i]
            high = low * 2.0
        else:
            low = -x[i]
            high = 1.0
        y[i] = low + high

    assert choose(f32s(1, -2)).tolist() == [3, 3]


def test_loop_variables_stay_after_the_loop():
    @vyre.kernel
    def last(y: InOut[i32]):
        k = 0
        for k in range(5):
            if k == 3:
                break
        y[0] = k
        for j in range(2):
            y[1] += j
        for j in range(3):
            y[1] += j

    y = i32s(0, 0)
    last(y)
    assert y.tolist() == [3, 4]


def test_numbers_take_the_type_of_what_they_meet():
    @vyre.kernel
    def meets(x: In[u64], y: Out[u64, "x"], z: Out[f64, "x"]):
        n = 0
        for k in range(3):
            n += k
        y[invocation.x] = x[invocation.x] + n * 2
        w = 0.1
        z[invocation.x] = w + f64(n)

    y, z = meets(np.array([2**40], np.uint64))
    assert y.tolist() == [2**40 + 6] and z.tolist() == [0.1 + 3]
    assert "let w = 0.1f64" in meets.text and "let n = 0u64" in meets.text


def test_division_floors_as_in_python():
    @vyre.kernel
    def divide(a: In[i32], b: In[i32], q: Out[i32, "a"], r: Out[i32, "a"]):
        i = invocation.x
        q[i] = a[i] // b[i]
        r[i] = a[i] % b[i]

    pairs = [(a, b) for a in (-7, -6, 0, 6, 7, 2**31 - 1) for b in (-3, -1, 1, 3, 2**31 - 1)]
    a, b = i32s(*(a for a, _ in pairs)), i32s(*(b for _, b in pairs))
    q, r = divide(a, b)
    assert q.tolist() == [a // b for a, b in pairs] and r.tolist() == [a % b for a, b in pairs]
    q, r = divide(i32s(-5, 5), i32s(0, 0))
    assert q.tolist() == [-5, 5] and r.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_division_of_floats_floors_as_in_numpy(dtype):
    @vyre.kernel
    def single(a: In[f32], b: In[f32], q: Out[f32, "a"], r: Out[f32, "a"]):
        i = invocation.x
        q[i] = a[i] // b[i]
        r[i] = a[i] % b[i]

    @vyre.kernel
    def double(a: In[f64], b: In[f64], q: Out[f64, "a"], r: Out[f64, "a"]):
        i = invocation.x
        q[i] = a[i] // b[i]
        r[i] = a[i] % b[i]

    random = np.random.default_rng(3)
    a = (random.standard_normal(4000) * 10.0 ** random.integers(-5, 5, 4000)).astype(dtype)
    b = (random.standard_normal(4000) * 10.0 ** random.integers(-5, 5, 4000)).astype(dtype)
    a[:8] = [0.0, -0.0, 1, -1, np.inf, 1, np.nan, 5]
    b[:8] = [1, 1, np.inf, np.inf, 2, 0, 1, np.nan]
    q, r = (single if dtype == np.float32 else double)(a, b)
    with np.errstate(all="ignore"):
        assert np.array_equal(q, a // b, equal_nan=True)
        assert np.array_equal(r, a % b, equal_nan=True)
        assert np.array_equal(np.signbit(r), np.signbit(a % b) & ~np.isnan(r))


def test_operators():
    @vyre.kernel
    def operators(x: In[i32], y: Out[i32, "x"]):
        v = x[invocation.x]
        v = (v << 2) ^ 5 | 1 & ~v
        v = +v - (-v >> 1)
        v = v**3
        ok = not v == 0 and 1 <= v < 100 or v == 0
        y[invocation.x] = v if ok else -v

    def plain(v):
        v = (v << 2) ^ 5 | 1 & ~v
        v = +v - (-v >> 1)
        v = v**3
        ok = not v == 0 and 1 <= v < 100 or v == 0
        return v if ok else -v

    x = i32s(-3, -1, 0, 1, 2, 7)
    assert operators(x).tolist() == [plain(int(v)) for v in x]


def test_ops_by_all_their_names():
    @vyre.kernel
    def ops(x: In[f32], y: Out[f32, "x"]):
        v = x[invocation.x]
        v = math.sqrt(v) + np.sqrt(v) + sqrt(v)  # noqa: F405
        v = min(v, 100.0, 90.0) + max(1, v) + abs(-v) + np.where(v > 1.0, 1.0, 2.0)
        y[invocation.x] = clamp(v, 0, 1000) + math.pi + v**2 + v**0.5  # noqa: F405

    x = np.float32(4)
    v = np.float32(6)
    v = v + v + v + np.float32(1)
    exact = v + np.float32(math.pi) + v * v + np.sqrt(v)
    assert np.allclose(ops(f32s(x)), exact)


def test_conversions():
    @vyre.kernel
    def convert(x: In[f32], y: Out[i64, "x"]):
        v = x[invocation.x]
        y[invocation.x] = i64(v) + i64(u32(-1)) + i64(i32(2.9)) + i64(v > 1.0) + i64(np.int32(3)) + i64(f32(1))

    assert convert(f32s(2.7)).tolist() == [2 + 4294967295 + 2 + 1 + 3 + 1]


def test_numbers_of_the_program_around_are_frozen():
    local_gain = 4.0

    @vyre.kernel
    def scale(x: In[f32], y: Out[f32, "x"]):
        y[invocation.x] = x[invocation.x] * GAIN * local_gain + COUNT + SINGLE

    assert scale(f32s(1)).tolist() == [np.float32(5) + np.float32(0.1)]
    local_gain = 8.0
    assert scale(f32s(1)).tolist() == [np.float32(5) + np.float32(0.1)]


def test_numbers_are_rounded_as_numpy_rounds_them():
    # The float nearest to the digits is not the float nearest to the double.
    awkward = 1.0 + 2.0**-24 + 2.0**-60
    assert awkward == 1.0 + 2.0**-24

    @vyre.kernel
    def numbers(x: In[f32], y: Out[f32, "x"]):
        y[invocation.x] = x[invocation.x] + 16777217.0 + 1e-46 + 0.1

    assert numbers(f32s(0)).tolist() == [(np.float32(0) + np.float32(16777217.0)) + np.float32(0.1)]


def test_functions():
    @vyre.func
    def square(x: f32) -> f32:
        return x * x

    @vyre.func
    def hypotenuse(a: f32, b: f32) -> f32:
        if a == 0.0:
            return abs(b)
        else:
            return sqrt(square(a) + square(b))  # noqa: F405

    @vyre.kernel
    def lengths(x: In[f32], y: In[f32], z: Out[f32, "x"]):
        z[invocation.x] = hypotenuse(x[invocation.x], y[invocation.x])

    assert lengths(f32s(3, 0), f32s(4, -2)).tolist() == [5, 2]
    assert square(3.0) == 9.0


def test_private_arrays():
    @vyre.kernel
    def median(x: In[f32], y: Out[f32, "x"]):
        t: f32[COUNT]
        for k in range(len(t)):
            t[k] = x[invocation.x + u32(k)]
        for a in range(2):
            for b in range(2 - a):
                if t[b] > t[b + 1]:
                    t[b], t[b + 1] = t[b + 1], t[b]
        y[invocation.x] = t[1]

    assert median(f32s(5, 1, 4, 9)).tolist()[:2] == [4, 4]


def test_atomics_barriers_and_shared_memory():
    @vyre.kernel(over="x", workgroup=64)
    def count(x: In[u32], counts: InOut[u32], tile: Shared[u32, 16]):
        if local.x < 16:
            tile[local.x] = 0
        barrier()
        if invocation.x < len(x):
            before = atomic_add(tile, x[invocation.x] % 16, 1)
            if before == 0xFFFFFFFF:
                trap(3)
        barrier()
        if local.x < 16:
            atomic_add(counts, local.x, tile[local.x])

    x = np.random.default_rng(1).integers(0, 16, 1000).astype(np.uint32)
    counts = np.zeros(16, np.uint32)
    count(x, counts)
    assert np.array_equal(counts, np.bincount(x, minlength=16))


def test_print_and_assert(capsys):
    @vyre.kernel
    def speak(x: In[f32], y: Out[f32, "x"]):
        i = invocation.x
        print("at", i, f"x = {x[i]}!")
        assert x[i] >= 0.0, f"negative at {i}"
        y[i] = sqrt(x[i])  # noqa: F405

    speak(f32s(4))
    assert capsys.readouterr().err == "at 0 x = 4!\n"
    with pytest.raises(vyre.AssertFailed, match=r"test_translator.py:\d+ in invocation \(1, 0, 0\): negative at 1"):
        speak(f32s(4, -1))


def test_two_axes():
    @vyre.kernel
    def transpose(x: In[f32], y: Out[f32, "x.columns", "x.rows"] if False else InOut[f32]):
        y[invocation.x, invocation.y] = x[invocation.y, invocation.x]

    @vyre.kernel
    def edges(x: In[f32], y: Out[f32, "x"]):
        row, column = i32(invocation.y), i32(invocation.x)
        y[row, column] = x[row, column] - x[row, column - 1] + f32(len(x)) * 0.0 + f32(x.shape[1])

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    wide = np.pad(x, ((0, 0), (1, 0)))[:, :-1]
    made = edges(x)
    assert made.shape == (3, 4) and np.array_equal(made, x - wide + 4)
    with pytest.raises(vyre.ArgumentError, match="`x` of kernel `edges` has two axes, not 1"):
        edges(x.ravel())

    @vyre.kernel
    def fill(height: u32, width: u32, y: Out[u32, "height", "width"]):
        y[invocation.y, invocation.x] = invocation.y

    assert fill(2, 3).tolist() == [[0, 0, 0], [1, 1, 1]]


def test_lengths_that_are_worked_out():
    @vyre.kernel
    def halves(x: In[f32], y: Out[f32, "len(x) // COUNT"]):
        y[invocation.x] = x[invocation.x * 3]

    assert halves(f32s(0, 1, 2, 3, 4, 5, 6)).tolist() == [0, 3]


def test_elementwise():
    @vyre.elementwise
    def gain(x: f32, g: f32) -> f32:
        return pow(max(x, 0.0), 1.0 / g)

    x = f32s(1, 4, -1)
    assert gain(x, 2.0).tolist() == [1, 2, 0]
    assert gain(x, f32s(2, 2, 2)).tolist() == [1, 2, 0]
    assert gain(4.0, 2.0) == 2
    assert gain(x.reshape(3, 1), 1.0).shape == (3, 1)
    out = np.empty_like(x)
    assert gain(x, 1.0, out=out) is out
    y, report = gain.run(x, 1.0, on="cpu")
    assert report.backend == "cpu" and "cpu" in gain.explain(10)
    with pytest.raises(vyre.ArgumentError, match=r"have the shapes \(3,\) and \(2,\)"):
        gain(x, f32s(1, 2))
    with pytest.raises(vyre.ArgumentError, match=r"takes \(x, g\)"):
        gain(x)

    @vyre.elementwise
    def narrow(x: u8) -> u8:
        return x * 2 + 1

    assert narrow(np.array([1, 200], np.uint8)).tolist() == [3, 145]
    assert narrow(200) == 145
    for wrong in (256, 1.5, -1):
        with pytest.raises(vyre.ArgumentError, match="is a single u8"):
            narrow(wrong)

    @vyre.elementwise
    def floor_div_i32(x: i32) -> i32:
        return x // 2

    assert floor_div_i32(-3) == -2


def test_parameters_may_be_given_values():
    @vyre.kernel
    def own(n: i32, y: InOut[i32]):
        n += 1
        y[invocation.x] = n

    y = i32s(0)
    own(4, y)
    assert y.tolist() == [5]


def test_names_that_text_has_taken():
    @vyre.kernel
    def kernel(let: In[f32], array: Out[f32, "let"]):
        region = let[invocation.x]
        fn = region * 2.0
        for trap_ in range(2):
            fn += f32(trap_)
        array[invocation.x] = fn

    assert kernel(f32s(1)).tolist() == [3]


def test_text_in_the_annotations():
    @vyre.kernel
    def quoted(x: "In[f32]", y: "Out[f32, 'x']"):
        y[invocation.x] = x[invocation.x]

    assert quoted(f32s(1)).tolist() == [1]


REFUSED = [
    ("y[0] = x[-1]", "-1", "no negative indices"),
    ("y[0] = x[1:2]", "1:2", "kernels have no slices"),
    ("y[0] = x[0] + invocation.x", "x[0] + invocation.x", "f32 and u32 do not mix"),
    ("y[0] = invocation.x + i32(1)", "invocation.x + i32(1)", "u32 and i32 do not mix"),
    ("n = 1\n    n = 1.5", "n = 1.5", "1.5 is not a whole number"),
    ("n = 0\n    n -= 5000000000", "5000000000", "5000000000 does not fit i32"),
    ("y[0] = 1 / invocation.x", "1 / invocation.x", "`/` does not take whole numbers"),
    ("y[0] = int(x[0])", "int(x[0])", "`int` has no width"),
    ("if x[0]:\n        y[0] = 1", "x[0]", "expected a bool"),
    ("y[0] = q", "q", "`q` is not a known variable, parameter or number"),
    ("if x[0] > 0.0:\n        v = 1.0\n    y[0] = v", "v", "`v` may have no value here"),
    ("x[0] = 1.0", "x[0]", "the parameter is read-only"),
    ("y = 3", "y", "`y` is an array"),
    ("y[0] = [1.0][0]", "[1.0]", "only parameters and arrays"),
    ("y[0] = (lambda: 1.0)()", "lambda: 1.0", "a lambda cannot"),
    ("y[0] = sum(v for v in x)", "(v for v in x)", "a generator cannot"),
    ("y[0] = sorted(1.0)", "sorted", "not an op or function"),
    ("import os", "import os", "`import` cannot be part of a kernel"),
    ("try:\n        pass\n    finally:\n        pass", "try:", "`try` cannot"),
    ("with x:\n        pass", "with x:", "`with` cannot"),
    ("for v in x:\n        pass", "x", "over `range(...)`"),
    ("for v in range(3):\n        pass\n    else:\n        pass", "pass", "no `else`"),
    ("x[0]", "x[0]", "no effect"),
    ("return 3", "return 3", "returns nothing"),
    ("y[0] = x", "x", "`x` is an array; index it"),
    ("y[0] = 1.0 if x[0] is None else 2.0", "None", "only numbers"),
    ("y[0] = 'text'", "'text'", "only numbers"),
    ("v = f16(1.0)", "f16(1.0)", "at least 32 bits"),
    ("y[0] = sqrt(invocation.x)", "sqrt(invocation.x)", "`sqrt` does not take u32"),
    ("y[0] = sqrt(1.0, 2.0)", "sqrt(1.0, 2.0)", "`sqrt` takes 1 argument, not 2"),
    ("v = invocation.x << 32", "32", "0 to 31 bits, not 32"),
    ("v = invocation.w", "invocation.w", "axes x, y and z"),
    ("while 1:\n        pass", "1", "expected a bool"),
    ("y[0] += True", "y[0] += True", "f32 and bool do not mix"),
    ("y[0] = helper(1.0)", "helper", "decorate it with @vyre.func"),
    ("del y", "del y", "`del` cannot"),
    ("barrier() if x[0] > 0.0 else barrier()", "barrier() if x[0] > 0.0 else barrier()", "no effect"),
    ("if x[0] > f32(invocation.x):\n        barrier()", "barrier()", "V015"),
    ("v = atomic_add(y, 0, 1)", "y", "of u32, i32, u64 or i64"),
    ("for k in range(0, 4, 0):\n        pass", "0", "must not be zero"),
    ("print(x[0], sep='')", "sep=''", "takes only values"),
]


def helper(x):
    return x


@pytest.mark.parametrize(("body", "under", "said"), REFUSED, ids=[body.replace("\n", " ")[:40] for body, _, _ in REFUSED])
def test_what_is_refused_is_shown_in_python(tmp_path, body, under, said):
    text = f"import vyre\nfrom vyre import *\ndef helper(x): return x\n@vyre.kernel\ndef k(x: In[f32], y: Out[f32, 'x']):\n    {body}\n"
    path = tmp_path / "refused.py"
    path.write_text(text)
    with pytest.raises(vyre.ProgramError) as error:
        exec(compile(text, str(path), "exec"), {"__name__": "refused"})
    first, line, caret = str(error.value).split("\n")[:3]
    assert said in first and first.startswith(f"{path}:"), error.value
    assert line[caret.index("^") : caret.rindex("^") + 1] == under, error.value


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("x, y: Out[f32]", "`x` needs a type"),
        ("x: float", "`float` has no width; write f32"),
        ("x: In[f32] = None", "cannot have a default"),
        ("*x: In[f32]", "must be positional"),
        ("x: list", "a parameter is a number"),
        ("x: Shared[f32]", "needs a number of elements"),
        ("x: Unknown[f32]", "not a type that kernels know"),
    ],
)
def test_signatures_that_are_refused(tmp_path, signature, said):
    text = f"from __future__ import annotations\nimport vyre\nfrom vyre import *\n@vyre.kernel\ndef k({signature}):\n    pass\n"
    path = tmp_path / "refused.py"
    path.write_text(text)
    with pytest.raises(vyre.ProgramError, match=said):
        exec(compile(text, str(path), "exec"), {"__name__": "refused"})


def test_functions_that_are_refused():
    with pytest.raises(vyre.ProgramError, match="return a value on every path"):

        @vyre.func
        def some(x: f32) -> f32:
            if x > 0.0:
                return x

    with pytest.raises(vyre.ProgramError, match="needs the type of its result"):

        @vyre.func
        def none(x: f32):
            return x

    with pytest.raises(vyre.ArgumentError, match="not from an int"):
        vyre.kernel(3)
