"""Variables of a function: where each is declared in the text, and the check that each has a value
wherever it is read.

Python's variables belong to the whole function, the text's to a block. A variable is declared in the innermost block that contains
all of its uses. The two are equivalent as long as no path reads a variable before it is assigned, and such paths are refused: so
a variable that is redeclared in every round of a loop never carries a value over from the previous round.
"""

from __future__ import annotations

import ast
from typing import Callable, Iterator, Optional, Union

#: From the outermost block inwards: the block, and the index of the statement in it.
Path = tuple[tuple[int, int], ...]
Refuse = Callable[[ast.AST, str], None]


class Place:
    """Where a variable is declared: before a statement of a block, or by that statement, which
    assigns its first value."""

    def __init__(self, block: int, statement: int, direct: bool) -> None:
        self.block, self.statement, self.direct = block, statement, direct


def names(node: ast.AST, context: type) -> Iterator[ast.Name]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context):
            yield inner


def blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    if isinstance(statement, ast.If):
        return [statement.body, statement.orelse]
    if isinstance(statement, (ast.For, ast.While)):
        return [statement.body]
    return []


def heads(statement: ast.stmt) -> list[ast.AST]:
    """The parts of a statement outside its blocks, in evaluation order."""
    if isinstance(statement, (ast.If, ast.While)):
        return [statement.test]
    if isinstance(statement, ast.For):
        return [statement.iter, statement.target]
    if isinstance(statement, ast.Assign):
        return [statement.value, *statement.targets]
    if isinstance(statement, ast.AnnAssign):
        return [node for node in (statement.value, statement.target) if node is not None]
    if isinstance(statement, ast.AugAssign):
        return [statement.value, statement.target]
    return [statement]


class Flow:
    """The variables of a function. `arguments` have values from the start."""

    def __init__(self, body: list[ast.stmt], arguments: set[str], refuse: Refuse) -> None:
        self.refuse = refuse
        self.stored = {name.id for statement in body for name in names(statement, ast.Store)}
        self.stored |= {
            statement.target.id
            for outer in body
            for statement in ast.walk(outer)
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name)
        }
        self.counters = {name for name in self.stored if self.only_counts(name, body)}
        self.occurrences: dict[str, list[tuple[Path, ast.stmt]]] = {}
        self.find(body, ())
        self.places = {name: self.place(found) for name, found in self.occurrences.items()}
        self.check(body, set(arguments))

    def only_counts(self, name: str, body: list[ast.stmt]) -> bool:
        """Whether a variable is only a loop counter, so that each loop can have its own."""

        def visit(statements: list[ast.stmt], inside: bool) -> bool:
            for statement in statements:
                counts = isinstance(statement, ast.For) and isinstance(statement.target, ast.Name)
                counts = counts and statement.target.id == name  # type: ignore[attr-defined]
                if counts and inside:
                    return False
                for head in heads(statement):
                    if counts and isinstance(statement, ast.For) and head is statement.target:
                        continue
                    for inner in ast.walk(head):
                        if isinstance(inner, ast.Name) and inner.id == name:
                            if not inside or isinstance(inner.ctx, ast.Store):
                                return False
                for block in blocks(statement):
                    if not visit(block, inside or bool(counts)):
                        return False
            return True

        return name not in {
            node.target.id
            for outer in body
            for node in ast.walk(outer)
            if isinstance(node, (ast.AugAssign, ast.AnnAssign)) and isinstance(node.target, ast.Name)
        } and visit(body, False)

    def find(self, body: list[ast.stmt], path: Path) -> None:
        """Records where each variable occurs."""
        for number, statement in enumerate(body):
            here = (*path, (id(body), number))
            for head in heads(statement):
                for inner in ast.walk(head):
                    if isinstance(inner, ast.Name) and inner.id in self.stored - self.counters:
                        self.occurrences.setdefault(inner.id, []).append((here, statement))
            for block in blocks(statement):
                self.find(block, here)

    def place(self, found: list[tuple[Path, ast.stmt]]) -> Place:
        first, statement = found[0]
        depth = 0
        while depth + 1 < len(first) and all(
            len(path) > depth + 1 and path[depth] == first[depth] and path[depth + 1][0] == first[depth + 1][0]
            for path, _ in found
        ):
            depth += 1
        block, number = first[depth]
        direct = len(first) == depth + 1 and gives(statement, found, number, block)
        return Place(block, number, direct)

    def check(self, body: list[ast.stmt], known: set[str]) -> Optional[set[str]]:
        """The variables that have a value after these statements, or None if their end is not
        reached."""
        after: Optional[set[str]] = known
        for statement in body:
            if after is None:
                return None
            after = self.step(statement, after)
        return after

    def step(self, statement: ast.stmt, known: set[str]) -> Optional[set[str]]:
        if isinstance(statement, (ast.For, ast.While)):
            return self.loop(statement, known)
        if isinstance(statement, ast.If):
            self.read(statement.test, known)
            ways = [self.check(statement.body, set(known)), self.check(statement.orelse, set(known))]
            reached = [way for way in ways if way is not None]
            return set.intersection(*reached) if reached else None
        if isinstance(statement, (ast.Break, ast.Continue)):
            if isinstance(statement, ast.Break) and self.breaks:
                self.breaks[-1].append(known)
            return None
        if isinstance(statement, ast.Return):
            if statement.value is not None:
                self.read(statement.value, known)
            return None
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            self.needs(statement.target, known)
        for head in heads(statement):
            self.read(head, known)
        given = {name.id for head in heads(statement) for name in names(head, ast.Store)}
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            # Declares an array.
            return known | given
        return known | given

    #: For each enclosing loop, the variables that have values at each `break`.
    breaks: list[list[set[str]]] = []

    def loop(self, statement: Union[ast.For, ast.While], known: set[str]) -> Optional[set[str]]:
        inside = set(known)
        if isinstance(statement, ast.For):
            self.read(statement.iter, known)
            inside |= {name.id for name in names(statement.target, ast.Store)}
        else:
            self.read(statement.test, known)
        self.breaks = [*self.breaks, []]
        self.check(statement.body, inside)
        left = self.breaks[-1]
        self.breaks = self.breaks[:-1]
        endless = (
            isinstance(statement, ast.While)
            and isinstance(statement.test, ast.Constant)
            and statement.test.value is True
        )
        if not endless:
            left = [*left, known]
        return set.intersection(*left) if left else None

    def read(self, node: ast.AST, known: set[str]) -> None:
        for name in names(node, ast.Load):
            self.needs(name, known)

    def needs(self, name: ast.Name, known: set[str]) -> None:
        if name.id in self.stored and name.id not in known:
            self.refuse(name, f"`{name.id}` may have no value here; assign one first")


def gives(statement: ast.stmt, found: list[tuple[Path, ast.stmt]], number: int, block: int) -> bool:
    """Whether a statement only assigns the variable."""
    if isinstance(statement, ast.AnnAssign):
        return True
    return (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and sum(1 for path, _ in found if path[-1] == (block, number)) == 1
    )
