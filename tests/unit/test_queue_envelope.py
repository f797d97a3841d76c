"""Calls, results, errors and dead letters as bytes of messages, as docs/internals/queue-protocol.md describes them."""

from __future__ import annotations

import pytest

from msgq.workqueue import parse_dead_letter
from msgq.workqueue.envelope import (
    Envelope,
    EnvelopeType,
    describe_error,
    join_envelope,
    name_reply_queue,
    parse_reply_queue,
    split_envelope,
)

MARK = bytes.fromhex("f56d7367714a4f42")
CALL = b"payload" + b"4711-ab" + (5).to_bytes(8, "little") + b"\1\0" + b"\7\0" + MARK


def test_call_has_documented_bytes() -> None:
    assert join_envelope(b"payload", EnvelopeType.CALL, 5, "4711-ab") == CALL
    assert split_envelope(CALL) == Envelope(b"payload", EnvelopeType.CALL, 5, "4711-ab")


@pytest.mark.parametrize("kind", list(EnvelopeType)[1:])
@pytest.mark.parametrize("payload", [b"", b"x", CALL])
def test_split_returns_the_joined_parts(kind: EnvelopeType, payload: bytes) -> None:
    assert split_envelope(join_envelope(payload, kind, 2**64 - 1, "ü")) == (payload, kind, 2**64 - 1, "ü")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        MARK,
        CALL[:-1],
        CALL + b"x",
        CALL[-20:],  # its text is missing
        CALL[:-12] + b"\0\0" + CALL[-10:],
        CALL[:-12] + b"\5\0" + CALL[-10:],
        CALL[:-10] + b"\xff\xff" + MARK,
    ],
)
def test_message_without_valid_tail_is_plain(message: bytes) -> None:
    assert split_envelope(message) == Envelope(message)
    assert parse_dead_letter(message) == (message, "", 0)


def test_call_is_no_dead_letter() -> None:
    assert parse_dead_letter(CALL) == (CALL, "", 0)


def test_text_cut_within_a_character_is_readable() -> None:
    text = split_envelope(join_envelope(None, EnvelopeType.ERROR, 0, "x" + "ü" * 300)).text
    assert text == "x" + "ü" * 249 + "\ufffd"


def test_error_with_empty_text_has_its_type() -> None:
    assert describe_error(KeyError()) == "KeyError: "


def test_name_of_reply_queue_contains_its_queue() -> None:
    assert parse_reply_queue(name_reply_queue("jobs:replies:x", "1-2")) == "jobs:replies:x"
    assert [parse_reply_queue(name) for name in ("jobs", ":replies:1", "jobs:replies:", "jobs:events")] == [None] * 4
