"""Definitions of ROS 1 and ROS 2 messages in .msg format: the schema encodings ros1msg and ros2msg.

A text has the definition of the message and all needed definitions. A line of "=" and a line with the name precede each
needed definition.
http://wiki.ros.org/msg, https://docs.ros.org/en/rolling/Concepts/Basic/About-Interfaces.html.
"""

from __future__ import annotations

import re

from msgq.decoding.cdr_types import EMPTY_STRUCT_MEMBER, CdrArray, CdrSequence, CdrStruct, CdrType
from msgq.decoding.scalar_types import ScalarType, TextType

_ROS_NUMBER_TYPES = {
    **{f"{sign}int{8 * size}": ScalarType(f"{sign or 'i'}{size}") for sign in ("", "u") for size in (1, 2, 4, 8)},
    **{"bool": ScalarType("b1"), "char": ScalarType("u1"), "float32": ScalarType("f4"), "float64": ScalarType("f8")},
}
_DEFINITION_SEPARATOR_PATTERN = re.compile(r"^={3,}[ \t]*$", re.MULTILINE)
_MESSAGE_NAME_PATTERN = re.compile(r"\s*MSG:[ \t]*(\S+)[ \t]*(?:\n|$)")
#: A type, its bound, whether it is an array and of how many; a name; what follows: "=" if it is a constant.
_FIELD_PATTERN = re.compile(
    r"([A-Za-z][\w/]*)(?:<=\d+)?(\[(?:(?:<=)?(\d+))?\])?[ \t]+([A-Za-z]\w*)[ \t]*([=#]|$|(?<=[ \t]).)", re.ASCII
)
_ANNOTATION_PATTERN = re.compile(r"@\w+(\([^()]*\))?[ \t]*", re.ASCII)
_ROS2_TIME_DEFINITION = "int32 sec\nuint32 nanosec"
#: Types that some writers use without a definition.
_ROS2_BUILTINS = {
    "builtin_interfaces/Time": _ROS2_TIME_DEFINITION,
    "builtin_interfaces/Duration": _ROS2_TIME_DEFINITION,
}


def parse_ros1_struct(name: str, text: str) -> CdrStruct:
    """Return the type of a ROS 1 message.

    Args:
        name: name of the message: "package/Name".
        text: definition, with all needed definitions.

    Raises:
        ValueError: the text is invalid or too large, or a needed definition is missing.
    """
    moment = CdrStruct("time", (("secs", ScalarType("u4")), ("nsecs", ScalarType("u4"))))
    span = CdrStruct("duration", (("secs", ScalarType("i4")), ("nsecs", ScalarType("i4"))))
    builtin: dict[str, CdrType] = {"byte": ScalarType("i1"), "string": TextType(), "time": moment, "duration": span}
    return _RosmsgParser(name, text, _ROS_NUMBER_TYPES | builtin, {}, False).parse_struct(
        _shorten_message_name(name), ()
    )


def parse_ros2_struct(name: str, text: str) -> CdrStruct:
    """Return the type of a ROS 2 message.

    Args:
        name: name of the message: "package/msg/Name".
        text: definition, with all needed definitions.

    Raises:
        ValueError: the text is invalid or too large, or a needed definition is missing.
    """
    builtin: dict[str, CdrType] = {"byte": ScalarType("u1"), "string": TextType(), "wstring": TextType(is_wide=True)}
    return _RosmsgParser(name, text, _ROS_NUMBER_TYPES | builtin, _ROS2_BUILTINS, True).parse_struct(
        _shorten_message_name(name), ()
    )


def _shorten_message_name(name: str) -> str:
    """Return a name without the parts between package and message, such as "msg"."""
    package, slash, type_name = name.partition("/")
    return f"{package}/{type_name.rpartition('/')[2]}" if slash else name


def split_message_definitions(name: str, text: str) -> dict[str, str]:
    """Return the definitions of a text by short name. The first definition gets the given name.

    Raises:
        ValueError: a separator is not followed by a name.
    """
    first, *sections = _DEFINITION_SEPARATOR_PATTERN.split(text.replace("\r\n", "\n"))
    definitions = {}
    for section in sections:
        if header := _MESSAGE_NAME_PATTERN.match(section):
            definitions[_shorten_message_name(header[1])] = section[header.end() :]
        elif section.strip():
            raise ValueError(f"expected 'MSG:' and a name after a separator, got {section.strip()[:40]!r}")
    return definitions | {_shorten_message_name(name): first}


def list_candidate_messages(within: str, kind: str) -> tuple[str, ...]:
    """Return the possible short names of a field's type. `within`: short name of the definition with the field."""
    package = within.partition("/")[0]
    return (_shorten_message_name(kind),) if "/" in kind else (f"{package}/{kind}", f"std_msgs/{kind}")


def list_field_types(text: str) -> list[str]:
    """Return the different types of the fields of one definition."""
    lines = (_ANNOTATION_PATTERN.sub("", line.strip()) for line in text.split("\n"))
    fields = (_FIELD_PATTERN.match(line) for line in lines)
    return list(dict.fromkeys(field[1] for field in fields if field is not None and field[5] != "="))


class _RosmsgParser:
    """Parses the definitions of one text, each at most once."""

    def __init__(
        self, name: str, text: str, builtin: dict[str, CdrType], definitions: dict[str, str], filled: bool
    ) -> None:
        """Split a text into definitions.

        Args:
            builtin: types without a definition.
            definitions: definitions that may be missing in the text.
            filled: True: a message without fields has one byte.
        """
        self._texts, self._builtin, self._filled = definitions | split_message_definitions(name, text), builtin, filled
        self._structs: dict[str, CdrStruct] = {}

    def parse_struct(self, name: str, within: tuple[str, ...]) -> CdrStruct:
        """Return a struct type. `within`: names of the structs that are being parsed, because they need this one."""
        if name in within:
            raise ValueError(f"{name!r} contains itself")
        if name not in self._structs:
            lines = enumerate(self._texts[name].split("\n"), 1)
            fields = [
                field for number, line in lines if (field := self._parse_field_line(line, number, (*within, name)))
            ]
            if not fields and self._filled:
                fields = [(EMPTY_STRUCT_MEMBER, ScalarType("u1"))]
            self._structs[name] = CdrStruct(name, tuple(fields))
        return self._structs[name]

    def _parse_field_line(self, line: str, number: int, within: tuple[str, ...]) -> tuple[str, CdrType] | None:
        """Return the field defined in a line; None: the line defines no field."""
        line = _ANNOTATION_PATTERN.sub("", line.strip())
        if not line or line.startswith("#"):
            return None
        match = _FIELD_PATTERN.match(line)
        if match is None:
            raise ValueError(f"line {number} of {within[-1]!r} is not a field: {line[:80]!r}")
        kind, brackets, count, name, behind = match.groups()
        if behind == "=":
            return None
        value_type = self._resolve_field_type(kind, within)
        if brackets:
            value_type = CdrArray(value_type, int(count)) if count and "<" not in brackets else CdrSequence(value_type)
        return name, value_type

    def _resolve_field_type(self, name: str, within: tuple[str, ...]) -> CdrType:
        if name in self._builtin:
            return self._builtin[name]
        for full in list_candidate_messages(within[-1], name):
            if full in self._texts:
                return self.parse_struct(full, within)
        raise ValueError(f"{within[-1]!r} needs {name!r}, which is not defined")
