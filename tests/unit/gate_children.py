"""What the tests of event-gated runs start in other processes."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial

import msgq
from msgq.errors import ControllerDiedError
from tests.support import DEADLINE, DEADLINE_MS, hear, say


def send_numbers_of_messages(source: str, target: str) -> None:
    """Stock's daemon: send the number of each message that was received; ends with the message "end"."""
    pub, sub = msgq.pub_sock(target), msgq.sub_sock(source)
    frame = 0
    while (message := sub.receive(non_blocking=True)) != b"end":
        if message is not None:
            pub.send(frame.to_bytes(8, "little"))
            frame += 1


def poller(endpoints: list[str], steps: int) -> list[list[list[str]]]:
    """Poll, then receive from what is ready; what was received in each step. Polls with a long time-out."""
    poller = msgq.Poller()
    for endpoint in endpoints:
        msgq.sub_sock(endpoint, poller=poller)
    say("connected")
    seen = []
    for _ in range(steps):
        ready = poller.poll(int(DEADLINE * 1000))
        seen.append([[sub.endpoint, receive_text(sub)] for sub in ready])
    return seen


def receive_text(sub: msgq.SubSocket) -> str:
    """Wait for a message, and return its text."""
    message = sub.receive()
    assert message is not None
    return message.decode()


def receiver(endpoint: str, count: int) -> list[str]:
    """Receive so many messages, waiting for each."""
    sub = msgq.sub_sock(endpoint)
    say("connected")
    return [receive_text(sub) for _ in range(count)]


def receive_after_ctrl_c(endpoint: str) -> str:
    """Receive until Ctrl-C, and then again."""
    sub = msgq.sub_sock(endpoint)
    say("connected")
    try:
        sub.receive()
    except KeyboardInterrupt:
        say("interrupted")
    return receive_text(sub)


def receive_with_fork_in_handler(endpoint: str) -> list[str]:
    """Receive; a handler forks meanwhile, and both sides go on. What each received, or the child's error."""
    sub = msgq.sub_sock(endpoint)
    read_end, write_end = os.pipe()
    parent = os.getpid()
    signal.signal(signal.SIGUSR1, lambda *_: os.fork())
    say("connected")
    try:
        message = (sub.receive() or b"").decode()
        if os.getpid() == parent:
            return [message, os.read(read_end, 100).decode()]
        os.write(write_end, message.encode())
    finally:
        if os.getpid() != parent:
            os._exit(0)
    return []


def drain_in_cycles(source: str, target: str) -> int:
    """Drain in cycles, as openpilot's card does: send what each brought; the number of cycles until "end"."""
    pub, sub = msgq.pub_sock(target), msgq.sub_sock(source, timeout=20)
    cycles = 0
    messages: list[bytes] = []
    while messages != [b"end"]:
        messages = msgq.drain_sock_raw(sub, wait_for_one=True)
        pub.send(b" ".join(messages))
        cycles += 1
    return cycles


def submaster(topics: list[str], updates: int) -> list[list[str]]:
    """Update so often, waiting for the first two topics; those that were updated each time."""
    sm = msgq.SubMaster(topics, poll=topics[:2])
    seen = []
    for _ in range(updates):
        sm.update(DEADLINE_MS)
        seen.append([topic for topic in topics if sm.updated[topic]])
    return seen


def thrown_away(endpoint: str) -> list[object]:
    """Drain until Ctrl-C, and then again; what came, and the counts."""
    sub = msgq.sub_sock(endpoint)
    say("connected")
    try:
        msgq.drain_sock_raw(sub)
    except KeyboardInterrupt:
        say("interrupted")
    messages = [message.decode() for message in msgq.drain_sock_raw(sub)]
    return [messages, sub.stats().received, sub.lost]


def use_any_gate(endpoint: str) -> None:
    """Use whatever gate there is as a subscriber and as a controller; nothing but errors of ours."""
    with msgq.sub_sock(endpoint, timeout=0) as sub:
        for _ in range(2):
            with contextlib.suppress(msgq.errors.IpcError):
                handle = msgq.fake_event_handle(endpoint, override=False)
                ready, called = handle.recv_ready_event, handle.recv_called_event
                uses = ready.set, sub.receive, partial(called.wait, 0.001), called.clear, partial(getattr, ready, "fd")
                for use in uses:
                    with contextlib.suppress(msgq.errors.IpcError):
                        use()


def receive_after_kill_of_controller(endpoint: str) -> str:
    """Receive, and say what becomes of it; when told, once more."""
    sub = msgq.sub_sock(endpoint, timeout=0)
    say("connected")
    try:
        sub.receive()
    except ControllerDiedError as error:
        say(str(error))
    hear()
    return str(sub.receive())


def controller(endpoint: str, which: str) -> None:
    """Own the endpoint's handle until killed (or told to end); sets recv_ready or recv_called when told."""
    handle = msgq.fake_event_handle(endpoint, enable=True)
    say("made")
    while hear() is not None:
        getattr(handle, which).set()
        say("set")


def wait_for_event_by_epoll(endpoint: str) -> list[int]:
    """Wait for recv_called of somebody else's handle by epoll, clear it, as often as told."""
    import select

    event = msgq.fake_event_handle(endpoint, override=False).recv_called_event
    poll = select.epoll()
    poll.register(event.fd, select.EPOLLIN)
    say("watching")
    cleared = []
    while (count := hear()) is not None:
        for _ in range(count):
            assert poll.poll(DEADLINE), "the descriptor is not readable"
            assert event.clear()
        cleared.append(count)
        assert not event.peek()
        say(len(poll.poll(0)))
    return cleared


def set_and_clear_event(endpoint: str, which: str, rounds: int) -> int:
    """Set and clear one event again and again; the sets that were not taken back."""
    event = getattr(msgq.fake_event_handle(endpoint, override=False), which)
    left = 0
    for i in range(rounds):
        event.set()
        left += 1
        if i % 3:
            left -= event.clear()
    return left


def wait_for_event(endpoint: str, which: str) -> str:
    """Wait for an event of somebody else's handle."""
    event = getattr(msgq.fake_event_handle(endpoint, override=False), which)
    say("waiting")
    try:
        event.wait()
    except KeyboardInterrupt:
        return "interrupted"
    except msgq.errors.EventError as error:
        return type(error).__name__
    return "set"


def create_and_close_handles(endpoint: str) -> None:
    """Make a handle and its FIFO and close it, again and again, until killed."""
    say("making")
    while True:
        with msgq.fake_event_handle(endpoint) as handle:
            assert handle.recv_called_event.fd >= 0
