"""Messages are made below Python as `Message._make` makes them, and only of bytes that are there."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema
from msgq.errors import InvalidValueError
from msgq.recording.reader.message import Message
from msgq.recording.reader.message_builder import build_messages
from msgq.recording.reader.time_order import BlockMessages

CHANNELS = [("a", 1, None, TOPIC_SOURCE), ("b", 2, Schema("B", "json"), MessageSource("channel", "me"))]


def build_block_messages(**others: Any) -> BlockMessages:
    rows: dict[str, Any] = {
        "channel_code": np.array([0, 1, 0], np.int32),
        "sequence": np.array([7, 2**32 - 1, 9]),
        "log_time": np.array([1, 2, 2**63 - 2]),
        "publish_time": np.array([0, 1, 2]),
        "offset": np.array([0, 3, 5]),
        "length": np.array([3, 2, 0]),
        "origin_time": np.array([0, 5, 6]),
    }
    return BlockMessages(b"abcde", **rows | others)


def test_messages_built_from_columns_equal_message_objects() -> None:
    made = build_messages(build_block_messages(), 0, 3, CHANNELS)
    assert made == [
        Message("a", b"abc", 1, 0, 7, 1, None, 0, TOPIC_SOURCE),
        Message("b", b"de", 2, 1, 2**32 - 1, 2, CHANNELS[1][2], 5, CHANNELS[1][3]),
        Message("a", b"", 2**63 - 2, 2, 9, 1, None, 6, TOPIC_SOURCE),
    ]
    assert all(type(one) is Message and len(one) == len(Message._fields) for one in made)
    assert build_messages(build_block_messages(), 1, 2, CHANNELS) == made[1:2]
    assert (
        build_messages(
            replace(build_block_messages(), content=b"", length=np.zeros(3, np.int64), offset=np.zeros(3, np.int64)),
            0,
            1,
            CHANNELS,
        )[0].data
        == b""
    )
    assert not any(gc.is_tracked(one) for one in made)


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("channel_code", [2, 0, 0]),
        ("channel_code", [-1, 0, 0]),
        ("length", [6, 0, 0]),
        ("length", [-1, 0, 0]),
        ("offset", [3, 0, 0]),
    ],
)
def test_message_columns_with_ranges_beyond_data_are_refused(what: str, values: list[int]) -> None:
    wrong = build_block_messages(**{what: np.array(values, np.int32 if what == "channel_code" else np.int64)})
    with pytest.raises(InvalidValueError):
        build_messages(wrong, 0, 1, CHANNELS)


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (2, 1), (0, 4)])
def test_message_columns_with_too_few_rows_are_refused(begin: int, end: int) -> None:
    with pytest.raises(InvalidValueError):
        build_messages(build_block_messages(), begin, end, CHANNELS)


def test_deleted_built_messages_restore_reference_counts() -> None:
    """The count of references to what channels share comes back to what it was."""
    schema = CHANNELS[1][2]
    counts = [sys.getrefcount(schema)]
    made = build_messages(build_block_messages(), 0, 3, CHANNELS)
    counts.append(sys.getrefcount(schema))
    del made
    counts.append(sys.getrefcount(schema))
    assert counts == [counts[0], counts[0] + 1, counts[0]]
