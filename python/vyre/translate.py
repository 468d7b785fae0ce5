"""Translates a typed Python function into the text of a kernel, with the origin of every line.

The function's tree is read once, top to bottom. Each expression becomes text and a type (`types.py`); numbers and helper functions whose
types are not known yet are placeholders in the text, filled in at the end. `flow.py` decides where variables are declared,
`source.py` shows faults in the Python source. Anything outside the tables below is refused.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import re
from types import FunctionType, ModuleType
from typing import Any, Callable, NoReturn, Optional, Union

from . import _vyre, helpers, names
from .errors import ArgumentError, ProgramError
from .flow import Flow
from .source import Origin, Source
from .types import BOOL, FLOATS, INTEGERS, Number, Ty, limits, misfit, of_number, spelt, wrapped

#: Every op of the op table by name, with the name of each operand.
OPS: dict[str, list[str]] = dict(_vyre.signatures())
#: Conversions are called by the name of the type.
CASTS = (*INTEGERS, *FLOATS, "bool")
#: Names in `math`, `numpy` and Python that stand for ops.
ALIASES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "clip": "clamp",
    "expm1": "exp_m1",
    "fabs": "abs",
    "isfinite": "is_finite",
    "isinf": "is_inf",
    "isnan": "is_nan",
    "log1p": "log_1p",
    "power": "pow",
    "rint": "round",
    "where": "select",
}
#: Names in `numpy`, whose `minimum` propagates NaN: `fmin` ignores it, as the op does.
NUMPY_ALIASES = {**ALIASES, "fmax": "max", "fmin": "min"}
ARITHMETIC: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
BITS: dict[type, str] = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
COMPARISONS: dict[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
BUILTINS = ("invocation", "local", "workgroup", "grid_size", "workgroup_size")
ATOMICS = {
    "atomic_add": 3,
    "atomic_and": 3,
    "atomic_compare_exchange": 4,
    "atomic_exchange": 3,
    "atomic_load": 2,
    "atomic_max": 3,
    "atomic_min": 3,
    "atomic_or": 3,
    "atomic_store": 3,
    "atomic_xor": 3,
}
#: Constructs with a scope, or with a meaning that a kernel cannot have.
SCOPES = (
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.NamedExpr,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Try,
    ast.With,
    ast.Import,
    ast.ImportFrom,
    ast.Match,
)
#: Names of functions that a translation adds.
HELPERS = {f"{name}_{ty}" for name in ("floor_div", "floor_mod", "fmod", "power") for ty in CASTS}
#: Words that cannot name a variable in the text.
KEYWORDS = set(
    "fn kernel let array if else for while break continue return barrier region trap true false inf nan inf_f64 nan_f64 const "
    "over workgroup_broadcast len print assert invocation workgroup local grid_size workgroup_size".split()
)


class Value:
    """An expression: its text, its type, its value if it is a number, and whether it has side
    effects."""

    def __init__(self, text: str, ty: Optional[Ty], number: Optional[Number] = None, acts: bool = False) -> None:
        self.text, self.ty, self.number, self.acts = text, ty, number, acts


class Array:
    """Memory with elements: a parameter, or a private array."""

    def __init__(self, text: str, element: str, access: str) -> None:
        self.text, self.element, self.access = text, element, access
        #: For a two-dimensional array, the number of rows and columns, as text.
        self.axes: Optional[tuple[str, str]] = None


class Func:
    """A function of numbers that kernels can call. Called from Python it behaves as written."""

    def __init__(self, function: FunctionType) -> None:
        self.__wrapped__ = function
        self.__name__ = self.__qualname__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.source = Source(function)
        self.parameters, self.result = _signature_of_function(self.source, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__wrapped__(*arguments, **named)

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return f"<vyre.func {self.__name__}>"


def refuse(source: Source, node: ast.AST, why: str) -> NoReturn:
    position = source.position(node)
    fault = {"code": "P001", "severity": "error", "message": why, "help": None, "line": position[0]}
    raise ProgramError(source.fault(node, why), [{**fault, "column": position[2] + 1}])


class Unit:
    """A text in progress: a kernel, the functions that it calls, and the helpers that they need."""

    def __init__(self) -> None:
        self.functions: dict[Func, str] = {}
        self.under_way: list[Func] = []
        self.speaks: set[Func] = set()
        self.helpers: dict[str, str] = {}
        #: Lines of the functions, each with its source and node.
        self.lines: list[tuple[str, Source, ast.AST]] = []

    def function(self, func: Func, caller: Body, node: ast.AST) -> str:
        """The name of a function in the text; writes the function on first use."""
        if func in self.under_way:
            caller.no(node, f"`{func.__name__}` calls itself; kernels have no recursion")
        if func not in self.functions:
            taken = {*self.functions.values(), *OPS, *KEYWORDS, *ATOMICS, *HELPERS}
            name = plain(func.__name__)
            while name in taken:
                name += "_"
            self.functions[func] = name
            self.under_way.append(func)
            body = Body(self, func.source, func.__wrapped__, func.parameters, {}, func.result)
            self.lines += body.function_lines(name)
            if body.speaks:
                self.speaks.add(func)
            self.under_way.pop()
        return self.functions[func]


def plain(name: str) -> str:
    """A Python name as a valid name in the text."""
    name = "".join(c if c.isascii() else f"u{ord(c):x}" for c in name)
    return name + "_" if name in KEYWORDS else name


class Body:
    """The body of a kernel or function in progress."""

    def __init__(
        self,
        unit: Unit,
        source: Source,
        function: FunctionType,
        numbers: dict[str, str],
        arrays: dict[str, Array],
        result: Optional[str],
    ) -> None:
        self.unit, self.source, self.result = unit, source, result
        self.arrays = dict(arrays)
        self.around = _around(function)
        self.statements = _without_docstring(source.node.body)
        for statement in self.statements:
            for inner in ast.walk(statement):
                if isinstance(inner, SCOPES):
                    self.no(inner, f"{_called(inner)} cannot be part of a kernel")
        self.lines: list[tuple[int, Union[str, tuple[str, str]], ast.AST]] = []
        self.marks: list[tuple[str, Any, Ty, ast.AST]] = []
        self.speaks = False
        #: Text and type of each variable in scope.
        self.variables: dict[str, tuple[str, Ty]] = {}
        self.types: dict[str, Ty] = {}
        self.taken = set(map(plain, {*numbers, *arrays}))
        self.flow = Flow(self.statements, {*numbers, *arrays}, self.no)
        for name, ty in numbers.items():
            self.variables[name] = plain(name), Ty(names.WIDE.get(ty, ty))
        for name in sorted(self.flow.stored & set(numbers)):
            # A parameter that is assigned becomes a variable.
            own = self.fresh(name)
            self.line(0, f"let {own} = {plain(name)}", source.node)
            self.variables[name] = own, self.variables[name][1]
        self.numbers = set(numbers)

    def no(self, node: ast.AST, why: str) -> NoReturn:
        refuse(self.source, node, why)

    def fresh(self, name: str) -> str:
        name = plain(name)
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def line(self, depth: int, text: str, node: ast.AST) -> None:
        self.lines.append((depth + 1, text, node))

    # Text that is written once all types are known.

    def finished(self) -> list[tuple[str, Source, ast.AST]]:
        for _, _, ty, _ in self.marks:
            root = ty.root()
            name = ty.known()
            for number, node in root.numbers:
                why = misfit(number, name)
                if why:
                    self.no(node, why)
        done = []
        for depth, text, node in self.lines:
            if isinstance(text, tuple):
                own, name = text
                zero = spelt(0, self.types[name].known()) if name in self.types else None
                if zero is None:
                    continue
                text = f"let {own} = {zero}"
            done.append(("  " * depth + re.sub("\x01([0-9]+)\x02", self.fill, text), self.source, node))
        return done

    def fill(self, found: re.Match[str]) -> str:
        what, value, ty, node = self.marks[int(found[1])]
        name = ty.known()
        if what == "number":
            why = misfit(value, name)
            if why:
                self.no(node, why)
            return spelt(value, name)
        if what == "function":
            if name in ("u32", "u64"):
                return {"floor_div": "div", "floor_mod": "rem"}.get(value) or self.helper(value, name)
            return self.helper(value, name)
        # An index: u32 unchanged, i32 converted to u32.
        if name not in ("u32", "i32"):
            self.no(node, f"an index is u32 or i32, not {name}; convert it")
        return "u32" if name == "i32" else ""

    def helper(self, name: str, ty: str) -> str:
        self.unit.helpers.update(helpers.texts(name, ty))
        return f"{name}_{ty}"

    def mark(self, what: str, value: Any, ty: Ty, node: ast.AST) -> str:
        self.marks.append((what, value, ty, node))
        return f"\x01{len(self.marks) - 1}\x02"

    # Numbers and types.

    def typed(self, value: Value, ty: Ty, node: ast.AST) -> Value:
        """The value with that type, which an untyped number takes on."""
        if value.ty is None:
            number = value.number
            assert number is not None
            root = ty.root()
            if root.kind == "bool":
                self.no(node, f"expected a bool, not {number}")
            if root.kind == "int" and isinstance(number, float):
                self.no(node, f"expected {ty}, but {number} is not a whole number; convert one of them")
            if root.kind == "float" and not isinstance(number, float):
                number = float(number)
            root.numbers.append((number, node))
            return Value(self.mark("number", number, ty, node), ty)
        if not value.ty.meet(ty):
            self.no(node, f"{value.ty} and {ty} do not mix; convert one of them")
        return value

    def settled(self, value: Value, node: ast.AST) -> Value:
        """The value with a type: a lone number gets one that can still be resolved."""
        if value.ty is not None:
            return value
        kind = "float" if isinstance(value.number, float) else "int"
        return self.typed(value, Ty(kind=kind), node)

    def both(self, a: Value, b: Value, left: ast.AST, right: ast.AST, node: ast.AST) -> tuple[Value, Value, Ty]:
        """Two values unified to one type."""
        if a.ty is None and b.ty is None:
            if isinstance(a.number, float) or isinstance(b.number, float):
                a = Value(a.text, None, float(a.number or 0))
            a = self.settled(a, left)
        if a.ty is None:
            assert b.ty is not None
            a = self.typed(a, b.ty, left)
        assert a.ty is not None
        if b.ty is None:
            b = self.typed(b, a.ty, right)
        assert b.ty is not None
        if not a.ty.meet(b.ty):
            self.no(node, f"{a.ty} and {b.ty} do not mix; convert one of them")
        return a, b, a.ty

    def number(self, value: Any, node: ast.AST) -> Optional[Value]:
        """A number from outside, with its type if it has one."""
        found = of_number(value)
        if found is None:
            return None
        number, name = found
        if name == "bool":
            return Value("true" if number else "false", BOOL)
        if name is None:
            return Value("", None, number)
        return self.typed(Value("", None, number), Ty(name), node)

    # Names.

    def outside(self, node: ast.AST) -> Any:
        """The object that a name, or a chain of attributes, has outside the function; `self` if
        there is none."""
        if isinstance(node, ast.Name):
            if node.id in self.flow.stored or node.id in self.variables or node.id in self.arrays:
                return self
            return self.around.get(node.id, getattr(builtins, node.id, self))
        if isinstance(node, ast.Attribute):
            owner = self.outside(node.value)
            if isinstance(owner, (ModuleType, type)):
                return getattr(owner, node.attr, self)
        return self

    def called(self, node: ast.expr) -> tuple[Optional[str], Any]:
        """The target of a call: the name of an op or intrinsic, and the object."""
        found = self.outside(node)
        if isinstance(found, Func):
            return None, found
        if isinstance(found, names.Type):
            return found.value if found.name not in names.WIDE else found.name, found
        if isinstance(found, names.Intrinsic):
            return found.__name__, found
        if isinstance(node, ast.Attribute):
            owner = self.outside(node.value)
            module = getattr(owner, "__name__", "")
            if module in ("numpy", "math", "vyre", "builtins"):
                table = NUMPY_ALIASES if module == "numpy" else ALIASES
                numpy_type = {numpy: ours for ours, numpy in names.NUMPY.items() if ours != "bf16"}.get(node.attr)
                if module == "numpy" and numpy_type:
                    return numpy_type, found
                return table.get(node.attr, node.attr), found
            return None, found
        if not isinstance(node, ast.Name):
            return None, found
        module = getattr(found, "__module__", None) or getattr(type(found), "__module__", "")
        if found is self or module in ("builtins", "math", "vyre", "numpy", "vyre.ops"):
            table = NUMPY_ALIASES if module == "numpy" else ALIASES
            return table.get(node.id, node.id), found
        return None, found

    # Expressions.

    def value(self, node: ast.expr) -> Value:
        method = getattr(self, "of_" + type(node).__name__, None)
        if method is None:
            self.no(node, f"{_called(node)} cannot be part of a kernel")
        found: Value = method(node)
        return found

    def truth(self, node: ast.expr) -> Value:
        value = self.value(node)
        if value.ty is None or value.ty.root().kind != "bool":
            given = value.number if value.ty is None else value.ty
            self.no(node, f"expected a bool, not {given}; compare it: `!= 0`")
        return value

    def pure(self, node: ast.expr, value: Value, where: str) -> Value:
        if value.acts:
            self.no(node, f"this has a side effect, and {where}; assign its value to a variable first")
        return value

    def of_Constant(self, node: ast.Constant) -> Value:
        found = self.number(node.value, node)
        if found is None or isinstance(node.value, complex):
            self.no(node, "a kernel can contain only numbers and bools")
        return found

    def of_Name(self, node: ast.Name) -> Value:
        if node.id in self.variables:
            text, ty = self.variables[node.id]
            return Value(text, ty)
        if node.id in self.arrays:
            self.no(node, f"`{node.id}` is an array; index it: `{node.id}[i]`")
        if node.id in self.flow.stored:
            self.no(node, f"`{node.id}` has no value here; assign one first")
        found = self.outside(node)
        if found is self:
            self.no(node, f"`{node.id}` is not a known variable, parameter or number")
        number = self.number(found, node)
        if number is None:
            self.no(node, f"`{node.id}` is {_a(found)}; from outside, a kernel can use only numbers")
        return number

    def of_Attribute(self, node: ast.Attribute) -> Value:
        if isinstance(node.value, ast.Name) and node.value.id in self.arrays:
            if node.attr == "size":
                return Value(f"len({self.arrays[node.value.id].text})", Ty("u32"))
            self.no(node, f"an array has no `{node.attr}` in a kernel; use `len(x)`, `x.size` or `x.shape[0]`")
        owner = self.outside(node.value)
        named = owner.__name__ if isinstance(owner, names.Builtin) else None
        if owner is self and isinstance(node.value, ast.Name) and node.value.id in BUILTINS:
            named = node.value.id
        if named:
            if node.attr not in ("x", "y", "z"):
                self.no(node, f"`{named}` has the axes x, y and z")
            return Value(f"{named}.{node.attr}", Ty("u32"))
        found = self.outside(node)
        number = None if found is self else self.number(found, node)
        if number is None:
            self.no(node, f"`{ast.unparse(node)}` is not a known number")
        return number

    def of_Subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return self.shape(node)
        array, index = self.element(node)
        element = array.element
        return Value(f"{array.text}[{index}]", Ty(names.WIDE.get(element, element)))

    def shape(self, node: ast.Subscript) -> Value:
        owner = node.value.value if isinstance(node.value, ast.Attribute) else None
        array = self.arrays.get(owner.id) if isinstance(owner, ast.Name) else None
        axis = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if array is None or axis not in (0, 1):
            self.no(node, "only the lengths `x.shape[0]` and `x.shape[1]` of a parameter are known")
        if array.axes is None:
            if axis == 1:
                self.no(node, "the array has one axis here; if it has two, index it as `x[row, column]`")
            return Value(f"len({array.text})", Ty("u32"))
        return Value(array.axes[1 if axis == 1 else 0], Ty("u32"))

    def element(self, node: ast.Subscript) -> tuple[Array, str]:
        """The array of a subscript, and the index as text."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self.arrays:
            self.no(node.value, "only parameters and arrays of the kernel can be indexed")
        array = self.arrays[node.value.id]
        if isinstance(node.slice, ast.Slice):
            self.no(node.slice, "kernels have no slices; index one element at a time")
        if isinstance(node.slice, ast.Tuple):
            if len(node.slice.elts) != 2 or array.axes is None:
                self.no(node.slice, "an array of a kernel has one axis or two")
            row, column = (self.index(axis) for axis in node.slice.elts)
            rows, columns = array.axes
            inside = f"{row} < {rows} && {column} < {columns}"
            return array, f"select({inside}, {row} * {columns} + {column}, 4294967295u32)"
        if array.axes is not None:
            self.no(node.slice, f"`{node.value.id}` has two axes here; index it by row and column")
        return array, self.index(node.slice)

    def index(self, node: ast.expr) -> str:
        value = self.value(node)
        if value.ty is None:
            if isinstance(value.number, float):
                self.no(node, f"an index is a whole number, not {value.number}")
            if value.number is not None and value.number < 0:
                self.no(node, "kernels have no negative indices; write `len(x) - 1` for the last element")
            return self.typed(value, Ty("u32"), node).text
        if value.ty.root().kind != "int":
            self.no(node, f"an index is u32 or i32, not {value.ty}; convert it")
        return f"{self.mark('index', None, value.ty, node)}({value.text})"

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return Value(f"!({inner.text})", BOOL, acts=inner.acts)
        inner = self.value(node.operand)
        if inner.ty is None:
            assert inner.number is not None
            if isinstance(node.op, ast.Invert):
                if isinstance(inner.number, float):
                    self.no(node, "`~` takes whole numbers")
                return Value("", None, ~inner.number)
            return Value("", None, -inner.number if isinstance(node.op, ast.USub) else inner.number)
        kind = inner.ty.root().kind
        if isinstance(node.op, ast.Invert):
            if kind != "int":
                self.no(node, f"`~` takes whole numbers, not {inner.ty}" + ("; write `not`" if kind == "bool" else ""))
            return Value(f"!({inner.text})", inner.ty, acts=inner.acts)
        if kind == "bool":
            self.no(node, "a bool has no sign")
        if isinstance(node.op, ast.UAdd):
            return inner
        return Value(f"-({inner.text})", inner.ty, acts=inner.acts)

    def of_BinOp(self, node: ast.BinOp) -> Value:
        a, b = self.value(node.left), self.value(node.right)
        return self.combined(node.op, a, b, node.left, node.right, node)

    def combined(
        self, op: ast.operator, a: Value, b: Value, left: ast.expr, right: ast.expr, node: ast.AST
    ) -> Value:
        if a.ty is None and b.ty is None:
            return self.folded(op, a, b, node)
        acts = a.acts or b.acts
        if isinstance(op, (ast.LShift, ast.RShift)):
            return self.shifted(op, a, b, left, right)
        if isinstance(op, ast.Pow):
            return self.power(a, b, left, right, node)
        a, b, ty = self.both(a, b, left, right, node)
        kind = ty.root().kind
        if type(op) in BITS:
            if kind == "float":
                self.no(node, f"`{BITS[type(op)]}` takes whole numbers and bools, not {ty}")
            return Value(f"({a.text} {BITS[type(op)]} {b.text})", ty, acts=acts)
        if kind == "bool":
            self.no(node, "bools have no arithmetic; convert them: `i32(x)`")
        if type(op) in ARITHMETIC:
            return Value(f"({a.text} {ARITHMETIC[type(op)]} {b.text})", ty, acts=acts)
        if isinstance(op, ast.Div):
            if kind == "int":
                self.no(node, "`/` does not take whole numbers; write `//`, or convert both: `f32(x)`")
            return Value(f"({a.text} / {b.text})", ty, acts=acts)
        if isinstance(op, (ast.FloorDiv, ast.Mod)):
            name = "floor_div" if isinstance(op, ast.FloorDiv) else "floor_mod"
            return Value(f"{self.mark('function', name, ty, node)}({a.text}, {b.text})", ty, acts=acts)
        self.no(node, "this operator cannot be part of a kernel")

    def folded(self, op: ast.operator, a: Value, b: Value, node: ast.AST) -> Value:
        """Python's result for two numbers."""
        folds: dict[type, Callable[[Any, Any], Any]] = {
            ast.Add: lambda x, y: x + y,
            ast.Sub: lambda x, y: x - y,
            ast.Mult: lambda x, y: x * y,
            ast.Div: lambda x, y: x / y,
            ast.FloorDiv: lambda x, y: x // y,
            ast.Mod: lambda x, y: x % y,
            ast.Pow: lambda x, y: x**y if abs(y) < 4096 else math.nan,
            ast.LShift: lambda x, y: x << y if y < 4096 else math.nan,
            ast.RShift: lambda x, y: x >> y,
            ast.BitAnd: lambda x, y: x & y,
            ast.BitOr: lambda x, y: x | y,
            ast.BitXor: lambda x, y: x ^ y,
        }
        fold = folds.get(type(op))
        if fold is None:
            self.no(node, "this operator cannot be part of a kernel")
        try:
            made = fold(a.number, b.number)
        except (ArithmeticError, TypeError, ValueError) as error:
            self.no(node, f"these numbers cannot be combined: {error}")
        if isinstance(made, complex):
            self.no(node, "the result is not a real number")
        return Value("", None, made)

    def shifted(self, op: ast.operator, a: Value, b: Value, left: ast.expr, right: ast.expr) -> Value:
        a = self.settled(a, left)
        assert a.ty is not None
        if a.ty.root().kind != "int":
            self.no(left, f"only whole numbers can be shifted, not {a.ty}")
        if b.ty is None:
            width = int(str(a.ty)[1:])
            if isinstance(b.number, float) or not 0 <= (b.number or 0) < width:
                self.no(right, f"{a.ty} is shifted by 0 to {width - 1} bits, not {b.number}")
            count = self.typed(b, Ty("u32"), right).text
        else:
            if b.ty.root().kind != "int":
                self.no(right, f"a shift count is a whole number, not {b.ty}")
            count = f"u32({b.text})"
        sign = "<<" if isinstance(op, ast.LShift) else ">>"
        return Value(f"({a.text} {sign} {count})", a.ty, acts=a.acts or b.acts)

    def power(self, a: Value, b: Value, left: ast.expr, right: ast.expr, node: ast.AST) -> Value:
        if a.ty is not None and a.ty.root().kind == "int":
            if b.ty is not None or isinstance(b.number, float) or not 0 <= (b.number or 0) <= 64:
                self.no(node, "the exponent of a whole number must be a constant from 0 to 64; convert to f32")
            count = self.typed(b, Ty("u32"), right).text
            return Value(f"{self.mark('function', 'power', a.ty, node)}({a.text}, {count})", a.ty, acts=a.acts)
        if b.ty is None and b.number == 2 and not a.acts:
            a = self.settled(a, left)
            return Value(f"({a.text} * {a.text})", a.ty)
        a, b, ty = self.both(a, b, left, right, node)
        if ty.root().kind != "float":
            self.no(node, f"`**` does not take {ty}; convert to f32")
        return Value(f"pow({a.text}, {b.text})", ty, acts=a.acts or b.acts)

    def of_Compare(self, node: ast.Compare) -> Value:
        sides = [node.left, *node.comparators]
        values = [self.value(side) for side in sides]
        for side, value in zip(sides[1:-1], values[1:-1]):
            self.pure(side, value, "a chain of comparisons reads it twice")
        if all(value.ty is None for value in values):
            made = bool(eval(compile(ast.Expression(node), "<numbers>", "eval"), dict(self.around)))
            return Value("true" if made else "false", BOOL)
        parts = []
        for k, op in enumerate(node.ops):
            if type(op) not in COMPARISONS:
                self.no(node, f"`{_WORDS.get(type(op), 'this')}` cannot be part of a kernel")
            a, b, ty = self.both(values[k], values[k + 1], sides[k], sides[k + 1], node)
            if ty.root().kind == "bool" and not isinstance(op, (ast.Eq, ast.NotEq)):
                self.no(node, "bools have no order")
            values[k + 1] = b if values[k + 1].ty is not None else values[k + 1]
            parts.append(f"{a.text} {COMPARISONS[type(op)]} {b.text}")
        return Value("(" + " && ".join(parts) + ")", BOOL, acts=any(value.acts for value in values))

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        values = [self.truth(side) for side in node.values]
        word = "and" if isinstance(node.op, ast.And) else "or"
        for side, value in zip(node.values[1:], values[1:]):
            self.pure(side, value, f"the right of `{word}` is always evaluated")
        sign = " && " if word == "and" else " || "
        return Value("(" + sign.join(value.text for value in values) + ")", BOOL, acts=values[0].acts)

    def of_IfExp(self, node: ast.IfExp) -> Value:
        test, a, b = self.truth(node.test), self.value(node.body), self.value(node.orelse)
        for side, value in ((node.body, a), (node.orelse, b)):
            self.pure(side, value, "both sides of a choice are always evaluated")
        a, b, ty = self.both(a, b, node.body, node.orelse, node)
        return Value(f"select({test.text}, {a.text}, {b.text})", ty, acts=test.acts)

    def of_Call(self, node: ast.Call) -> Value:
        name, found = self.called(node.func)
        if node.keywords:
            self.no(node.keywords[0], "pass arguments by position in a kernel")
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            self.no(node, "a kernel cannot unpack arguments; pass them one by one")
        if isinstance(found, Func):
            return self.call_function(found, node)
        if name == "len":
            return self.length(node)
        if name in ("int", "float"):
            return self.python_number(name, node)
        if name in ATOMICS:
            return self.atomic(name, node)
        if name in names.WIDE:
            self.no(node, f"values have at least 32 bits; write {names.WIDE[name]}(...)")
        if name in CASTS and found is not bool:
            return self.cast(name, node)
        if name == "bool":
            return self.cast("bool", node)
        if name in ("min", "max") and len(node.args) > 2:
            return self.nested(name, node)
        if name in OPS and name not in ("and", "or", "not", "add", "sub", "mul", "div", "rem"):
            return self.op(name, node)
        if name in ("print", "barrier", "trap"):
            self.no(node, f"`{name}` is a statement in a kernel, not a value")
        shown = ast.unparse(node.func)
        if isinstance(found, FunctionType):
            self.no(node.func, f"`{shown}` is a Python function; decorate it with @vyre.func to call it here")
        self.no(node.func, f"`{shown}` is not an op or function that a kernel can call")

    def counted(self, name: str, node: ast.Call, count: int) -> None:
        if len(node.args) != count:
            self.no(node, f"`{name}` takes {count} argument{'s' * (count != 1)}, not {len(node.args)}")

    def length(self, node: ast.Call) -> Value:
        self.counted("len", node, 1)
        (array,) = node.args
        if not isinstance(array, ast.Name) or array.id not in self.arrays:
            self.no(node, "`len` takes a parameter")
        known = self.arrays[array.id]
        if known.access == "private":
            return Value("", None, known.count)  # type: ignore[attr-defined]
        if known.axes is not None:
            return Value(known.axes[0], Ty("u32"))
        return Value(f"len({known.text})", Ty("u32"))

    def python_number(self, name: str, node: ast.Call) -> Value:
        if name == "float" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            try:
                return Value("", None, float(node.args[0].value))  # type: ignore[arg-type]
            except (TypeError, ValueError):
                pass
        wide = "i32(...)" if name == "int" else "f32(...)"
        self.no(node, f"`{name}` has no width; write {wide}")

    def cast(self, name: str, node: ast.Call) -> Value:
        self.counted(name, node, 1)
        inner = self.value(node.args[0])
        if inner.ty is not None:
            return Value(f"{name}({inner.text})", Ty(name), acts=inner.acts)
        number = inner.number
        assert number is not None
        if name == "bool":
            return Value("true" if number else "false", BOOL)
        if name in FLOATS:
            return self.typed(Value("", None, float(number)), Ty(name), node)
        if isinstance(number, float):
            low, high = limits(name)
            whole = 0 if math.isnan(number) else int(min(max(number, low), high))
        else:
            whole = wrapped(number, name)
        return self.typed(Value("", None, whole), Ty(name), node)

    def nested(self, name: str, node: ast.Call) -> Value:
        first, *rest = node.args
        made: ast.expr = first
        for argument in rest:
            made = ast.copy_location(ast.Call(node.func, [made, argument], []), node)
        return self.value(made)

    def op(self, name: str, node: ast.Call) -> Value:
        words = OPS[name]
        self.counted(name, node, len(words))
        values = [self.truth(side) if word == "bool" else self.value(side) for word, side in zip(words, node.args)]
        alike = [k for k, word in enumerate(words) if word == "alike"]
        if alike and all(values[k].ty is None for k in alike):
            floats = any(isinstance(values[k].number, float) for k in alike)
            sample = ["bool" if word == "bool" else "i32" if word == "alike" else word for word in words]
            if floats or _vyre.result(name, sample) is None:
                k = alike[0]
                values[k] = Value("", None, float(values[k].number or 0))
        typed: Optional[Ty] = None
        for k, (word, side) in enumerate(zip(words, node.args)):
            if word == "alike":
                if typed is None:
                    typed = next((values[j].ty for j in alike if values[j].ty is not None), None)
                    if typed is None:
                        values[k] = self.settled(values[k], side)
                        typed = values[k].ty
                assert typed is not None
                values[k] = self.typed(values[k], typed, side)
            elif word == "own":
                if values[k].ty is None and _vyre.result(name, ["i32"]) is None:
                    values[k] = Value("", None, float(values[k].number or 0))
                values[k] = self.settled(values[k], side)
            elif word != "bool":
                values[k] = self.typed(values[k], Ty(word), side)
        shown = [str(value.ty) for value in values]
        given = _vyre.result(name, shown)
        if given is None:
            self.no(node, f"`{name}` does not take {', '.join(shown)}")
        result = Ty(given)
        if typed is not None and typed.root().name is None:
            # The result has the operands' type if the op maps another type of that kind to itself
            # as well.
            other = {"i32": "i64", "f32": "f64"}.get(str(typed), "")
            swapped = [other if word == "alike" else kind for word, kind in zip(words, shown)]
            if _vyre.result(name, swapped) == other and given == str(typed):
                result = typed
            elif _vyre.result(name, swapped) != given:
                typed.known()
        text = f"{name}({', '.join(value.text for value in values)})"
        return Value(text, result, acts=any(value.acts for value in values))

    def call_function(self, func: Func, node: ast.Call) -> Value:
        name = self.unit.function(func, self, node)
        self.counted(func.__name__, node, len(func.parameters))
        speaks = func in self.unit.speaks
        self.speaks |= speaks
        texts, acts = [], speaks
        for argument, ty in zip(node.args, func.parameters.values()):
            value = self.typed(self.value(argument), Ty(names.WIDE.get(ty, ty)), argument)
            acts |= value.acts
            texts.append(value.text)
        result = names.WIDE.get(func.result, func.result)
        return Value(f"{name}({', '.join(texts)})", Ty(result), acts=acts)

    def atomic(self, name: str, node: ast.Call) -> Value:
        self.counted(name, node, ATOMICS[name])
        array, index, *operands = node.args
        if not isinstance(array, ast.Name) or array.id not in self.arrays:
            self.no(array, f"`{name}` takes an array: `{name}(x, i, ...)`")
        known = self.arrays[array.id]
        if known.access not in ("read_write", "output", "workgroup") or known.element not in INTEGERS:
            self.no(array, f"`{name}` takes InOut, Out or Shared memory of u32, i32, u64 or i64")
        subscript = ast.copy_location(ast.Subscript(array, index, ast.Load()), node)
        texts = [known.text, self.element(subscript)[1]]
        texts += [self.typed(self.value(side), Ty(known.element), side).text for side in operands]
        return Value(f"{name}({', '.join(texts)})", Ty(known.element), acts=True)

    # Statements.

    def block(self, statements: list[ast.stmt], depth: int) -> None:
        arrays = dict(self.arrays)
        for number, statement in enumerate(statements):
            for name, place in self.flow.places.items():
                here = place.block == id(statements) and place.statement == number
                if here and not place.direct and name not in self.numbers and name not in self.arrays:
                    own = self.fresh(name)
                    self.variables[name] = own, Ty(kind="open")
                    self.lines.append((depth + 1, (own, name), statement))
            self.statement(statement, depth)
        self.arrays = arrays

    def statement(self, node: ast.stmt, depth: int) -> None:
        method = getattr(self, "do_" + type(node).__name__, None)
        if method is None:
            self.no(node, f"{_called(node)} cannot be part of a kernel")
        method(node, depth)

    def do_Pass(self, node: ast.Pass, depth: int) -> None:
        pass

    def do_Break(self, node: ast.Break, depth: int) -> None:
        self.line(depth, "break", node)

    def do_Continue(self, node: ast.Continue, depth: int) -> None:
        self.line(depth, "continue", node)

    def do_Return(self, node: ast.Return, depth: int) -> None:
        if self.result is None:
            if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
                self.no(node, "a kernel returns nothing; it writes to its parameters")
            self.line(depth, "return", node)
            return
        if node.value is None:
            self.no(node, f"the function returns {self.result}; return a value")
        value = self.typed(self.value(node.value), Ty(names.WIDE.get(self.result, self.result)), node.value)
        self.line(depth, f"return {value.text}", node)

    def do_Assign(self, node: ast.Assign, depth: int) -> None:
        if isinstance(node.value, ast.Tuple) or isinstance(node.targets[0], ast.Tuple):
            return self.several(node, depth)
        if len(node.targets) > 1:
            value = self.value(node.value)
            if value.ty is not None:
                own = self.fresh("common")
                self.line(depth, f"let {own} = {value.text}", node)
                value = Value(own, value.ty)
            for target in node.targets:
                self.assign(target, Value(value.text, value.ty, value.number), node, depth)
            return
        self.assign(node.targets[0], self.value(node.value), node, depth)

    def several(self, node: ast.Assign, depth: int) -> None:
        target, value = node.targets[0], node.value
        fits = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(node.targets) == 1
        if not fits or len(target.elts) != len(value.elts):  # type: ignore[attr-defined]
            self.no(node, "the number of variables and values differs; write `a, b = b, a`")
        made = []
        for side in value.elts:  # type: ignore[attr-defined]
            inner = self.value(side)
            if inner.ty is not None:
                own = self.fresh("new")
                self.line(depth, f"let {own} = {inner.text}", node)
                inner = Value(own, inner.ty)
            made.append(inner)
        for side, inner in zip(target.elts, made):  # type: ignore[attr-defined]
            self.assign(side, inner, node, depth)

    def assign(self, target: ast.expr, value: Value, node: ast.stmt, depth: int, ty: Optional[Ty] = None) -> None:
        if isinstance(target, ast.Subscript):
            array, index = self.element(target)
            if array.access in ("read", "uniform"):
                self.no(target, "the parameter is read-only; make it InOut or Out to write to it")
            element = names.WIDE.get(array.element, array.element)
            value = self.typed(value, Ty(element), node)
            self.line(depth, f"{array.text}[{index}] = {value.text}", node)
            return
        if not isinstance(target, ast.Name):
            self.no(target, "only variables and elements of arrays can be assigned")
        name = target.id
        if name in self.arrays:
            self.no(target, f"`{name}` is an array; assign to its elements")
        if name in self.flow.counters:
            self.no(target, f"`{name}` counts a loop here; use another variable")
        if name in self.variables:
            own, known = self.variables[name]
            if known.kind == "open":
                value = self.settled(value, node) if ty is None else self.typed(value, ty, node)
                assert value.ty is not None
                known = self.types[name] = value.ty
                self.variables[name] = own, known
            else:
                if ty is not None and not known.meet(ty):
                    self.no(node, f"`{name}` is {known} already, not {ty}")
                value = self.typed_variable(name, value, known, node)
            self.line(depth, f"{own} = {value.text}", node)
            return
        value = self.settled(value, node) if ty is None else self.typed(value, ty, node)
        assert value.ty is not None
        own = self.fresh(name)
        self.variables[name] = own, value.ty
        self.line(depth, f"let {own} = {value.text}", node)

    def typed_variable(self, name: str, value: Value, known: Ty, node: ast.AST) -> Value:
        if value.ty is not None and not value.ty.meet(known):
            self.no(node, f"`{name}` is {known} and cannot hold {value.ty}; convert it: `{known}(...)`")
        return self.typed(value, known, node)

    def do_AnnAssign(self, node: ast.AnnAssign, depth: int) -> None:
        found = self.evaluated(node.annotation)
        if not isinstance(node.target, ast.Name):
            self.no(node, "only variables are declared with a type")
        if isinstance(found, names.Private):
            return self.private(node, found, depth)
        if not isinstance(found, names.Type) or found.name in names.WIDE:
            self.no(node.annotation, "a variable is bool, u32, i32, u64, i64, f32 or f64")
        if node.value is None:
            self.no(node, "assign the variable a value")
        self.assign(node.target, self.value(node.value), node, depth, Ty(found.name))

    def private(self, node: ast.AnnAssign, found: names.Private, depth: int) -> None:
        assert isinstance(node.target, ast.Name)
        element, count = found.element.name, found.count
        if element in names.WIDE:
            self.no(node.annotation, f"a private array has elements of {names.WIDE[element]}, not {element}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            self.no(node.annotation, f"an array has a whole number of elements, not {count!r}")
        if node.value is not None:
            self.no(node.value, "an array starts as zeros; assign to its elements")
        own = self.fresh(node.target.id)
        array = Array(own, element, "private")
        array.count = count  # type: ignore[attr-defined]
        self.arrays[node.target.id] = array
        self.line(depth, f"array {own}: {element}[{count}]", node)

    def evaluated(self, node: ast.expr) -> Any:
        """The value of an annotation in the surrounding program."""
        return _evaluated(self.source, node, self.around)

    def do_AugAssign(self, node: ast.AugAssign, depth: int) -> None:
        target = node.target
        loaded: ast.expr
        if isinstance(target, ast.Name):
            loaded = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        elif isinstance(target, ast.Subscript):
            loaded = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
            for inner in ast.walk(target.slice):
                if isinstance(inner, ast.Call) and self.called(inner.func)[0] in ATOMICS:
                    self.no(inner, "the index is evaluated twice and has a side effect; assign its value to a variable first")
        else:
            self.no(target, "only variables and elements of arrays can be assigned")
        value = self.combined(node.op, self.value(loaded), self.value(node.value), loaded, node.value, node)
        self.assign(target, value, node, depth)

    def do_If(self, node: ast.If, depth: int) -> None:
        self.line(depth, f"if {self.truth(node.test).text} {{", node.test)
        self.block(node.body, depth + 1)
        if node.orelse:
            self.line(depth, "} else {", node)
            self.block(node.orelse, depth + 1)
        self.line(depth, "}", node)

    def do_While(self, node: ast.While, depth: int) -> None:
        if node.orelse:
            self.no(node.orelse[0], "a loop in a kernel has no `else`")
        self.line(depth, f"while {self.truth(node.test).text} {{", node.test)
        self.block(node.body, depth + 1)
        self.line(depth, "}", node)

    def do_For(self, node: ast.For, depth: int) -> None:
        if node.orelse:
            self.no(node.orelse[0], "a loop in a kernel has no `else`")
        over, target = node.iter, node.target
        if not isinstance(over, ast.Call) or self.outside(over.func) is not range:
            self.no(over, "a loop in a kernel is over `range(...)`")
        if not isinstance(target, ast.Name):
            self.no(target, "a loop has one variable")
        if over.keywords or not 1 <= len(over.args) <= 3:
            self.no(over, "`range` takes one to three whole numbers")
        values = [self.value(side) for side in over.args]
        sides = list(over.args)
        if len(values) == 1:
            values, sides = [Value("", None, 0), values[0]], [over, sides[0]]
        if len(values) == 3 and values[2].ty is None and values[2].number == 0:
            self.no(sides[2], "the step of a range must not be zero")
        ty = next((value.ty for value in values if value.ty is not None), None) or Ty(kind="int")
        if ty.root().kind != "int":
            self.no(over, f"`range` takes whole numbers, not {ty}")
        texts = [self.typed(value, ty, side).text for value, side in zip(values, sides)]
        step = texts[2] if len(texts) == 3 else self.typed(Value("", None, 1), ty, over).text
        name = target.id
        own = self.fresh(name if name in self.flow.counters else "count")
        self.line(depth, f"for {own} in {texts[0]}..{texts[1]} step {step} {{", node)
        if name in self.flow.counters:
            self.variables[name] = own, ty
        else:
            self.assign(target, Value(own, ty), node, depth + 1)
        self.block(node.body, depth + 1)
        if name in self.flow.counters:
            del self.variables[name]
        self.line(depth, "}", node)

    def do_Assert(self, node: ast.Assert, depth: int) -> None:
        test = self.pure(node.test, self.truth(node.test), "the condition of an assert may not")
        self.speaks = True
        if node.msg is None:
            self.line(depth, f"assert({test.text})", node)
            return
        format, values = self.message([node.msg])
        self.line(depth, f"assert({', '.join([test.text, format, *values])})", node)

    def message(self, parts: list[ast.expr]) -> tuple[str, list[str]]:
        """The parts of a message, separated by spaces, as a format and its values."""
        words, values = [], []
        for part in parts:
            pieces = part.values if isinstance(part, ast.JoinedStr) else [part]
            word = ""
            for piece in pieces:
                if isinstance(piece, ast.Constant) and isinstance(piece.value, str):
                    word += piece.value.replace("{", "{{").replace("}", "}}")
                    continue
                if isinstance(piece, ast.FormattedValue):
                    if piece.conversion != -1 or piece.format_spec is not None:
                        self.no(piece, "messages have no format specifications; remove it")
                    piece = piece.value
                value = self.settled(self.value(piece), piece)
                values.append(self.pure(piece, value, "a message must not have one").text)
                word += "{}"
            words.append(word)
        if len(values) > 16:
            self.no(parts[-1], "a message shows at most 16 values")
        return _quoted(" ".join(words)), values

    def do_Expr(self, node: ast.Expr, depth: int) -> None:
        inner = node.value
        if not isinstance(inner, ast.Call):
            self.no(node, "this has no effect")
        name, found = self.called(inner.func)
        if name == "print":
            if inner.keywords:
                self.no(inner.keywords[0], "`print` in a kernel takes only values")
            self.speaks = True
            format, values = self.message(inner.args)
            self.line(depth, f"print({', '.join([format, *values])})", node)
        elif name == "barrier" and not isinstance(found, Func):
            self.counted("barrier", inner, 0)
            self.line(depth, "barrier", node)
        elif name == "trap" and not isinstance(found, Func):
            self.counted("trap", inner, 1)
            code = self.value(inner.args[0]).number
            if not isinstance(code, int) or not 0 <= code < 2**32:
                self.no(inner.args[0], "a trap takes a constant from 0 to 4294967295")
            self.line(depth, f"trap {code}", node)
        else:
            value = self.value(inner)
            if not value.acts:
                self.no(node, "this has no effect; assign its value to a variable")
            self.line(depth, value.text, node)

    # Complete bodies.

    def function_lines(self, name: str) -> list[tuple[str, Source, ast.AST]]:
        node = self.source.node
        result = names.WIDE.get(self.result or "", self.result or "")
        shown = ", ".join(
            f"{plain(argument.arg)}: {self.variables[argument.arg][1]}" for argument in node.args.args
        )
        self.block(self.statements, 0)
        if not _returns(self.statements):
            self.no(self.statements[-1], f"the function returns {result}; return a value on every path")
        # The text requires a value at the end, which is never reached.
        self.line(0, spelt(0, result), node)
        head = (f"fn {name}({shown}) -> {result} {{", self.source, node)
        return [head, *self.finished(), ("}", self.source, node)]


_WORDS = {ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}


def _called(node: ast.AST) -> str:
    """The name of a refused construct."""
    known = {
        "Lambda": "a lambda",
        "FunctionDef": "a function in a function",
        "ClassDef": "a class",
        "ListComp": "a list comprehension",
        "GeneratorExp": "a generator",
        "Dict": "a dict",
        "List": "a list",
        "Set": "a set",
        "Tuple": "a tuple",
        "With": "`with`",
        "Try": "`try`",
        "Raise": "`raise`",
        "Import": "`import`",
        "ImportFrom": "`import`",
        "Global": "`global`",
        "Nonlocal": "`nonlocal`",
        "Delete": "`del`",
        "Match": "`match`",
        "NamedExpr": "`:=`",
        "JoinedStr": "a string",
        "Await": "`await`",
        "Yield": "`yield`",
        "Starred": "`*`",
    }
    return known.get(type(node).__name__, type(node).__name__)


def _a(found: Any) -> str:
    name = type(found).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    made = "".join(escapes.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text)
    return f'"{made}"'


def _returns(statements: list[ast.stmt]) -> bool:
    """Whether every path through these statements ends with a `return`."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return _returns(last.body) and _returns(last.orelse)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value is True:
        return not any(isinstance(inner, ast.Break) for inner in ast.walk(last))
    return isinstance(last, ast.Return)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body


def _around(function: FunctionType) -> dict[str, Any]:
    """The names visible to a function: its globals and those of enclosing functions."""
    found = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            pass
    return found


def _evaluated(source: Source, node: ast.expr, around: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            text = ast.parse(node.value, mode="eval").body
        except SyntaxError:
            refuse(source, node, "this is not a type")
        node = ast.copy_location(text, node)
    expression = ast.Expression(node)
    ast.fix_missing_locations(expression)
    try:
        found = eval(compile(expression, source.file, "eval"), {**names.__dict__, **around})
    except Exception as error:
        refuse(source, node, f"this is not a type that kernels know: {error}")
    return names.bool_ if found is bool else found


def _plain_arguments(source: Source) -> list[ast.arg]:
    arguments = source.node.args
    odd = [*arguments.posonlyargs, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    found = next((argument for argument in odd if argument is not None), None)
    if found is not None:
        refuse(source, found, "parameters must be positional")
    if arguments.defaults:
        refuse(source, arguments.defaults[0], "a parameter cannot have a default")
    return arguments.args


def _signature_of_function(source: Source, function: FunctionType) -> tuple[dict[str, str], str]:
    """The types of a function of numbers: its parameters by name, and its result."""
    around = _around(function)
    parameters = {}
    for argument in _plain_arguments(source):
        if argument.annotation is None:
            refuse(source, argument, f"`{argument.arg}` needs a type, such as `{argument.arg}: f32`")
        found = _evaluated(source, argument.annotation, around)
        if not isinstance(found, names.Type):
            refuse(source, argument.annotation, "a parameter of a function is a number: bool, u32, i32, f32, …")
        parameters[argument.arg] = found.name
    returns = source.node.returns
    if returns is None:
        refuse(source, source.node, f"`{source.name}` needs the type of its result: `-> f32`")
    result = _evaluated(source, returns, around)
    if not isinstance(result, names.Type):
        refuse(source, returns, "the result of a function is a number: bool, u32, i32, f32, …")
    return parameters, result.name


class _Kernel:
    """A kernel in progress: its parameters, then its body."""

    def __init__(self, function: FunctionType, over: Any, workgroup: Any) -> None:
        self.source = source = Source(function)
        self.around = _around(function)
        self.numbers: dict[str, str] = {}
        self.arrays: dict[str, Array] = {}
        self.declared: list[str] = []
        #: Parameters that are the length of an axis: their name, the array's, and the axis.
        self.axes: list[tuple[str, str, int]] = []
        self.like: dict[str, str] = {}
        self.two = self.indexed_by_two()
        found: dict[str, tuple[ast.arg, Any]] = {}
        for argument in _plain_arguments(source):
            if argument.annotation is None:
                refuse(source, argument, f"`{argument.arg}` needs a type: `f32`, `In[f32]`, `InOut[f32]`, `Out[f32]`, …")
            found[argument.arg] = argument, _evaluated(source, argument.annotation, self.around)
        self.known = {name: annotation for name, (_, annotation) in found.items()}
        for name, (argument, annotation) in found.items():
            if isinstance(annotation, names.Parameter) and annotation.access == "output" and name in self.two:
                like = annotation.arguments[0] if len(annotation.arguments) == 1 else None
                if like in self.known:
                    self.two.add(like)
        for name, (argument, annotation) in found.items():
            self.declare(name, argument, annotation)
        domain = self.domain(over)
        workgroup_text = "" if workgroup is None else f" workgroup {_counts(workgroup)}"
        self.unit = Unit()
        body = Body(self.unit, source, function, self.numbers, self.arrays, None)
        for name, _, _ in self.axes:
            body.taken.add(name)
        body.block(body.statements, 0)
        head = f"kernel {plain(source.name)}({', '.join(self.declared)}){domain}{workgroup_text} {{"
        node = source.node
        self.lines = [(head, source, node), *body.finished(), ("}", source, node), *self.unit.lines]

    def indexed_by_two(self) -> set[str]:
        """The parameters that are subscripted with two indices anywhere."""
        found = set()
        for inner in ast.walk(self.source.node):
            if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Tuple) and len(inner.slice.elts) == 2:
                if isinstance(inner.value, ast.Name):
                    found.add(inner.value.id)
            if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Attribute):
                owner, axis = inner.value, inner.slice
                if owner.attr == "shape" and isinstance(axis, ast.Constant) and axis.value == 1:
                    if isinstance(owner.value, ast.Name):
                        found.add(owner.value.id)
        return found & {argument.arg for argument in self.source.node.args.args}

    def declare(self, name: str, argument: ast.arg, annotation: Any) -> None:
        source, text = self.source, plain(name)
        if annotation in (int, float):
            wide = "i32" if annotation is int else "f32"
            refuse(source, argument, f"`{annotation.__name__}` has no width; write {wide}")
        if isinstance(annotation, names.Type):
            self.numbers[name] = annotation.name
            self.declared.append(f"{text}: {annotation.name} uniform")
            return
        if not isinstance(annotation, names.Parameter):
            refuse(source, argument, "a parameter is a number (`f32`) or an array (`In[f32]`, `InOut[f32]`, `Out[f32]`)")
        access, element, further = annotation.access, annotation.element.name, annotation.arguments
        array = self.arrays[name] = Array(text, element, access)
        if access in ("uniform", "workgroup"):
            fits = len(further) == 1 and isinstance(further[0], int) and further[0] > 0
            if not fits:
                refuse(source, argument, "this kind of memory needs a number of elements: `Shared[f32, 64]`")
            self.declared.append(f"{text}: {access} {element}[{further[0]}]")
            return
        if access == "output":
            self.declared.append(f"{text}: output {element}{self.length(name, argument, further)}")
            return
        count = ""
        if further:
            if len(further) != 1 or not isinstance(further[0], int) or further[0] < 1:
                refuse(source, argument, "a parameter that is read takes an element type and optionally a number of elements")
            count = str(further[0])
        self.declared.append(f"{text}: {access} {element}[{count}]")
        if name in self.two:
            rows, columns = f"{text}_rows", f"{text}_columns"
            array.axes = rows, columns
            self.declared += [f"{rows}: u32 uniform", f"{columns}: u32 uniform"]
            self.axes += [(rows, text, 0), (columns, text, 1)]

    def length(self, name: str, argument: ast.arg, further: tuple[Any, ...]) -> str:
        """The length of a result, as written in its declaration."""
        source, array = self.source, self.arrays[name]
        if len(further) > 2:
            refuse(source, argument, "a result has one axis or two")
        if len(further) == 2:
            rows, columns = (self.size(argument, size) for size in further)
            array.axes = rows, columns
            return f"[{rows} * {columns}]"
        if name in self.two and not further:
            refuse(source, argument, 'a result with two axes needs a shape: `Out[f32, "x"]`, `Out[f32, "height", "width"]`')
        if not further:
            return "[]"
        like = further[0]
        if isinstance(like, str) and isinstance(self.known.get(like), names.Parameter):
            if name in self.two:
                other = self.arrays.get(like)
                if other is None or other.axes is None:
                    refuse(source, argument, f"`{like}` must be a read parameter with two axes, declared before `{name}`")
                array.axes = other.axes
            return f"[] len_of {plain(like)}"
        if name in self.two:
            refuse(source, argument, f"`{name}` has two axes; give it two lengths")
        return f"[{self.size(argument, like)}]"

    def size(self, argument: ast.arg, size: Any) -> str:
        """A length as text: a number, or an expression over parameters."""
        if isinstance(size, bool) or not isinstance(size, (int, str)):
            refuse(self.source, argument, f"a length is a number or an expression in quotes, not {size!r}")
        if isinstance(size, int):
            return str(size)
        try:
            tree = ast.parse(size, mode="eval")
        except SyntaxError:
            refuse(self.source, argument, f"`{size}` is not an expression")

        class Fill(ast.NodeTransformer):
            def visit_Call(inner, node: ast.Call) -> ast.AST:
                return ast.Call(node.func, [inner.visit(argument) for argument in node.args], [])

            def visit_Name(inner, node: ast.Name) -> ast.AST:
                number = of_number(self.around.get(node.id))
                if node.id not in self.known and number is not None:
                    return ast.Constant(number[0])
                return ast.Name(plain(node.id), node.ctx)

        text = ast.unparse(Fill().visit(tree)).replace("//", "/")
        return text if text.isidentifier() or text.isdigit() else f"({text})"

    def domain(self, over: Any) -> str:
        if over is None:
            results = [name for name, array in self.arrays.items() if array.access == "output"]
            written = results or [name for name, array in self.arrays.items() if array.access == "read_write"]
            axes = self.arrays[written[0]].axes if written else None
            return f" over [{axes[1]}, {axes[0]}]" if axes else ""
        if isinstance(over, str) and over in self.arrays:
            array = self.arrays[over]
            return f" over [{array.axes[1]}, {array.axes[0]}]" if array.axes else f" over {array.text}"
        axes_given = over if isinstance(over, (tuple, list)) else (over,)
        if not 1 <= len(axes_given) <= 3:
            raise ArgumentError("`over` is the name of a parameter, a length, or one to three of them")
        argument = self.source.node.args.args[0] if self.source.node.args.args else ast.arg("")
        return f" over [{', '.join(self.size(argument, axis) for axis in axes_given)}]"


def _counts(workgroup: Any) -> str:
    counts = workgroup if isinstance(workgroup, (tuple, list)) else (workgroup,)
    if not 1 <= len(counts) <= 3 or not all(isinstance(count, int) and count > 0 for count in counts):
        raise ArgumentError("`workgroup` is one to three whole numbers")
    return f"[{', '.join(map(str, counts))}]"


def _checked(lines: list[tuple[str, Source, ast.AST]], unit: Unit, axes: list[tuple[str, str, int]]) -> Any:
    """The kernel made of translated lines. Faults in the text are shown in Python."""
    from .kernels import of_text

    text = "\n".join(line for line, _, _ in lines) + "\n" + "".join(unit.helpers.values())
    origin = Origin([(source.file, source.position(node)) for _, source, node in lines])
    try:
        return of_text(text, {}, origin, axes)
    except ProgramError as error:
        raise _shown(origin, error) from None


def _shown(origin: Origin, error: ProgramError) -> ProgramError:
    """The faults of a text at their positions in Python; warnings only if there is nothing else."""
    faults = [fault for fault in error.diagnostics if fault["severity"] == "error"] or error.diagnostics
    return ProgramError("\n".join(map(origin.fault, faults)), faults)


def kernel(function: Any, over: Any = None, workgroup: Any = None) -> Any:
    """Makes a kernel from a typed function."""
    if not isinstance(function, FunctionType):
        raise ArgumentError(f"a kernel is made from text or a function, not from {_a(function)}")
    made = _Kernel(function, over, workgroup)
    result = _checked(made.lines, made.unit, made.axes)
    result.__doc__ = function.__doc__
    result.__wrapped__ = function
    return result


def func(function: Any) -> Func:
    """Makes a function that kernels can call. It is translated once now, so that faults are
    reported at its definition."""
    if not isinstance(function, FunctionType):
        raise ArgumentError(f"kernels can call only functions, not {_a(function)}")
    made = Func(function)
    function_text(made)
    return made


def function_text(made: Func) -> tuple[list[tuple[str, Source, ast.AST]], Unit, str]:
    unit = Unit()
    caller = Body.__new__(Body)
    caller.source = made.source
    name = unit.function(made, caller, made.source.node)
    return unit.lines, unit, name


class Elementwise:
    """A function of numbers, applied to arrays: it returns an array of the results for each
    element."""

    def __init__(self, function: FunctionType) -> None:
        made = Func(function)
        lines, unit, self.name = function_text(made)
        text = "\n".join(line for line, _, _ in lines) + "\n" + "".join(unit.helpers.values())
        origin = [(source.file, source.position(node)) for _, source, node in lines]
        self._set(text, self.name, made.parameters, made.result, origin, function.__doc__)
        self.__wrapped__: Optional[FunctionType] = function
        # Faults in the text are reported now.
        self.variant("a" * len(self.parameters))

    def _set(
        self, text: str, name: str, parameters: dict[str, str], result: str, origin: list[Any], doc: Optional[str]
    ) -> None:
        self.text, self.name, self.parameters, self.result = text, name, parameters, result
        self.origin, self.__doc__, self.__name__ = origin, doc, name
        self.variants: dict[str, Any] = {}

    def variant(self, given: str) -> Any:
        """The kernel for arguments that are arrays (`a`) or numbers (`n`)."""
        from .kernels import of_text

        if given in self.variants:
            return self.variants[given]
        declared, passed, first = [], [], None
        for word, (name, element) in zip(given, self.parameters.items()):
            own = plain(name)
            if word == "a":
                first = first or own
                declared.append(f"{own}: read {element}[]")
                passed.append(f"{own}[invocation.x]")
            else:
                declared.append(f"{own}: {element} uniform")
                passed.append(own)
        result = "result"
        while result in map(plain, self.parameters):
            result += "_"
        length = f"[] len_of {first}" if first else "[1]"
        declared.append(f"{result}: output {self.result}{length}")
        head = (
            f"kernel {self.name}_of_elements({', '.join(declared)}) {{ "
            f"{result}[invocation.x] = {self.name}({', '.join(passed)}) }}\n"
        )
        place = self.origin[0]
        origin = Origin([place, *self.origin])
        try:
            made = of_text(head + self.text, {}, origin)
        except ProgramError as error:
            raise _shown(origin, error) from None
        self.variants[given] = made
        return made

    def _prepared(self, arguments: tuple[Any, ...]) -> tuple[Any, bool]:
        """The kernel for these arguments, and whether all of them are numbers."""
        if len(arguments) != len(self.parameters):
            takes = ", ".join(self.parameters)
            raise ArgumentError(f"`{self.name}` takes ({takes}), not {len(arguments)} arguments")
        given = "".join("n" if _is_number(argument) else "a" for argument in arguments)
        shapes = [
            (name, _shape(argument))
            for word, name, argument in zip(given, self.parameters, arguments)
            if word == "a"
        ]
        for name, shape in shapes[1:]:
            if tuple(shape) != tuple(shapes[0][1]):
                first_name, first_shape = shapes[0]
                raise ArgumentError(
                    f"`{first_name}` and `{name}` of `{self.name}` have the shapes {tuple(first_shape)} and {tuple(shape)}; "
                    "pass arrays of one shape"
                )
        return self.variant(given), "a" not in given

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        kernel, alone = self._prepared(arguments)
        result = kernel(*arguments) if out is None else kernel(*arguments, out=out)
        return result[0] if alone and out is None else result

    def run(
        self, *arguments: Any, out: Any = None, on: Optional[str] = None, timeout: Optional[float] = None
    ) -> tuple[Any, Any]:
        """Calls it with options; returns its result and a report."""
        kernel, alone = self._prepared(arguments)
        named = {} if out is None else {"out": out}
        result, report = kernel.run(*arguments, on=on, timeout=timeout, **named)
        return (result[0] if alone and out is None else result), report

    def explain(self, elements: Any) -> Any:
        """Explains the routing of a call over this number of elements, or over this array."""
        return self.variant("a" * len(self.parameters)).explain(elements)

    def __reduce__(self) -> Any:
        state = self.text, self.name, self.parameters, self.result, self.origin, self.__doc__
        return _elementwise, state

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {element}" for name, element in self.parameters.items())
        return f"<vyre.elementwise {self.name}({shown}) -> {self.result}>"


def _elementwise(*state: Any) -> Elementwise:
    made = Elementwise.__new__(Elementwise)
    made._set(*state)
    made.__wrapped__ = None
    return made


def _shape(argument: Any) -> tuple[int, ...]:
    shape = getattr(argument, "shape", None)
    if shape is None:
        shape = (len(argument),) if hasattr(argument, "__len__") else ()
    return tuple(shape)


def _is_number(argument: Any) -> bool:
    return isinstance(argument, (bool, int, float)) or getattr(argument, "shape", None) == ()


def elementwise(function: Any) -> Elementwise:
    """Makes a function that applies to arrays."""
    if not isinstance(function, FunctionType):
        raise ArgumentError(f"only a function can be applied to elements, not {_a(function)}")
    return Elementwise(function)
