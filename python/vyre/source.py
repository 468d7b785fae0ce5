"""Location of a function's source, and the display of faults in it."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import stat
import sys
import warnings
from types import CodeType, FunctionType
from typing import Any, Iterator, Optional

from .errors import ProgramError


class Source:
    """A function's definition as a tree, with its source lines."""

    def __init__(self, function: FunctionType) -> None:
        self.name = function.__name__
        self.file = function.__code__.co_filename
        lines, first = _lines(function)
        indented = lines[0][:1].isspace()
        text = ("if 1:\n" if indented else "") + "".join(lines)
        tree = ast.parse(text)
        node = tree.body[0]
        if indented:
            assert isinstance(node, ast.If)
            node = node.body[0]
        if not isinstance(node, ast.FunctionDef):
            raise ProgramError(f"{self.file}:{first}: `{self.name}` is not a `def`; only functions become kernels")
        self.node = node
        # Line of the file that corresponds to line 0 of the tree, and the lines by their numbers in
        # the tree.
        self.before = first - 1 - indented
        self.lines = [""] * indented + [line.rstrip("\n") for line in lines]

    def position(self, node: ast.AST) -> tuple[int, str, int, int]:
        """The line number in the file, the line, and the node's columns on it."""
        lineno = getattr(node, "lineno", self.node.lineno)
        line = self.lines[lineno - 1] if lineno <= len(self.lines) else ""
        raw = line.encode()
        start = len(raw[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
        same = getattr(node, "end_lineno", lineno) == lineno
        end = len(raw[: getattr(node, "end_col_offset", len(raw))].decode(errors="ignore")) if same else len(line)
        return self.before + lineno, line, start, max(start + 1, end)

    def fault(self, node: ast.AST, why: str) -> str:
        """A fault at a node, with a caret under it."""
        return shown(self.file, self.position(node), why)


def shown(file: str, position: tuple[int, str, int, int], why: str) -> str:
    number, line, start, end = position
    text = line.lstrip()
    caret = " " * (start - (len(line) - len(text))) + "^" * (end - start)
    return f"{file}:{number}:{start + 1}: {why}\n    {text.rstrip()}\n    {caret}"


class Origin:
    """The position in Python of each line of a translated text. Plain data, which pickles."""

    def __init__(self, lines: list[tuple[str, tuple[int, str, int, int]]]) -> None:
        self.lines = lines

    def place(self, line: int) -> Optional[str]:
        """Position of a line of the text, as `file:line`."""
        if not 1 <= line <= len(self.lines):
            return None
        file, position = self.lines[line - 1]
        return f"{file}:{position[0]}"

    def fault(self, diagnostic: dict[str, Any]) -> str:
        """A diagnostic of the text, at the position in Python that it comes from."""
        why = f"{diagnostic['message']} [{diagnostic['code']}]"
        if diagnostic["help"]:
            why += f"; {diagnostic['help']}"
        line = diagnostic["line"]
        if line is None or line > len(self.lines):
            return why
        file, position = self.lines[line - 1]
        return shown(file, position, why)


def _lines(function: FunctionType) -> tuple[list[str], int]:
    """The lines of a definition, and the number of the first."""
    code = function.__code__
    try:
        # A file that has changed since it was imported no longer has the function's lines.
        linecache.checkcache(code.co_filename)
        lines, first = inspect.getsourcelines(function)
        if lines and _is_of(lines, code):
            return lines, first or 1
    except (OSError, TypeError, SyntaxError, IndentationError):
        pass
    for text in _texts(code):
        lines = text.splitlines(keepends=True)
        for first in _starts(lines, code):
            found = _block(lines, first)
            if found and _is_of(found, code):
                return found, first + 1
    raise ProgramError(
        f"the text of `{code.co_name}` in {code.co_filename} cannot be read; put the function into a file, or write the "
        "kernel as text: vyre.kernel(TEXT)"
    )


def _texts(code: CodeType) -> Iterator[str]:
    """Sources without a file that can contain a function."""
    arguments = sys.orig_argv
    if code.co_filename == "<string>" and "-c" in arguments[:-1]:
        yield arguments[arguments.index("-c") + 1]
    if code.co_filename == "<stdin>":
        yield from _standard_input()
        yield from _history()


def _standard_input() -> Iterator[str]:
    """Standard input from its start, if it is a file."""
    try:
        state = os.fstat(0)
        if stat.S_ISREG(state.st_mode):
            yield os.pread(0, state.st_size, 0).decode(errors="replace")
    except OSError:
        pass


def _history() -> Iterator[str]:
    """The history of the prompt, if `readline` keeps one."""
    readline = sys.modules.get("readline")
    if readline is not None:
        count = readline.get_current_history_length()
        yield "\n".join(readline.get_history_item(item) or "" for item in range(1, count + 1)) + "\n"


def _starts(lines: list[str], code: CodeType) -> list[int]:
    """Where a definition with that name can start, last one first: at its `def`, or at the
    decorators above."""
    pattern = re.compile(rf"\s*def\s+{re.escape(code.co_name)}\b")
    found = []
    for number, line in enumerate(lines):
        if pattern.match(line):
            first = number
            while first > 0 and lines[first - 1].lstrip().startswith("@"):
                first -= 1
            found.append(first)
    return found[::-1]


def _block(lines: list[str], first: int) -> list[str]:
    try:
        return inspect.getblock(lines[first:])
    except (SyntaxError, IndentationError):
        return []


def _is_of(lines: list[str], code: CodeType) -> bool:
    """Whether these lines compile to that code."""
    text = "".join(lines)
    if lines[0][:1].isspace():
        text = "if 1:\n" + text
    try:
        with warnings.catch_warnings():
            # Python has already shown them.
            warnings.simplefilter("ignore")
            compiled = compile(text, code.co_filename, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    # Tools that rewrite a tree before compiling it, as pytest does with asserts, append variables
    # after these.
    count = code.co_argcount
    return any(
        inner.co_name == code.co_name and inner.co_varnames[:count] == code.co_varnames[:count]
        for inner in _codes(compiled)
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
