"""What channels refuse: names, geometry, files that are none, messages; and schemas that differ.

Each is an error that names the channel and the values, or a loss that is counted.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgq.channel import Channel
from msgq.common import naming
from msgq.common.schema import Schema, schema_diff
from msgq.errors import (
    BackendNotAvailableError,
    ChannelMismatchError,
    CorruptSegmentError,
    EndpointNameError,
    InvalidTypeError,
    InvalidValueError,
    LayoutVersionError,
    MessageTooLargeError,
    SchemaMismatchError,
    SegmentError,
    SegmentSizeError,
)
from tests.support import SHM, run_child


def channel_path(endpoint: str) -> Path:
    return SHM / f"msgqchan_{endpoint}"


def pools(endpoint: str) -> list[Path]:
    return sorted(SHM.glob(f"msgqpool_{endpoint}:*"))


# ---- names and geometry ----


@pytest.mark.parametrize("name", ["", "a" * 230, "a/b", "a\0b", ".", "..", "a:b", b"\xff"])
def test_channel_refuses_invalid_name(name: Any) -> None:
    with pytest.raises(EndpointNameError, match="channel"):
        Channel(name)


def test_channel_accepts_longest_name(token: str) -> None:
    name = token + "x" * (naming.CHANNEL_BYTES_MAX - len(token))
    channel = Channel(name)
    publisher = channel.publisher()
    assert len(pools(name)[0].name) == 255
    publisher.close()
    channel.unlink()


@pytest.mark.parametrize("bad", ["a" * 48, "a\0", 3])
def test_node_refuses_invalid_name(endpoint: str, bad: Any) -> None:
    with pytest.raises((EndpointNameError, TypeError), match="node"):
        Channel(endpoint, node=bad)
    assert not channel_path(endpoint).exists()


@pytest.mark.parametrize(
    ("what", "value"),
    [
        *(("capacity", value) for value in (0, 1, 3, 63, 8193, 16384, -4)),
        *(("publishers", value) for value in (0, 64, -1)),
        *(("subscribers", value) for value in (0, 65, -1)),
    ],
)
def test_channel_refuses_invalid_configuration(endpoint: str, what: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=f"{endpoint}.*{what} is {value!r}"):
        Channel(endpoint, **{what: value})
    assert not channel_path(endpoint).exists()


@pytest.mark.parametrize("value", [2.0, "64"])
def test_channel_refuses_sizes_that_are_no_whole_numbers(endpoint: str, value: Any) -> None:
    with pytest.raises(InvalidTypeError, match=f"{endpoint}.*capacity is {value!r}.*give a whole number, 2 to 8192"):
        Channel(endpoint, capacity=value)
    assert not channel_path(endpoint).exists()


@pytest.mark.parametrize(
    ("what", "value"), [("slots", 0), ("slots", 16385), ("slot_bytes", 0), ("slot_bytes", 2**41), ("max_bytes", 0)]
)
def test_publisher_refuses_invalid_pool_size(endpoint: str, what: str, value: int) -> None:
    with pytest.raises(InvalidValueError, match=f"{what} is {value}"):
        Channel(endpoint).publisher(**{what: value})
    assert not pools(endpoint)


@pytest.mark.parametrize(
    ("what", "value"), [("history", -1), ("max_views", -1), ("on_lapped", "here"), ("on_lost", "cry"), ("spin_us", -1)]
)
def test_subscriber_refuses_invalid_arguments(endpoint: str, what: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=what):
        Channel(endpoint).subscriber(**{what: value})


@pytest.mark.parametrize(
    ("said", "asked"),
    [({"capacity": 8}, 16), ({"publishers": 2}, 3), ({"subscribers": 2}, 3), ({"stamps": False}, True)],
)
def test_channel_opened_with_different_configuration_raises_with_both_values(
    endpoint: str, said: dict[str, Any], asked: Any
) -> None:
    Channel(endpoint, **said)
    what, there = next(iter(said.items()))
    with pytest.raises(ChannelMismatchError, match=f"{endpoint}.*{what}={there}.*{what}={asked}") as caught:
        Channel(endpoint, **{what: asked})
    assert caught.value.path == str(channel_path(endpoint))


def test_first_publisher_sets_unspecified_channel_configuration(endpoint: str) -> None:
    early = Channel(endpoint).subscriber()
    assert Channel(endpoint).capacity is None
    publisher = Channel(endpoint, capacity=4).publisher()
    with pytest.raises(ChannelMismatchError, match=r"subscribers=any number.*subscribers=3"):
        Channel(endpoint, subscribers=3)
    publisher.send(b"first")
    assert early.receive(0) == b"first"


def test_create_argument_decides_if_existing_channel_is_opened(endpoint: str) -> None:
    with pytest.raises(SegmentError, match="channel not found"):
        Channel(endpoint, create=False)
    with pytest.raises(SegmentError, match="channel not found"):
        Channel(endpoint, passive=True)
    Channel(endpoint, create=True)
    with pytest.raises(SegmentError, match="exists"):
        Channel(endpoint, create=True)


def test_channel_with_zmq_backend_is_refused(endpoint: str) -> None:
    assert run_child(zmq_child, endpoint, env={"MSGQ_BACKEND": "zmq"}) == "backend 'zmq' has no channels"


def zmq_child(endpoint: str) -> str:
    try:
        Channel(endpoint)
    except BackendNotAvailableError as error:
        return str(error).partition(";")[0]
    return "no error"


# ---- files ----


def test_channel_file_of_another_format_is_refused(endpoint: str) -> None:
    channel_path(endpoint).write_bytes(b"short")
    with pytest.raises(CorruptSegmentError, match="too few"):
        Channel(endpoint)
    channel_path(endpoint).write_bytes(bytes(200_000))
    with pytest.raises(CorruptSegmentError, match="not a channel"):
        Channel(endpoint)
    channel_path(endpoint).unlink()
    channel_path(endpoint).symlink_to("/etc/passwd")
    with pytest.raises(SegmentError, match="symbolic link"):
        Channel(endpoint)


def test_channel_file_with_different_layout_version_is_reported(endpoint: str) -> None:
    Channel(endpoint)
    data = bytearray(channel_path(endpoint).read_bytes())
    data[12:16] = struct.pack("<I", 2)
    channel_path(endpoint).write_bytes(data)
    with pytest.raises(LayoutVersionError, match="version 1"):
        Channel(endpoint)


@pytest.mark.parametrize("geometry", [0xFFFF, 3, 1, 16384])
def test_channel_file_with_invalid_configuration_is_refused(endpoint: str, geometry: int) -> None:
    channel = Channel(endpoint)
    with channel_path(endpoint).open("r+b") as file:
        file.seek(128)
        file.write(struct.pack("<Q", geometry))
    with pytest.raises(CorruptSegmentError, match=f"{endpoint}.*another program wrote"):
        channel.publisher()
    assert channel.subscriber().receive(0) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
@pytest.mark.parametrize("which", ["channel", "pool"])
def test_channel_files_of_another_user_are_refused(endpoint: str, which: str) -> None:
    channel = Channel(endpoint)
    channel.publisher().send(b"1")
    subscriber = channel.subscriber(history=1)
    uses: dict[str, Callable[[], object]] = {
        "channel": lambda: Channel(endpoint),
        "pool": lambda: subscriber.receive(0),
    }
    os.chown(channel_path(endpoint) if which == "channel" else pools(endpoint)[0], 65001, 65001)
    os.seteuid(65002)
    try:
        with pytest.raises(SegmentError, match=r"belongs to user 65001|denied"):
            uses[which]()
    finally:
        os.seteuid(0)


def test_messages_of_removed_pool_are_lost(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher = channel.publisher()
    subscriber = channel.subscriber()
    publisher.send_many([b"1", b"2"])
    pools(endpoint)[0].unlink()
    assert subscriber.receive(0) is None
    assert subscriber.lost == 2


@pytest.mark.parametrize("how", ["cut", "foreign", "geometry"])
def test_messages_of_pool_with_invalid_format_are_lost_and_reported(endpoint: str, how: str) -> None:
    channel = Channel(endpoint)
    publisher = channel.publisher()
    subscriber = channel.subscriber()
    publisher.send(b"1")
    pool = pools(endpoint)[0]
    data = bytearray(pool.read_bytes())
    if how == "cut":
        data = data[:100]
    elif how == "foreign":
        data[56:64] = struct.pack("<Q", 1)  # the pool's uid
    else:
        data[24:32] = struct.pack("<Q", 2**60)  # its slots
    pool.unlink()
    pool.write_bytes(data)
    with pytest.raises(CorruptSegmentError, match=endpoint):
        subscriber.receive(0)
    assert subscriber.lost == 1
    assert subscriber.receive(0) is None


def receive_twice(publisher: Any, subscriber: Any) -> None:
    for _ in range(2):
        publisher.send(b"x" * 4000)
        subscriber.receive(0)


def test_truncation_of_mapped_pool_is_reported(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher = channel.publisher()
    subscriber = channel.subscriber()
    publisher.send(b"1")
    assert subscriber.receive(0) == b"1"
    publisher.send(b"2")
    os.truncate(pools(endpoint)[0], 4096)
    with pytest.raises((SegmentSizeError, CorruptSegmentError), match=endpoint):
        receive_twice(publisher, subscriber)


def test_truncation_of_channel_file_is_reported(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher = channel.publisher()
    subscriber = channel.subscriber()
    os.truncate(channel_path(endpoint), 4096)
    with pytest.raises((SegmentSizeError, CorruptSegmentError), match=endpoint):
        publisher.send(b"1")
    with pytest.raises((SegmentSizeError, CorruptSegmentError), match=endpoint):
        subscriber.receive(0)


def test_publisher_without_memory_raises_and_leaves_no_file(endpoint: str) -> None:
    channel = Channel(endpoint)
    space = os.statvfs(SHM)
    size = space.f_blocks * space.f_frsize  # bytes of the whole file system: other programs may free memory
    with pytest.raises(SegmentError, match=f"{endpoint}.*cannot allocate"):
        channel.publisher(slots=2, slot_bytes=size, max_bytes=2**40)
    assert not pools(endpoint)
    publisher = channel.publisher(max_bytes=2**40)
    with pytest.raises(SegmentError, match="cannot allocate"):
        publisher.loan(size)
    publisher.send(b"it goes on")
    assert len(pools(endpoint)) == 1


def test_removed_channel_accepts_no_new_participants(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    channel.unlink()
    publisher.send(b"among ourselves")
    assert subscriber.receive(0) is None, "its pool was removed before it was mapped"
    assert subscriber.lost == 1
    for join in (channel.publisher, channel.subscriber):
        with pytest.raises(SegmentError, match="was removed"):
            join()
    with pytest.raises(SegmentError, match="was removed"):
        publisher.send(bytes(5000))  # it would have to grow


# ---- sending ----


def test_message_above_max_bytes_is_refused_with_both_sizes(endpoint: str) -> None:
    publisher = Channel(endpoint).publisher(slots=4, slot_bytes=100, max_bytes=4096)
    with pytest.raises(MessageTooLargeError, match=r"4000 bytes.*4096"):
        publisher.send(bytes(4000))
    with pytest.raises(MessageTooLargeError, match="4096"):
        Channel(endpoint).publisher(slots=100, slot_bytes=100, max_bytes=4096)
    publisher.send(bytes(500))
    assert publisher.slot_bytes >= 500


def test_send_of_object_without_buffer_is_refused(endpoint: str) -> None:
    publisher = Channel(endpoint).publisher()
    for data in ("text", 3, None, np.array([object()])):
        with pytest.raises(TypeError):
            publisher.send(data)  # type: ignore[arg-type]
    with pytest.raises((BufferError, ValueError)):
        publisher.send(np.zeros((4, 4))[:, ::2])
    assert publisher.sent == 0


def test_channel_call_with_invalid_timeout_is_refused(endpoint: str) -> None:
    subscriber = Channel(endpoint).subscriber()
    for timeout in (-1, float("nan"), 1e10):
        with pytest.raises(InvalidValueError, match="timeout is"):
            subscriber.receive(timeout)


# ---- schemas ----

JSON = Schema("pose", "json", b"{}")


def test_schema_mismatch_raises_only_with_strict_schema(endpoint: str) -> None:
    first = Channel(endpoint, schema=JSON)
    other = Schema("pose", "json", b"{}", layout=b"another build", version=2)
    second = Channel(endpoint, schema=other)
    assert (first.schema_matches, second.schema_matches) == (True, False)
    assert second.schema == JSON
    assert schema_diff(JSON, other) == ("layout", "version")
    with pytest.raises(SchemaMismatchError, match=f"{endpoint}.*'pose'.*layout, version"):
        Channel(endpoint, schema=other, strict_schema=True)
    assert not second.claim_schema(other)
    second.replace_schema(other)
    assert (first.schema, first.schema_matches) == (other, False)


def test_claim_schema_sets_schema_only_if_channel_has_none(endpoint: str) -> None:
    channel = Channel(endpoint)
    assert channel.schema is None
    with pytest.raises(SchemaMismatchError, match="found none"):
        Channel(endpoint, passive=True, schema=JSON, strict_schema=True)
    assert channel.claim_schema(JSON)
    assert Channel(endpoint).claim_schema(JSON), "the same one"
    assert not channel.claim_schema(Schema("other", "json"))
    assert channel.schema == JSON


def test_claim_schema_keeps_schema_that_python_cannot_read(endpoint: str) -> None:
    """A C program may give any bytes as a name."""
    with Channel(endpoint, schema=Schema("first", "json")) as channel:
        path = channel_path(endpoint)
        path.write_bytes(path.read_bytes().replace(b"first", b"fi\xffst"))
        assert channel.schema is None
        assert not channel.claim_schema(Schema("other", "json"))
        assert b"other" not in path.read_bytes()


def test_channel_stores_schema_of_largest_size(endpoint: str) -> None:
    large = Schema("n" * 192, "e" * 48, bytes(46608), bytes(64), b"x" * 64, 2**32 - 1)
    assert Channel(endpoint, schema=large).schema == large


@pytest.mark.parametrize("bad", [{"identity": bytes(65)}, {"layout": bytes(65)}, {"version": -1}, {"version": 2**32}])
def test_channel_refuses_invalid_schema(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Schema("name", "json", **bad)
