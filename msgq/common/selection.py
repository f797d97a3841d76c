r"""Selection of endpoints and other names by arguments, with the same rules everywhere.

An argument that selects takes one text, which is one name, or an iterable of texts. None, the usual default, selects
everything. An empty iterable never selects everything: it is an error where it would leave nothing to do, and otherwise
selects nothing. Bytes and numbers are errors.

In a program, a `str` is a name, and selects exactly the endpoint with this name. A compiled expression selects each
name in which it is found (`re.Pattern.search`).

A user writes text: an argument, an option, a line of a file. `parse_pattern` interprets this text. Text without any of
``*?+|^$\()[]{}`` is a name. Other text is a pattern: a regular expression for whole names. ``*`` and ``?`` after a
single plain character, or after nothing, stand for any text and any single character, as in a shell. ``[!`` begins a
set of excluded characters. Therefore ``camera*`` and ``camera.*`` are the same. A pattern also selects the endpoint
whose name is literally the pattern.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from msgq.common.choices import list_choices
from msgq.errors import InvalidValueError

EndpointPattern = str | re.Pattern[str]

PATTERN_SIGNS = frozenset("*?+|^$\\()[]{}")  # characters of patterns, without the dot, which is common in names
_WILDCARD_REGEXES = {"*": ".*", "?": "."}
_FLAGS_REGEX = re.compile(r"\(\?[ailmsu]+\)")
#: Part of a pattern: an escaped character, a set, the beginning of a group or a mark in it, anything else.
_PATTERN_PART_REGEX = re.compile(
    r"(\\.)|(\[[!^]?\]?(?:\\.|[^\]\\])*\])|(\(\?(?:[:=!>]|<[=!]|P?<?\w*>?))|(.)", re.DOTALL
)


class InvalidPatternError(InvalidValueError):
    """A pattern or regular expression is invalid."""


class SelectedEndpoints:
    """A selection of endpoints by name or expression.

    Args:
        included: names, which select exactly these endpoints, and compiled expressions, which are searched for in
            names; None: all endpoints.
        excluded: names and expressions of endpoints to exclude.

    Notes:
        Immutable, usable from many threads, and can be pickled.
    """

    def __init__(
        self,
        included: EndpointPattern | Iterable[EndpointPattern] | None = None,
        excluded: EndpointPattern | Iterable[EndpointPattern] = (),
    ) -> None:
        self._all = included is None
        self.names, self.expressions = _split_patterns(included or ())
        self._not_names, self._not_expressions = _split_patterns(excluded)

    def __contains__(self, endpoint: str) -> bool:
        if endpoint in self._not_names or any(pattern.search(endpoint) for pattern in self._not_expressions):
            return False
        return self._all or endpoint in self.names or any(pattern.search(endpoint) for pattern in self.expressions)

    def find_unmatched(self, endpoints: Collection[str]) -> list[str]:
        """Return the names, sorted, and then the expressions that select none of these endpoints."""
        unmatched = [pattern.pattern for pattern in self.expressions if not any(map(pattern.search, endpoints))]
        return [*sorted(self.names.difference(endpoints)), *unmatched]


#: Argument of a function that selects endpoints. The function's caller checks a ready selection for missing endpoints.
EndpointChoice = EndpointPattern | Iterable[EndpointPattern] | SelectedEndpoints


def select_endpoints(
    endpoints: EndpointChoice | None,
    exclude: EndpointPattern | Iterable[EndpointPattern] | None = None,
    *,
    may_be_empty: bool = False,
) -> SelectedEndpoints:
    """Return the selection that the arguments `endpoints` and `exclude` of a public function describe; see the module.

    Args:
        endpoints: wanted endpoints; None: all. A ready selection has its own exclusions, so `exclude` must be None.
        exclude: excluded endpoints; None or empty: none.
        may_be_empty: True: no wanted endpoint is allowed.

    Raises:
        InvalidTypeError: an argument has another type.
        InvalidValueError: `endpoints` is empty.
    """
    excluded = () if exclude is None else list_patterns(exclude, "exclude", may_be_empty=True)
    if isinstance(endpoints, SelectedEndpoints):
        if excluded:
            raise InvalidValueError("exclude is given beside a ready selection; add the exclusions to the selection")
        return endpoints
    if endpoints is None:
        return SelectedEndpoints(None, excluded)
    return SelectedEndpoints(list_patterns(endpoints, "endpoints", may_be_empty=may_be_empty), excluded)


def list_patterns(
    patterns: EndpointPattern | Iterable[EndpointPattern], argument: str, *, may_be_empty: bool = False
) -> list[EndpointPattern]:
    """Return the names and compiled expressions that an argument selects, as `list_names` of `choices` does."""
    expected = "a name, a compiled regular expression, or a list of them"
    return list_choices(patterns, argument, (str, re.Pattern), expected, may_be_empty)


def list_paths(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], argument: str, *, may_be_empty: bool = False
) -> list[str]:
    """Return the paths that an argument of a public function names, as `list_names` does."""
    every = list_choices(paths, argument, (str, os.PathLike), "a path or a list of paths", may_be_empty)
    return [os.fspath(path) for path in every]


def _split_patterns(
    choices: EndpointPattern | Iterable[EndpointPattern],
) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    every = [choices] if isinstance(choices, (str, re.Pattern)) else list(choices)
    names = frozenset(pattern for pattern in every if isinstance(pattern, str))
    return names, tuple(pattern for pattern in every if not isinstance(pattern, str))


def compile_expression(text: str) -> re.Pattern[str]:
    """Compile a user's regular expression, to be searched for in names.

    Raises:
        InvalidPatternError: the expression is invalid.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidPatternError(f"{text!r} is not a regular expression: {error}") from None


def parse_pattern(text: str) -> EndpointPattern:
    """Return the name or pattern that a user's text means; see the module.

    Raises:
        InvalidPatternError: the text is an invalid pattern.
    """
    if PATTERN_SIGNS.isdisjoint(text):
        return text
    flags = _FLAGS_REGEX.match(text)
    start = flags.end() if flags else 0
    pattern = _translate_pattern(text[start:])
    try:
        re.compile(text[:start] + pattern)  # first alone, so that errors refer to this pattern
        return re.compile(rf"{text[:start]}\A(?:{pattern})\Z|\A{re.escape(text)}\Z", re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        hint = f"for the endpoint with this name, give {re.escape(text)}"
        raise InvalidPatternError(f"{text!r} is not a regular expression: {_explain_error(error)}; {hint}") from None


def parse_patterns(texts: Iterable[str]) -> tuple[EndpointPattern, ...]:
    """Return the name or pattern of each text, as `parse_pattern` does."""
    return tuple(map(parse_pattern, texts))


def _explain_error(error: Exception) -> str:
    """Return the error without its position, because the position refers to the translated pattern."""
    return error.msg if isinstance(error, re.error) else str(error)


def _translate_pattern(pattern: str) -> str:
    """Return a pattern as a regular expression of Python."""
    parts = []
    repeats_nothing = True  # a `*` here would be the shell's: there is nothing before it, or one plain character
    for escaped, characters, group, other in _PATTERN_PART_REGEX.findall(pattern):
        if repeats_nothing and other in _WILDCARD_REGEXES:
            parts.append(_WILDCARD_REGEXES[other])
            continue
        parts.append(_translate_set(characters) if characters else escaped or group or other)
        repeats_nothing = bool(group) or (bool(other) and other not in "*?+.)]{}$")
    return "".join(parts)


def _translate_set(characters: str) -> str:
    """Translate a set of characters: "!" negates as in a shell.

    Characters that cause warnings in Python are escaped.
    """
    inside = re.sub(r"(\\.)|([\[&|~])", lambda match: match[1] or f"\\{match[2]}", characters[1:-1], flags=re.DOTALL)
    return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
