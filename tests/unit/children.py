"""What the unit tests run in other processes: `tests.support.Child` starts these functions by name."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import msgq
from msgq.channel import Channel
from msgq.common import settings, shm_paths
from msgq.common.timing import make_timing_topic
from msgq.errors import ForkedSocketError, IpcError
from msgq.impl import backend
from msgq.impl.base.process import identity
from tests.contract.children import in_fork
from tests.support import hear, say
from visionipc import VisionIpcClient, VisionIpcServer

kept: list[msgq.SubSocket] = []


def hold_sockets(endpoint: str, roles: list[str]) -> None:
    """Connect sockets, say so, and keep them until told to end; then end without closing."""
    makers: dict[str, Any] = {"pub": msgq.pub_sock, "sub": msgq.sub_sock}
    sockets = [makers[role](endpoint) for role in roles]
    say([os.getpid(), threading.get_native_id()])
    hear()
    assert sockets
    os._exit(0)


def find_flags_of_open_files(process: int, endpoint: str, count: int) -> list[int]:
    """Return the flags of files of a topic, complete ones and those in creation, that another process has open."""
    flags: list[int] = []
    folder = Path(f"/proc/{process}")
    while len(flags) < count:
        for name in os.listdir(folder / "fd"):
            with contextlib.suppress(OSError):  # closed already
                target = os.readlink(folder / "fd" / name)
                if endpoint in target or target.startswith("/dev/shm/#"):
                    text = (folder / "fdinfo" / name).read_text()
                    flags.append(int(text.split("flags:")[1].split()[0], 8))
    return flags


def receive_on_a_word(endpoint: str) -> None:
    """Subscribe; on each word heard receive what is there, and say how many messages that were, and what was lost."""
    with msgq.sub_sock(endpoint) as sub:
        say("subscribed")
        while hear():
            say([len(sub.receive_many()), sub.lost])


def reserve_and_wait(endpoint: str) -> None:
    """Be in the middle of a reservation."""
    pub = msgq.pub_sock(endpoint)
    pub.send(b"whole")
    with pub.reserve(100) as view:
        view[:50] = b"half" * 12 + b"ha"
        say("in the middle")
        hear()


def create_at_once(endpoint: str, go: str, size: int, rounds: int) -> int:
    """Connect to fresh endpoints as soon as a file appears that the other creator also waits for."""
    for i in range(rounds):
        say(i)
        hear()
        while not os.path.exists(f"{go}{i}"):
            pass
        with msgq.pub_sock(f"{endpoint}{i}", size) as pub, msgq.sub_sock(f"{endpoint}{i}", segment_size=size) as sub:
            assert sub.endpoint == pub.endpoint
            say("connected")
            hear()
    return rounds


def without_descriptors(endpoint: str) -> list[Any]:
    """Connect with no descriptor left; afterwards with some."""
    backend.current_backend()  # the backend's modules need descriptors, too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    errors: list[Any] = []
    for connect in (msgq.pub_sock, msgq.sub_sock):
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            connect(endpoint)
        except IpcError as error:
            errors.append([type(error).__name__, error.errno, str(error)])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send(b"x")
        errors.append(sub.receive(True) == b"x")
    return errors


def little_address_space(endpoint: str, size: int, room: int) -> list[Any]:
    """Connect where there is no room to map the ring; what is there afterwards."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    errors: list[Any] = []
    for connect in (msgq.pub_sock, msgq.sub_sock):
        resource.setrlimit(resource.RLIMIT_AS, (used + room, hard))
        try:
            connect(endpoint, segment_size=size)
        except IpcError as error:
            errors.append([type(error).__name__, error.errno, str(error)])
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return errors


def few_descriptors(endpoint: str) -> list[int]:
    """Connect with 0, 1, 2, ... descriptors to spare until it works; return the leaked ones of each try."""
    backend.current_backend()  # the backend's modules need descriptors, too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    leaks = []
    for spare in range(12):
        before = os.listdir("/proc/self/fd")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + spare, hard))
        try:
            msgq.pub_sock(endpoint).close()
        except IpcError:
            worked = False
        else:
            worked = True
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        leaks.append(len(os.listdir("/proc/self/fd")) - len(before))
        assert worked or not [name for name in os.listdir("/dev/shm") if endpoint in name], "a topic that nobody has"
        if worked:
            return leaks
    raise AssertionError("it never worked")


def file_size_limit(endpoint: str, limit: int, size: int) -> list[Any]:
    """Connect where files may not grow so far."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    pub = msgq.PubSocket()
    try:
        pub.connect(msgq.context, endpoint, size)
    except IpcError as error:
        return [type(error).__name__, error.errno, str(error), pub.closed]
    return ["connected"]


def small_shared_memory(size: str) -> bool:
    """Enter a mount namespace of its own, whose /dev/shm holds so much; False: not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newns, ms_rec, ms_private = 0x20000, 0x4000, 0x40000
    if libc.unshare(clone_newns) or libc.mount(b"none", b"/", None, ms_rec | ms_private, None):
        return False
    return not libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={size}".encode())


def fill(filler: BinaryIO) -> None:
    """Write until there is no room."""
    with contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))


def full_file_system(endpoint: str, size: int) -> list[Any]:
    """Connect where /dev/shm holds 256 KiB."""
    if not small_shared_memory("256k"):
        return ["not permitted"]
    pub = msgq.PubSocket()
    try:
        pub.connect(msgq.context, endpoint, size)
    except IpcError as error:
        return [type(error).__name__, error.errno, str(error), pub.closed, os.listdir("/dev/shm")]
    return ["connected"]


def schema_on_full_file_system(endpoint: str, size: int) -> list[Any]:
    """Announce a schema where /dev/shm is full, and again where it has room."""
    if not small_shared_memory("4m"):
        return ["not permitted"]
    schema = msgq.Schema("Large", "text", bytes(size))
    former = msgq.pub_sock(endpoint)
    former.send(b"")
    with msgq.sub_sock(endpoint), open("/dev/shm/filler", "wb", buffering=0) as filler, msgq.PubSocket() as pub:
        fill(filler)
        try:
            pub.connect(msgq.context, endpoint, schema=schema)
        except IpcError as error:
            refusal = [type(error).__name__, error.errno, str(error)]
        former.send(b"the refused publisher did not take over")
        schema_before = msgq.stats.topic(endpoint).schema
        filler.truncate(0)
        pub.connect(msgq.context, endpoint, schema=schema)
        schema_after = msgq.stats.topic(endpoint).schema
        assert schema_after is not None
        return [refusal, schema_before, len(schema_after.data)]


def full_file_system_later(endpoint: str) -> list[Any]:
    """Send where /dev/shm is full for a time: how often was that refused with room, when it was full, and once the ring
    had all of its memory?

    Each message is received at once and compared. The ring is written through several times, so that laps end at all
    places.
    """
    if not small_shared_memory("512k"):
        return ["not permitted"]
    chance = random.Random(1)
    texts: set[str] = set()

    def refused(pub: msgq.PubSocket, sub: msgq.SubSocket, count: int) -> int:
        refusals = 0
        for number in range(count):
            message = number.to_bytes(4, "little") + bytes(chance.randrange(40_000))
            try:
                pub.send(message)
            except IpcError as error:
                texts.add(f"{error.errno} {error}".replace(f" of {len(message)} bytes", " of N bytes"))
                refusals += 1
            else:
                assert sub.receive() == message
        return refusals

    with msgq.sub_sock(endpoint, segment_size=128 * 1024) as sub, msgq.pub_sock(endpoint) as first:
        first.send(b"a few")
        sub.receive()
        with open("/dev/shm/filler", "wb", buffering=0) as filler:
            fill(filler)
            full = refused(first, sub, 500)
            filler.truncate(0)
            early = refused(first, sub, 5)
            with msgq.pub_sock(endpoint) as second:
                early += refused(second, sub, 200)
                fill(filler)
                late = refused(second, sub, 200)
        return [early, full, sorted(texts)[:3], late, sub.lost]


def full_file_system_for_pool(name: str) -> list[Any]:
    """Send on a channel where /dev/shm is full for a time: the texts of the errors, and the numbers of sent, received
    and lost messages.
    """
    if not small_shared_memory("768k"):
        return ["not permitted"]
    texts: set[str] = set()
    sent, received = [], []
    with msgq.Channel(name, capacity=16) as channel, channel.subscriber() as sub:
        with channel.publisher(slot_bytes=32 * 1024) as pub, open("/dev/shm/filler", "wb", buffering=0) as filler:
            fill(filler)
            for number in range(60):
                if number == 40:
                    filler.truncate(0)
                try:
                    pub.send(bytes([number]) * 32 * 1024)
                    sent.append(number)
                    received.append((sub.receive(0) or b"\xff")[0])
                except IpcError as error:
                    texts.add(f"{error.errno} {error}")
        return [sorted(texts), sent, received, sub.lost]


def pool_on_full_file_system(name: str) -> list[Any]:
    """Open a publisher whose pool is larger than /dev/shm."""
    if not small_shared_memory("512k"):
        return ["not permitted"]
    with msgq.Channel(name, capacity=64) as channel:
        try:
            channel.publisher(slot_bytes=32 * 1024)
        except IpcError as error:
            return [type(error).__name__, error.errno, str(error), os.listdir("/dev/shm")]
    return ["opened"]


def too_large_for_what_is_free(endpoint: str) -> list[Any]:
    """Send what is larger than all that is free, then what is smaller: how often was it refused, and how much was taken
    from the others each time?
    """
    if not small_shared_memory("16m"):
        return ["not permitted"]
    refused, taken = [], []
    with (
        msgq.sub_sock(endpoint, segment_size=12 << 20) as sub,
        msgq.pub_sock(endpoint) as pub,
        open("/dev/shm/filler", "wb", buffering=0) as filler,
    ):
        fill(filler)
        filler.truncate(filler.tell() - (2 << 20))
        for size in (3 << 20, 3 << 20, 1 << 20):
            before = os.statvfs("/dev/shm").f_bavail
            message = os.urandom(size)
            try:
                pub.send(message)
            except IpcError as error:
                refused.append(error.errno)
            else:
                assert sub.receive() == message
            taken.append((before - os.statvfs("/dev/shm").f_bavail) * 4096)
    return [refused, taken]


def begins_again_where_little_is_free(endpoint: str) -> list[Any]:
    """Publish on a ring that has been begun, with 32 KiB free; return what became of that, and of the free bytes."""
    if not small_shared_memory("4m"):
        return ["not permitted"]
    with msgq.pub_sock(endpoint) as pub, open("/dev/shm/filler", "wb", buffering=0) as filler:
        pub.send(bytes(100_000))
        pub.close()
        fill(filler)
        filler.truncate(filler.tell() - (32 << 10))
        with msgq.sub_sock(endpoint) as sub, msgq.pub_sock(endpoint) as again:
            again.send(b"little")
            return [sub.receive() == b"little", os.statvfs("/dev/shm").f_bavail * 4096]


def a_stage_that_cannot_tell(endpoint: str) -> list[Any]:
    """Handle messages where /dev/shm gets full behind the first message; return how many, and how many were told of."""
    if not small_shared_memory("4m"):
        return ["not permitted"]
    topic = shm_paths.ring_path(make_timing_topic("stage", endpoint), settings.get_prefix())
    handled = 0
    with (
        msgq.sub_sock(endpoint, segment_size=4096) as sub,
        msgq.pub_sock(endpoint) as pub,
        msgq.StageTracer("stage") as tracer,
        open("/dev/shm/filler", "wb", buffering=0) as filler,
    ):
        for _ in range(20):  # the ring has all of its memory then
            pub.send(bytes(1000))
            sub.receive()
        pub.send_many([b"x"] * 20)
        for _message in tracer.trace_messages(sub, 0):
            if not handled:
                assert os.stat(topic).st_blocks * 512 < os.stat(topic).st_size
                fill(filler)
            handled += 1
    return [handled]


def frames_where_memory_is_short(name: str) -> list[Any]:
    """Send frames where /dev/shm is full since the stream was made; return how many came."""
    if not small_shared_memory("4m"):
        return ["not permitted"]
    with VisionIpcServer(name) as server, open("/dev/shm/filler", "wb", buffering=0) as filler:
        server.create_buffers(0, 4, 64, 48)
        server.start_listener()
        fill(filler)
        with VisionIpcClient(name, 0, False) as client:
            client.connect(True)
            came = 0
            for _ in range(3000):
                with server.frame(0):
                    pass
                came += client.recv(0) is not None
            return [came, server.stats(0).published]


def sleeps_of_a_receive(endpoint: str) -> int:
    """Return how often all threads together gave up the processor in the first receive, of 0.4 s."""

    def sleeps() -> int:
        texts = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
        return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts)

    with msgq.pub_sock(endpoint), msgq.sub_sock(endpoint, timeout=400) as sub:
        before = sleeps()
        assert sub.receive() is None
        return sleeps() - before


def leader_ends() -> None:
    """End the main thread, but not the process, which still waits for a word."""
    say(list(identity()))

    def rest() -> None:
        hear()
        os._exit(0)

    threading.Thread(target=rest).start()
    exit_thread = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    ctypes.CDLL(None).syscall(exit_thread, 0)


def be_somebody() -> None:
    """Say who this is, then wait."""
    say(list(identity()))
    with contextlib.suppress(ValueError):
        hear()


def identities_around_a_fork() -> list[Any]:
    """Who this is before a fork, in the child, and afterwards."""
    before = identity()
    return [before, in_fork(identity), identity()]


def subscribe_and_exit(endpoint: str, count: int) -> int:
    """Subscribe and end without closing."""
    global kept
    kept = [msgq.sub_sock(endpoint) for _ in range(count)]
    return len(kept)


def count_signals() -> None:
    """Say each SIGUSR2 that comes."""
    signal.signal(signal.SIGUSR2, lambda number, _frame: os.write(1, b"%d\n" % number))  # print is not reentrant
    say(os.getpid())
    while True:
        signal.pause()


def subscribe_in_namespace(endpoint: str) -> None:
    """Receive one message as process 1 of a PID namespace with its own /proc."""
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newns, clone_newpid, ms_rec, ms_private = 0x20000, 0x20000000, 0x4000, 0x40000
    if libc.unshare(clone_newns | clone_newpid):
        say("not permitted")
        return
    child = os.fork()
    if child == 0:
        signal.alarm(40)
        libc.mount(b"none", b"/", None, ms_rec | ms_private, None)
        libc.mount(b"proc", b"/proc", b"proc", 0, None)
        sub = msgq.sub_sock(endpoint)
        say("subscribed")
        say((sub.receive() or b"").decode())
        os._exit(0)
    os.waitpid(child, 0)


def publish_after_a_word(endpoint: str) -> None:
    """Take over and publish one number for each word."""
    with msgq.pub_sock(endpoint) as pub:
        say("ready")
        for i in range(5):
            hear()
            pub.send(b"%d" % i)


def forked_fake(endpoint: str) -> dict[str, Any]:
    """The child of a fork uses what it inherited of the fake backend, then makes its own."""
    pub, sub = msgq.pub_sock(endpoint, backend="fake"), msgq.sub_sock(endpoint, backend="fake")
    poller = backend.load_backend("fake").Poller()
    poller.registerSocket(sub)
    pub.send(b"the parent's")

    def child() -> list[Any]:
        refused = []
        publishes = (lambda: pub.send(b""), lambda: pub.send_many([b"x"]), lambda: pub.reserve(3).__enter__())
        counts = (pub.all_readers_updated, pub.wait_for_readers)
        for call in (sub.receive, sub.receive_many, lambda: poller.poll(0), sub.fileno, *publishes, *counts):
            try:
                call()
            except ForkedSocketError as error:
                refused.append(error.endpoint)
        pub.close()
        sub.close()
        with msgq.pub_sock(endpoint, backend="fake") as own, msgq.sub_sock(endpoint, backend="fake") as heard:
            own.send(b"own")
            return [refused, [message.decode() for message in heard.receive_many()]]

    refused, own = in_fork(child)
    return {"refused": refused, "own": own, "parent": [message.decode() for message in sub.receive_many()]}


def receive_raising_again(endpoint: str) -> list[Any]:
    """Find nothing on the ring, in a process that does not know pyzmq."""
    with msgq.sub_sock(endpoint) as sub:
        try:
            sub.recv(msgq.NOBLOCK)
        except msgq.Again as error:
            return [type(error) is msgq.Again, "zmq" in sys.modules]
    return []


def bridge_publisher(prefix: str, endpoint: str) -> None:
    """Publish as a bridge does, until killed."""
    socket = backend.load_backend("msgq").PubSocket()
    socket._for_bridge = True
    with settings.overrides(prefix):
        socket.connect(msgq.context, endpoint)
    say("connected")
    hear()


def channel_publisher(prefix: str, name: str) -> None:
    """Publish process id and number on a channel, with pauses, until killed."""
    with Channel(name, prefix=prefix) as channel, channel.publisher() as publisher:
        say("publishes")
        for number in itertools.count():
            publisher.send(b"%d %d" % (os.getpid(), number))
            time.sleep(0.0005)
