"""Find the command lines of `msgq` in Python source, without running it.

A command line is a call of a function that runs the command, or a list with "-m", "msgq". Names in a command line are
replaced by the constants that assignments, `parametrize`, loops and calls of a helper function give them. All other
values become `ANY`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise, product
from typing import Any

ANY = "any"
_Env = dict[str, Any]
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_BINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign, ast.For, ast.comprehension)
_MATTER = (*_BINDS, ast.Call, ast.List, ast.Tuple)
_WORDS = re.compile(r'"-m"|\w+')
_DEFINED = re.compile(r"^(?:\s*def (\w+)|(\w+)(?:: .*)? =)", re.MULTILINE)
_LIMIT = 5000  # variants of one command line
_DEPTH = 4  # maximum depth of calls from helper function to helper function


def command_lines(source: str) -> set[tuple[str, ...]]:
    """Return the words after `msgq` of each command line in a module."""
    return set(_Module(source).command_lines())


@dataclass
class _Scope:
    """Names and their possible values. The names of a group vary together, like those of one `parametrize`."""

    groups: list[tuple[set[str], list[_Env]]] = field(default_factory=list)
    names: dict[ast.expr, set[str]] = field(default_factory=dict)  # those in an expression: one cache for all scopes

    def bind(self, target: ast.expr, values: list[Any]) -> None:
        alternatives = [env for value in values if (env := dict(_unpack_target(target, value)))]
        if alternatives:
            self.groups.append((set().union(*alternatives), alternatives))

    def child(self) -> _Scope:
        return _Scope([*self.groups], self.names)

    def values(self, expression: ast.expr) -> list[Any]:
        """Return the possible values of an expression."""
        if (names := self.names.get(expression)) is None:
            names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
            self.names[expression] = names
        latest = {name: group for group in self.groups for name in group[0]}
        groups = {id(group): group for name, group in latest.items() if name in names}
        combinations = product(*(alternatives for _, alternatives in groups.values()))
        merged = (dict(chain.from_iterable(env.items() for env in one)) for one in combinations)
        return [_value(expression, env) for env in islice(merged, _LIMIT)]


def _unpack_target(target: ast.expr, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names of a target of an assignment or loop, each with its part of the value."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
        starred = next((i for i, one in enumerate(target.elts) if isinstance(one, ast.Starred)), len(target.elts))
        after = len(target.elts) - starred - 1
        for one, part in zip(target.elts[:starred], value, strict=False):
            yield from _unpack_target(one, part)
        if after >= 0:
            rest = target.elts[starred]
            assert isinstance(rest, ast.Starred)
            yield from _unpack_target(rest.value, value[starred : len(value) - after])
            for one, part in zip(target.elts[starred + 1 :], value[len(value) - after :], strict=False):
                yield from _unpack_target(one, part)


def _value(node: ast.expr, env: _Env) -> Any:
    """Return a string, a tuple of values or a dict of them; ANY if the value is not constant."""
    match node:
        case ast.Constant(value=bool() | None | bytes()):
            return ANY
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=parts):
            return "".join(one if isinstance(one := _value(part, env), str) else ANY for part in parts)
        case ast.FormattedValue(value=value):
            return _value(value, env)
        case ast.Name(id=name):
            return env.get(name, ANY)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return tuple(_elements(parts, env))
        case ast.Dict(keys=keys, values=values):
            return {_value(key, env): _value(value, env) for key, value in zip(keys, values, strict=True) if key}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            pair = _value(left, env), _value(right, env)
            return pair[0] + pair[1] if all(isinstance(one, tuple) for one in pair) else ANY
        case ast.Subscript(value=owner, slice=place) if isinstance(parts := _value(owner, env), tuple):
            return _part(parts, place)
        case ast.Call(func=ast.Attribute(attr="param"), args=parts):  # pytest.param
            return tuple(_elements(parts, env))
        case ast.Call(func=ast.Attribute(value=owner, attr="split"), args=[]):
            return tuple(text.split()) if isinstance(text := _value(owner, env), str) else ANY
        case ast.Call(func=ast.Attribute(value=owner, attr="items"), args=[]):
            return tuple(pairs.items()) if isinstance(pairs := _value(owner, env), dict) else ANY
        case ast.Call(func=ast.Name(id="map"), args=[_, one]):
            return _value(one, env)
        case ast.Call(func=ast.Name(id="str" | "list" | "tuple" | "sorted"), args=[one]):
            return _value(one, env)
    return ANY


def _part(parts: tuple[Any, ...], place: ast.expr) -> Any:
    """Return the item or slice of a tuple at constant places, else ANY."""
    match place:
        case ast.Constant(value=int(index)) if index < len(parts):
            return parts[index]
        case ast.Slice(lower=ast.Constant(value=int(first)), upper=None, step=None):
            return parts[first:]
    return ANY


def _elements(parts: list[ast.expr], env: _Env) -> Iterator[Any]:
    for part in parts:
        if not isinstance(part, ast.Starred):
            yield _value(part, env)
        elif isinstance(value := _value(part.value, env), tuple | dict):
            yield from value


def _own_nodes(owner: ast.Module | _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a module or function in the order of the source, without the nodes in nested functions."""
    nodes: list[ast.AST] = [*reversed(owner.body)]
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, _Function | ast.Lambda):
            nodes += reversed([*ast.iter_child_nodes(node)])


class _Module:
    def __init__(self, source: str) -> None:
        self.tree = tree = ast.parse(source)
        self.nodes: dict[ast.Module | _Function, list[ast.AST]] = {}
        self.functions: dict[str, list[tuple[_Function, _Scope]]] = {}
        self.runners = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module == "tests.command"
            for alias in node.names
        }
        self.partials = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "partial"
        }
        self.scope = _Scope()
        tree.body = self._statements_involved(source)
        self._bind_names(tree, self.scope)
        self._find_functions(tree, self.scope)

    def _own_nodes(self, owner: ast.Module | _Function) -> list[ast.AST]:
        """Return the nodes of a module or function that matter here, without the nodes in nested functions."""
        if owner not in self.nodes:
            self.nodes[owner] = [node for node in _own_nodes(owner) if isinstance(node, _MATTER)]
        return self.nodes[owner]

    def _statements_involved(self, source: str) -> list[ast.stmt]:
        """Return the statements that run the command, and those that they use. All statements would take seconds."""
        lines = source.splitlines()
        words: dict[ast.stmt, set[str]] = {}
        names: dict[ast.stmt, set[str]] = {}
        for node in self.tree.body:
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            words[node] = {*_WORDS.findall(text)}
            names[node] = {name for pair in _DEFINED.findall(text) for name in pair if name}
        runs = {*self.runners, *self.partials, "command", "invoke", '"-m"'}
        while more := set().union(*(names[node] for node in words if words[node] & runs)) - runs:
            runs |= more
        chosen = {node for node in words if words[node] & runs}
        others = {node for node in words if isinstance(node, ast.Assign | ast.AnnAssign)} - chosen
        while used := {node for node in others if names[node] & set().union(*(words[one] for one in chosen))}:
            chosen |= used
            others -= used
        return [node for node in self.tree.body if node in chosen]

    def _find_functions(self, owner: ast.Module | _Function, scope: _Scope) -> None:
        for node in self._own_nodes(owner):
            if isinstance(node, _Function):
                inner = scope.child()
                self._bind_parameters(node, inner)
                self.functions.setdefault(node.name, []).append((node, inner))
                outer = inner.child()
                self._bind_names(node, outer)
                self._find_functions(node, outer)

    def _bind_parameters(self, function: _Function, scope: _Scope) -> None:
        """Bind parameters to their defaults and to the values of `parametrize`."""
        arguments = function.args
        for name, default in [
            *zip(reversed([*arguments.posonlyargs, *arguments.args]), reversed(arguments.defaults), strict=False),
            *((name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value),
        ]:
            scope.bind(ast.Name(name.arg), scope.values(default))
        for decorator in function.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(attr="parametrize"), args=[names, rows, *_]):
                    for target in self.scope.values(names):
                        words = target.replace(",", " ").split() if isinstance(target, str) else target
                        elements = [ast.Name(word) for word in words]
                        target_node = elements[0] if len(elements) == 1 else ast.Tuple([*elements])
                        scope.bind(target_node, [row for value in self.scope.values(rows) for row in _rows(value)])

    def _bind_names(self, owner: ast.Module | _Function, scope: _Scope) -> None:
        """Bind names to their values in the assignments and loops of one function."""
        assigned: dict[str, list[Any]] = {}
        for node in self._own_nodes(owner):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    assigned.setdefault(name, []).extend(scope.values(value))
                    scope.bind(ast.Name(name), assigned[name])
                case ast.Assign(targets=[ast.Tuple() as target], value=value):
                    scope.bind(target, scope.values(value))
                case ast.For(target=target, iter=iterable) | ast.comprehension(target=target, iter=iterable):
                    scope.bind(target, [one for value in scope.values(iterable) for one in _rows(value)])

    def command_lines(self) -> Iterator[tuple[str, ...]]:
        yield from self._lines(self.tree, self.scope, 0)
        for function, scope in chain.from_iterable(self.functions.values()):
            yield from self._lines(function, scope, 0)

    def _lines(self, owner: ast.Module | _Function, outer: _Scope, depth: int) -> Iterator[tuple[str, ...]]:
        """Yield the command lines of one function."""
        scope = outer.child()
        self._bind_names(owner, scope)
        for node in self._own_nodes(owner):
            if isinstance(node, ast.List | ast.Tuple):
                for words in scope.values(node):
                    if ("-m", "msgq") in pairwise(words):
                        yield _flat(words[words.index("msgq") + 1 :])
            elif isinstance(node, ast.Call):
                yield from self._call(node, scope, depth)

    def _call(self, call: ast.Call, scope: _Scope, depth: int) -> Iterator[tuple[str, ...]]:
        match call.func:
            case ast.Name(id=name) if name in self.partials:
                called, *first = self.partials[name].args
                yield from self._call(ast.Call(called, [*first, *call.args], call.keywords), scope, depth)
            case ast.Attribute(value=ast.Name(id="command"), attr="run" | "start"):
                yield from map(_flat, scope.values(ast.Tuple(call.args)))
            case ast.Name(id=name) if name in self.runners:
                yield from map(_flat, scope.values(ast.Tuple(call.args)))
            case ast.Attribute(attr="invoke") if len(call.args) == 2:
                yield from map(_flat, scope.values(call.args[1]))
            case ast.Name(id=name) if depth < _DEPTH:
                for function, outer in self.functions.get(name, ()):
                    inner = outer.child()
                    target, values = _bound(function, call, scope)
                    inner.bind(target, values)
                    yield from self._lines(function, inner, depth + 1)


def _bound(function: _Function, call: ast.Call, scope: _Scope) -> tuple[ast.Tuple, list[Any]]:
    """Return the parameters of a function and the values that a call gives them."""
    names: list[ast.expr] = [ast.Name(one.arg) for one in (*function.args.posonlyargs, *function.args.args)]
    rest = [ast.Starred(ast.Name(function.args.vararg.arg))] if function.args.vararg else []
    words = [(ast.Name(one.arg), one.value) for one in call.keywords if one.arg]
    values = []
    for value in scope.values(ast.Tuple([ast.Tuple(call.args), *(word[1] for word in words)])):
        given = dict(_unpack_target(ast.Tuple([*names, *rest]), value[0]))
        given |= {name.id: one for (name, _), one in zip(words, value[1:], strict=True)}
        values.append(given)
    every = sorted(set().union(*values)) if values else []
    return ast.Tuple([ast.Name(one) for one in every]), [tuple(one.get(name, ANY) for name in every) for one in values]


def _rows(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | dict) else ()


def _flat(words: Any) -> tuple[str, ...]:
    return tuple(word if isinstance(word, str) else ANY for word in words) if isinstance(words, tuple) else ()
