"""Errors of messages, with the position of the error."""

from __future__ import annotations


class MalformedPayloadError(ValueError):
    """The bytes are not a valid message of the schema.

    Attributes:
        path: position of the error, innermost part first: ".name" for fields, "[3]" for elements. Each level appends
            its part.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: list[str] = []

    def with_path(self) -> ValueError:
        """Return the error for the caller of the decoder, with the position in its text."""
        path = "".join(reversed(self.path)).removeprefix(".")
        return ValueError(f"{path}: {self}" if path else str(self))
