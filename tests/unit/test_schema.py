"""The schema descriptor: what it takes, and that others see it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import msgq
from msgq import Schema, stats
from msgq.common.schema import SCHEMA_DATA_BYTES_MAX, SCHEMA_ENCODING_BYTES_MAX, SCHEMA_NAME_BYTES_MAX


def published(endpoint: str, schema: Schema | None) -> Schema | None:
    """Return what others see of a schema."""
    with msgq.pub_sock(endpoint):
        pass
    with msgq.PubSocket() as pub:
        pub.connect(msgq.context, endpoint, schema=schema)
        return stats.topic(endpoint).schema


@pytest.mark.parametrize(
    "schema",
    [
        Schema("CarState", "capnp", b"struct"),
        Schema("a", ""),
        Schema("a", "json"),
        Schema("prüfung", "ä", b"\0\xff\0"),
        Schema(
            "n" * SCHEMA_NAME_BYTES_MAX,
            "e" * SCHEMA_ENCODING_BYTES_MAX,
            bytes(range(256)) * (SCHEMA_DATA_BYTES_MAX // 256),
        ),
        Schema("exactly", "full", b"\1" * SCHEMA_DATA_BYTES_MAX),
    ],
)
def test_schema_is_read_unchanged_by_other_processes(endpoint: str, schema: Schema) -> None:
    assert published(endpoint, schema) == schema


def test_topic_without_schema_has_schema_none(endpoint: str) -> None:
    assert published(endpoint, None) is None


def test_schema_is_kept_until_next_publisher_sets_another(endpoint: str) -> None:
    long, short = Schema("long name", "encoding", b"x" * 1000), Schema("s", "e", b"")
    published(endpoint, long)
    assert stats.topic(endpoint).schema == long
    published(endpoint, None)  # does not say that there is none
    assert stats.topic(endpoint).schema == long
    assert published(endpoint, short) == short


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (("",), "name"),
        (("n" * 193,), "193"),
        (("ü" * 97,), "194"),
        (("n", "e" * 49), "49"),
        (("n", "e", bytes(46609)), "46609"),
        (("nul\0nul",), "name"),
        (("n", "e\0"), "encoding"),
    ],
)
def test_schema_with_invalid_name_or_size_is_refused(wrong: tuple[Any, ...], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Schema(*(*wrong, "json")[: max(2, len(wrong))])


@pytest.mark.parametrize("wrong", [(5, "json"), ("a", None), ("a", "json", "text"), ("a", "json", 3)])
def test_schema_with_field_of_wrong_type_is_refused(endpoint: str, wrong: tuple[Any, ...]) -> None:
    pub = msgq.PubSocket()
    with pytest.raises((TypeError, ValueError, AttributeError)):
        pub.connect(msgq.context, endpoint, schema=Schema(*wrong))
    assert pub.closed


@pytest.mark.parametrize("data", [bytearray(b"data"), memoryview(b"data")])
def test_schema_accepts_any_bytes_like_data(data: Any) -> None:
    assert Schema("a", "b", data).data == b"data"


def test_schema_is_immutable_and_hashable() -> None:
    schema = Schema("a", "b", b"c")
    assert schema == Schema("a", "b", b"c")
    assert hash(schema) == hash(Schema("a", "b", b"c"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        schema.name = "other"  # type: ignore[misc]
