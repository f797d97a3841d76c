"""Types that the schemas of CDR, ROS 1, Cap'n Proto and FlatBuffers have in common: numbers, enums and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A number, a boolean, or an enum.

    Attributes
    ----------
    code : NumPy's code without a byte order: "b1", "i1" to "i8", "u1" to "u8", "f4", "f8".
    enum_names : of an enum, the names by number; None: it is no enum.
    """

    code: str
    enum_names: Mapping[int, str] | None = field(default=None, hash=False)

    @property
    def size_bytes(self) -> int:
        """Bytes of a value; a boolean of Cap'n Proto has one bit."""
        return int(self.code[1:])


@dataclass(frozen=True, slots=True)
class TextType:
    """A string.

    Attributes
    ----------
    is_wide : whether it is UTF-16; else it is UTF-8. Only CDR has wide strings.
    """

    is_wide: bool = False
