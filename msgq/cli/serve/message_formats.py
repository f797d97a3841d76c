"""Formats in which clients get the messages of an endpoint, by the schema of the endpoint."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from msgq.cli.common.payload import decode_payload, decode_text
from msgq.cli.serve.foxglove_protocol import FoxgloveChannel
from msgq.common.dtypes import struct_dtype
from msgq.common.schema import Schema
from msgq.decoding.payload_decoder import Undecoded

#: Encodings that Foxglove decodes itself. Messages of other encodings become JSON.
_FOXGLOVE_ENCODINGS = frozenset(("json", "protobuf", "flatbuffer", "ros1", "cdr"))
_JSON_TYPES = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}


class MessageFormat:
    """Format of an endpoint's messages. One thread at a time.

    Messages that Foxglove decodes stay unchanged. Other messages become JSON objects:

    - An object or struct becomes an object with its fields. Another value becomes the field `value`.
    - If a payload cannot be decoded, the object has the payload in base64 (`payload`), and the reason (`error`).
      Without a schema, the object has the text instead of the reason, if the payload is a text (`text`).

    Args:
        endpoint: name of the endpoint.
        schema: schema of its messages; None: unknown.

    Attributes:
        channel: description for clients.
    """

    def __init__(self, endpoint: str, schema: Schema | None) -> None:
        self._schema = schema
        self._is_unchanged = schema is not None and schema.encoding in _FOXGLOVE_ENCODINGS
        if schema is not None and self._is_unchanged:
            encoding = schema.schema_encoding if schema.data else "jsonschema" if schema.encoding == "json" else ""
            self.channel = FoxgloveChannel(endpoint, schema.encoding, schema.name, schema.data, encoding)
        else:
            name = endpoint if schema is None else schema.name
            self.channel = FoxgloveChannel(endpoint, "json", name, _build_json_schema(schema), "jsonschema")

    def convert_payload(self, data: bytes) -> bytes:
        """Return a message for clients."""
        if self._is_unchanged:
            return data
        value = decode_payload(self._schema, data)
        if isinstance(value, Undecoded):
            value = _describe_undecoded(value)
        return json.dumps(value if isinstance(value, dict) else {"value": value}).encode()


def _describe_undecoded(value: Undecoded) -> dict[str, Any]:
    described: dict[str, Any] = {"payload": base64.b64encode(value.data).decode(), "bytes": len(value.data)}
    if value.reason:
        return {**described, "error": value.reason}
    text = decode_text(value.data)
    return described if text is None else {"text": text, **described}


def _build_json_schema(schema: Schema | None) -> bytes:
    """Return the JSON schema of converted messages; b"": unknown."""
    if schema is None or schema.encoding != "struct":
        return b""
    try:
        described = _describe_dtype(struct_dtype(schema))
    except ValueError:
        return b""
    is_object = described["type"] == "object"
    return json.dumps(described if is_object else {"type": "object", "properties": {"value": described}}).encode()


def _describe_dtype(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the JSON schema of a value. Fields with several dimensions are omitted: Foxglove refuses such a schema."""
    if dtype.subdtype is not None:
        return {"type": "array", "items": _describe_dtype(dtype.base)}
    if dtype.fields is not None:
        names = [name for name in dtype.names or () if len(dtype[name].shape) <= 1]
        return {"type": "object", "properties": {name: _describe_dtype(dtype[name]) for name in names}}
    return {"type": _JSON_TYPES.get(dtype.kind, "string")}
