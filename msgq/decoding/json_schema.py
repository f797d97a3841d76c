"""Column types from a JSON Schema: https://json-schema.org.

If the schema leaves a type open (any type, several types, a recursive type), the column type depends on the values.
"""

from __future__ import annotations

import json
from typing import Any

from msgq.decoding.column_type import (
    NUMBER_COLUMN_TYPES,
    TEXT_COLUMN_TYPE,
    VALUE_DEFINED_COLUMN_TYPE,
    ColumnType,
    make_list_column_type,
    make_struct_column_type,
)

_SCHEMA_DEPTH_MAX = 16
_SCHEMA_FIELDS_MAX = 1 << 14
_INT64_MAX = 2**63 - 1
_COLUMN_TYPE_BY_JSON_TYPE = {
    "string": TEXT_COLUMN_TYPE,
    "boolean": NUMBER_COLUMN_TYPES["b1"],
    "number": NUMBER_COLUMN_TYPES["f8"],
}


def convert_json_schema(text: bytes) -> ColumnType | None:
    """Return the column type of messages with a JSON Schema; None: the schema defines no fields.

    Raises:
        ValueError: the text is not JSON.
    """
    root = json.loads(text) if text else None
    convert_schema = _JsonSchemaReader(root).convert_schema(root, ())
    return convert_schema if convert_schema.field_names else None


class _JsonSchemaReader:
    def __init__(self, root: Any) -> None:
        self._root, self._fields = root, 0

    def convert_schema(self, schema: Any, within: tuple[int, ...]) -> ColumnType:
        """Return the column type of a schema within the root schema. `within`: ids of the enclosing schemas."""
        schema = self._resolve_reference(schema)
        if not isinstance(schema, dict) or id(schema) in within or len(within) > _SCHEMA_DEPTH_MAX:
            return VALUE_DEFINED_COLUMN_TYPE
        within = (*within, id(schema))
        json_type = schema.get("type")
        if isinstance(json_type, list):
            json_type = [name for name in json_type if name != "null"]
            json_type = json_type[0] if len(json_type) == 1 else None
        if json_type == "integer":
            return NUMBER_COLUMN_TYPES["u8"] if _needs_uint64(schema) else NUMBER_COLUMN_TYPES["i8"]
        if json_type == "array":
            return make_list_column_type(self.convert_schema(schema.get("items"), within)) or VALUE_DEFINED_COLUMN_TYPE
        if json_type == "object" and isinstance(schema.get("properties"), dict):
            return self._convert_object_schema(schema, within)
        return (
            _COLUMN_TYPE_BY_JSON_TYPE.get(json_type, VALUE_DEFINED_COLUMN_TYPE)
            if isinstance(json_type, str)
            else VALUE_DEFINED_COLUMN_TYPE
        )

    def _convert_object_schema(self, schema: dict[str, Any], within: tuple[int, ...]) -> ColumnType:
        properties = schema["properties"]
        self._fields += len(properties)
        if self._fields > _SCHEMA_FIELDS_MAX:
            return VALUE_DEFINED_COLUMN_TYPE
        fields = [(name, self.convert_schema(property_schema, within)) for name, property_schema in properties.items()]
        return (
            make_struct_column_type(fields, allows_other_fields=schema.get("additionalProperties") is not False)
            or VALUE_DEFINED_COLUMN_TYPE
        )

    def _resolve_reference(self, schema: Any) -> Any:
        """Return the schema that a reference within the text refers to."""
        for _ in range(_SCHEMA_DEPTH_MAX):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            target = self._root
            for part in schema["$ref"].removeprefix("#").strip("/").split("/"):
                target = target.get(part) if isinstance(target, dict) and part else target
            schema = target
        return None


def _needs_uint64(schema: dict[str, Any]) -> bool:
    """Return True if integers may exceed int64 and are not negative."""
    most = schema.get("maximum", schema.get("exclusiveMaximum", 0))
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1))
    numbers = (int, float)
    return isinstance(most, numbers) and isinstance(least, numbers) and least >= 0 and most > _INT64_MAX
