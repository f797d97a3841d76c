"""`msgq schema diff`: recordings, endpoints, and a recording with the bus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq import Schema
from msgq.decoding.schema_diff import compare_schemas, list_schema_fields
from msgq.recording import Writer
from tests.command import run

OLD = Schema.of([("x", "<f4"), ("pose", [("a", "<i4"), ("b", "u1", (3,))]), ("gone", "S4")], "Pose")
NEW = Schema.of([("x", "<f8"), ("pose", [("a", "<i4"), ("b", "u1", (4,))]), ("id", "<u4")], "Pose")
ROS = "float64 x\nPoint[] points\n{}\n===\nMSG: geometry_msgs/Point\nfloat32 x\n{}"


def write_log(path: Path, schemas: dict[str, Schema | None]) -> Path:
    with Writer(path) as writer:
        for name, schema in schemas.items():
            writer.write(writer.channel(name, schema=schema), b"", 1)
    return path


def ros(root: str = "", inner: str = "") -> Schema:
    text = ROS.format(root, inner).replace("Point[]", "geometry_msgs/Point[]").encode()
    return Schema("a/msg/Cloud", "cdr", text)


def json_schema(properties: dict[str, Any]) -> Schema:
    return Schema.json("Car", json.dumps({"type": "object", "properties": properties}).encode())


# ---- the comparison ----


def test_fields_of_struct_are_compared_with_nested_fields_and_arrays() -> None:
    assert list_schema_fields(OLD) == {"x": "float32", "pose.a": "int32", "pose.b": "uint8[3]", "gone": "|S4"}
    assert [*map(str, compare_schemas(OLD, NEW))] == [
        "changed field x: float32 -> float64",
        "changed field pose.b: uint8[3] -> uint8[4]",
        "removed field gone: |S4",
        "added field id: uint32",
    ]
    assert [difference.change for difference in compare_schemas(NEW, OLD)] == ["changed", "changed", "removed", "added"]
    assert compare_schemas(OLD, OLD) == []


def test_fields_of_ros_messages_are_compared_within_lists() -> None:
    assert [*map(str, compare_schemas(ros(), ros("int8[3] n", "float32 y")))] == [
        "added field points[].y: float",
        "added field n: int8[3]",
    ]


def test_fields_of_json_schema_are_compared() -> None:
    old, new = json_schema({"v": {"type": "number"}}), json_schema({"v": {"type": "string"}, "w": {"type": "boolean"}})
    assert [*map(str, compare_schemas(old, new))] == ["changed field v: double -> string", "added field w: bool"]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (Schema("a", "json"), Schema("b", "json"), "changed name: a -> b"),
        (Schema("a", "json"), Schema("a", "cbor"), "changed encoding: json -> cbor"),
        (None, Schema("a", "json"), "added schema: a (json)"),
        (Schema("a", "json"), None, "removed schema: a (json)"),
        (Schema("a", "unknown", b"1"), Schema("a", "unknown", b"2"), "changed definition (the fields are unknown)"),
        (ros("# a comment"), ros(), "changed definition (the fields are equal)"),
        (
            Schema.of([("x", "<f4"), ("y", "<f4")]),
            Schema.of([("y", "<f4"), ("x", "<f4")]),
            "changed definition (the fields are equal)",
        ),
    ],
)
def test_other_differences_of_schemas_are_named(before: Schema | None, after: Schema | None, text: str) -> None:
    (difference,) = compare_schemas(before, after)
    assert str(difference) == text


def test_absent_schemas_are_equal() -> None:
    assert compare_schemas(None, None) == []


# ---- the verb ----


def diff(*words: object, code: int) -> tuple[list[str], list[str]]:
    done = run("schema", "diff", *words, code=code)
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_two_recordings_are_compared_by_endpoint(tmp_path: Path) -> None:
    a = write_log(tmp_path / "a.mcap", {"pose": OLD, "same": ros(), "old": None})
    b = write_log(tmp_path / "b.mcap", {"pose": NEW, "same": ros(), "new": None})
    shown, complaints = diff(a, b, code=1)
    assert shown[0] == "pose: changed field x: float32 -> float64"
    assert {line.partition(":")[0] for line in shown} == {"pose"}
    assert complaints == [f"msgq: not compared: only in {a}: old", f"msgq: not compared: only in {b}: new"]
    assert diff(a, a, code=0) == (["no differences in 3 schemas"], [])
    found = [json.loads(line) for line in diff(a, b, "--json", code=1)[0]]
    assert found[0] == {
        **{"endpoint": "pose", "change": "changed", "part": "field", "field": "x"},
        **{"before": "float32", "after": "float64", "note": ""},
    }
    assert diff(a, a, "--json", code=0)[0] == []


def test_recording_with_later_schema_is_compared_by_newest_schema(tmp_path: Path) -> None:
    with Writer(tmp_path / "log.mcap") as writer:
        for epoch, schema in enumerate((OLD, NEW)):
            writer.write(writer.channel("pose", schema=schema), b"", epoch)
    assert diff(tmp_path / "log.mcap", write_log(tmp_path / "b.mcap", {"pose": NEW}), code=0)[0]


def test_two_endpoints_of_different_names_and_kinds_are_compared(prefix: str) -> None:
    with msgq.MessageQueue("poses", schema=OLD), msgq.Channel("poses", schema=NEW):
        shown, _ = diff("queue/poses", "channel/poses", code=1)
        assert shown[0] == "queue/poses, channel/poses: changed field x: float32 -> float64"
        assert diff("queue/poses", "queue/poses", code=0)[0] == ["no differences in 1 schema"]
        assert "did you mean queue/poses" in diff("queue/poses", "queue/pose", code=1)[1][-1]


def test_recording_is_compared_with_bus_and_with_one_endpoint(prefix: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.mcap", {"queue/poses": OLD, "queue/jobs": OLD})
    with msgq.MessageQueue("poses", schema=NEW), msgq.MessageQueue("jobs", schema=OLD), msgq.pub_sock("more"):
        shown, complaints = diff(log, code=1)
        assert {line.partition(": ")[0] for line in shown} == {"queue/poses"}
        assert complaints == ["msgq: not compared: only in the bus: more"]
        assert diff(log, "queue/jobs", code=0)[0] == ["no differences in 1 schema"]
        assert diff(log, "queue/poses", code=1)[0][0] == "queue/poses: changed field x: float32 -> float64"
        assert diff("queue/poses", log, code=1)[0][0] == "queue/poses: changed field x: float64 -> float32"
        assert f"no endpoint of {log} matches more" in diff(log, "more", code=1)[1][-1]
    assert diff(log, "--prefix", f"{prefix}other", code=1)[1][-1].endswith("have no endpoint in common")


def test_single_endpoint_without_counterpart_exits_with_usage_error(prefix: str) -> None:
    assert "'pose' is not a recording; give a recording, or a second endpoint" in diff("pose", code=2)[1][-1]
