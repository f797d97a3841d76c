"""One payload that cannot be decoded or shown is shown as its bytes, with the reason; what looks at it goes on."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import cbor2
import msgpack
import numpy as np
import pytest
from click.testing import CliRunner
from google.protobuf import descriptor_pb2

import msgq
from msgq.cli.app import app
from msgq.cli.common.payload import decode_payload
from msgq.common.schema import Schema
from msgq.decoding.payload_decoder import VALUE_NESTING_MAX, Undecoded
from msgq.recording import LogReader, compare
from tests.cases import each_case
from tests.command import run, start
from tests.recording.logs import write_log


def build_nested_lists(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def protobuf_schema() -> Schema:
    """Return the schema of a message that may have one of its own kind in it."""
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", syntax="proto3")
    node = file.message_type.add(name="Node")
    node.field.add(name="node", number=1, type=11, type_name=".Node", label=1)
    node.field.add(name="text", number=2, type=9, label=1)
    return Schema("Node", "protobuf", descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def deep_protobuf(levels: int) -> bytes:
    data = b""
    for _ in range(levels):
        size, rest = len(data), b""
        while size > 0x7F:
            rest, size = rest + bytes([size & 0x7F | 0x80]), size >> 7
        data = b"\x0a" + rest + bytes([size]) + data
    return data


JSON, CBOR, MSGPACK = (Schema("s", encoding, b"") for encoding in ("json", "cbor", "msgpack"))
WIDE = Schema("wide", "struct", json.dumps(np.lib.format.dtype_to_descr(np.dtype([("text", "<U2")]))).encode())
#: Payloads that cannot be shown as a value.
STRANGE: dict[str, tuple[Schema, bytes]] = {
    "json, 101 deep": (JSON, b"[" * 101 + b"]" * 101),
    "json, 600 deep": (JSON, b"[" * 600 + b"]" * 600),
    "json, 600 objects deep": (JSON, b'{"a":' * 600 + b"1" + b"}" * 600),
    "json, 100000 deep": (JSON, b"[" * 100_000 + b"]" * 100_000),
    "json, 5000 digits": (JSON, b"9" * 5000),
    "json, no UTF-8": (JSON, b'"\xff"'),
    "json, cut": (JSON, b'{"a": '),
    "msgpack, 400 deep": (MSGPACK, b"\x91" * 400 + b"\xc0"),
    "msgpack, 100000 deep": (MSGPACK, b"\x91" * 100_000 + b"\xc0"),
    "msgpack, claims 2^31": (MSGPACK, b"\xdd\x80\0\0\0"),
    "cbor, 400 deep": (CBOR, b"\x81" * 400 + b"\xf6"),
    "cbor, 100000 deep": (CBOR, b"\x81" * 100_000 + b"\xf6"),
    "cbor, 400 tags deep": (CBOR, b"\xd9\xf0\x00" * 400 + b"\xf6"),
    "cbor, deep in a key": (CBOR, b"\xa1" + b"\x81" * 400 + b"\xf6\xf6"),
    "cbor, 5000 digits": (CBOR, cbor2.dumps(10**5000)),
    "cbor, claims 2^60": (CBOR, b"\x9b" + struct.pack(">Q", 2**60)),
    "protobuf, 1000 deep": (protobuf_schema(), deep_protobuf(1000)),
    "protobuf, no UTF-8": (protobuf_schema(), b"\x12\x01\xff"),
    "struct, no characters": (WIDE, b"\xff" * 8),
    "struct, deep": (Schema("d", "struct", b'[["a", ' * 300 + b'"<i4"' + b"]]" * 300), bytes(4)),
}
#: Payloads that can be shown.
FINE: dict[str, tuple[Schema, bytes]] = {
    "json, 100 deep": (JSON, json.dumps(build_nested_lists(VALUE_NESTING_MAX)).encode()),
    "json, half a pair": (JSON, b'{"\\ud800": "\\udfff"}'),
    "json, NaN": (JSON, b"[NaN, -Infinity, 1e999]"),
    "msgpack, half a pair": (MSGPACK, b"\xa1a"),
    "cbor, tagged": (CBOR, cbor2.dumps(cbor2.CBORTag(4711, [1]))),
    "cbor, 100 deep": (CBOR, cbor2.dumps(build_nested_lists(VALUE_NESTING_MAX))),
    "protobuf, 90 deep": (protobuf_schema(), deep_protobuf(90)),
    "msgpack, bytes and keys": (MSGPACK, msgpack.packb({1: b"\xff", None: 2**64 - 1})),
}


@each_case("kind", STRANGE)
def test_undecodable_payload_gives_bytes_and_reason(kind: str) -> None:
    schema, data = STRANGE[kind]
    found = decode_payload(schema, data)
    assert isinstance(found, Undecoded)
    assert found.data == data
    assert found.reason


@pytest.mark.parametrize("kind", FINE)
def test_decodable_payload_is_decoded(kind: str) -> None:
    assert not isinstance(decode_payload(*FINE[kind]), Undecoded)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    """Two logs with all of that, and one payload of the second different each; the last message is a good one."""
    every = {f"e{number}": found for number, found in enumerate([*STRANGE.values(), *FINE.values()])}
    schemas = {name: schema for name, (schema, _) in every.items()}
    paths = []
    for side in (b"", b" "):
        messages = [(name, number, data + side) for number, (name, (_, data)) in enumerate(every.items())]
        paths.append(write_log(tmp_path / f"log{side!r}.mcap", *messages, ("last", 10**6, b"end"), schemas=schemas))
    return paths[0], paths[1]


def test_comparison_continues_after_undecodable_payload(logs: tuple[Path, Path]) -> None:
    found = compare(*logs)
    assert found.endpoints["last"].same
    assert found.first is not None
    assert isinstance(found.first.a, Undecoded)
    assert "nested deeper" in str(found)
    assert compare(logs[0], logs[0])
    for number, endpoint in enumerate(f"e{number}" for number in range(len(STRANGE) + len(FINE))):
        only = compare(*logs, endpoints=[endpoint])
        assert str(only)
        assert only.endpoints[endpoint].a == 1, number


def test_bag_command_continues_after_undecodable_payload(logs: tuple[Path, Path]) -> None:
    messages = len(STRANGE) + len(FINE) + 1
    assert re.search(rf"messages +{messages}", run("bag", "info", logs[0]).output)
    assert "different: " in run("bag", "diff", *logs, code=1).output
    for endpoint in [f"e{number}" for number in range(messages - 1)]:
        arguments = ["bag", "diff", *map(str, logs), "--endpoint", endpoint, "--json"]
        said = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
        assert said["endpoints"][endpoint]["a"] == 1
    lines, table = logs[0].with_name("a.jsonl"), logs[0].with_name("a.csv")
    run("bag", "convert", logs[0], "-o", lines)
    run("bag", "convert", logs[0], "-o", table)
    said_of = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(said_of) == messages
    assert sum("reason" in line for line in said_of) == len(STRANGE)
    assert len(table.read_text().splitlines()) == messages + 1
    assert len(list(LogReader(logs[0]).decoded())) == messages


@pytest.mark.parametrize("as_json", [False, True])
def test_echo_continues_after_undecodable_payload(prefix: str, as_json: bool) -> None:
    payloads = [data for schema, data in [*STRANGE.values(), *FINE.values()] if schema is JSON and len(data) < 10_000]
    arguments = ["echo", "texts", "-n", str(len(payloads)), *(["--json"] if as_json else [])]
    with msgq.PubSocket() as pub:
        pub.connect(msgq.context, "texts", schema=JSON)
        with start(*arguments) as process:
            process.wait_opened("msgq_")
            for payload in payloads:
                pub.send(payload)
            lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert len(lines) == len(payloads)
    if as_json:
        said = [json.loads(line) for line in lines]
        assert all(("value" in one) != ("hex" in one) for one in said)
        assert all("reason" in one for one in said if "hex" in one)
    else:
        assert any("(value is nested deeper" in line or "(json: value is nested deeper" in line for line in lines)
