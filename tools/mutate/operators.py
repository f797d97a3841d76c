"""The mutants of a module: each changes one expression or drops one statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    Attributes:
        path: path of the file, relative to the tree.
        line: line in the file.
        old: the old code, as one line of at most 100 characters.
        new: the new code, as one line of at most 100 characters.
        begin: first byte of the module to replace by `text`.
        end: end of the bytes to replace.
        lines: the tests that execute one of these lines reach the change; empty: the change takes effect at import.
    """

    path: str
    line: int
    old: str
    new: str
    begin: int
    end: int
    text: str
    lines: frozenset[int]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old} -> {self.new}"

    def apply(self, source: bytes) -> bytes:
        """Return the module with the change."""
        changed = source[: self.begin] + self.text.encode() + source[self.end :]
        ast.parse(changed)  # any test would kill a mutant with a syntax error
        return changed


def mutants(path: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._first_line = 0  # first line of the statement
        self._names: set[str] | None = None  # assigned earlier in the function; None outside of functions

    def visit(self, node: ast.AST) -> None:
        # Parts of an f-string have no true position in Python 3.11; patterns have no parentheses around numbers.
        if isinstance(node, (ast.JoinedStr, ast.pattern, ast.arguments)) or _is_for_types(node):
            return
        if isinstance(node, ast.stmt):
            self._first_line = node.lineno
            if self._names is not None and _is_droppable(node, self._names):
                self._add(node, ast.Pass())
        for new in _alternatives(node):
            self._add(node, new)
        if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
            self._add(node.test, ast.UnaryOp(ast.Not(), node.test))
        if not isinstance(node, ast.Raise):  # its parts are the text of an error
            super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_body(node, {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)})

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_body(node, None)

    def _visit_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, names: set[str] | None) -> None:
        """Visit the statements of the body, but no decorators, types or defaults."""
        outer, self._names = self._names, names
        for statement in node.body:
            self.visit(statement)
        self._names = outer

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def _add(self, node: ast.AST, new: ast.AST) -> None:
        assert isinstance(node, (ast.expr, ast.stmt))
        last_line, last_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        begin = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[last_line - 1] + last_column
        lines = {self._first_line, *range(node.lineno, last_line + 1)} if self._names is not None else set[int]()
        old, text = ast.unparse(node), ast.unparse(new)
        spliced = f"({text})" if isinstance(node, ast.expr) else text
        place = self._path, node.lineno
        self.found.append(Mutant(*place, _line(old), _line(text), begin, end, spliced, frozenset(lines)))


def _alternatives(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the replacements of an expression or statement."""
    match node:
        case ast.Compare():
            for place, op in enumerate(node.ops):
                for other in _COMPARISONS[type(op)]:
                    yield ast.Compare(node.left, [*node.ops[:place], other(), *node.ops[place + 1 :]], node.comparators)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in _ARITHMETIC:
            yield ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield ast.Return(ast.Constant(None))


def _is_droppable(node: ast.stmt, names: set[str]) -> bool:
    """Whether to drop a statement of a function. The first assignment of a name stays: its uses would always fail."""
    match node:
        case ast.Assign():
            new = {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
            is_first = not new <= names
            names |= new
            return not is_first
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="_logger")))):
            return False
        case ast.Expr(value=ast.Call() | ast.Await()):
            return True
    return isinstance(node, (ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break))


def _is_for_types(node: ast.AST) -> bool:
    """Whether the statement declares names or types only; an alias of a type is ``Name = A | B``."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return True
        case ast.Assign(value=ast.BinOp(op=ast.BitOr(), right=ast.Name() | ast.Subscript())):
            return True
    return False


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:97]}..."
