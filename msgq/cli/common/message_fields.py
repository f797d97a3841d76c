"""Fields of decoded messages, selected by their paths: "pose.x", "ranges[3]"."""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

from msgq.cli.common.render import echo
from msgq.decoding.payload_decoder import Undecoded

_PATH_REGEX = re.compile(r"[^.\[\]]+(?:\[\d+\])*(?:\.[^.\[\]]+(?:\[\d+\])*)*")
_PART_REGEX = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_MISSING_FIELD = object()


class MessageFields:
    """Fields to print of each message.

    Args:
        paths: paths of the fields.

    Raises:
        click.UsageError: a path is invalid.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(dict.fromkeys(paths))
        self._parts = {path: _parse_path(path) for path in paths}
        self._unmatched = set(paths)
        self._reported: set[tuple[str, str]] = set()
        self._last_message: tuple[str, Any] = ("", None)

    def read_fields(self, endpoint: str, value: Any) -> dict[str, Any]:
        """Return the fields of a decoded message by their paths. A missing field is None, and is reported once."""
        self._last_message = endpoint, value
        fields = {path: _read_field(value, parts) for path, parts in self._parts.items()}
        for path, field in fields.items():
            if field is not _MISSING_FIELD:
                self._unmatched.discard(path)
            elif (endpoint, path) not in self._reported:
                self._reported.add((endpoint, path))
                echo(f"msgq: {_describe_missing_field(path, endpoint, value)}", err=True)
        return {path: None if field is _MISSING_FIELD else field for path, field in fields.items()}

    def require_matched(self) -> None:
        """Raise an error for fields that no message had.

        Raises:
            click.ClickException: no message had a field.
        """
        if self._unmatched and self._last_message[0]:
            raise click.ClickException(_describe_missing_field(min(self._unmatched), *self._last_message))


def list_field_paths(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each innermost field. Lists are not divided."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from list_field_paths(item, f"{path}.{name}" if path else name)
    else:
        yield path, value


def _parse_path(path: str) -> list[str | int]:
    if not _PATH_REGEX.fullmatch(path):
        raise click.UsageError(f"--field {path!r} is not a field; give a path such as pose.x or ranges[3]")
    return [int(index) if index else name for index, name in _PART_REGEX.findall(path)]


def _read_field(value: Any, parts: Sequence[str | int]) -> Any:
    for part in parts:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return _MISSING_FIELD
    return value


def _describe_missing_field(path: str, endpoint: str, value: Any) -> str:
    if isinstance(value, Undecoded):
        reason = value.reason or f"{endpoint} has no schema"
        return f"field {path!r} not found, because a message was not decoded: {reason}; give --schema, or omit --field"
    existing = [name for name, _ in list_field_paths(value) if name]
    if not existing:
        return f"field {path!r} not found, because a message of {endpoint} has no fields; omit --field"
    near = difflib.get_close_matches(path, existing, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"the fields are {', '.join(existing[:10])}"
    return f"field {path!r} not found in a message of {endpoint}; {hint}"
