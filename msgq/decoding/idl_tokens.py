"""Tokens of IDL texts, and constant expressions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TypeAlias

IdlConstant: TypeAlias = int | float | str

_INTEGER_BITS_MAX = 64
_EXPRESSION_NESTING_MAX = 50
_TOKEN_PATTERN = re.compile(
    r"""
    (?P<skip> \s+ | //[^\n]* | /\*.*?\*/ | ^[ \t]*\#[^\n]* | ^={3,}[ \t]*\r?\n[ \t]*IDL:[^\n]* )
    | (?P<token> (?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)* | 0[xX][0-9a-fA-F]+
      | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdDlL]? | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)[^']*'
      | << | [][(){}<>;:,=@|^&+*/%~-] )
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL | re.ASCII,
)
_BOOLEAN_LITERALS = {"TRUE": 1, "FALSE": 0}
#: Precedence and function of each operator.
_BINARY_OPERATORS: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "|": (1, operator.or_),
    "^": (2, operator.xor),
    "&": (3, operator.and_),
    "<<": (4, operator.lshift),
    "+": (5, operator.add),
    "-": (5, operator.sub),
    "*": (6, operator.mul),
    "/": (6, operator.floordiv),
    "%": (6, operator.mod),
}
_OPENING_BRACKETS, _CLOSING_BRACKETS = frozenset("([{<"), frozenset(")]}>")


class IdlTokenReader:
    """Iterates over the tokens of a text.

    Attributes:
        token_index: index of the next token.
    """

    def __init__(self, text: str) -> None:
        """Split a text into tokens.

        Raises:
            ValueError: the text has an invalid token.
        """
        self.token_index = 0
        self._token_texts: list[str] = []
        place = 0
        while place < len(text):
            match = _TOKEN_PATTERN.match(text, place)
            if match is None:
                raise ValueError(f"invalid IDL at {text[place : place + 40]!r}")
            if match["token"]:
                self._token_texts.append(match["token"])
            place = match.end()

    def peek_token(self) -> str:
        """Return the next token; "": the end."""
        return self._token_texts[self.token_index] if self.token_index < len(self._token_texts) else ""

    def take_token(self) -> str:
        """Return the next token, and advance.

        Raises:
            ValueError: no token is left.
        """
        token = self.peek_token()
        if not token:
            raise ValueError("the text ends within a definition")
        self.token_index += 1
        return token

    def accept_token(self, token: str) -> bool:
        """If the next token is `token`, advance and return True."""
        if self.peek_token() != token:
            return False
        self.token_index += 1
        return True

    def expect_token(self, token: str) -> None:
        """Advance past the next token, which must be `token`.

        Raises:
            ValueError: the next token is another one.
        """
        if not self.accept_token(token):
            raise ValueError(f"expected {token!r} before {self.peek_token() or 'the end of the text'!r}")

    def take_identifier(self) -> str:
        """Return the next token, a name without modules, and advance.

        Raises:
            ValueError: the next token is not such a name.
        """
        token = self.take_token()
        if not token.isidentifier():
            raise ValueError(f"{token!r} is not a valid name; expected an identifier")
        return token.removeprefix("_")

    def skip_to_token(self, *ends: str) -> list[tuple[str, str]]:
        """Skip tokens, and everything within brackets, up to one of `ends`. This token is the next one afterwards.

        Returns:
            Each skipped token outside of brackets, together with the token after it.
        """
        passed, depth = [], 0
        while depth or self.peek_token() not in ends:
            word = self.take_token()
            if not depth:
                passed.append((word, self.peek_token()))
            depth += (word in _OPENING_BRACKETS) - (word in _CLOSING_BRACKETS)
        return passed

    def parse_length(self, constant: Callable[[str], IdlConstant]) -> int:
        """Parse an expression that gives a length. Otherwise as `parse_expression`."""
        length = self.parse_expression(constant)
        if not isinstance(length, int):
            raise ValueError(f"length {length!r} is not an integer")
        return length

    def parse_expression(
        self, constant: Callable[[str], IdlConstant], binding: int = 0, levels: int = _EXPRESSION_NESTING_MAX
    ) -> IdlConstant:
        """Parse an expression, and return its value.

        Args:
            constant: returns the value of a name.
            binding: the expression ends before an operator that does not bind more tightly than this level.

        Raises:
            ValueError: the expression is invalid, or its value exceeds 64 bits.
        """
        if not levels:
            raise ValueError(f"an expression is nested deeper than {_EXPRESSION_NESTING_MAX} levels")
        value = self._parse_operand(constant, levels)
        while (operator := _BINARY_OPERATORS.get(self.peek_token())) and operator[0] > binding:
            sign, (tighter, combine) = self.take_token(), operator
            other = self.parse_expression(constant, tighter, levels - 1)
            if not isinstance(value, int) or not isinstance(other, int):
                raise ValueError(f"expression '{value!r} {sign} {other!r}' has an operand that is not an integer")
            if (sign in "/%" and not other) or (sign == "<<" and not 0 <= other < _INTEGER_BITS_MAX):
                raise ValueError(f"expression '{value} {sign} {other}' has no valid result")
            value = combine(value, other)
            if value.bit_length() > _INTEGER_BITS_MAX:
                raise ValueError(f"a number has more than {_INTEGER_BITS_MAX} bits")
        return value

    def _parse_operand(self, constant: Callable[[str], IdlConstant], levels: int) -> IdlConstant:
        word = self.take_token()
        if word == "(":
            value = self.parse_expression(constant, 0, levels - 1)
            self.expect_token(")")
            return value
        if word in "+-~":
            value = self.parse_expression(constant, 6, levels - 1)
            if isinstance(value, str) or (word == "~" and isinstance(value, float)):
                raise ValueError(f"operator {word!r} does not apply to {value!r}")
            return value if word == "+" else -value if word == "-" or isinstance(value, float) else ~value
        if word[0] in "\"'":
            return word
        if word[0].isdigit() or word[0] == ".":
            return _parse_number_literal(word)
        return _BOOLEAN_LITERALS[word] if word in _BOOLEAN_LITERALS else constant(word)


def _parse_number_literal(word: str) -> int | float:
    if word[:2] in ("0x", "0X"):
        value = int(word[:18], 16)
    elif word.isdigit():
        value = int(word[:22], 8 if word[0] == "0" else 10)
    else:
        return float(word.rstrip("fFdDlL"))
    if value.bit_length() > _INTEGER_BITS_MAX:
        raise ValueError(f"a number has more than {_INTEGER_BITS_MAX} bits")
    return value
