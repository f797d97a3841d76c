"""The `with` block of objects that are closed at its end."""

from __future__ import annotations

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Self


class ClosingContext:
    """Base of objects that a `with` block closes."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the object."""
        raise NotImplementedError
