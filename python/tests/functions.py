"""Random typed functions, as Python text with the same meaning for the translator and, on NumPy
scalars, for Python.

Each has a loop, a branch and values of several types. Operations that NumPy does not perform exactly, or defines differently (division
by zero, oversized shifts, transcendental functions), are left out; conversions and `min` and `max` follow the language's definition
both sides.
"""

import random

import numpy as np

TYPES = ["i32", "u32", "i64", "u64", "f32", "f64"]
NUMPY = {
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
    "bool": np.bool_,
}


class Maker:
    """Makes one function."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.variables = {}
        self.count = 0

    def pick(self, *choices):
        return self.random.choice(choices)

    def number(self, ty):
        if ty[0] == "f":
            return repr(self.pick(0.0, 0.5, 1.0, -2.25, 3.0, 1e3, round(self.random.uniform(-10, 10), 3)))
        low = 0 if ty[0] == "u" else -9
        return str(self.random.randint(low, 9))

    def of(self, ty, depth):
        """A non-trivial expression of this type."""
        known = [name for name, own in self.variables.items() if own == ty]
        if depth <= 0 or self.random.random() < 0.2:
            if known and self.random.random() < 0.8:
                return self.random.choice(known)
            return f"{ty}({self.number(ty)})"
        inner = lambda own=ty: self.of(own, depth - 1)
        beside = lambda: self.number(ty) if self.random.random() < 0.3 else inner()
        other = self.random.choice([own for own in TYPES if own != ty])
        common = [
            lambda: f"({inner()} {self.pick('+', '-', '*')} {beside()})",
            lambda: f"({inner()} if {self.truth(depth - 1)} else {inner()})",
            lambda: f"{ty}({inner(other)})",
            lambda: f"{self.pick('min', 'max')}({inner()}, {inner()})",
        ]
        if ty[0] == "f":
            own = [
                lambda: f"({inner()} / {inner()})",
                lambda: f"sqrt(abs({inner()}))",
                lambda: f"floor({inner()})",
                lambda: f"({inner()} ** 2)",
                lambda: f"(-{inner()})",
                lambda: f"({inner()} {self.pick('//', '%')} {inner()})",
            ]
        else:
            own = [
                lambda: f"({inner()} {self.pick('&', '|', '^')} {inner()})",
                lambda: f"({inner()} {self.pick('//', '%')} ({inner()} | {ty}(1)))",
                lambda: f"({inner()} {self.pick('<<', '>>')} {self.random.randint(0, 31)})",
                lambda: f"(~{inner()})",
                lambda: f"({inner()} ** {self.random.randint(0, 4)})",
            ]
        return self.random.choice(common + own)()

    def truth(self, depth):
        if depth <= 0 or self.random.random() < 0.6:
            ty = self.random.choice(TYPES)
            sign = self.pick("<", "<=", ">", ">=", "==", "!=")
            chain = f" {self.pick('<', '<=')} {self.of(ty, 0)}" if self.random.random() < 0.2 else ""
            return f"({self.of(ty, depth - 1)} {sign} {self.of(ty, 0)}{chain})"
        if self.random.random() < 0.3:
            return f"(not {self.truth(depth - 1)})"
        return f"({self.truth(depth - 1)} {self.pick('and', 'or')} {self.truth(depth - 1)})"

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def statements(self, depth, loops, inside):
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.random()
            names = list(self.variables)
            if kind < 0.35 and depth == 1:
                ty, name = self.random.choice(TYPES), f"v{self.count}"
                self.count += 1
                self.line(depth, f"{name} = {self.of(ty, 3)}")
                self.variables[name] = ty
            elif kind < 0.6 or depth > 2:
                name = self.random.choice(names)
                sign = self.pick("+=", "-=", "*=", "=")
                self.line(depth, f"{name} {sign} {self.of(self.variables[name], 3)}")
            elif kind < 0.8:
                self.branch(depth, loops, inside)
            else:
                self.loop(depth, loops)

    def branch(self, depth, loops, inside):
        self.line(depth, f"if {self.truth(2)}:")
        self.statements(depth + 1, loops, inside)
        if inside and self.random.random() < 0.3:
            self.line(depth + 1, self.pick("break", "continue"))
        elif self.random.random() < 0.5:
            self.line(depth, "else:")
            self.statements(depth + 1, loops, inside)

    def loop(self, depth, loops):
        name = f"k{loops}_{self.count}"
        self.count += 1
        ty = self.random.choice(["i32", "u32"])
        first = self.random.randint(0, 2)
        self.line(depth, f"for {name} in range({first}, {first + self.random.randint(1, 4)}):")
        own = f"w{self.count}"
        self.count += 1
        self.line(depth + 1, f"{own} = {ty}({name})")
        before = dict(self.variables)
        self.variables[own] = ty
        self.statements(depth + 1, loops + 1, True)
        self.variables = {key: value for key, value in self.variables.items() if key in before}

    def function(self):
        parameters = {f"a{k}": self.random.choice(TYPES) for k in range(self.random.randint(2, 3))}
        if len(set(parameters.values())) == 1:
            parameters["a0"] = "f32" if parameters["a0"] != "f32" else "i32"
        result = self.random.choice(TYPES)
        self.variables = dict(parameters)
        self.variables["acc"] = result
        self.line(1, f"acc = {self.of(result, 2) if False else result + '(' + self.number(result) + ')'}")
        self.loop(1, 0)
        self.branch(1, 0, False)
        self.statements(1, 0, False)
        self.line(1, f"return acc + {self.of(result, 3)}")
        signature = ", ".join(f"{name}: {ty}" for name, ty in parameters.items())
        text = f"def made({signature}) -> {result}:\n" + "\n".join(self.lines) + "\n"
        return text, parameters, result


def convert(ty):
    """The language's conversion, on NumPy scalars."""
    made = NUMPY[ty]

    def cast(value):
        if ty[0] != "f" and isinstance(value, (float, np.floating)):
            if np.isnan(value):
                return made(0)
            limits = np.iinfo(made)
            if np.isinf(value):
                return made(limits.max if value > 0 else limits.min)
            return made(min(max(int(value), limits.min), limits.max))
        if isinstance(value, (bool, np.bool_)):
            return made(int(value))
        if isinstance(value, (int, np.integer)) and ty[0] != "f":
            bits = int(value) & (2 ** (8 * made().itemsize) - 1)
            return np.array(bits, f"uint{8 * made().itemsize}").view(made)[()]
        return np.asarray(value).astype(made)[()]

    return cast


def extreme(least):
    """The language's `min` or `max`: NaNs are ignored, and -0.0 is less than 0.0."""

    def choose(a, b):
        if a != a:
            return b if b == b else a
        if b != b:
            return a
        if a == b:
            return a if bool(np.signbit(a)) == least else b
        return a if (a < b) == least else b

    return choose


def root(value):
    return np.sqrt(value)


def host():
    """The names that a function sees when Python runs it."""
    names = {ty: convert(ty) for ty in TYPES}
    return {**names, "min": extreme(True), "max": extreme(False), "sqrt": root, "floor": np.floor, "abs": abs}


def values(ty, count, random):
    """Arguments: small numbers, large ones and the limits of the type."""
    made = NUMPY[ty]
    if ty[0] == "f":
        some = random.standard_normal(count) * 10.0 ** random.integers(-3, 6, count)
        some[:4] = [0.0, -0.0, 1.0, -1.0]
        return some.astype(made)
    limits = np.iinfo(made)
    some = random.integers(limits.min, limits.max, count, dtype=made, endpoint=True)
    some[count // 2 :] = random.integers(0, 50, count - count // 2).astype(made)
    some[:2] = [limits.min, limits.max]
    return some
