#!/usr/bin/env python3
"""Derive the polynomial coefficients of crates/vyre-foundation/src/math/expansions.vyre and
expansions_f64.vyre.

Each polynomial is a weighted minimax fit (Remez exchange, 90 digits), rounded to f32 one coefficient at a time:
the lowest-order coefficient is rounded, the remaining ones are fitted again with it fixed, and so on, so that later
coefficients make up for the rounding of earlier ones. Needs `pip install mpmath`; run without arguments it prints every
f32 coefficient, run with `f64` every f64 one, as the file has it and the largest weighted error of the rounded polynomial.
"""

import struct
import sys

from mpmath import mp, mpf

mp.dps = 90


def f32(value):
    """The nearest f32, as an exact multiple-precision number (ties and range do not occur here)."""
    return mpf(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def show(value):
    """A decimal of nine significant digits, which reads back as the same f32."""
    text = f"{float(value):.9g}"
    if "e" not in text and "." not in text:
        text += ".0"
    bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
    assert struct.unpack("<I", struct.pack("<f", float(text)))[0] == bits
    return f"{text}  (0x{bits:08x})"


def minimax(target, signed_weight, powers, low, high):
    """Coefficients c minimising max |signed_weight(t) * (target(t) - sum c_k t**powers[k])| over
    [low, high]."""
    weight = lambda t: abs(signed_weight(t))
    count = len(powers) + 1
    middle, half = (low + high) / 2, (high - low) / 2
    # Slightly off centre: several weights vanish at zero, where a starting point would say nothing.
    points = [middle - half * mp.cos(mp.pi * (2 * k + mpf("1.01")) / (2 * count)) for k in range(count)]
    grid = [middle - half * mp.cos(mp.pi * k / 400) for k in range(401)]
    grid = [t for t in grid if weight(t) != 0]
    table = [(t, target(t), weight(t)) for t in grid]
    # An exchange can also make things worse (a weight with a zero allows fewer extremes); the best
    # round counts.
    best, best_error = None, None
    for _ in range(12):
        rows, right = [], []
        for k, t in enumerate(points):
            rows.append([weight(t) * t**p for p in powers] + [(-1) ** k])
            right.append(weight(t) * target(t))
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix(right))
        coefficients = [solution[k] for k in range(len(powers))]
        level = abs(solution[len(powers)])
        errors = [w * (g - sum(c * t**p for c, p in zip(coefficients, powers))) for t, g, w in table]
        largest = max(abs(e) for e in errors)
        if best is None or largest < best_error:
            best, best_error = coefficients, largest
        # One extreme point per run of equal sign; keep the `count` best adjacent runs.
        runs = []
        for t, e in zip(grid, errors):
            if runs and (runs[-1][1] > 0) == (e > 0):
                if abs(e) > abs(runs[-1][1]):
                    runs[-1] = (t, e)
            else:
                runs.append((t, e))
        while len(runs) > count:
            runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
        if len(runs) < count:
            break
        points = [t for t, _ in runs]
        if max(abs(e) for _, e in runs) < level * (1 + mpf(10) ** -3):
            break
    return best


def rounded(target, weight, powers, low, high):
    """`minimax`, with every coefficient an f32."""
    def largest(coefficients):
        points = (low + (high - low) * k / 300 for k in range(301))
        return max(abs(weight(t) * (target(t) - sum(c * t**p for c, p in zip(coefficients, powers)))) for t in points)

    done, rest = [], []
    for k in range(len(powers)):
        left = lambda t: target(t) - sum(c * t**p for c, p in zip(done, powers))
        fitted = minimax(left, weight, powers[k:], low, high)
        if k > 0 and largest(done + rest) < largest(done + fitted):
            fitted = rest  # The fit before, with one more coefficient rounded, is still the better one.
        done.append(f32(fitted[0]))
        rest = fitted[1:]
    return done, largest(done)


def split(value, *bits):
    """Write value as a sum of f32 parts, part k having bits[k] significant bits (the last may have
    all 24)."""
    parts = []
    for count in bits:
        exponent = mp.floor(mp.log(abs(value), 2)) + 1
        scale = mpf(2) ** (count - exponent)
        part = mp.nint(value * scale) / scale
        parts.append(part)
        value -= part
    return parts


POLYNOMIALS = {}


def polynomial(name, note):
    def register(make):
        POLYNOMIALS[name] = (note, make)
        return make

    return register


def near_zero(function, at_zero):
    """A function whose formula is 0/0 at zero, with its limit there."""
    return lambda t: at_zero if t == 0 else function(t)


def odd(function, cubic):
    """(f(u) - u) / u**3 as a function of z = u*u, for an odd f."""

    def value(z):
        if z == 0:
            return mpf(cubic)
        u = mp.sqrt(z)
        return (function(u) - u) / (u * z)

    return value


def odd_weight(function):
    return lambda z: mpf(0) if z == 0 else mp.sqrt(z) * z / function(mp.sqrt(z))


LN2 = mp.ln(2)


@polynomial("exp", "e^r = 1 + r + r*r*P(r), |r| <= ln(2)/2")
def _():
    return rounded(
        near_zero(lambda r: (mp.expm1(r) - r) / r**2, mpf(1) / 2),
        lambda r: r * r / mp.exp(r), range(5), mpf("-0.3469"), mpf("0.3469"))


@polynomial("exp2", "2^r = 1 + r*(ln(2) + r*P(r)), |r| <= 1/2")
def _():
    return rounded(
        near_zero(lambda r: (mp.expm1(r * LN2) - r * LN2) / r**2, LN2**2 / 2),
        lambda r: r * r / mp.exp(r * LN2), range(5), mpf("-0.5"), mpf("0.5"))


@polynomial("log", "log(1+f) = f - f*f/2 + f^3*P(f), sqrt(1/2) <= 1+f <= sqrt(2)")
def _():
    return rounded(
        near_zero(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, mpf(1) / 3),
        near_zero(lambda f: f**3 / mp.log1p(f), mpf(0)), range(LOG_TERMS), mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1)


@polynomial("log2", "log2(1+f) = f + (f*(log2(e)-1) + f*f*P(f)), sqrt(1/2) <= 1+f <= sqrt(2)")
def _():
    return rounded(
        near_zero(lambda f: (mp.log1p(f) - f) / LN2 / f**2, -1 / LN2 / 2),
        near_zero(lambda f: f**2 * LN2 / mp.log1p(f), mpf(0)), range(LOG_TERMS + 1), mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1)


LOG_TERMS = 8
QUARTER = mp.pi / 4 + mpf("0.001")


@polynomial("sin", "sin(r) = r + r*z*P(z), z = r*r, |r| <= pi/4")
def _():
    return rounded(odd(mp.sin, mpf(-1) / 6), odd_weight(mp.sin), range(3), mpf(0), QUARTER**2)


@polynomial("cos", "cos(r) = 1 - z/2 + z*z*P(z), z = r*r, |r| <= pi/4")
def _():
    return rounded(
        near_zero(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24),
        lambda z: z * z / mp.cos(mp.sqrt(z)), range(3), mpf(0), QUARTER**2)


@polynomial("atan", "atan(u) = u + u*z*P(z), z = u*u, |u| <= 1")
def _():
    return rounded(odd(mp.atan, mpf(-1) / 3), odd_weight(mp.atan), range(8), mpf(0), mpf(1))


@polynomial("asin", "asin(s) = s + s*z*P(z), z = s*s, |s| <= 0.5625")
def _():
    return rounded(odd(mp.asin, mpf(1) / 6), odd_weight(mp.asin), range(5), mpf(0), mpf("0.5625") ** 2)


HALF_LN2 = mpf("0.3469")


@polynomial("sinh small", "sinh(x) = x + x*z*P(z), z = x*x, |x| <= 1")
def _():
    return rounded(odd(mp.sinh, mpf(1) / 6), odd_weight(mp.sinh), range(4), mpf(0), mpf(1))


@polynomial("sinh", "sinh(r) = r + r*z*P(z), z = r*r, |r| <= ln(2)/2")
def _():
    return rounded(odd(mp.sinh, mpf(1) / 6), odd_weight(mp.sinh), range(2), mpf(0), HALF_LN2**2)


@polynomial("cosh", "cosh(r) = 1 + z/2 + z*z*P(z), z = r*r, |r| <= ln(2)/2")
def _():
    return rounded(
        near_zero(lambda z: (mp.cosh(mp.sqrt(z)) - 1 - z / 2) / z**2, mpf(1) / 24),
        lambda z: z * z / mp.cosh(mp.sqrt(z)), range(2), mpf(0), HALF_LN2**2)


TANH_SMALL = mpf("0.5625")


@polynomial("tanh", "tanh(x) = x + x*z*P(z), z = x*x, |x| <= 0.5625")
def _():
    return rounded(odd(mp.tanh, mpf(-1) / 3), odd_weight(mp.tanh), range(5), mpf(0), TANH_SMALL**2)


ERF_SMALL = mpf("0.9375")


@polynomial("erf small", "erf(x) = x + x*((2/sqrt(pi)-1) + z*P(z)), z = x*x, |x| <= 0.9375")
def _():
    first = 2 / mp.sqrt(mp.pi)
    return rounded(
        near_zero(lambda z: (mp.erf(mp.sqrt(z)) / mp.sqrt(z) - first) / z, -first / 3),
        near_zero(lambda z: z * mp.sqrt(z) / mp.erf(mp.sqrt(z)), mpf(0)), range(5), mpf(0), ERF_SMALL**2)


@polynomial("erf large", "erfc(x) = 2^(-x*P(x)), 0.9375 <= x <= 4; the weight is the error this leaves in erf")
def _():
    return rounded(
        lambda x: -mp.log(mp.erfc(x), 2) / x,
        lambda x: x * LN2 * mp.erfc(x) / mp.erf(x), range(ERF_LARGE_TERMS), ERF_SMALL, mpf(4))


ERF_LARGE_TERMS = 7


@polynomial("cbrt", "c^(-1/3) = P(c) for the first guess's c = x*y^3, 0.897 <= c <= 1.114")
def _():
    return rounded(lambda c: 1 / mp.cbrt(c), lambda c: mp.cbrt(c), range(3), mpf("0.897"), mpf("1.114"))


@polynomial("pow log2", "log2((1+s)/(1-s)) = s*2/ln(2) + s^3*P(s*s), |s| <= 0.0719")
def _():
    def target(z):
        if z == 0:
            return 2 / LN2 / 3
        s = mp.sqrt(z)
        return (mp.log((1 + s) / (1 - s)) / LN2 - 2 * s / LN2) / (s * z)

    return rounded(target, lambda z: z, range(3), mpf(0), mpf("0.0719") ** 2)


# The polynomials of f64. Rounding a coefficient costs little there but for the lowest ones.


def f64(value):
    """The nearest f64, as an exact multiple-precision number."""
    return mpf(float(value))


def show64(value):
    bits = struct.unpack("<Q", struct.pack("<d", float(value)))[0]
    return f"{float(value)!r}  (0x{bits:016x})"


def rounded64(target, weight, powers, low, high):
    """`minimax`, with every coefficient an f64; the two lowest are rounded before the others are
    fitted."""
    powers = list(powers)
    done = []
    for k in range(2):
        left = lambda t: target(t) - sum(c * t**p for c, p in zip(done, powers))
        fitted = minimax(left, weight, powers[k:], low, high)
        done.append(f64(fitted[0]))
    left = lambda t: target(t) - sum(c * t**p for c, p in zip(done, powers))
    done += [f64(c) for c in minimax(left, weight, powers[2:], low, high)]
    points = [low + (high - low) * k / 300 for k in range(301)]
    error = lambda t: abs(weight(t) * (target(t) - sum(c * t**p for c, p in zip(done, powers))))
    return done, max(error(t) for t in points)


WIDE = {}


def wide(name, note):
    def register(make):
        WIDE[name] = (note, make)
        return make

    return register


@wide("exp f64", "e^r = 1 + r + r*r*P(r), |r| <= ln(2)/2")
def _():
    return rounded64(
        near_zero(lambda r: (mp.expm1(r) - r) / r**2, mpf(1) / 2),
        lambda r: r * r / mp.exp(r), range(11), mpf("-0.3469"), mpf("0.3469"))


@wide("log f64", "log((1+s)/(1-s)) = 2*s + s*z*P(z), z = s*s, |s| <= 0.1716")
def _():
    def target(z):
        s = mp.sqrt(z)
        return mpf(2) / 3 if z == 0 else (mp.log((1 + s) / (1 - s)) - 2 * s) / (s * z)

    return rounded64(target, lambda z: z / 2, range(7), mpf(0), mpf("0.1716") ** 2)


@wide("sin f64", "sin(r) = r + r*z*P(z), z = r*r, |r| <= pi/4")
def _():
    return rounded64(odd(mp.sin, mpf(-1) / 6), odd_weight(mp.sin), range(6), mpf(0), QUARTER**2)


@wide("cos f64", "cos(r) = 1 - z/2 + z*z*P(z), z = r*r, |r| <= pi/4")
def _():
    return rounded64(
        near_zero(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24),
        lambda z: z * z / mp.cos(mp.sqrt(z)), range(6), mpf(0), QUARTER**2)


@wide("atan f64", "atan(u) = u + u*z*P(z), z = u*u, |u| <= 7/16")
def _():
    return rounded64(odd(mp.atan, mpf(-1) / 3), odd_weight(mp.atan), range(11), mpf(0), mpf("0.4376") ** 2)


@wide("asin f64", "asin(s) = s + s*z*P(z), z = s*s, |s| <= 0.5")
def _():
    return rounded64(odd(mp.asin, mpf(1) / 6), odd_weight(mp.asin), range(13), mpf(0), mpf("0.25"))


@wide("pow f64", "log((1+s)/(1-s)) = 2*s + 2/3*s^3*(1 + z*P(z)), z = s*s, |s| <= 0.1011")
def _():
    def target(z):
        s = mp.sqrt(z)
        return mpf(3) / 5 if z == 0 else ((mp.log((1 + s) / (1 - s)) - 2 * s) * 3 / (2 * s * z) - 1) / z

    return rounded64(target, lambda z: z * z, range(6), mpf(0), mpf("0.1011") ** 2)


@wide("erf small f64", "erf(x) = x + x*((2/sqrt(pi)-1) + z*P(z)), z = x*x, |x| <= 0.875")
def _():
    first = 2 / mp.sqrt(mp.pi)
    return rounded64(
        near_zero(lambda z: (mp.erf(mp.sqrt(z)) / mp.sqrt(z) - first) / z, -first / 3),
        near_zero(lambda z: z * mp.sqrt(z) / mp.erf(mp.sqrt(z)), mpf(0)), range(12), mpf(0), mpf("0.875") ** 2)


@wide("erf large f64", "erfc(x) = e^(-x*x)*P(t), t = (x-2)/(x+2), 0.875 <= x <= 6; the weight is the error this leaves in erf")
def _():
    x = lambda t: 2 * (1 + t) / (1 - t)
    return rounded64(
        lambda t: mp.erfc(x(t)) * mp.exp(x(t) ** 2),
        lambda t: mp.exp(-x(t) ** 2) / mp.erf(x(t)), range(16), mpf("-0.3914"), mpf("0.5"))


@wide("cbrt f64", "c^(-1/3) = P(c) for the first guess's c = x*y^3, 0.89 <= c <= 1.12")
def _():
    return rounded64(lambda c: 1 / mp.cbrt(c), lambda c: mp.cbrt(c), range(6), mpf("0.89"), mpf("1.12"))


def constants64():
    print("ln(2), 33 bits and rest:", *map(show64, split(LN2, 33, 53)))
    print("ln(2), 24 bits and rest:", *map(show64, split(LN2, 24, 53)))
    print("pi/2 in four parts:", *map(show64, split(mp.pi / 2, 33, 33, 33, 53)))
    print("log2(e), 24 bits and rest:", *map(show64, split(1 / LN2, 24, 53)))
    print("log10(e), 24 bits and rest:", *map(show64, split(1 / mp.ln(10), 24, 53)))
    print("log10(2), 34 bits and rest:", *map(show64, split(mp.log10(2), 34, 53)))
    print("2/(3 ln(2)), 24 bits and rest:", *map(show64, split(2 / (3 * LN2), 24, 53)))
    print("log2(3/2), 24 bits and rest:", *map(show64, split(mp.log(mpf(3) / 2, 2), 24, 53)))
    for name, value in [("pi/2", mp.pi / 2), ("pi", mp.pi), ("pi/4", mp.pi / 4), ("3 pi/4", 3 * mp.pi / 4),
                        ("atan(1/2)", mp.atan(mpf(1) / 2)), ("atan(3/2)", mp.atan(mpf(3) / 2)), ("ln(2)", LN2)]:
        print(f"{name} as f64 plus rest:", show64(f64(value)), show64(f64(value - f64(value))))
    print("2/pi:", show64(2 / mp.pi), " log2(e):", show64(1 / LN2), " 2/sqrt(pi)-1:", show64(2 / mp.sqrt(mp.pi) - 1))
    mp.dps = 450
    print("2/pi as a binary fraction, 64-bit words:")
    print(" ", [f"0x{int(mp.floor(2 / mp.pi * mpf(2) ** (64 * (k + 1)))) & (2**64 - 1):016x}" for k in range(20)])


def main():
    wanted = sys.argv[1:]
    if wanted[:1] == ["f64"]:
        mp.dps = 45
        constants64()
        mp.dps = 45
        for name, (note, make) in WIDE.items():
            if wanted[1:] and name not in wanted[1:]:
                continue
            coefficients, worst = make()
            print(f"{name}: {note}")
            for k, value in enumerate(coefficients):
                print(f"  c{k} = {show64(value)}")
            print(f"  largest error 2^{float(mp.log(worst, 2)):.2f}\n", flush=True)
        return
    for name, (note, make) in POLYNOMIALS.items():
        if wanted and name not in wanted:
            continue
        coefficients, worst = make()
        print(f"{name}: {note}")
        for k, value in enumerate(coefficients):
            print(f"  c{k} = {show(value)}")
        print(f"  largest error 2^{float(mp.log(worst, 2)):.2f}\n")
    if wanted:
        return
    print("ln(2) in two parts, the first exact when multiplied by an 8-bit integer:")
    for part in split(LN2, 15, 24):
        print(" ", show(part))
    print("pi/2 in four parts, the first three exact when multiplied by an 11-bit integer:")
    first = mp.nint(mp.pi / 2 * 2**12) / 2**12
    second = mp.nint((mp.pi / 2 - first) * 2**24) / 2**24
    for part in [first, second] + split(mp.pi / 2 - first - second, 13, 24):
        print(" ", show(part))
    print("2/pi:", show(f32(2 / mp.pi)), " log2(e):", show(f32(1 / LN2)), " log2(e)-1:", show(f32(1 / LN2 - 1)))
    print("ln(2):", show(f32(LN2)), " 2/sqrt(pi)-1:", show(f32(2 / mp.sqrt(mp.pi) - 1)))
    print("pi and pi/2 as f32 plus rest:")
    for value in (mp.pi, mp.pi / 2):
        print(" ", show(f32(value)), show(f32(value - f32(value))))
    print("2/ln(2), 12 bits and rest:")
    for part in split(2 / LN2, 12, 24):
        print(" ", show(part))
    print("log2(3/2) and log2(5/4), 11 bits and rest:")
    for value in (mpf(3) / 2, mpf(5) / 4):
        print(" ", *map(show, split(mp.log(value) / LN2, 11, 24)))
    print("sqrt(5/4) and sqrt(15/8):", show(f32(mp.sqrt(mpf(5) / 4))), show(f32(mp.sqrt(mpf(15) / 8))))
    print("2/pi as a binary fraction, 32-bit words:")
    print(" ", [f"0x{int(mp.floor(2 / mp.pi * mpf(2) ** (32 * (k + 1)))) & 0xFFFFFFFF:08x}" for k in range(7)])


main()
