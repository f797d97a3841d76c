"""Plain pyzmq programs, and what the ZMQ backend's tests run in other processes (see `tests.support.Child`)."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from msgq.errors import ForkedSocketError, IpcError, MessageTooLargeError, MultiplePublishersError
from msgq.impl import zeromq
from msgq.impl.zeromq import process
from msgq.impl.zeromq.addresses import publisher_address
from tests.contract.children import Crossing, connect, in_fork, in_fork_quietly
from tests.support import DEADLINE, DEADLINE_MS, Task, hear, say, wait_until


def plain_publisher(address: str) -> None:
    """Bind, wait for a subscriber, then send what is heard: a text, or a list of the parts of one message."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.bind(address)
        say("bound")
        socket.recv()
        say("subscribed")
        while (heard := hear()) is not None:
            parts = heard if isinstance(heard, list) else [heard]
            socket.send_multipart([part.encode() for part in parts])


def plain_subscriber(address: str, *topics: str) -> None:
    """Say each message; never ends by itself."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        for topic in topics or ("",):
            socket.subscribe(topic)
        socket.connect(address)
        while True:
            say(socket.recv().decode())


def flood(endpoint: str, count: int, size: int) -> None:
    """Send to one subscriber, as much as is wanted, and end without closing."""
    pub = connect("zmq", "PubSocket", endpoint)
    pub.wait_for_readers(DEADLINE, n=1)
    say("attached")
    hear()
    for _ in range(count):
        pub.send(bytes(size))


def plain_claim(endpoint: str) -> None:
    """Publish, and wait to be killed."""
    pub = connect("zmq", "PubSocket", endpoint)
    say("published")
    hear()
    pub.close()


def idle_subscriber(endpoint: str) -> None:
    """Subscribe, and do nothing."""
    sub = connect("zmq", "SubSocket", endpoint)
    say("connected")
    hear()
    sub.close()


def too_many(endpoint: str) -> str:
    """Subscribe until there are no more sockets, or file descriptors, to be had."""
    subs: list[Any] = []
    try:
        while len(subs) < 5000:
            subs.append(connect("zmq", "SubSocket", endpoint))
    except IpcError as error:
        return str(error)
    return "no end"


def closed_without_descriptors(endpoint: str) -> bool:
    """Close a subscriber whose descriptor is in use when this process can open no other one."""
    sub = connect("zmq", "SubSocket", endpoint)
    sub.fileno()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.dup(sub.fileno()))
    try:
        sub.close()
    finally:
        for fd in taken:
            os.close(fd)
    return bool(sub._socket.closed)


def forked(endpoint: str) -> dict[str, Any]:
    """The child's subscriber and poller connect again; its publisher is refused as long as the parent publishes."""
    pub, sub = connect("zmq", "PubSocket", endpoint), connect("zmq", "SubSocket", endpoint)
    sub.setTimeout(DEADLINE_MS)
    pub.wait_for_readers(DEADLINE, n=1)
    poller = zeromq.Poller()
    poller.registerSocket(sub)
    attached = Crossing()

    def child() -> dict[str, Any]:
        calls = (lambda: pub.send(b"x"), lambda: pub.send_many([b"x"]), lambda: pub.reserve(3), pub.all_readers_updated)
        taken = [_taken(call) for call in calls]
        pub.close()
        gc.collect()
        assert poller.poll(0) == []
        attached.set()
        return {"taken": taken, "received": (poller.poll(DEADLINE_MS)[0].receive(True) or b"").decode()}

    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(in_fork(child)))
    thread.start()
    attached.wait()
    pub.wait_for_readers(DEADLINE, n=2)
    pub.send(b"to both")
    thread.join()
    return {**answer[0], "parent": sub.receive().decode()}


def _taken(call: Callable[[], Any]) -> str:
    try:
        call()
    except MultiplePublishersError as error:
        return str(f"process {os.getppid()} publishes" in str(error))
    return "not refused"


def forked_publisher(endpoint: str) -> dict[str, Any]:
    """The parent closes its publisher; the child's binds the address at its first send, and its subscriber hears it."""
    pub, sub = connect("zmq", "PubSocket", endpoint), connect("zmq", "SubSocket", endpoint)
    forked, closed, heard = Crossing(), Crossing(), Crossing()

    def child() -> list[str]:
        sub.setTimeout(DEADLINE_MS)
        assert sub.receive(True) is None  # and so it connects
        forked.set()
        closed.wait()
        pub.all_readers_updated()  # binds; then its own subscriber finds it while it receives
        wait_until(lambda: sub.receive(True) is None and pub._count_readers()[0] == 2)
        with pub.reserve(8) as view:
            view[:] = b"reserved"
        pub.send(b"sent")
        answer = [sub.receive().decode(), sub.receive().decode(), str(pub.stats().messages)]
        heard.wait()
        pub.close()
        return answer

    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(in_fork(child)))
    thread.start()
    forked.wait()
    pub.close()
    closed.set()
    sub.setTimeout(DEADLINE_MS)
    received = [sub.receive().decode(), sub.receive().decode()]
    heard.set()
    thread.join()
    return {"child": answer[0], "parent": received}


def forked_connecting(endpoint: str, kind: str, how: str) -> list[Any]:
    """In a child, a second thread uses or closes a socket while the first one's call connects it again.

    Returns the names of what both threads raise, and whether the socket is closed then.
    """
    socket = connect("zmq", kind, endpoint)
    call = (lambda: socket.send(b"x")) if kind == "PubSocket" else (lambda: socket.receive(True))
    second = call if how == "use" else socket.close
    closed = Crossing()

    def child() -> list[Any]:
        closed.wait()
        new_socket, tasks = process.open_zmq_socket, []

        def meet(*args: Any) -> Any:
            process.open_zmq_socket = new_socket
            tasks.append(Task(_name_of_error, second))
            if kind == "SubSocket" and how == "close":
                tasks[0].wait_asleep()  # returns after the first call ended
            else:
                tasks[0].result()
            return new_socket(*args)

        process.open_zmq_socket = meet  # type: ignore[assignment]  # it takes and returns the same
        seen = [_name_of_error(call), tasks[0].result(), socket.closed]
        socket.close()
        return seen

    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.extend(in_fork_quietly(child)))
    thread.start()
    wait_until(lambda: Path(f"/proc/self/task/{thread.native_id}/children").read_text())
    socket.close()
    closed.set()
    thread.join()
    return answer


def _name_of_error(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return ""


def forked_options(endpoint: str) -> dict[str, Any]:
    """A child sets an option of a socket, and polls one for which its parent held a message."""
    pub, sub = connect("zmq", "PubSocket", endpoint), connect("zmq", "SubSocket", endpoint)
    pub.wait_for_readers(DEADLINE, n=1)
    pub.send(b"held")
    sub.setTimeout(DEADLINE_MS)
    with contextlib.suppress(MessageTooLargeError):
        sub.receive_into(bytearray(1))
    poller = zeromq.Poller()
    poller.registerSocket(sub)
    attached = Crossing()

    def child() -> list[Any]:
        task = Task(poller.poll, -1)
        with contextlib.suppress(FileNotFoundError):  # it has ended already
            task.wait_asleep()
        attached.set()
        return [each.receive(True).decode() for each in task.result()]

    def option() -> int:
        sub.linger = 7
        return int(sub._socket.linger)

    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.extend([in_fork_quietly(option), in_fork_quietly(child)]))
    thread.start()
    attached.wait()
    pub.wait_for_readers(DEADLINE, n=2)
    pub.send(b"later")
    thread.join()
    return {"linger": answer[0], "child": answer[1], "parent": sub.receive_many()[0].decode()}


def forked_daemon(endpoint: str) -> None:
    """Connect, become a daemon by two forks, and send when both parents are gone."""
    pipes = [os.pipe()]  # each is at its end when no parent has the other side any more
    pub = connect("zmq", "PubSocket", endpoint)
    pipes.append(os.pipe())  # kernels close files in ascending or descending order; the claim lies between the pipes
    for _ in range(2):
        if os.fork():
            os._exit(0)
    for read_end, write_end in pipes:
        os.close(write_end)
        assert os.read(read_end, 1) == b""
    say("daemon")
    hear()
    pub.wait_for_readers(DEADLINE, n=1)
    pub.send(b"from the daemon")
    hear()
    pub.close()
    os._exit(0)  # the watchdog's thread is the parent's, and Python would wait for it


def _refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except ForkedSocketError as error:
        return error.endpoint
    return "not refused"


def forked_in_reservation(endpoint: str) -> dict[str, Any]:
    """A fork in the middle of a reservation: only the parent publishes it."""
    pub, sub = connect("zmq", "PubSocket", endpoint), connect("zmq", "SubSocket", endpoint)
    sub.setTimeout(DEADLINE_MS)
    pub.wait_for_readers(DEADLINE, n=1)
    reservation = pub.reserve(2)
    with reservation as view:
        view[:] = b"ab"
        in_child = in_fork(lambda: _refused(lambda: reservation.__exit__(None, None, None)))
    return {"child": in_child, "parent": sub.receive().decode(), "rest": sub.receive(True)}


def forked_without_use(endpoint: str) -> str:
    """A child that ends as a program does, with the inherited sockets never touched."""
    pub, sub = connect("zmq", "PubSocket", endpoint), connect("zmq", "SubSocket", endpoint)
    sub.setTimeout(DEADLINE_MS)
    pub.wait_for_readers(DEADLINE, n=1)
    pid = os.fork()
    if pid == 0:
        del pub, sub
        gc.collect()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    pub.send(b"still here")
    return str(sub.receive().decode())


def forked_in_wait(endpoint: str, how: str) -> list[str]:
    """Wait; a handler forks meanwhile. The error that the child gets, and the message that the parent gets."""
    sub = connect("zmq", "SubSocket", endpoint)
    poller = zeromq.Poller()
    poller.registerSocket(sub)
    read_end, write_end = os.pipe()
    parent = os.getpid()
    signal.signal(signal.SIGUSR1, lambda *_: os.fork())
    say("waiting")
    try:
        message = poller.poll(DEADLINE_MS)[0].receive(True) if how == "poll" else sub.receive()
        if os.getpid() == parent:
            return [os.read(read_end, 100).decode(), (message or b"").decode()]
    except ForkedSocketError as error:
        os.write(write_end, error.endpoint.encode())
    finally:
        if os.getpid() != parent:
            os._exit(0)
    return []


def forked_beside_others(endpoint: str) -> dict[str, list[int]]:
    """Fork with sockets of the application beside ours, some at the same address. Those that the child lacks."""
    pub, sub = connect("zmq", "PubSocket", endpoint), connect("zmq", "SubSocket", endpoint)
    pub.wait_for_readers(DEADLINE, n=1)
    ours = _sockets()
    port = publisher_address(endpoint).port
    others = [socket.create_connection(("127.0.0.1", port)), socket.socket(), *socket.socketpair()]
    with contextlib.suppress(OSError):  # a kernel without it
        others.append(socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
    watching = select.epoll()
    for other in others[2:4]:
        watching.register(other)
    expected = sorted(other.fileno() for other in others)
    kept = in_fork(lambda: sorted(_sockets()))
    pub.send(b"still here")
    assert sub.receive() == b"still here"
    return {"ours": sorted(ours & set(kept)), "others": sorted(set(expected) - set(kept))}


def _sockets() -> set[int]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                found.add(int(number))
    return found


def outlived_by_child(endpoint: str) -> None:
    """Publish; say the id of a child that lives on; wait to be killed."""
    pub = connect("zmq", "PubSocket", endpoint)
    pub.wait_for_readers(DEADLINE, n=1)
    forked, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.closerange(0, 3)
        os.write(tells, b"!")
        threading.Event().wait(DEADLINE)
        os._exit(0)
    os.read(forked, 1)  # returns when the child has closed its copy of the parent's sockets, which share the address
    pub.send(b"first")
    say(pid)
    hear()
