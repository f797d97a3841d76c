"""A program of a user who has everything checked by ``mypy --strict``; `make lint` checks it, and no test runs it."""

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import msgq
from msgq import errors, records, stats, workqueue


def publish() -> int:
    with msgq.pub_sock("topic", segment_size=1 << 16) as pub:
        pub.send(b"bytes")
        pub.send(memoryview(bytearray(3)))
        pub.send(np.arange(3))
        pub.send_many(np.zeros((4, 2)))
        with pub.reserve(10) as view:
            assert_type(view, memoryview)
        assert_type(pub.all_readers_updated(), bool)
        assert_type(pub.stats(), stats.PublisherStats)
        pub.wait_for_readers(timeout=None, n=2)
        return pub.send_many([b"a", bytearray(b"b")]) + pub.send_many(np.zeros((4, 2)))


def publish_records() -> None:
    with msgq.pub_sock("imu", schema=[("x", "f8"), ("y", "f8")]) as imu:
        imu.send((1.0, 2.0))
        imu.send({"x": 1.0, "y": 2.0})
        imu.send_many(np.zeros(3, [("x", "f8"), ("y", "f8")]))
    with msgq.pub_sock("state", schema=msgq.Schema.json("State")) as state:
        state.send({"ready": True})
    assert_type(msgq.Schema.of("f8", "Angle").dtype, np.dtype[Any])


def subscribe() -> None:
    poller = msgq.Poller()
    with msgq.sub_sock("topic", passive=True) as observer:
        assert_type(observer.receive(), bytes | None)
    with msgq.sub_sock("state", decoded=True) as typed, msgq.sub_sock("imu", decoded=[("x", "f8")]):
        print(typed.receive()["ready"], typed.undecoded)
    sub = msgq.SubSocket()
    sub.connect(msgq.Context(), "topic", conflate=True, passive=True, spin_us=5)
    sub.setTimeout(-1)
    poller.registerSocket(sub)
    assert_type(poller.poll(5), list[msgq.SubSocket])
    pairs: msgq.Poller[tuple[Any, int]] = msgq.Poller()
    pairs.register(sub)
    assert_type(pairs.poll(), list[tuple[Any, int]])
    assert_type(sub.receive(), bytes | None)
    assert_type(sub.receive_many(limit=3), list[bytes])
    assert_type(sub.receive_into(bytearray(8)), int | None)
    assert_type(sub.receive_array("f8").ndim, int)
    assert_type(sub.lost, int | None)
    assert_type(msgq.drain_sock_raw(sub, wait_for_one=True), list[bytes])


def use_masters() -> bool:
    rates: dict[str, float | None] = {"topic": 20.0, "other": None}
    with msgq.PubMaster(rates, encoders={"topic": str.encode}) as pm:
        pm.send("topic", "text")
        pm.wait_for_readers("topic", timeout=None, n=1)
    with msgq.SubMaster(rates, poll="topic", decoders={"topic": bytes.decode}, keep_all=["other"]) as sm:
        sm.update(timeout=5)
        sm.update_msgs(5.0, [("topic", b"text")])
        assert_type(sm.updated, dict[str, bool])
        assert_type(sm.lost, dict[str, int | None])
        return sm.all_checks(["topic"]) and sm.recv_time["topic"] > 0


def read_stats() -> None:
    for topic in stats.topics():
        assert_type(topic.publisher, stats.Participant | None)
        assert_type(topic.schema, msgq.Schema | None)
    try:
        msgq.sub_sock("topic", timeout=5)
    except errors.SegmentError as error:
        assert_type(error.path, str)
    except msgq.IpcError as error:
        assert_type(error.endpoint, str)


def work() -> bytes:
    with msgq.MessageQueue("jobs", workqueue.O_CREX, max_messages=10, max_message_size=1 << 20, write=True) as queue:
        queue.send(b"bytes", 5, timeout=1.5, origin_time=7)
        queue.send(np.arange(3), deadline=12.5)
        assert_type(queue.send_many([b"a", bytearray(b"b"), np.zeros(3)]), int)
        assert_type(queue.wait_space(0.5), bool)
        assert_type(queue.receive(0), workqueue.Message | None)
        assert_type(queue.receive_into(bytearray(8), deadline=1.0), tuple[int, int] | None)
        assert_type(queue.peek(limit=3), list[workqueue.Message])
        assert_type(queue.schema, msgq.Schema | None)
        queue.notify(print, once=True)
        queue.notify(None)
        poller = msgq.Poller()
        poller.registerSocket(queue)
        queue.block = False
        for message in queue:
            data, priority = message
            assert_type(data, bytes)
            assert_type(priority, int)
            assert_type(message.sent_time, int)
        with queue.take(lease=60.0) as first:
            print(first.data)
        job = queue.take(0.5)
        if job is None:
            return queue.receive_many()[0].data
        with job:
            assert_type(job, workqueue.Job)
            assert_type(job.deliveries, int)
            return job.data


async def work_in_a_loop(queue: msgq.MessageQueue) -> int:
    async for message in queue:
        assert_type(message, workqueue.Message)
        return message.deliveries
    return (await queue.areceive()).priority


def use_records() -> float:
    with msgq.SeqlockVector("quotes", [("bid", "f8"), ("ask", "f8")], 100, exclusive=True, copies=4) as quotes:
        quotes[3] = (99.5, 100.0)
        quotes[np.arange(3)] = quotes[0:3]
        quotes.write([1, 2], (1.0, 2.0), timeout=None)
        assert_type(quotes.read(range(1, 3)).ndim, int)
        assert_type(quotes.times(), npt.NDArray[np.int64])
        assert_type(quotes.wait(0.5), bool)
        indices, rows, _, counts = quotes.changes()
        assert_type(indices, npt.NDArray[np.int64])
        assert_type(counts, npt.NDArray[np.uint64])
        quotes.snapshot(atomic=True, out=rows)
        poller = msgq.Poller()
        poller.registerSocket(quotes)
    with msgq.Seqlock("pose", np.dtype("f8"), passive=True) as pose:
        pose.value = 1.5
        pose.write(np.float64(2.5), timeout=0)
        assert_type(pose.count, int)
        return float(pose.value)


def use_board(board: msgq.Board) -> str:
    with board.declare("speed") as entry:
        entry.write(np.zeros(3))
    observed = board.observe("speed")
    if observed.changed and (value := observed.read()) is not None:
        assert_type(value, msgq.records.Value)
        return value.data.decode()
    assert_type(observed.read_into(bytearray(8)), int | None)
    return (observed.data() or board["speed"]).decode()


async def share_in_a_loop(quotes: msgq.SeqlockVector, board: msgq.Board) -> int:
    async for value in board.observe("speed"):
        assert_type(value, records.Value)
        return value.age_ns
    assert_type(await board.areceive(), dict[str, records.Value])
    return len((await quotes.areceive()).indices)


def control() -> None:
    msgq.toggle_fake_events(True)
    msgq.set_fake_prefix("run")
    assert_type(msgq.get_fake_prefix(), bytes)
    handle = msgq.fake_event_handle("topic", enable=True)
    assert_type(handle, msgq.SocketEventHandle)
    handle.enabled = False
    assert_type(msgq.wait_for_one_event([handle.recv_called_event, handle.recv_ready_event], timeout=0.5), int)
    assert_type(handle.recv_called_event.clear(), bool)
    assert_type(handle.recv_called_event.fd, int)
    handle.recv_ready_event.set()


def mistakes(sub: msgq.SubSocket, pub: msgq.PubSocket, queue: msgq.MessageQueue) -> None:
    pub.send("text")  # type: ignore[arg-type]
    pub.send(5)  # type: ignore[arg-type]
    sub.receive_into(b"not writable, which only running it can tell")
    sub.receive(wait=5)  # type: ignore[call-arg]
    sub.setTimeout(None)  # type: ignore[arg-type]
    sub.lost = 5  # type: ignore[misc]
    print(sub.receive() + b"!")  # type: ignore[operator]
    queue.send("text")  # type: ignore[arg-type]
    queue.send(b"", 1, 2.0)  # type: ignore[call-arg]
    queue.max_messages = 5  # type: ignore[misc]
    print(queue.receive(0).data)  # type: ignore[union-attr]
    queue.notify("text")  # type: ignore[arg-type]


def mistakes_with_records(quotes: msgq.SeqlockVector, board: msgq.Board) -> None:
    print(quotes["bid"])  # type: ignore[index]
    quotes.write(0, 1.0)  # type: ignore[arg-type]
    quotes.length = 5  # type: ignore[attr-defined]
    msgq.Seqlock("pose", "f8", length=1)  # type: ignore[call-arg]
    board["speed"] = b"5"  # type: ignore[index]
    board.declare("speed").write("text")  # type: ignore[arg-type]
    print(board.observe("speed").read().data)  # type: ignore[union-attr]


def frame_of(sub: msgq.SubSocket) -> memoryview:
    frame = sub.recv(copy=False)
    return frame.buffer[: len(frame.bytes)]
