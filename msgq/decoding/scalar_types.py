"""Scalar types of the schemas of CDR, ROS 1, Cap'n Proto and FlatBuffers: numbers, enums and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A number, a boolean, or an enum.

    Attributes:
        code: NumPy code without byte order: "b1", "i1" to "i8", "u1" to "u8", "f4", "f8".
        enum_names: for an enum, the names by number; None: not an enum.
    """

    code: str
    enum_names: Mapping[int, str] | None = field(default=None, hash=False)

    @property
    def size_bytes(self) -> int:
        """Bytes of a value. A boolean of Cap'n Proto has one bit."""
        return int(self.code[1:])


@dataclass(frozen=True, slots=True)
class TextType:
    """A string.

    Attributes:
        is_wide: True: UTF-16; False: UTF-8. Only CDR has wide strings.
    """

    is_wide: bool = False
