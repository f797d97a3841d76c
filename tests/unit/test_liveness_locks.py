"""Who lives: over exec, every kind of fork, closed descriptors, stops, and in other PID and time namespaces."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import msgq
from msgq import stats
from msgq.errors import ControllerDiedError, EventTimeoutError, MultiplePublishersError
from msgq.impl.base.process import LockFile
from msgq.impl.ring.core import unlink_topic
from tests.support import DEADLINE, Child, wait_until
from tests.unit import children, liveness_children
from tests.unit.ringfile import PUBLISHERS, READERS, Words, side_path

LOCKED_UID = 56  # offset in an entry


@pytest.fixture
def pub(endpoint: str) -> Iterator[msgq.PubSocket]:
    with msgq.pub_sock(endpoint) as pub:
        yield pub


def subscriber_liveness(endpoint: str) -> list[bool | None]:
    """Whether each entered subscriber lives."""
    return [one.participant.alive for one in stats.topic(endpoint).subscribers]


def outer_pid_of_child(child: Child) -> int:
    """Return the outer pid of a namespace's process that has connected."""
    pid = child.hear()
    if pid == "not permitted":
        pytest.skip("needs the right to make namespaces")
    assert child.hear() == "connected"
    return int(pid)


class TestExec:
    def test_subscriber_after_exec_is_dead(self, endpoint: str, pub: msgq.PubSocket) -> None:
        """It keeps its pid and its start time, and nothing else."""
        with Child(liveness_children.become_another_program, "sub", endpoint, 1) as child:
            assert child.hear() == "connected"
            assert subscriber_liveness(endpoint) == [True]
            pub.wait_for_readers(0, n=1)
            child.say()
            assert child.hear() == "another program"
            assert subscriber_liveness(endpoint) == [False]
            with msgq.sub_sock(endpoint) as sub:
                pub.send(b"to the living")
                assert sub.receive() == b"to the living"
                assert pub.all_readers_updated()

    def test_publishers_after_exec_release_their_rows(self, endpoint: str) -> None:
        with Child(liveness_children.become_another_program, "pub", endpoint, 16) as child:
            assert child.hear() == "connected"
            with pytest.raises(MultiplePublishersError, match="16 open publishers"):
                msgq.pub_sock(endpoint)
            child.say()
            assert child.hear() == "another program"
            for _ in range(17):
                msgq.pub_sock(endpoint).close()

    def test_reader_slot_of_process_after_exec_is_free(self, endpoint: str, pub: msgq.PubSocket) -> None:
        with Child(liveness_children.become_another_program, "sub", endpoint, 15) as child:
            assert child.hear() == "connected"
            child.say()
            assert child.hear() == "another program"
            with msgq.sub_sock(endpoint) as sub, Words(Path(f"/dev/shm/msgq_{endpoint}")) as ring:
                former = {ring[264 + 8 * slot] for slot in range(15)}
                assert 0 not in former
                pub.close()
                with msgq.pub_sock(endpoint) as successor:  # sweeps
                    successor.send(b"x")
                    assert sub.receive() == b"x"
                assert sum(ring[264 + 8 * slot] != 0 for slot in range(15)) == 1


class TestProcess:
    def test_parent_is_dead_after_exit_while_children_live(self, endpoint: str, pub: msgq.PubSocket) -> None:
        with Child(liveness_children.fork_children, endpoint) as parent:
            children = parent.hear()
            assert subscriber_liveness(endpoint) == [True]
            try:
                parent.kill()
                assert all(os.path.exists(f"/proc/{child}") for child in children)
                assert subscriber_liveness(endpoint) == [False]
            finally:
                for child in children:
                    os.kill(child, signal.SIGKILL)

    def test_parent_after_death_of_children_is_alive(self, endpoint: str, pub: msgq.PubSocket) -> None:
        with Child(liveness_children.fork_children, endpoint) as parent:
            for child in parent.hear():
                os.kill(child, signal.SIGKILL)
                wait_until(partial(lambda pid: state(pid) == "Z", child))
                assert subscriber_liveness(endpoint) == [True]

    def test_process_after_closing_all_descriptors_is_alive(self, endpoint: str, pub: msgq.PubSocket) -> None:
        with Child(liveness_children.close_all_descriptors, endpoint) as child:
            assert child.hear() == "closed"
            assert subscriber_liveness(endpoint) == [True]
            pub.wait_for_readers(0, n=1)

    def test_stopped_process_is_alive(self, endpoint: str, pub: msgq.PubSocket) -> None:
        with Child(children.hold_sockets, endpoint, ["sub"]) as child:
            child.hear()
            os.kill(child.pid, signal.SIGSTOP)
            wait_until(lambda: state(child.pid) == "T")
            assert subscriber_liveness(endpoint) == [True]
            os.kill(child.pid, signal.SIGKILL)
            wait_until(lambda: subscriber_liveness(endpoint) == [False])
            assert state(child.pid) == "Z"  # nobody has waited for it

    def test_process_after_end_of_connecting_thread_is_alive(self, endpoint: str, pub: msgq.PubSocket) -> None:
        kept: list[msgq.SubSocket] = []
        thread = threading.Thread(target=lambda: kept.append(msgq.sub_sock(endpoint)))
        thread.start()
        thread.join()
        assert subscriber_liveness(endpoint) == [True]

    @pytest.mark.parametrize(
        "count", [pytest.param(40, marks=pytest.mark.ci), pytest.param(200, marks=pytest.mark.nightly)]
    )
    def test_fork_during_connect_does_not_inherit_lock(self, endpoint: str, pub: msgq.PubSocket, count: int) -> None:
        """A child that inherited a descriptor of the lock would keep it when the parent leaves."""
        stop = threading.Event()
        children: list[int] = []

        def fork() -> None:
            while not stop.is_set() and len(children) < count:
                child = liveness_children.libc.fork()  # without the interpreter's lock: truly beside the connects
                if child == 0:
                    liveness_children.libc.pause()
                    os._exit(0)
                children.append(child)

        task = threading.Thread(target=fork)
        task.start()
        try:
            while task.is_alive() and len(children) < count:
                msgq.sub_sock(endpoint).close()
            stop.set()
            task.join()
            subs = [msgq.sub_sock(endpoint) for _ in range(128)]
            assert subscriber_liveness(endpoint) == [True] * 128
            assert not stats.topic(endpoint).unlisted
            for sub in subs:
                sub.close()
        finally:
            stop.set()
            task.join()
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


@pytest.mark.parametrize("kind", [liveness_children.PID, liveness_children.TIME], ids=["pid", "time"])
class TestNamespaces:
    def test_process_in_other_pid_namespace_is_alive_until_its_death(
        self, endpoint: str, pub: msgq.PubSocket, kind: int
    ) -> None:
        with Child(liveness_children.in_namespace, kind, "sub", endpoint) as child:
            pid = outer_pid_of_child(child)
            assert subscriber_liveness(endpoint) == [True]
            pub.wait_for_readers(0, n=1)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: subscriber_liveness(endpoint) == [False])
            with msgq.sub_sock(endpoint) as sub:
                pub.send(b"to the living")
                assert sub.receive() == b"to the living"
                assert pub.all_readers_updated()

    def test_topic_with_128_dead_subscribers_accepts_new_subscriber(
        self, endpoint: str, pub: msgq.PubSocket, kind: int
    ) -> None:
        with Child(liveness_children.in_namespace, kind, "sub", endpoint, 128) as child:
            pid = outer_pid_of_child(child)
            assert subscriber_liveness(endpoint) == [True] * 128
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not any(subscriber_liveness(endpoint)))
            with msgq.sub_sock(endpoint):
                assert subscriber_liveness(endpoint).count(True) == 1
                assert not stats.topic(endpoint).unlisted

    def test_connect_is_refused_during_reservation_in_other_pid_namespace(self, endpoint: str, kind: int) -> None:
        """It was passed over after a second, and then wrote into its successor's messages."""
        with msgq.sub_sock(endpoint) as sub, Child(liveness_children.in_namespace, kind, "reserve", endpoint) as child:
            outer_pid_of_child(child)
            with pytest.raises(MultiplePublishersError, match="has been sending"):
                msgq.pub_sock(endpoint)
            child.say()
            assert child.hear() == "done"
            assert sub.receive_many() == [b"whole", b"r" * 64, b"after"]
            with msgq.pub_sock(endpoint) as successor:
                successor.send(b"next")
                assert sub.receive() == b"next"
                assert sub.lost == 0

    def test_connect_does_not_wait_for_reservation_of_dead_publisher(self, endpoint: str, kind: int) -> None:
        with msgq.sub_sock(endpoint) as sub, Child(liveness_children.in_namespace, kind, "reserve", endpoint) as child:
            pid = outer_pid_of_child(child)
            os.kill(pid, signal.SIGKILL)
            child.process.wait(DEADLINE)
            with msgq.pub_sock(endpoint) as successor:
                successor.send(b"next")
                assert sub.receive_many() == [b"whole", b"next"]


class TestWithoutLocks:
    """If the file system has no locks, pid and start time tell which participants live."""

    def test_running_process_without_lock_is_alive(self, endpoint: str, pub: msgq.PubSocket) -> None:
        with msgq.sub_sock(endpoint), Words(side_path(endpoint)) as side:
            side[READERS + LOCKED_UID] = 0
            assert subscriber_liveness(endpoint) == [True]
            side[READERS + 24] += 1  # the start time
            assert subscriber_liveness(endpoint) == [False]

    def test_process_without_lock_in_other_pid_namespace_has_unknown_liveness(
        self, endpoint: str, pub: msgq.PubSocket
    ) -> None:
        with msgq.sub_sock(endpoint), Words(side_path(endpoint)) as side:
            side[READERS + LOCKED_UID] = 0
            side[READERS + 32] = 1
            assert subscriber_liveness(endpoint) == [None]
            pub.wait_for_readers(0, n=1)

    def test_running_publisher_without_lock_is_alive(self, endpoint: str, pub: msgq.PubSocket) -> None:
        with Words(side_path(endpoint)) as side:
            assert side[PUBLISHERS + LOCKED_UID] == side[PUBLISHERS]
            side[PUBLISHERS + LOCKED_UID] = 0
            publisher = stats.topic(endpoint).publisher
            assert publisher is not None
            assert publisher.alive is True

    def test_publishers_with_unknown_liveness_do_not_fill_row_table(self, endpoint: str) -> None:
        """They were killed in another PID namespace, in the middle of a send."""
        with msgq.sub_sock(endpoint) as sub, Words(side_path(endpoint)) as side:
            for row in range(PUBLISHERS, READERS, 128):
                side[row + 8], side[row + 24], side[row + 32] = 4711, 1, 1
                side[row + 64], side[row + 72] = 1, 0  # begun, sent
                side[row] = (row << 40) | 4711
            with msgq.pub_sock(endpoint) as pub:
                pub.send(b"at last")
                assert sub.receive() == b"at last"


class TestUnlisted:
    def test_stats_report_unlisted_subscribers_above_128(self, endpoint: str, pub: msgq.PubSocket) -> None:
        subs = [msgq.sub_sock(endpoint) for _ in range(128)]
        assert not stats.topic(endpoint).unlisted
        with msgq.sub_sock(endpoint), msgq.sub_sock(endpoint):
            assert stats.topic(endpoint).unlisted
        assert not stats.topic(endpoint).unlisted
        for sub in subs:
            sub.close()


def test_subscribers_of_removed_topic_are_alive(endpoint: str, pub: msgq.PubSocket) -> None:
    """Nobody can be asked when the file has lost its name, nor by a file that has taken it."""
    with msgq.sub_sock(endpoint):
        pub.wait_for_readers(0, n=1)
        unlink_topic(endpoint)
        pub.wait_for_readers(0, n=1)
        with msgq.sub_sock(endpoint):
            pub.wait_for_readers(0, n=1)


def state(pid: int) -> str:
    """Return the state of a process, one letter of proc_pid_stat(5)."""
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(") ")[2][0]


class TestGates:
    """A wait for a controller that is dead is an error; for one that lives it goes on."""

    def wait(self, endpoint: str, seconds: float) -> None:
        handle = msgq.fake_event_handle(endpoint, f"i-{endpoint}", override=False)
        handle.recv_called_event.wait(seconds)

    def test_controller_after_exec_is_dead(self, endpoint: str) -> None:
        with Child(liveness_children.control, endpoint) as child:
            assert child.hear() == "connected"
            with pytest.raises(EventTimeoutError):
                self.wait(endpoint, 0.2)
            child.say()
            assert child.hear() == "another program"
            with pytest.raises(ControllerDiedError):
                self.wait(endpoint, DEADLINE)

    @pytest.mark.parametrize("kind", [liveness_children.PID, liveness_children.TIME], ids=["pid", "time"])
    def test_controller_in_other_pid_namespace_is_alive_until_its_death(self, endpoint: str, kind: int) -> None:
        with Child(liveness_children.control_in_namespace, kind, endpoint) as child:
            pid = outer_pid_of_child(child)
            with pytest.raises(EventTimeoutError):
                self.wait(endpoint, 0.2)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(ControllerDiedError):
                self.wait(endpoint, DEADLINE)

    @pytest.fixture(autouse=True)
    def no_gate_stays(self, endpoint: str) -> Iterator[None]:
        yield
        msgq.fake_event_handle(endpoint, f"i-{endpoint}", override=True).close()


class TestLockFile:
    """What ZMQ's claims and servers of frames hold."""

    def test_lock_file_after_exec_is_released(self, tmp_path: Path) -> None:
        path = str(tmp_path / "lock")
        with Child(liveness_children.lock_and_exec, path) as child:
            assert child.hear() == "locked"
            with pytest.raises(BlockingIOError):
                LockFile(path)
            child.say()
            assert child.hear() == "another program"
            lock = LockFile(path)
            lock.write(b"mine")
            assert Path(path).read_bytes() == b"mine"
            lock.release()
            lock.release()
            assert not Path(path).exists()

    def test_lock_file_is_not_inherited_by_children(self, tmp_path: Path) -> None:
        path = str(tmp_path / "lock")
        with Child(liveness_children.lock_and_fork, path) as parent:
            children = parent.hear()
            with pytest.raises(BlockingIOError):
                LockFile(path)
            try:
                parent.kill()
                LockFile(path).release()
            finally:
                for child in children:
                    os.kill(child, signal.SIGKILL)

    def test_release_of_lock_file_keeps_file_that_replaced_it(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        lock = LockFile(str(path))
        path.unlink()
        path.write_text("another's")
        lock.release()
        assert path.read_text() == "another's"
