"""Calls: what they accept, refuse and return."""

import array

import numpy as np
import pytest

import vyre

SAXPY = """kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y {
  let i = invocation.x
  y[i] = a * x[i] + y[i]
}"""
DOUBLE = "kernel double(x: read f32[], y: output f32[] len_of x) { y[invocation.x] = x[invocation.x] + x[invocation.x] }"
saxpy = vyre.kernel(SAXPY)
double = vyre.kernel(DOUBLE)


def floats(*values):
    return np.array(values, np.float32)


def test_arrays_are_used_in_place():
    x, y = floats(1, 2, 3), floats(10, 20, 30)
    assert saxpy(2.0, x, y) is None
    assert y.tolist() == [12, 24, 36]
    saxpy(a=1, y=y, x=x)
    assert y.tolist() == [13, 26, 39]


def test_whatever_lends_memory_is_taken():
    x, y = array.array("f", [1, 2]), bytearray(8)
    saxpy(2.0, x, memoryview(y).cast("f"))
    assert memoryview(y).cast("f").tolist() == [2, 4]


def test_what_lends_memory_by_dlpack_is_taken():
    class Lends:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert double(Lends(floats(1, 2))).tolist() == [2, 4]


def test_results_are_made_or_given():
    x, y = floats(1, 2), floats(0, 0)
    assert double(x).tolist() == [2, 4]
    assert double(x, out=y) is y and y.tolist() == [2, 4]
    z = floats(0, 0)
    assert double(x, z) is z and double(x, y=y) is y and z.tolist() == [2, 4]


def test_results_have_the_shape_of_what_they_are_like():
    assert double(np.ones((3, 4), np.float32)).shape == (3, 4)
    fill = vyre.kernel(
        """kernel fill(width: u32 uniform, height: u32 uniform, y: output u32[width * height]) over [width, height] {
          y[invocation.y * width + invocation.x] = invocation.y
        }"""
    )
    made = fill(3, 2)
    assert made.tolist() == [[0, 0, 0], [1, 1, 1]] and made.dtype == np.uint32


def test_several_results_are_a_tuple():
    split = vyre.kernel(
        """kernel split(x: read f32[], low: output f32[] len_of x, high: output f32[] len_of x) over x {
          let i = invocation.x
          low[i] = floor(x[i])
          high[i] = ceil(x[i])
        }"""
    )
    low, high = split(floats(1.5, -0.5))
    assert (low.tolist(), high.tolist()) == ([1, -1], [2, 0])
    a, b = floats(0, 0), floats(0, 0)
    assert split(floats(1.5, 2), out=(a, b))[0] is a and b.tolist() == [2, 2]


def test_numbers_are_checked():
    kernel = vyre.kernel("kernel k(n: u8 uniform, on: bool uniform, y: read_write i64[]) { y[0] = i64(n) + i64(on) }")
    y = np.zeros(1, np.int64)
    for number in (7, np.uint8(7), np.int64(7), np.array(7)):
        kernel(number, True, y)
        assert y[0] == 8
    kernel(7, np.bool_(False), y)
    assert y[0] == 7
    for wrong in (256, -1, 1.0, "7", None, True, np.array([7])):
        with pytest.raises(vyre.ArgumentError, match="`n` of kernel `k` is a single u8, and .* is not"):
            kernel(wrong, True, y)
    with pytest.raises(vyre.ArgumentError, match="pass True or False"):
        kernel(7, 1, y)


def one_line(error):
    assert "\n" not in str(error.value), error.value
    return str(error.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((2.0, np.ones(4), np.ones(4, np.float32)), "`x` of kernel `saxpy` has elements of f32, not f64"),
        ((2.0, np.ones(4, ">f4"), np.ones(4, np.float32)), "not >f4"),
        ((2.0, np.ones(4, complex), np.ones(4, np.float32)), "not complex128"),
        ((2.0, np.ones(8, np.float32)[::2], np.ones(4, np.float32)), "`x` of kernel `saxpy` is not contiguous"),
        ((2.0, np.ones(4, np.float32), bytes(16)), "`y` of kernel `saxpy` has elements of f32, not u8"),
        ((2.0, [1.0], np.ones(4, np.float32)), "takes an array of f32, not a list"),
        ((2.0, None, np.ones(4, np.float32)), "takes an array of f32, not a NoneType"),
        ((2.0, np.ones(4, np.float32)), "`y` of kernel `saxpy` is missing; it takes (a, x, y)"),
        ((1, 2, 3, 4), "takes (a, x, y), not 4 arguments"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(arguments, said):
    with pytest.raises(vyre.ArgumentError) as error:
        saxpy(*arguments)
    assert said in one_line(error)


def test_memory_that_cannot_be_written_or_overlaps_is_refused():
    x = np.ones(8, np.float32)
    still = x.copy()
    still.flags.writeable = False
    with pytest.raises(vyre.ArgumentError) as error:
        saxpy(1.0, x, still)
    assert "`y` of kernel `saxpy` is read_write, and what was passed cannot be written" in one_line(error)
    for overlapping in (x, x[2:], x[:1]):
        with pytest.raises(vyre.ArgumentError, match="overlaps that of `x`"):
            saxpy(1.0, x, overlapping)
    saxpy(1.0, x[:4], x[4:])
    assert x.tolist() == [1] * 4 + [2] * 4


def test_names_are_checked():
    x = floats(1)
    with pytest.raises(vyre.ArgumentError, match="has no parameter `z`; it takes"):
        double(x, z=x)
    with pytest.raises(vyre.ArgumentError, match="`x` of kernel `double` is passed twice"):
        double(x, x=x)
    with pytest.raises(vyre.ArgumentError, match="has no parameter `out`"):
        saxpy(1.0, x, x, out=x)


def test_lengths_are_checked():
    kernel = vyre.kernel("kernel k(x: read f32[4], y: read_write f32[]) { y[0] = x[0] }")
    with pytest.raises(vyre.ArgumentError):
        kernel(floats(1, 2, 3), floats(0))


def test_arrays_of_nothing():
    assert double(np.zeros(0, np.float32)).tolist() == []


def test_half_floats_and_truth_values():
    half = vyre.kernel("kernel half(x: read f16[], y: output f16[] len_of x) { y[invocation.x] = x[invocation.x] * 0.5 }")
    assert half(np.array([1, 3], np.float16)).tolist() == [0.5, 1.5]
    negate = vyre.kernel("kernel negate(x: read bool[], y: output bool[] len_of x) { y[invocation.x] = !x[invocation.x] }")
    assert negate(np.array([True, False])).tolist() == [False, True]


def test_run_gives_a_report():
    y, report = double.run(floats(1, 2), on="cpu", timeout=10)
    assert y.tolist() == [2, 4]
    assert (report.backend, report.elements, report.refusals, report.prints) == ("cpu", 2, [], [])
    assert report.wall > 0 and "2 elements on `cpu`" in str(report)
    assert report._repr_html_().startswith("<table>")
    y, report = double.run(floats(1, 2), on="cpu-ref")
    assert y.tolist() == [2, 4] and report.backend == "cpu-ref"
    with pytest.raises(vyre.ArgumentError, match="`nowhere` is not linked"):
        double.run(floats(1), on="nowhere")
    with pytest.raises(vyre.ArgumentError, match="timeout of -1"):
        double.run(floats(1), timeout=-1)


def test_a_domain_can_be_given():
    count = vyre.kernel("kernel count(y: read_write u32[]) over 1 { y[invocation.x] = 1 }")
    y = np.zeros(4, np.uint32)
    count.run(y, domain=[3])
    assert y.tolist() == [1, 1, 1, 0]


def test_explanations_read_as_text_and_data():
    explained = double.explain(1000)
    assert "cpu" in explained and explained.data["route"] and "<pre>" in explained._repr_html_()
    assert double.explain(np.zeros(10, np.float32)) == double.explain(10)


def test_constants_of_a_text():
    text = "const N: u32 = 4\nkernel fill(y: output u32[N]) over N { y[invocation.x] = 2 * N }"
    assert vyre.kernel(text)().tolist() == [8] * 4
    assert vyre.kernel(text, N=2)().tolist() == [4] * 2
    assert vyre.kernel(text, N=np.uint32(2)) is vyre.kernel(text, N=2)
    with pytest.raises(vyre.ArgumentError, match="constant `N` is a number"):
        vyre.kernel(text, N="2")


def test_programs_that_are_not_valid_say_all_of_it():
    with pytest.raises(vyre.ProgramError) as error:
        vyre.kernel("kernel k(y: read_write u32[]) { y[0] = 1.5; y[0] = z }")
    assert len(error.value.diagnostics) == 2
    first = error.value.diagnostics[0]
    assert first["code"].startswith("V") and first["line"] == 1 and first["code"] in str(error.value)
    with pytest.raises(vyre.ProgramError):
        vyre.kernel("kernel")


def test_kernels_that_fail():
    x = floats(4, -1)
    root = vyre.kernel(
        """kernel root(x: read_write f32[]) {
          assert(x[invocation.x] >= 0.0, "negative: {}", x[invocation.x])
          x[invocation.x] = sqrt(x[invocation.x])
        }"""
    )
    with pytest.raises(vyre.AssertFailed, match="negative: -1") as error:
        root(x)
    assert error.value.code == "E013" and isinstance(error.value, AssertionError)
    root.run(x, asserts=False)
    trap = vyre.kernel("kernel t(x: read_write f32[]) { trap 7 }")
    with pytest.raises(vyre.Trapped, match="trapped with code 7"):
        trap(x)
    endless = vyre.kernel("kernel endless(x: read_write f32[]) { while x[0] == x[0] { x[0] = 1.0 } }")
    with pytest.raises(vyre.Timeout) as late:
        endless.run(floats(1), timeout=0.05)
    assert isinstance(late.value, TimeoutError) and isinstance(late.value, vyre.DeviceError)


def test_kernels_print_to_standard_error(capsys):
    hello = vyre.kernel('kernel hello() over 2 { print("hello from {}", invocation.x) }')
    hello()
    assert capsys.readouterr().err == "hello from 0\nhello from 1\n"
    _, report = hello.run()
    assert report.prints == ["hello from 0", "hello from 1"]


def test_resident_arrays_stay():
    x = vyre.resident(floats(1, 2))
    assert x.backend is None and x.shape == (2,) and len(x) == 2 and x.dtype == "float32"
    y = double(x)
    assert isinstance(y, vyre.Resident) and y.read().tolist() == [2, 4] and y.backend == "cpu"
    saxpy(1.0, x, y)
    assert np.asarray(y).tolist() == [3, 6]
    y.write(floats(7, 8))
    out = floats(0, 0)
    assert y.read(out=out) is out and out.tolist() == [7, 8]
    assert vyre.resident(np.ones((2, 3), np.float32)).shape == (2, 3)
    with pytest.raises(vyre.ArgumentError, match="has 2 elements, and the array 1"):
        y.write(floats(1))
    with pytest.raises(vyre.ArgumentError, match="has elements of f32, not i32"):
        double(vyre.resident(np.ones(2, np.int32)))
    with pytest.raises(vyre.ArgumentError, match="not contiguous"):
        vyre.resident(np.ones(4, np.float32)[::2])
    with pytest.raises(vyre.ArgumentError, match="only arrays can be resident"):
        vyre.resident([1.0])


def test_what_backends_there_are():
    assert "cpu" in vyre.backends()
    assert "cpu-ref" in dict(vyre.refused())
    vyre.settle()
    vyre.save()
