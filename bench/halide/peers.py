"""Halide's versions of four benchmark kernels, to be timed against vyre's.

    pip install halide
    python bench/halide/peers.py target/halide
    vyre bench --kernel bench/kernels/mandelbrot.vyre --in width=1024 \
        --c target/halide/mandelbrot.c --c target/halide/mandelbrot.a

Writes a static library per kernel, compiled for this processor, and the C file that calls it, and
prints the command for each. The schedules vectorise the inner axis and run rows or blocks in
parallel. Halide's floats are not strict: `--within` allows for that.
"""

import sys
from pathlib import Path

import halide as hl

LANES = 16

C_FILE = """#include "peer.h"
#include "{name}.h"

static halide_buffer_t array(void *data, struct halide_type_t type, int dimensions, halide_dimension_t *dim) {{
    return (halide_buffer_t){{ .host = data, .type = type, .dimensions = dimensions, .dim = dim }};
}}

void run(void *const *data, const size_t *count) {{
{body}
}}
"""

FLOAT = "(struct halide_type_t){ halide_type_float, 32, 1 }"
UNSIGNED = "(struct halide_type_t){ halide_type_uint, 32, 1 }"


def mandelbrot():
    """256 rounds for every point: Halide has no loop that ends with its data."""
    x, y = hl.Var("x"), hl.Var("y")
    width = hl.Param(hl.UInt(32), "width")
    cx = hl.cast(hl.Float(32), x) / hl.cast(hl.Float(32), width) * 3.0 - 2.25
    cy = hl.cast(hl.Float(32), y) / hl.cast(hl.Float(32), width) * 2.5 - 1.25
    zero = hl.f32(0.0)
    state, out = hl.Func("state"), hl.Func("mandelbrot")
    state[x, y] = (zero, zero, hl.u32(0))
    rounds = hl.RDom([(0, 256)])
    a, b, k = state[x, y][0], state[x, y][1], state[x, y][2]
    inside = a * a + b * b <= hl.f32(4.0)
    state[x, y] = (
        hl.select(inside, a * a - b * b + cx, a),
        hl.select(inside, hl.f32(2.0) * a * b + cy, b),
        hl.select(inside, k + 1, k) + hl.u32(0) * hl.cast(hl.UInt(32), rounds.x),
    )
    out[x, y] = state[x, y][2]
    block = hl.Var("block")
    out.split(x, x, block, LANES).vectorize(block).parallel(y)
    state.compute_at(out, x).vectorize(x)
    state.update().reorder(x, rounds.x).vectorize(x)
    body = f"""    const uint32_t n = *(const uint32_t *)data[0];
    halide_dimension_t dim[2] = {{ {{ 0, n, 1, 0 }}, {{ 0, n, n, 0 }} }};
    halide_buffer_t out = array(data[1], {UNSIGNED}, 2, dim);
    mandelbrot(n, &out);
    (void)count;"""
    return out, [width], body, "--in width=1024"


def black_scholes():
    i = hl.Var("i")
    numbers = [hl.Param(hl.Float(32), name) for name in ("strike", "rate", "volatility", "years")]
    strike, rate, volatility, years = numbers
    spot = hl.ImageParam(hl.Float(32), 1, "spot")

    def normal_below(value):
        return hl.f32(0.5) + hl.f32(0.5) * hl.erf(value * hl.f32(0.70710678))

    spread = volatility * hl.sqrt(years)
    s = spot[i]
    d1 = (hl.log(s / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
    out = hl.Func("black_scholes")
    out[i] = s * normal_below(d1) - strike * hl.exp(-rate * years) * normal_below(d1 - spread)
    block = hl.Var("block")
    out.split(i, block, i, 16384).vectorize(i, LANES).parallel(block)
    body = f"""    halide_dimension_t dim = {{ 0, count[4], 1, 0 }};
    halide_buffer_t in = array(data[4], {FLOAT}, 1, &dim), out = array(data[5], {FLOAT}, 1, &dim);
    const float *strike = data[0], *rate = data[1], *volatility = data[2], *years = data[3];
    black_scholes(*strike, *rate, *volatility, *years, &in, &out);"""
    inputs = "--in strike=100 --in rate=0.05 --in volatility=0.2 --in years=1 --in spot=rand:f32:2^20 --within 0.01"
    return out, [*numbers, spot], body, inputs


def softmax():
    c, r = hl.Var("c"), hl.Var("r")
    x = hl.ImageParam(hl.Float(32), 2, "x")
    columns = x.width()
    lane, chunk = hl.Var("lane"), hl.RDom([(0, columns / LANES)])
    peaks, peak, e, sums, total, out = (
        hl.Func(name) for name in ("peaks", "peak", "e", "sums", "total", "softmax")
    )
    lanes = hl.RDom([(0, LANES)])
    peaks[lane, r] = hl.f32(-3.4e38)
    peaks[lane, r] = hl.max(peaks[lane, r], x[chunk.x * LANES + lane, r])
    peak[r] = hl.maximum(peaks[lanes.x, r])
    e[c, r] = hl.exp(x[c, r] - peak[r])
    sums[lane, r] = hl.f32(0.0)
    sums[lane, r] += e[chunk.x * LANES + lane, r]
    total[r] = hl.sum(sums[lanes.x, r])
    out[c, r] = e[c, r] / total[r]
    out.vectorize(c, LANES).parallel(r, 16)
    for stage in (peaks, sums):
        stage.compute_at(out, r).vectorize(lane)
        stage.update().reorder(lane, chunk.x).vectorize(lane)
    peak.compute_at(out, r)
    total.compute_at(out, r)
    e.compute_at(out, r).vectorize(c, LANES)
    body = f"""    const int columns = *(const uint32_t *)data[0], rows = (int)(count[1] / (size_t)columns);
    halide_dimension_t dim[2] = {{ {{ 0, columns, 1, 0 }}, {{ 0, rows, columns, 0 }} }};
    halide_buffer_t in = array(data[1], {FLOAT}, 2, dim), out = array(data[2], {FLOAT}, 2, dim);
    softmax(&in, &out);"""
    inputs = "--in columns=1024 --in x=rand:f32:2^22 --in y=zeros:f32:2^22 --within 0.01"
    return out, [x], body, inputs


def murmur3():
    i = hl.Var("i")
    x = hl.ImageParam(hl.UInt(32), 1, "x")
    h = x[i]
    h = h ^ (h >> 16)
    h = h * hl.u32(0x85EBCA6B)
    h = h ^ (h >> 13)
    h = h * hl.u32(0xC2B2AE35)
    out = hl.Func("murmur3")
    out[i] = h ^ (h >> 16)
    block = hl.Var("block")
    out.split(i, block, i, 1 << 16).vectorize(i, LANES).parallel(block)
    body = f"""    halide_dimension_t dim = {{ 0, count[0], 1, 0 }};
    halide_buffer_t in = array(data[0], {UNSIGNED}, 1, &dim), out = array(data[1], {UNSIGNED}, 1, &dim);
    murmur3(&in, &out);"""
    return out, [x], body, "--in x=rand:u32:2^24"


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "target/halide")
    folder.mkdir(parents=True, exist_ok=True)
    for make in (mandelbrot, black_scholes, softmax, murmur3):
        func, arguments, body, inputs = make()
        name = make.__name__
        prefix = folder / name
        target = hl.get_host_target()
        if make is mandelbrot:  # One rounding decides whether a point is inside: counts need strict floats.
            target = target.with_feature(hl.TargetFeature.StrictFloat)
        func.compile_to_static_library(str(prefix), arguments, name, target)
        prefix.with_suffix(".c").write_text(C_FILE.format(name=name, body=body))
        kernel = f"bench/kernels/{name}.vyre"
        print(f"vyre bench --kernel {kernel} {inputs} --c {prefix}.c --c {prefix}.a")


if __name__ == "__main__":
    main()
