"""Formats of messages for clients, and agreement of our protocol with Foxglove's own server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import foxglove
import pytest

import msgq
from msgq.cli.serve.foxglove_protocol import (
    SUBPROTOCOLS,
    FoxgloveChannel,
    build_advertise,
    build_unadvertise,
    encode_message_data,
)
from msgq.cli.serve.message_formats import MessageFormat
from tests.support import DEADLINE


def struct_schema(description: Any) -> msgq.Schema:
    return msgq.Schema("Point", "struct", json.dumps(description).encode())


@pytest.mark.parametrize("encoding", ["json", "protobuf", "flatbuffer", "ros1", "cdr"])
def test_messages_that_foxglove_decodes_stay_unchanged(encoding: str) -> None:
    schema = msgq.Schema("pkg/Type", encoding, b"\xffdefinition")
    chosen = MessageFormat("imu", schema)
    assert chosen.convert_payload(b"\xff\0") == b"\xff\0"
    expected = FoxgloveChannel("imu", encoding, "pkg/Type", schema.data, schema.schema_encoding)
    assert chosen.channel == expected


def test_json_without_definition_has_no_schema_text() -> None:
    channel = MessageFormat("imu", msgq.Schema("Imu", "json")).channel
    assert channel == FoxgloveChannel("imu", "json", "Imu", b"", "jsonschema")


def test_struct_becomes_json_object_with_described_fields() -> None:
    fields = [
        ("x", "<f8"),
        ("flags", "|b1"),
        ("name", "<U4"),
        ("inner", [("n", "<u2")]),
        ("grid", "<i4", [2, 3]),
        ("axis", "<f4", 3),
    ]
    chosen = MessageFormat("pose", struct_schema(fields))
    properties = json.loads(chosen.channel.schema)["properties"]
    assert {name: described["type"] for name, described in properties.items()} == {
        "x": "number",
        "flags": "boolean",
        "name": "string",
        "inner": "object",
        "axis": "array",
    }
    assert properties["axis"]["items"] == {"type": "number"}
    payload = bytes(8 + 1 + 16 + 2 + 24 + 12)
    value = {"x": 0.0, "flags": False, "name": "", "inner": {"n": 0}, "grid": [[0, 0, 0], [0, 0, 0]], "axis": [0, 0, 0]}
    assert json.loads(chosen.convert_payload(payload)) == value


def test_value_without_fields_becomes_field_value() -> None:
    chosen = MessageFormat("level", msgq.Schema("Level", "struct", b'"<u2"'))
    assert json.loads(chosen.convert_payload(b"\2\1")) == {"value": 258}
    assert json.loads(chosen.channel.schema)["properties"] == {"value": {"type": "integer"}}


def test_text_without_schema_is_sent_as_text() -> None:
    value = json.loads(MessageFormat("raw", None).convert_payload("grüße".encode()))
    assert value == {"text": "grüße", "payload": "Z3LDvMOfZQ==", "bytes": 7}


def test_undecodable_payload_is_sent_in_base64_with_reason() -> None:
    assert json.loads(MessageFormat("raw", None).convert_payload(b"\xff")) == {"payload": "/w==", "bytes": 1}
    for schema in (struct_schema([("x", "<f8")]), struct_schema("nonsense"), msgq.Schema("X", "unheard-of")):
        value = json.loads(MessageFormat("pose", schema).convert_payload(b"\xff"))
        assert (value["payload"], value["bytes"]) == ("/w==", 1)
        assert value["error"]


@pytest.mark.parametrize(
    ("schema_encoding", "data"), [("jsonschema", b'{"type": "object"}'), ("protobuf", b"\xff\0\x01")]
)
def test_protocol_agrees_with_server_of_foxglove(schema_encoding: str, data: bytes) -> None:
    """Foxglove's own server sends the same messages for the same channel."""
    context = foxglove.Context()
    schema = foxglove.Schema(name="Pose", encoding=schema_encoding, data=data)
    encoding = "protobuf" if schema_encoding == "protobuf" else "json"
    theirs = foxglove.Channel("/pose", schema=schema, message_encoding=encoding, context=context)

    async def use(port: int) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://127.0.0.1:{port}", protocols=SUBPROTOCOLS) as socket,
        ):
            assert socket.protocol in SUBPROTOCOLS
            assert (await socket.receive_json(timeout=DEADLINE))["op"] == "serverInfo"
            advertised = await socket.receive_json(timeout=DEADLINE)
            number = advertised["channels"][0]["id"]
            ours = FoxgloveChannel("/pose", encoding, "Pose", data, schema_encoding)
            assert json.loads(build_advertise({number: ours})) == advertised
            await socket.send_json({"op": "subscribe", "subscriptions": [{"id": 9, "channelId": number}]})
            message = None
            while message is None:
                theirs.log(b"payload", log_time=1234567890123456789)
                try:
                    async with asyncio.timeout(0.02):
                        message = await socket.receive_bytes()
                except TimeoutError:
                    continue
            assert message == encode_message_data(9, 1234567890123456789, b"payload")
            theirs.close()
            unadvertised = await socket.receive()
            while unadvertised.type is not aiohttp.WSMsgType.TEXT:
                unadvertised = await socket.receive()
            assert json.loads(unadvertised.data) == json.loads(build_unadvertise([number]))

    server = foxglove.start_server(host="127.0.0.1", port=0, context=context)
    try:
        asyncio.run(use(server.port))
    finally:
        server.stop()
