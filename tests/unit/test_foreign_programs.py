"""What foreign programs do: numbers of NumPy, enumerations as names, time-outs as flags, and many subscribers."""

from __future__ import annotations

import asyncio
import enum
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.errors import InvalidValueError
from msgq.simulation import Simulation
from tests.cases import each_case
from tests.support import DEADLINE
from visionipc import FrameFormat
from visionipc.formats import geometry


@each_case("number_type", [np.int8, np.uint32, np.int64, np.float16, np.float32])
def test_seconds_of_numpy_do_not_wrap_around(number_type: Any) -> None:
    number = number_type(3)
    with Simulation():
        queue = msgq.MessageQueue("jobs", os.O_CREAT)
        begin = msgq.time_ns()
        assert queue.receive(timeout=number) is None
        assert msgq.time_ns() - begin == 3_000_000_000
        queue.send(b"late", delay=number)
        assert queue.receive(timeout=2) is None
        job = queue.take(timeout=2, lease=number)
        assert job is not None
        assert queue.receive(timeout=1) is None


class Topic(str, enum.Enum):  # noqa: UP042
    """Names as an enumeration of an older style, whose `str` is not its value."""

    SPEED = "speed"


@pytest.mark.parametrize("name", [Topic.SPEED, np.str_("speed")])
def test_subclass_of_str_is_a_name(name: str) -> None:
    opens: list[Callable[[], Any]] = [
        lambda: msgq.pub_sock(name),
        lambda: msgq.sub_sock(name),
        lambda: msgq.Channel(name).publisher(),
        lambda: msgq.MessageQueue(name, os.O_CREAT),
        lambda: msgq.Seqlock(name, "f8"),
    ]
    with Simulation():
        for open_endpoint in opens:
            with open_endpoint():
                pass


@each_case("flags", [500, 0.5, -1, "1"])
def test_time_out_as_flags_of_recv_is_refused(flags: Any, endpoint: str) -> None:
    for backend in ("msgq", "zmq"):
        with msgq.sub_sock(endpoint, backend=backend) as sub, pytest.raises(InvalidValueError, match="flags are"):
            sub.recv(flags)
    with msgq.sub_sock(endpoint) as sub, pytest.raises(InvalidValueError, match="flags are"):
        sub.recv_into(bytearray(9), flags)


def test_sizes_of_numpy_do_not_wrap_around() -> None:
    layout = geometry(FrameFormat.NV12, np.uint16(1920), np.uint16(1080))  # type: ignore[arg-type]
    assert (layout.size, type(layout.size)) == (3_110_400, int)


def test_apoll_waits_for_descriptors(endpoint: str) -> None:
    async def poll(poller: msgq.Poller, write_fd: int) -> Any:
        asyncio.get_running_loop().call_later(0.02, os.write, write_fd, b"x")
        return await asyncio.wait_for(poller.apoll(-1), DEADLINE)

    read_fd, write_fd = os.pipe()
    try:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            poller = msgq.Poller()
            poller.register(read_fd, msgq.POLLIN)
            assert asyncio.run(poll(poller, write_fd)) == [(read_fd, msgq.POLLIN)]
            os.read(read_fd, 1)
            begin = time.monotonic()
            assert asyncio.run(poller.apoll(20)) == []
            assert time.monotonic() - begin >= 0.02
            poller.register(sub, msgq.POLLIN)
            assert [ready for ready, _ in asyncio.run(poll(poller, write_fd))] == [read_fd]
            os.read(read_fd, 1)
            pub.send(b"message")
            assert [ready for ready, _ in asyncio.run(poller.apoll(-1))] == [sub]
    finally:
        os.close(read_fd)
        os.close(write_fd)


def test_reader_without_a_row_has_not_read_all(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub:
        subs = [msgq.sub_sock(endpoint) for _ in range(129)]
        try:
            pub.send(b"message")
            assert {sub.receive() for sub in subs} == {b"message"}
            assert not pub.all_readers_updated()
            subs.pop().close()
            assert pub.all_readers_updated()
        finally:
            for sub in subs:
                sub.close()
