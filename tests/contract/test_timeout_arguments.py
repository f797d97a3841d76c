"""Each public time-out rejects values that are not times with the same advice, also if the call would not wait."""

from __future__ import annotations

import ast
import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.errors import InvalidTypeError, InvalidValueError, MsgqError
from msgq.impl.fake.bus import current_bus
from msgq.topic import fake_events
from tests.cases import each_case
from tests.contract import close_cases
from tests.contract.close_cases import ALL, EVERY_BACKEND, OURS, RING, Place, place_on
from tests.contract.test_closing import BASES, INTERNAL, PARTS
from tests.support import ROOT

MS = "milliseconds, -1 for ever"
S = "seconds, None for ever"
GATE_S = "seconds, -1 for ever"
TIMES = {"timeout", "timeout_ms", "timeout_s", "deadline"}


@dataclass(frozen=True)
class Timed:
    """A time-out: of which methods, how it is given, in which unit."""

    name: str
    backends: tuple[str, ...]
    open: Callable[[Place], Any]
    call: Callable[[Any, Any], Any]
    unit: str
    none_waits: bool = False


def _polls(place: Place) -> Any:
    poller = place.module.Poller()
    poller.registerSocket(place.sub())
    return poller, {}


def _spare_queue(place: Place) -> Any:
    return close_cases.open_queue(place, max_messages=8)


def _subs(place: Place) -> Any:
    return place, {}


def _records_queue(place: Place) -> Any:
    return close_cases.open_record_queue(place, "single")


def _spare_publisher(place: Place) -> Any:
    subscriber, _ = close_cases.open_channel_subscriber(place)
    return place.close_after_test(msgq.Channel(subscriber.endpoint).publisher()), {}


def _message_there(place: Place) -> Any:
    subscriber, _ = close_cases.open_channel_subscriber(place)
    publisher = place.close_after_test(msgq.Channel(subscriber.endpoint).publisher())
    publisher.send(b"x")
    return subscriber, {}


def _worker(place: Place) -> Any:
    queue, _ = close_cases.open_queue(place)
    return msgq.Worker(queue, lambda message: message.data), {}


def _job_client(place: Place) -> Any:
    queue, _ = close_cases.open_queue(place)
    return place.close_after_test(msgq.JobClient(queue)), {}


def _job_future(place: Place) -> Any:
    client, _ = _job_client(place)
    return client.submit(b"x"), {}


def _set_rcvtimeo(sub: Any, time: Any) -> None:
    sub.rcvtimeo = time


TABLE = [
    Timed("SubSocket.setTimeout", ALL, close_cases.open_sub_socket, lambda sub, time: sub.setTimeout(time), MS),
    Timed("SubSocket.rcvtimeo", ALL, close_cases.open_sub_socket, _set_rcvtimeo, MS),
    Timed(
        "TypedSubscriber.receive",
        ALL,
        close_cases.open_typed_subscriber,
        lambda sub, time: sub.receive(timeout=time),
        S,
    ),
    Timed("SubSocket.receive", ALL, close_cases.open_sub_socket, lambda sub, time: sub.receive(timeout=time), S),
    Timed("sub_sock", ALL, _subs, lambda place, time: msgq.sub_sock(place.name, timeout=time).close(), MS, True),
    Timed("Poller.poll", ALL, _polls, lambda poller, time: poller.poll(time), MS, True),
    Timed("Poller.apoll", ALL, _polls, lambda poller, time: asyncio.run(_awaited(poller.apoll, time)), MS),
    Timed(
        "PubSocket.wait_for_readers",
        ALL,
        close_cases.open_pub_socket,
        lambda pub, time: pub.wait_for_readers(time, n=0),
        S,
    ),
    Timed("Subscriber.receive", OURS, close_cases.open_channel_subscriber, lambda sub, time: sub.receive(time), S),
    Timed("Subscriber.receive", OURS, _message_there, lambda sub, time: sub.receive(time), S),
    Timed(
        "Subscriber.receive_into",
        OURS,
        close_cases.open_channel_subscriber,
        lambda sub, t: sub.receive_into(bytearray(8), t),
        S,
    ),
    Timed(
        "Subscriber.receive_array",
        OURS,
        close_cases.open_channel_subscriber,
        lambda s, t: s.receive_array("u1", timeout=t),
        S,
    ),
    Timed(
        "Subscriber.receive_view",
        OURS,
        close_cases.open_channel_subscriber,
        lambda sub, time: sub.receive_view(time),
        S,
    ),
    Timed("Publisher.send", OURS, close_cases.open_full_publisher, lambda pub, time: pub.send(b"x", timeout=time), S),
    Timed("Publisher.send", OURS, _spare_publisher, lambda pub, time: pub.send(b"x", timeout=time), S),
    Timed("Publisher.loan", OURS, close_cases.open_full_publisher, lambda pub, time: pub.loan(1, timeout=time), S),
    Timed("Publisher.loan", OURS, _spare_publisher, lambda pub, time: pub.loan(1, timeout=time).discard(), S),
    *(
        Timed("Publisher.wait_for_room", OURS, opener, lambda pub, time: pub.wait_for_room(timeout=time), S)
        for opener in (_spare_publisher, close_cases.open_publisher_without_room)
    ),
    *(
        Timed(f"MessageQueue.{name}", OURS, opener, call, S)
        for opener in (_spare_queue, close_cases.open_full_queue)
        for name, call in {
            "send": lambda queue, time: queue.send(b"x", timeout=time),
            "send_many": lambda queue, time: queue.send_many([b"x"], timeout=time),
            "wait_space": lambda queue, time: queue.wait_space(time),
            "receive": lambda queue, time: queue.receive(time),
            "receive_into": lambda queue, time: queue.receive_into(bytearray(8192), time),
            "take": lambda queue, time: queue.take(time),
            "jobs": lambda queue, time: next(queue.jobs(timeout=time), None),
        }.items()
    ),
    Timed("Worker.run", OURS, _worker, lambda worker, time: worker.run(time), S),
    Timed("JobClient.submit", OURS, _job_client, lambda client, time: client.submit(b"x", timeout=time), S),
    Timed("JobFuture.result", OURS, _job_future, lambda future, time: future.result(time), S),
    *(
        Timed(f"{kind}.{name}", OURS, opener, call, S)
        for name, call in {
            "wait": lambda handle, time: handle.wait(time),
            "receive": lambda handle, time: handle.receive(time),
            "watch": lambda handle, time: list(handle.watch(time)),
        }.items()
        for kind, opener in {
            "SeqlockVector": close_cases.open_vector,
            "Seqlock": close_cases.open_seqlock,
            "Board": close_cases.open_board,
            "KeyObserver": close_cases.open_key_observer,
        }.items()
    ),
    Timed("SeqlockVector.write", OURS, close_cases.open_vector, lambda one, time: one.write([0], 1.0, timeout=time), S),
    Timed("Seqlock.write", OURS, close_cases.open_seqlock, lambda one, time: one.write(1.0, timeout=time), S),
    Timed("SeqlockVector.snapshot", OURS, close_cases.open_vector, lambda one, time: one.snapshot(timeout=time), S),
    Timed("Seqlock.snapshot", OURS, close_cases.open_seqlock, lambda one, time: one.snapshot(timeout=time), S),
    Timed("RecordQueue.consume", ALL, _records_queue, lambda queue, time: queue.consume(timeout=time), S),
    Timed("RecordQueue.receive", ALL, _records_queue, lambda queue, time: queue.receive(time), S),
    Timed(
        "RecordQueue.consume_with_publishers",
        OURS,
        lambda place: close_cases.open_record_queue(place, "multiple"),
        lambda queue, time: queue.consume_with_publishers(timeout=time),
        S,
    ),
    Timed(
        "StageTracer.trace_messages",
        ALL,
        close_cases.open_message_iterator,
        lambda pair, time: pair[0].trace_messages(pair[1], time),
        S,
    ),
    Timed("SubMaster.update", ALL, close_cases.open_submaster, lambda master, time: master.update(time), MS, True),
    Timed(
        "PubMaster.wait_for_readers",
        ALL,
        close_cases.open_pubmaster,
        lambda m, time: m.wait_for_readers(None, time, 0),
        S,
    ),
    Timed("Event.wait", RING, close_cases.open_event, lambda event, time: event.wait(time), GATE_S),
    Timed(
        "wait_for_one_event", RING, close_cases.open_event, lambda e, t: fake_events.wait_for_one_event([e], t), GATE_S
    ),
    *(
        Timed(f"VisionIpcClient.{name}", OURS, opener, call, MS)
        for opener in (close_cases.open_frame_client, close_cases.open_unconnected_client)
        for name, call in {
            "recv": lambda client, time: client.recv(time),
            "frame": lambda client, time: client.frame(time),
        }.items()
    ),
    Timed("FrameSync.recv", OURS, close_cases.open_frame_sync, lambda sync, time: sync.recv(time), MS),
]
#: Their time-outs are those of another library, with its errors.
APART = {"posix_ipc.MessageQueue.send", "posix_ipc.MessageQueue.receive"}


async def _awaited(function: Callable[[Any], Any], time: Any) -> Any:
    return await function(time)


every_backend = pytest.mark.parametrize("backend", EVERY_BACKEND)
each_timeout = each_case(
    "timed", TABLE, [f"{timed.name}-{timed.open.__name__.strip('_<>')}" for timed in TABLE], reset="place.renew"
)


@pytest.fixture
def place(prefix: str, token: str, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    with place_on(backend, token, prefix, tmp_path) as place:
        yield place


@every_backend
@each_timeout
def test_timeout_of_wrong_type_raises_error_that_names_the_type(place: Place, timed: Timed) -> None:
    if place.backend not in timed.backends:
        return
    one, _ = timed.open(place)
    unit = "milliseconds" if timed.unit == MS else "seconds"
    refused = [timedelta(seconds=1), "1", True, False, np.True_, [1]]
    for time in refused + [None] * (timed.unit != S and not timed.none_waits):
        with pytest.raises(
            InvalidTypeError, match=rf"of type {type(time).__name__}; give a number of {unit}"
        ) as caught:
            timed.call(one, time)
        assert isinstance(caught.value, TypeError)
        assert ("total_seconds()" in str(caught.value)) == isinstance(time, timedelta)


@every_backend
@each_timeout
def test_timeout_out_of_range_is_refused(place: Place, timed: Timed) -> None:
    if place.backend not in timed.backends:
        return
    one, _ = timed.open(place)
    for time in (-2, -0.5, float("nan")):
        with pytest.raises(InvalidValueError, match=f"{time}"):
            timed.call(one, time)


def _error_of(timed: Timed, one: Any, time: Any) -> MsgqError | None:
    """Return why there was no message, room or event in time, if so."""
    try:
        timed.call(one, time)
    except MsgqError as error:
        return error
    return None


@every_backend
@each_timeout
def test_timeout_may_be_any_type_of_number(place: Place, timed: Timed) -> None:
    if place.backend not in timed.backends:
        return
    one, _ = timed.open(place)
    for time in (0, 0.0, np.float32(0), np.int64(0), Fraction(0)):
        assert not isinstance(_error_of(timed, one, time), (InvalidTypeError, InvalidValueError))


@pytest.mark.parametrize("backend", OURS)
def test_deadline_of_wrong_type_raises_error_that_names_the_type(place: Place) -> None:
    queue, _ = close_cases.open_queue(place)
    for deadline in (timedelta(seconds=1), "1", True):
        for call in (queue.receive, queue.take, queue.wait_space):
            with pytest.raises(InvalidTypeError, match=rf"{type(deadline).__name__}; .*monotonic"):
                call(deadline=deadline)


@pytest.mark.parametrize("backend", OURS)
def test_lease_of_wrong_type_raises_error_that_names_the_type(place: Place) -> None:
    queue, _ = close_cases.open_queue(place)
    queue.send(b"x")
    for lease in (timedelta(seconds=1), "1", True, [1]):
        with pytest.raises(InvalidTypeError, match=rf"lease is .*, of type {type(lease).__name__}; give .*seconds"):
            queue.take(0, lease=lease)
    assert queue.current_messages == 1


@every_backend
def test_receive_with_duration_as_non_blocking_flag_is_refused(place: Place) -> None:
    sub, _ = close_cases.open_sub_socket(place)
    for time in (1000, 2, -1, 0.5, np.int64(1000), "1", timedelta(seconds=1)):
        for call in (sub.receive, lambda time: sub.receive_into(bytearray(8), time)):
            with pytest.raises(InvalidTypeError, match=r"give True or False; to limit the wait, use receive\(timeout="):
                call(time)
    for flag in (True, 1, np.True_):
        assert sub.receive(flag) is None


MS_VALUES = (-1, -1.0, 0, 0.1234567, 9, 9.9996, 10, 10.0, 10.001, 12345.5, 2**31 - 1, 2.0**31 - 1, Fraction(21, 2))
S_VALUES = (0, 1, 1e-10, 0.1, 0.3, 1 / 3, 999, 999.9999999999, 1000.5, 900 * 365, 2147483.0, Fraction(1, 3))


@every_backend
def test_set_timeout_rounds_milliseconds_up(place: Place) -> None:
    sub, _ = close_cases.open_sub_socket(place)
    for time in MS_VALUES:
        sub.setTimeout(time)
        assert sub.rcvtimeo == math.ceil(time)


@pytest.mark.parametrize("backend", ["fake"])
def test_receive_waits_for_the_timeout_rounded_up_to_nanoseconds(place: Place) -> None:
    sub, _ = close_cases.open_channel_subscriber(place)
    for time in S_VALUES:
        began = current_bus().clock.now_ns
        assert sub.receive(time) is None
        assert current_bus().clock.now_ns - began == math.ceil(time * 10**9)


# ---- completeness of the table ----


def timed_methods() -> set[str]:
    """Return the methods of public classes that take a time-out."""
    found: set[str] = set()
    for path in (path for folder in ("msgq", "visionipc") for path in (ROOT / folder).rglob("*.py*")):
        if (
            path.suffix not in (".py", ".pyi")
            or set(INTERNAL) & set(path.relative_to(ROOT).parts)
            or path.name == "fake.py"
        ):
            continue
        prefix = "posix_ipc." if "posix_ipc" in path.parts else ""
        for one in ast.parse(path.read_text()).body:
            if isinstance(one, ast.ClassDef) and one.name not in PARTS and not one.name.startswith("_"):
                names = BASES.get(one.name, (one.name,)) if "records" in path.parts else (one.name,)
                found |= {f"{prefix}{name}.{method}" for name in names for method in _timed(one)}
    return found


def _timed(one: ast.ClassDef) -> list[str]:
    methods = [each for each in one.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [
        each.name
        for each in methods
        if not each.name.startswith("_") and TIMES & {one.arg for one in (*each.args.args, *each.args.kwonlyargs)}
    ]


def test_each_method_with_a_timeout_has_a_test_case() -> None:
    assert timed_methods() - {timed.name for timed in TABLE} == APART
