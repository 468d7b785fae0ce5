"""Functions that a translation adds to the text: Python's `//`, `%` and `**` where the text has no
op for them.

`{t}` is the type. Division by zero follows the language: `x // 0` is `x` and `x % 0` is 0 for integers; for floats they are
the IEEE-754 result of `x / 0`, and NaN.
"""

_SIGNED = """fn floor_div_{t}(a: {t}, b: {t}) -> {t} {{
  let q = a / b
  let r = a - q * b
  select(b != 0{t} && r != 0{t} && (r ^ b) < 0{t}, q - 1{t}, q)
}}
"""

_SIGNED_MOD = """fn floor_mod_{t}(a: {t}, b: {t}) -> {t} {{
  let r = a % b
  select(r != 0{t} && (r ^ b) < 0{t}, r + b, r)
}}
"""

# Each round subtracts the largest d * 2^n that fits in r, which is exact: r - t with r / 2 < t <=
# r.
_FMOD = """fn fmod_{t}(a: {t}, b: {t}) -> {t} {{
  if !is_finite(a) || is_nan(b) || b == 0.0{t} {{ return nan{s} }}
  let r = abs(a)
  let d = abs(b)
  while r >= d {{
    let n = frexp_exponent(r) - frexp_exponent(d)
    let t = ldexp(d, n)
    if t > r {{ t = ldexp(d, n - 1i32) }}
    r -= t
  }}
  copysign(r, a)
}}
"""

_FLOAT_MOD = """fn floor_mod_{t}(a: {t}, b: {t}) -> {t} {{
  let m = fmod_{t}(a, b)
  if m == 0.0{t} {{ return copysign(0.0{t}, b) }}
  if (b < 0.0{t}) != (m < 0.0{t}) {{ return m + b }}
  m
}}
"""

_FLOAT_DIV = """fn floor_div_{t}(a: {t}, b: {t}) -> {t} {{
  if b == 0.0{t} {{ return a / b }}
  let m = fmod_{t}(a, b)
  let q = (a - m) / b
  if m != 0.0{t} && (b < 0.0{t}) != (m < 0.0{t}) {{ q -= 1.0{t} }}
  if q == 0.0{t} {{ return copysign(0.0{t}, a / b) }}
  let f = floor(q)
  if q - f > 0.5{t} {{ f += 1.0{t} }}
  f
}}
"""

_POWER = """fn power_{t}(a: {t}, n: u32) -> {t} {{
  let base = a
  let left = n
  let product = 1{t}
  while left != 0u32 {{
    if (left & 1u32) != 0u32 {{ product *= base }}
    base *= base
    left = left >> 1u32
  }}
  product
}}
"""


def texts(name: str, ty: str) -> dict[str, str]:
    """The functions that `name` needs for a type, by name."""
    fill = {"t": ty, "s": "_f64" if ty == "f64" else ""}
    if name == "power":
        return {f"power_{ty}": _POWER.format(**fill)}
    if ty in ("i32", "i64"):
        return {f"{name}_{ty}": (_SIGNED if name == "floor_div" else _SIGNED_MOD).format(**fill)}
    own = _FLOAT_DIV if name == "floor_div" else _FLOAT_MOD
    return {f"fmod_{ty}": _FMOD.format(**fill), f"{name}_{ty}": own.format(**fill)}
