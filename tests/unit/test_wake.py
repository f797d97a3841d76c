"""Sleeping and waking, looked at from the kernel's side: who sleeps for good, and what wakes it."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import msgq
from tests.support import DEADLINE, DEADLINE_MS, SHM, Child, Task, run_child, wait_asleep, wait_until
from tests.unit import children
from tests.unit.ringfile import RingFile, ring_path


def watched(endpoint: str) -> bool:
    """Whether this process has itself told when somebody opens the ring: then its sleepers have no alarm."""
    inode = f"ino:{ring_path(endpoint).stat().st_ino:x} "
    for info in Path("/proc/self/fdinfo").iterdir():
        try:
            if any(line.startswith("inotify") and inode in line for line in info.read_text().splitlines()):
                return True
        except FileNotFoundError:
            continue
    return False


def sleeping_for_good(endpoint: str, call: Callable[[], Any]) -> Task:
    """Return a thread that sleeps in `call` with nothing but a publisher to wake it."""
    task = Task(call)
    wait_until(lambda: watched(endpoint))
    task.wait_asleep()
    return task


def waiting(sub: msgq.SubSocket, how: str) -> Callable[[], Any]:
    """Return a call that waits for a message and returns it."""
    if how == "receive":
        return sub.receive
    poller = msgq.Poller()
    poller.registerSocket(sub)
    return lambda: poller.poll(-1)[0].receive(True)


@pytest.mark.parametrize("how", ["receive", "poll"])
def test_subscriber_in_unlimited_sleep_is_woken_by_each_message(endpoint: str, how: str) -> None:
    """It does not look by itself: a wake-up that is not sent would be slept through."""
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        call = waiting(sub, how)
        task = sleeping_for_good(endpoint, call)
        for i in range(20):
            pub.send(b"%d" % i)
            assert task.result() == b"%d" % i
            task = Task(call)
            task.wait_asleep()
        pub.send_many([b"by send_many"])
        assert task.result() == b"by send_many"


def test_one_message_wakes_all_sleeping_subscribers(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub:
        subs = [msgq.sub_sock(endpoint) for _ in range(20)]
        tasks = [sleeping_for_good(endpoint, sub.receive) for sub in subs]
        with pub.reserve(1) as view:
            view[:] = b"x"
        assert [task.result() for task in tasks] == [b"x"] * 20
        for sub in subs:
            sub.close()


def test_publisher_that_starts_later_wakes_sleeping_subscriber(endpoint: str) -> None:
    with msgq.sub_sock(endpoint) as sub:
        task = sleeping_for_good(endpoint, sub.receive)
        with msgq.pub_sock(endpoint) as pub:
            pub.send(b"x")
            assert task.result() == b"x"


def test_sleeping_subscriber_without_messages_is_not_scheduled(endpoint: str) -> None:
    """With no stock publisher about, the kernel lets the thread sleep: it gives up the processor once, not more."""
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        task = sleeping_for_good(endpoint, sub.receive)

        def sleeps() -> int:
            status = Path(f"/proc/self/task/{task.native_id}/status").read_text()
            return int(status.split("voluntary_ctxt_switches:")[1].split()[0])

        before = sleeps()
        with msgq.sub_sock(endpoint, timeout=400) as clock:
            assert clock.receive() is None
        assert sleeps() == before
        pub.send(b"x")
        assert task.result() == b"x"


def test_receive_without_messages_causes_few_context_switches(endpoint: str) -> None:
    """Its first receive starts the helper thread, which has nothing to look at: nobody opens the ring meanwhile."""
    assert run_child(children.sleeps_of_a_receive, endpoint) <= 4  # two, and two more for the start of a thread


def test_signal_of_stock_publisher_wakes_sleeping_subscriber(endpoint: str) -> None:
    """It knows only a thread to signal. That is the helper's; the signal neither kills nor runs a handler."""
    handler = signal.getsignal(signal.SIGUSR2)
    with msgq.sub_sock(endpoint) as sub:
        task = sleeping_for_good(endpoint, sub.receive)
        with RingFile(endpoint) as ring:  # opening it is what gives the newcomer away
            ring.start_stranger()
            thread_id = wait_until(lambda: ring.read_uids()[0] & 0xFFFFFFFF, "the slot names a thread to signal")
            assert thread_id not in (os.getpid(), task.native_id)
            assert Path(f"/proc/self/task/{thread_id}").exists()
            for i in range(5):
                task.wait_asleep()
                ring.publish(b"%d" % i)
                tkill(thread_id, signal.SIGUSR2)
                assert task.result() == b"%d" % i
                task = Task(sub.receive)
            ring.publish(b"last")
            tkill(thread_id, signal.SIGUSR2)
            assert task.result() == b"last"
            assert sub.lost == 0
    assert signal.getsignal(signal.SIGUSR2) is handler


def tkill(thread_id: int, number: int) -> None:
    """Signal one thread, as stock publishers do; only threads of Python can be had from `signal`."""
    tgkill = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
    assert ctypes.CDLL(None).syscall(tgkill, os.getpid(), thread_id, number) == 0


def test_next_publisher_wakes_subscriber_of_killed_publisher(endpoint: str) -> None:
    """Published, but nobody woken: that is what a kill between the two leaves. The successor wakes everybody."""
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        task = sleeping_for_good(endpoint, sub.receive)
        with RingFile(endpoint) as ring:
            ring.publish(b"nobody woken")
        assert task.is_alive()
        with msgq.pub_sock(endpoint):
            assert task.result() == b"nobody woken"
        pub.close()


def test_spinning_receive_returns_message_without_sleep(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, msgq.SubSocket() as sub:
        sub.connect(msgq.context, endpoint, spin_us=200)
        sub.setTimeout(DEADLINE_MS)
        with Child(children.publish_after_a_word, endpoint) as child:
            assert child.hear() == "ready"
            pub.close()
            for i in range(5):
                child.say()
                assert sub.receive() == b"%d" % i


def test_receive_sleeps_after_spin_time(endpoint: str) -> None:
    with msgq.SubSocket() as sub:
        sub.connect(msgq.context, endpoint, spin_us=100)
        sub.setTimeout(30)
        started = time.monotonic()
        assert sub.receive() is None
        assert time.monotonic() - started >= 0.03


def test_sleeping_passive_subscriber_receives_new_messages(endpoint: str) -> None:
    """Nobody wakes it; it looks by itself."""
    with msgq.pub_sock(endpoint) as pub, msgq.SubSocket() as sub:
        sub.connect(msgq.context, endpoint, passive=True)
        for how in ("receive", "poll"):
            task = Task(waiting(sub, how))
            pub.send(b"x")
            assert task.result() == b"x"


def test_subscriber_descriptor_is_readable_after_delayed_wakeup(endpoint: str) -> None:
    """A publisher that pauses between its message and the wake for it takes a flag that was set for the next one."""
    libc = ctypes.CDLL(None)
    sys_futex, futex_wake, waiters, one_wake = 202 if os.uname().machine == "x86_64" else 98, 1, 1, 4
    with msgq.sub_sock(endpoint) as sub, msgq.pub_sock(endpoint) as pub:
        fd = sub.fileno()
        with (SHM / f"msgqside_{endpoint}").open("r+b") as file:
            side = mmap.mmap(file.fileno(), 4096)  # unmapped with `eventcount`
        eventcount = ctypes.c_uint32.from_buffer(side, 64)
        wait_until(lambda: eventcount.value & waiters, "the descriptor is quiet")
        eventcount.value = (eventcount.value & ~waiters) + one_wake
        libc.syscall(sys_futex, ctypes.byref(eventcount), futex_wake, 1, None, None, 0)
        wait_until(lambda: eventcount.value & waiters, "somebody asks for the next wake")
        pub.send(b"next")
        assert select.select([fd], [], [], DEADLINE)[0] == [fd]


def test_passive_subscriber_descriptor_becomes_readable_repeatedly(endpoint: str) -> None:
    """No futex tells of its messages, so its thread must look by the clock again as soon as all was read."""
    with msgq.pub_sock(endpoint) as pub, msgq.SubSocket() as sub:
        sub.connect(msgq.context, endpoint, passive=True)
        for _ in range(5):
            pub.send(b"x")
            assert select.select([sub], [], [], DEADLINE)[0]
            # Let its thread find that there is nothing to look for any more, as the descriptor is readable.
            for task in Path("/proc/self/task").iterdir():
                if int(task.name) != threading.get_native_id():
                    wait_asleep(os.getpid(), int(task.name))
            assert sub.receive_many() == [b"x"]
