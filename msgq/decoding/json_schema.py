"""Types of columns from a JSON Schema: https://json-schema.org.

Where it leaves the type open (any type, several types, a type within itself), columns are as the values are.
"""

from __future__ import annotations

import json
from typing import Any

from msgq.decoding.column_type import (
    NUMBER_TYPES,
    TEXT_TYPE,
    TYPE_BY_VALUE,
    ColumnType,
    make_list_type,
    make_struct_type,
)

_DEPTH_MAX = 16
_FIELDS_MAX = 1 << 14
_INT64_MAX = 2**63 - 1
_SCALAR_TYPES = {"string": TEXT_TYPE, "boolean": NUMBER_TYPES["b1"], "number": NUMBER_TYPES["f8"]}


def read_json_schema_type(text: bytes) -> ColumnType | None:
    """Return the type of messages by a JSON Schema; None if it states no fields.

    Raises
    ------
    ValueError : it is no JSON.
    """
    root = json.loads(text) if text else None
    kind = _JsonSchemaReader(root).kind(root, ())
    return kind if kind.names else None


class _JsonSchemaReader:
    def __init__(self, root: Any) -> None:
        self._root, self._fields = root, 0

    def kind(self, said: Any, within: tuple[int, ...]) -> ColumnType:
        """Return the type of a schema within the root. within : the ids of the schemas above it."""
        said = self._follow_reference(said)
        if not isinstance(said, dict) or id(said) in within or len(within) > _DEPTH_MAX:
            return TYPE_BY_VALUE
        within = (*within, id(said))
        json_type = said.get("type")
        if isinstance(json_type, list):
            json_type = [name for name in json_type if name != "null"]
            json_type = json_type[0] if len(json_type) == 1 else None
        if json_type == "integer":
            return NUMBER_TYPES["u8"] if _is_unsigned(said) else NUMBER_TYPES["i8"]
        if json_type == "array":
            return make_list_type(self.kind(said.get("items"), within)) or TYPE_BY_VALUE
        if json_type == "object" and isinstance(said.get("properties"), dict):
            return self._read_object_type(said, within)
        return _SCALAR_TYPES.get(json_type, TYPE_BY_VALUE) if isinstance(json_type, str) else TYPE_BY_VALUE

    def _read_object_type(self, said: dict[str, Any], within: tuple[int, ...]) -> ColumnType:
        properties = said["properties"]
        self._fields += len(properties)
        if self._fields > _FIELDS_MAX:
            return TYPE_BY_VALUE
        fields = [(name, self.kind(property_schema, within)) for name, property_schema in properties.items()]
        return make_struct_type(fields, is_more=said.get("additionalProperties") is not False) or TYPE_BY_VALUE

    def _follow_reference(self, said: Any) -> Any:
        """Return the schema that a reference within the text leads to."""
        for _ in range(_DEPTH_MAX):
            if not isinstance(said, dict) or not isinstance(said.get("$ref"), str):
                return said
            target = self._root
            for part in said["$ref"].removeprefix("#").strip("/").split("/"):
                target = target.get(part) if isinstance(target, dict) and part else target
            said = target
        return None


def _is_unsigned(said: dict[str, Any]) -> bool:
    """Return whether integers may be above the range of int64, and are not negative."""
    most = said.get("maximum", said.get("exclusiveMaximum", 0))
    least = said.get("minimum", said.get("exclusiveMinimum", -1))
    numbers = (int, float)
    return isinstance(most, numbers) and isinstance(least, numbers) and least >= 0 and most > _INT64_MAX
