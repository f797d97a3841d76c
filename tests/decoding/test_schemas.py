"""Schemas that a user names, for endpoints that have none: in the library, in the commands, for many forms of text."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import capnp
import pytest

import msgq
from msgq import Schema
from msgq.errors import InvalidValueError
from msgq.recording import LogReader, Schemas, compare
from tests.command import run, start
from tests.recording.logs import write_log

EVENT = "@0xf3b1f17e25a4285c;\nstruct Event { time @0 :UInt64; union { speed @1 :Float32; name @2 :Text; } }\n"
JSON = Schema("any", "json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capnp")
    (folder / "log.capnp").write_text(EVENT)
    return folder


@pytest.fixture(scope="module")
def event(folder: Path) -> Any:
    """Return what writes events. pycapnp ends the process when it loads another file with the same id."""
    return capnp.load(str(folder / "log.capnp")).Event


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    """Return what names the schema of an event of Cap'n Proto, as of openpilot's logs."""
    return f"capnproto:{folder}/log.capnp:Event"


@pytest.fixture
def log(tmp_path: Path, event: Any) -> Path:
    messages = [("car", i, event.new_message(time=i, speed=i / 2).to_bytes()) for i in range(3)]
    return write_log(tmp_path / "a.mcap", *messages, ("said", 5, b"{}"), ("other", 6, b"?"), schemas={"said": JSON})


def test_schema_of_endpoint_takes_precedence_over_schema_option() -> None:
    chosen, said = Schema("b", "json"), Schema("a", "cdr", b"int32 x")
    schemas = Schemas({"a": chosen, re.compile("^c"): Schema("c", "cbor")})
    assert schemas.of("a", None) == chosen
    assert schemas.of("a", said) == said
    assert schemas.of("a", Schema("a", "cbor")).encoding == "cbor"  # type: ignore[union-attr]  # it is there
    assert schemas.of("a", Schema("a", "cdr")) == chosen, "an encoding alone says nothing, if a definition is needed"
    assert schemas.of("cd", None) == Schema("c", "cbor")
    assert schemas.of("b", None) is None
    assert pickle.loads(pickle.dumps(schemas)).of("a", None) == chosen


def test_schema_option_accepts_all_forms(tmp_path: Path, text: str) -> None:
    (tmp_path / "A.msg").write_text("int32 x")
    (tmp_path / "A.idl").write_text("struct A { long x; };")
    (tmp_path / "dtype").write_text('[["x", "<i4"]]')
    schemas = Schemas.of_texts(
        [
            f"idl=cdr:{tmp_path}/A.idl:A",
            f"ros*=cdr:{tmp_path}/A.msg:pkg/msg/A",
            f"old=ros1:{tmp_path}/A.msg:pkg/A",
            f"/struct=struct:{tmp_path}/dtype:Pair",
            "j|k=json",
            text,
        ]
    )
    names = ("idl", "ros2", "old", "/struct", "k", "whatever")
    found = [schemas.of(name, None) for name in names]
    assert [(one.encoding, one.schema_encoding, one.name) for one in found if one is not None] == [
        ("cdr", "ros2idl", "A"),
        ("cdr", "ros2msg", "pkg/msg/A"),
        ("ros1", "ros1msg", "pkg/A"),
        ("struct", "struct", "Pair"),
        ("json", "jsonschema", "json"),
        ("capnproto", "capnproto", "Event"),
    ]


PLACES = (
    "capnproto:{}/a.capnp:",
    "@0xb0f1c0de00000009;\nstruct Place { x @0 :Float64; }\nstruct Area { at @0 :Place; }\n",
)


@pytest.mark.parametrize(
    ("form", "name", "reason"),
    [
        ("capnproto:{}/a.capnp:", "Plaice", "struct 'Plaice' is not defined; defined structs: Area, Place"),
        ("cdr:{}/a.msg:", "pkg/msg/Scan", "needs 'what', which is not defined"),
        ("struct:{}/a.json:", "Point", "does not describe a NumPy dtype"),
    ],
)
def test_invalid_named_schema_is_refused_at_start(form: str, name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.capnp").write_text(PLACES[1])
    (tmp_path / "a.msg").write_text("what is this?\n")
    (tmp_path / "a.json").write_text("what is this?\n")
    with pytest.raises(InvalidValueError, match=rf"does not define .{name}.: .*{reason}"):
        Schemas.of_texts([form.format(tmp_path) + name])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "log.capnp:Event",
            "has the unknown encoding 'log.capnp'; use [ENDPOINT=]ENCODING:FILE:NAME with one of capnproto, cbor",
        ),
        ("cdr", "lacks the file or the message name"),
        ("cdr:file", "lacks the file or the message name"),
        (
            f"flatbuffer:{__file__}:A",
            "is not a binary FlatBuffers schema; create a .bfbs file with `flatc --binary --schema`",
        ),
        ("cdr:no-such-file:A", "schema file 'no-such-file' cannot be read: No such file or directory"),
        ("capnproto:no-such-file.capnp:A", "schema file 'no-such-file.capnp' cannot be read: No such file"),
        ("(=json", "is not a regular expression"),
    ],
)
def test_invalid_schema_option_raises_error(text: str, why: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        Schemas.of_texts([text])
    assert why in str(error.value)


def test_named_schema_may_exceed_size_limit_of_endpoint_schema(tmp_path: Path) -> None:
    """That of openpilot's logs is larger than what an endpoint can have."""
    fields = "".join(f"  field{i} @{i + 1} :Int32;\n" for i in range(3000))
    (tmp_path / "log.capnp").write_text(f"@0xf3b1f17e25a4285b;\nstruct Event {{\n  time @0 :UInt64;\n{fields}}}\n")
    schema = Schemas.of_texts([f"capnproto:{tmp_path}/log.capnp:Event"]).of("a", None)
    assert schema is not None
    assert len(schema.data) > 46608


def values(log: LogReader) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for message, value in log.decoded():
        found.setdefault(message.endpoint, []).append(value)
    return found


def test_log_is_decoded_with_named_schema(log: Path, text: str) -> None:
    schemas = Schemas.of_texts([f"car={text}"])
    reader = LogReader(log, schemas=schemas)
    expected = {"car": [{"time": i, "speed": i / 2} for i in range(3)], "said": [{}], "other": [b"?"]}
    assert values(reader) == values(reader.between(0)) == expected
    assert values(LogReader(log))["other"] == [b"?"]
    (piece,) = pickle.loads(pickle.dumps(reader)).split(1 << 20)
    assert values(piece) == expected
    info = reader.endpoints["car"].schema
    assert info is not None
    assert info.name == "Event"


def test_logs_are_compared_with_named_schema(log: Path, text: str, event: Any, tmp_path: Path) -> None:
    changed = [("car", i, event.new_message(time=i, speed=i).to_bytes()) for i in range(3)]
    others = [("said", 5, b"{}"), ("other", 6, b"?")]
    second = write_log(tmp_path / "b.mcap", *changed, *others, schemas={"said": JSON})
    schemas = Schemas.of_texts([text])
    first = compare(LogReader(log, schemas=schemas), LogReader(second, schemas=schemas)).first
    assert first is not None
    assert (first.field, first.a, first.b) == ("speed", 0.5, 1.0)
    assert "speed" in run("bag", "diff", log, second, "--schema", text, code=1).output
    assert "speed" not in run("bag", "diff", log, second, code=1).output


def test_bag_commands_accept_schema_option(log: Path, text: str, tmp_path: Path) -> None:
    run("bag", "convert", log, "-o", tmp_path / "a.jsonl", "--schema", f"c*={text}")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["value"]["speed"] for line in lines[:3]] == [0, 0.5, 1]
    assert "data" in lines[-1]
    assert '{"time": 2, "speed": 1.0}' in run("bag", "cat", log, "--schema", text).output
    output = run("bag", "cat", log, "--schema", "nonsense", code=2).output
    assert "has the unknown encoding 'nonsense'" in output


def test_echo_accepts_schema_option(prefix: str, text: str, event: Any) -> None:
    with msgq.PubSocket() as pub:
        pub.connect(msgq.context, "car")
        with start("echo", "car", "-n", "1", "--json", "--schema", text) as process:
            process.wait_opened("msgq_")
            pub.send(event.new_message(time=7, name="a").to_bytes())
            ((said,), _) = process.end()
    assert (said["schema"], said["value"]) == ("Event", {"time": 7, "name": "a"})
