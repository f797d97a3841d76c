"""What the contract tests run in other processes: `tests.support.Child` starts these functions by name."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import pickle
import select
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgq
from msgq import stats
from msgq.errors import EndpointClosedError, ForkedSocketError, MultiplePublishersError
from msgq.impl import backend as backends
from tests.support import DEADLINE, DEADLINE_MS, hear, say


def connect(name: str, role: str, endpoint: str, **options: Any) -> Any:
    """Return a connected socket of the backend `name`; `role` is "PubSocket" or "SubSocket"."""
    module = backends.load_backend(name)
    socket = getattr(module, role)()
    socket.connect(module.Context(), endpoint, **options)
    return socket


def publisher(name: str, endpoint: str, readers: int = 0) -> None:
    """Wait for so many readers, then send the texts that are heard; null ends it, without closing."""
    pub = connect(name, "PubSocket", endpoint)
    pub.wait_for_readers(DEADLINE, n=readers)
    say("connected")
    while (text := hear()) is not None:
        pub.send(text.encode())
        say("sent")


def endless_publisher(endpoint: str, segment_size: int) -> None:
    """Send messages of all sizes without end: their number, repeated."""
    pub = connect("msgq", "PubSocket", endpoint, segment_size=segment_size)
    pub.send((1).to_bytes(8, "little"))
    say("sent")
    for number in itertools.count(2):
        pub.send(number.to_bytes(8, "little") * (1 + number * 7 % 60))


def batches(name: str, endpoint: str, rounds: int) -> list[str]:
    """Connect, say how many messages were sent, and send batches back to back until another publisher takes over; so
    many times. Return the errors."""
    errors = []
    for _ in range(rounds):
        pub = connect(name, "PubSocket", endpoint)
        say(pub.stats().messages)
        try:
            while True:
                pub.send_many([bytes(40)] * 500)
        except MultiplePublishersError as error:
            errors.append(str(error))
        hear()
        pub.close()
    return errors


def subscriber(name: str, endpoint: str) -> list[str]:
    """Subscribe, and on each word heard say the messages that are pending; null ends it, without closing."""
    sub = connect(name, "SubSocket", endpoint)
    sub.setTimeout(DEADLINE_MS)
    say("connected")
    while hear() is not None:
        say([message.decode() for message in sub.receive_many(wait_for_one=True)])
    return []


def _blocked(name: str, sub: Any, how: str) -> Callable[[], Any]:
    """Return a call that blocks until there is a message."""
    if how == "receive":
        return lambda: sub.receive().decode()
    poller = backends.load_backend(name).Poller()
    poller.registerSocket(sub)
    return lambda: next(socket.receive(True).decode() for socket in poller.poll(-1))


def interrupted(name: str, endpoint: str, how: str) -> str:
    """Block until Ctrl-C, then receive on: the socket must still work."""
    sub = connect(name, "SubSocket", endpoint)
    call = _blocked(name, sub, how)
    say("blocking")
    try:
        call()
    except KeyboardInterrupt:
        say("interrupted")
    return str(call())


def with_handler(name: str, endpoint: str, how: str, number: int) -> str:
    """Block while a handler of the application says how often it ran; return the message."""
    sub = connect(name, "SubSocket", endpoint)

    def handler(_number: int, _frame: FrameType | None) -> None:
        say("handled")

    signal.signal(number, handler)
    call = _blocked(name, sub, how)
    say("blocking")
    message = call()
    assert signal.getsignal(number) is handler
    return str(message)


def under_fire(name: str, endpoint: str, how: str, timeout_ms: int) -> float:
    """Wait for a message that does not come, under a signal each millisecond; how many seconds it took."""
    sub = connect(name, "SubSocket", endpoint)
    poller = backends.load_backend(name).Poller()
    poller.registerSocket(sub)
    sub.setTimeout(timeout_ms)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    started = time.monotonic()
    assert not (sub.receive() if how == "receive" else poller.poll(timeout_ms))
    took = time.monotonic() - started
    signal.setitimer(signal.ITIMER_REAL, 0)
    return took


def closing_handler(name: str, endpoint: str, how: str) -> str:
    """Block until a handler closes the socket."""
    sub = connect(name, "SubSocket", endpoint)
    signal.signal(signal.SIGUSR1, lambda *_: sub.close())
    call = _blocked(name, sub, how)
    say("blocking")
    try:
        call()
    except EndpointClosedError:
        return "closed" if sub.closed else "open"
    return "returned"


def usr2_untouched(name: str, endpoint: str) -> list[str]:
    """Subscribe and block with SIGUSR2 at its default; return what the kernel says is caught, before and after."""
    caught = [_caught()]
    sub = connect(name, "SubSocket", endpoint)
    say("blocking")
    sub.receive()
    caught.append(_caught())
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    return caught


def _caught() -> str:
    with open("/proc/self/status") as status:
        return next(line.split()[1] for line in status if line.startswith("SigCgt"))


def in_fork(function: Callable[[], Any]) -> Any:
    """Fork, run the function in the child, and return what it returns (or raise what it raises)."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)
        try:
            answer = function()
        except BaseException as error:
            answer = error
        with os.fdopen(write_end, "wb") as out:
            out.write(pickle.dumps(answer))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as back:
        answer = pickle.load(back)
    assert os.waitpid(pid, 0)[1] == 0
    if isinstance(answer, BaseException):
        raise answer
    return answer


def forked_subscriber(name: str, endpoint: str) -> dict[str, list[str]]:
    """One message is pending when the process forks; then parent and child both receive all."""
    pub, sub = connect(name, "PubSocket", endpoint), connect(name, "SubSocket", endpoint)
    sub.setTimeout(DEADLINE_MS)
    pub.send(b"read before")
    sub.receive()
    pub.send(b"pending")

    def child() -> list[str]:
        first = sub.receive().decode()
        attached.set()
        return [first, sub.receive().decode()]

    attached = Crossing()
    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(in_fork_quietly(child)))
    thread.start()
    attached.wait()
    pub.send(b"later")
    thread.join()
    return {"child": answer[0], "parent": [sub.receive().decode(), sub.receive().decode()]}


def in_fork_quietly(function: Callable[[], Any]) -> Any:
    """The same from a second thread, of which newer Pythons warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return in_fork(function)


class Crossing:
    """An event that is set on one side of a fork and waited for on the other."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def set(self) -> None:
        os.write(self._write, b"x")

    def wait(self) -> None:
        assert os.read(self._read, 1) == b"x"


def forked_places(name: str, endpoint: str) -> dict[str, Any]:
    """How many subscribers the publisher sees before, during and after the life of a child that uses its socket."""
    pub, sub = connect(name, "PubSocket", endpoint), connect(name, "SubSocket", endpoint)
    in_child = in_fork(lambda: (sub.receive(True), pub_count(endpoint), sub.close())[1])
    pub.send(b"still there")
    return {"in the child": in_child, "afterwards": pub_count(endpoint), "parent": sub.receive(True).decode()}


def pub_count(endpoint: str) -> int:
    return len(stats.topic(endpoint).subscribers)


def forked_publisher(name: str, endpoint: str) -> dict[str, Any]:
    """The child publishes by each method, as the parent did before; then the parent sends."""
    pub, sub = connect(name, "PubSocket", endpoint), connect(name, "SubSocket", endpoint)
    pub.send(b"parent")

    def child() -> int:
        pub.send(b"send")
        pub.send_many([b"many", bytearray(b"buffer")])
        with pub.reserve(7) as view:
            view[:] = b"reserve"
        pub.wait_for_readers(0, n=1)
        return os.getpid()

    pid = in_fork(child)
    return {
        "received": [message.decode() for message in sub.receive_many()],
        "lost": sub.lost,
        "refused": str(pid) in superseded(pub) or "nobody" in superseded(pub),
        "rest": sub.receive(True),
    }


def superseded(pub: Any) -> str:
    """Send; return the text of the error if another publisher has taken over."""
    try:
        pub.send(b"too late")
    except MultiplePublishersError as error:
        return str(error)
    return ""


def forked_publishers(name: str, endpoint: str) -> dict[str, Any]:
    """Parent, child and parent's next publisher send in turn: who did not send last is superseded, and stays so."""
    pub, sub = connect(name, "PubSocket", endpoint), connect(name, "SubSocket", endpoint)
    to_child, to_parent = Crossing(), Crossing()

    def child() -> list[bool]:
        pub.send(b"child")
        to_parent.set()
        to_child.wait()
        return [bool(superseded(pub)), bool(superseded(pub))]

    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(in_fork_quietly(child)))
    thread.start()
    to_parent.wait()
    in_parent = [bool(superseded(pub)), bool(superseded(pub))]
    pub.close()
    again = connect(name, "PubSocket", endpoint)
    again.send(b"again")
    to_child.set()
    thread.join()
    again.send(b"still")
    received = [message.decode() for message in sub.receive_many()]
    return {"parent": in_parent, "child": answer[0], "received": received, "lost": sub.lost}


def forked_counts(name: str, endpoint: str) -> dict[str, Any]:
    """A child that only looks how far subscribers are, and closes the socket, leaves the parent's publisher alone."""
    pub, sub = connect(name, "PubSocket", endpoint), connect(name, "SubSocket", endpoint)
    pub.send(b"before")

    def child() -> list[Any]:
        seen = [pub.all_readers_updated(), sub.receive(True).decode()]
        pub.wait_for_readers(0, n=2)  # the child's subscriber has a place of its own
        pub.close()
        return [*seen, pub.closed]

    in_child = in_fork(child)
    pub.send(b"after")
    return {"child": in_child, "parent": [message.decode() for message in sub.receive_many()]}


def forked_while_reserved(name: str, endpoint: str) -> dict[str, Any]:
    """A child that sends while the parent writes waits for it: 1 s, then the parent stays the publisher."""
    pub, sub = connect(name, "PubSocket", endpoint, tracked=True), connect(name, "SubSocket", endpoint)

    def child() -> list[bool]:
        return [bool(superseded(pub)), pub.closed, pub.tracked]

    with pub.reserve(2) as view:
        view[:] = b"ab"
        in_child = in_fork(child)
    pub.send(b"cd")
    return {"child": in_child, "parent": [message.decode() for message in sub.receive_many()]}


def _send_in_pool(word: str) -> int:
    _publishers[0].send(word.encode())
    return os.getpid()


_publishers: list[Any] = []


def forked_pool(name: str, endpoint: str) -> dict[str, Any]:
    """A pool of one worker, which is replaced after two tasks, sends with a publisher of the module."""
    sub = connect(name, "SubSocket", endpoint)
    _publishers[:] = [connect(name, "PubSocket", endpoint)]
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=2) as pool:
        pids = [pool.apply(_send_in_pool, (word,)) for word in "abcde"]
    return {"workers": len(set(pids)), "received": [message.decode() for message in sub.receive_many()]}


def forked_daemon(name: str, endpoint: str) -> None:
    """Connect, become a daemon by two forks, and send when both parents are gone, of which one closes them."""
    pub, sub = connect(name, "PubSocket", endpoint), connect(name, "SubSocket", endpoint)
    alive, gone = os.pipe()  # at its end when no parent has the other side any more
    for closes in (True, False):
        if os.fork():
            if closes:
                pub.close()
                sub.close()
            os._exit(0)
    os.close(gone)
    assert os.read(alive, 1) == b""
    pub.send(b"from the daemon")
    assert sub.receive(True) == b"from the daemon"
    say("daemon")
    hear()
    pub.send(b"still there")
    say("sent")
    os._exit(0)  # the watchdog's thread is the parent's, and Python would wait for it


def forked_fileno(name: str, endpoint: str) -> dict[str, str]:
    """A fork after the descriptor was asked for: each side has one that tells of its own messages."""
    sub = connect(name, "SubSocket", endpoint)
    sub.fileno()

    def take() -> str:
        message = None
        while message is None:
            select.select([sub], [], [], DEADLINE)
            message = sub.receive(True)
        assert not select.select([sub], [], [], 0)[0]
        return str(message.decode())

    def child() -> str:
        sub.fileno()
        say("forked")
        return take()

    in_child = in_fork_quietly(child)
    return {"child": in_child, "parent": take()}


def forked_loop_reader(name: str, endpoint: str) -> dict[str, str]:
    """A fork after a wait in a loop: the child receives and closes in a loop of its own, then the parent goes on."""
    sub = connect(name, "SubSocket", endpoint)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(sub.arecv())
    loop.run_until_complete(asyncio.sleep(0))
    say("waited")
    assert loop.run_until_complete(waiting) == b"before the fork"

    def child() -> str:
        waiting = asyncio.wait_for(sub.arecv(), DEADLINE)
        say("forked")
        message = asyncio.run(waiting)
        sub.close()
        return str(message.decode())

    in_child = in_fork_quietly(child)
    message = loop.run_until_complete(asyncio.wait_for(sub.arecv(), DEADLINE))
    waiting = loop.create_task(sub.arecv())
    loop.run_until_complete(asyncio.sleep(0))
    connect(name, "PubSocket", endpoint).send(b"after the child's end")
    assert loop.run_until_complete(asyncio.wait_for(waiting, DEADLINE)) == b"after the child's end"
    sub.close()
    loop.close()
    return {"child": in_child, "parent": message.decode()}


def forked_reconnect(name: str, endpoint: str) -> dict[str, str]:
    """The child closes the socket that it inherited, with its descriptor, and connects anew."""
    sub = connect(name, "SubSocket", endpoint)
    sub.fileno()

    def take() -> str:
        message = None
        while message is None:
            select.select([sub], [], [], DEADLINE)
            message = sub.receive(True)
        return str(message.decode())

    def child() -> str:
        sub.close()
        sub.connect(backends.load_backend(name).Context(), endpoint)
        say("forked")
        taken = take()
        sub.close()
        return taken

    in_child = in_fork_quietly(child)
    return {"child": in_child, "parent": take()}


def forked_reservation(name: str, endpoint: str) -> dict[str, Any]:
    """A fork in the middle of a reservation: only the parent publishes it."""
    pub, sub = connect(name, "PubSocket", endpoint), connect(name, "SubSocket", endpoint)
    reservation = pub.reserve(2)
    with reservation as view:
        view[:] = b"ab"

        def child() -> str:
            try:
                reservation.__exit__(None, None, None)
            except ForkedSocketError:
                return "refused"
            return "published"

        in_child = in_fork(child)
    return {"child": in_child, "parent": sub.receive(True).decode(), "rest": sub.receive(True)}


def forked_unused(name: str, endpoint: str) -> dict[str, Any]:
    """A child that never uses the sockets that it inherited, and closes or forgets them."""
    sub = connect(name, "SubSocket", endpoint)
    pub = connect(name, "PubSocket", endpoint)
    in_fork(lambda: sub.close())
    in_fork(lambda: None)
    pub.send(b"here")
    return {"parent": sub.receive(True).decode(), "subscribers": pub_count(endpoint)}


def exits_without_closing(name: str, endpoint: str, how: str) -> None:
    """End the process in one of several ways, with open sockets."""
    sockets = [connect(name, "PubSocket", endpoint), connect(name, "SubSocket", endpoint)]
    if how == "blocked daemon thread":
        threading.Thread(target=lambda: _receive_quietly(sockets[1]), daemon=True).start()
    if how == "deleted":
        del sockets[:]
    say("connected")
    hear()


def _receive_quietly(sub: Any) -> None:
    with contextlib.suppress(EndpointClosedError):
        sub.receive()


def forked_prefix(name: str, prefix: str) -> list[Any]:
    """The child changes OPENPILOT_PREFIX before it receives; return the message, and what it made elsewhere."""
    pub, sub = connect(name, "PubSocket", "topic"), connect(name, "SubSocket", "topic")
    pub.send(b"x")
    elsewhere = f"other_{prefix}"

    def child() -> str:
        os.environ["OPENPILOT_PREFIX"] = elsewhere
        return str(sub.receive(True).decode())

    message = in_fork(child)
    made = [entry for entry in os.listdir("/dev/shm") if entry.endswith(elsewhere)]
    for entry in made:
        shutil.rmtree(f"/dev/shm/{entry}")
    return [message, made]


def forked_passive(name: str, endpoint: str) -> list[str]:
    """Parent and child receive the same message on a passive subscriber that both have."""
    pub = connect(name, "PubSocket", endpoint)
    sub = connect(name, "SubSocket", endpoint, passive=True)
    pub.send(b"x")
    return [in_fork(lambda: sub.receive(True).decode()), sub.receive(True).decode()]


def pub_master() -> None:
    """Send what is heard, topic by topic, to the `sub_master`, and say when it was read; null ends it."""
    with msgq.PubMaster(["state", "log"], encoders={"state": lambda data: json.dumps(data).encode()}) as pm:
        say("connected")
        pm.wait_for_readers(timeout=DEADLINE, n=1)
        while (messages := hear()) is not None:
            pm.send("log", messages["log"].encode())
            pm.send("state", messages["state"])
            pm.wait_for_readers(timeout=DEADLINE)
            say("read")


def sub_master() -> dict[str, dict[str, Any]]:
    """Say what each state comes with, until there are three; then hear, and return what is known without news."""
    rates = {"state": 50.0, "log": None}
    decoders: dict[str, Callable[[bytes], Any]] = {"state": json.loads, "log": bytes.decode}
    with msgq.SubMaster(rates, poll="state", decoders=decoders, keep_all=["log"]) as sm:
        say("connected")
        while sm.recv_frame["state"] == 0 or sm["state"]["number"] < 2:
            sm.update(DEADLINE_MS)
            if sm.updated["state"]:
                say({"state": sm["state"], "log": sm.messages["log"]})
        hear()
        sm.update(250)
        return {"alive": sm.alive, "lost": sm.lost}
