"""What is wrong with a message, and where in it."""

from __future__ import annotations


class MalformedPayloadError(ValueError):
    """Bytes are no message of their schema.

    Attributes
    ----------
    path : where, from the inside out: ".name" of fields, "[3]" of elements. Who passes it on adds to it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: list[str] = []

    def with_path(self) -> ValueError:
        """Return the error for those who asked for the message: with the place in its text."""
        path = "".join(reversed(self.path)).removeprefix(".")
        return ValueError(f"{path}: {self}" if path else str(self))
