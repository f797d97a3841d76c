"""What the ZMQ backend does where ZMQ itself would lose silently, hang, or crash."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth
from zmq.utils.monitor import recv_monitor_message

from msgq.errors import (
    BackendNotAvailableError,
    EndpointClosedError,
    InvalidValueError,
    MultiplePublishersError,
    WaitTimeoutError,
)
from msgq.impl import backend as backends
from msgq.impl.zeromq import publisher
from msgq.impl.zeromq.addresses import publisher_address
from tests.contract import children, zmq_children
from tests.contract.conftest import Backend, collect
from tests.support import DEADLINE, DEADLINE_MS, ROOT, Child, Task, run_child, wait_asleep, wait_until

LARGE = bytes(100_000)


@pytest.fixture
def zmq_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    backend = Backend("zmq")
    yield backend
    backend.close()


class TestHighWaterMark:
    @pytest.fixture(autouse=True)
    def short_queues(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_HWM", "10")

    def test_dropped_counter_is_exact_for_messages_refused_by_full_queues(
        self, zmq_backend: Backend, endpoint: str
    ) -> None:
        pub, sub = zmq_backend.pair(endpoint)
        received: list[bytes] = []
        for _ in range(5):  # it stalls, catches up, and stalls again
            pub.send_many([LARGE] * 100)
            received += sub.receive_many(20, wait_for_one=True)
        received += collect(sub, 500 - pub.stats().dropped - len(received))
        assert pub.stats().dropped > 0
        assert pub.stats().messages == 500
        assert len(received) + pub.stats().dropped == 500
        zmq_backend.settle()
        assert sub.receive(True) is None

    def test_stalled_subscriber_does_not_affect_other_subscribers(self, zmq_backend: Backend, endpoint: str) -> None:
        pub, fast = zmq_backend.pair(endpoint)
        zmq_backend.sub(endpoint)  # takes nothing
        pub.wait_for_readers(DEADLINE, n=2)
        for i in range(200):
            pub.send(i.to_bytes(2, "little") + LARGE)
            assert fast.receive()[:2] == i.to_bytes(2, "little")
        assert 0 < pub.stats().dropped < 200

    def test_burst_within_the_high_water_mark_loses_no_message(
        self, zmq_backend: Backend, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """ZMQ alone would call a queue full that has been read for up to a millisecond."""
        monkeypatch.setenv("MSGQ_ZMQ_HWM", "100")
        pub, sub = zmq_backend.pair(endpoint)
        for _ in range(500):
            pub.send_many([b"x"] * 20)
            assert len(collect(sub, 20)) == 20
        assert pub.stats().dropped == 0

    def test_high_water_mark_0_means_no_limit(
        self, zmq_backend: Backend, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_HWM", "0")
        pub, sub = zmq_backend.pair(endpoint)
        pub.send_many([LARGE] * 200)
        assert len(collect(sub, 200)) == 200
        assert pub.stats().dropped == 0

    @pytest.mark.parametrize("value", ["many", "-1", "1.5", str(2**31)])
    @pytest.mark.parametrize("kind", ["pub", "sub"])
    def test_high_water_mark_error_names_invalid_value(
        self, zmq_backend: Backend, endpoint: str, monkeypatch: pytest.MonkeyPatch, value: str, kind: str
    ) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_HWM", value)
        with pytest.raises(InvalidValueError, match="MSGQ_ZMQ_HWM"):
            getattr(zmq_backend, kind)(endpoint)

    def test_publisher_without_subscribers_counts_no_dropped_messages(
        self, zmq_backend: Backend, endpoint: str
    ) -> None:
        pub = zmq_backend.pub(endpoint)
        pub.send_many([LARGE] * 100)
        assert pub.stats().dropped == 0


class TestCounting:
    def test_conflating_subscriber_counts_skipped_messages(self, zmq_backend: Backend, endpoint: str) -> None:
        pub, sub = zmq_backend.pair(endpoint, conflate=True)
        pub.send_many([b"x"] * 7)
        zmq_backend.settle()
        assert sub.receive() == b"x"
        assert (sub.lost, sub.stats().received) == (6, 1)

    def test_lost_count_of_an_ordinary_zmq_subscriber_is_unknown(self, zmq_backend: Backend, endpoint: str) -> None:
        assert zmq_backend.sub(endpoint).lost is None

    def test_killed_subscriber_is_not_counted_as_reader(self, zmq_backend: Backend, endpoint: str) -> None:
        pub, _sub = zmq_backend.pair(endpoint)
        with Child(zmq_children.idle_subscriber, endpoint) as child:
            assert child.hear() == "connected"
            pub.wait_for_readers(DEADLINE, n=2)
            child.kill()

        def alone() -> bool:
            with pytest.raises(WaitTimeoutError) as caught:
                pub.wait_for_readers(0, n=3)
            return "1 subscriber attached" in str(caught.value)

        wait_until(alone)

    def test_zmq_does_not_report_whether_messages_were_read(self, zmq_backend: Backend, endpoint: str) -> None:
        pub, sub = zmq_backend.pair(endpoint)
        assert pub.all_readers_updated()
        pub.send(b"x")
        assert sub.receive() == b"x"
        assert not pub.all_readers_updated()
        with pytest.raises(WaitTimeoutError, match="ZMQ does not report"):
            pub.wait_for_readers(0.01)
        sub.close()
        wait_until(lambda: "0 subscribers" in _seen(pub))
        zmq_backend.sub(endpoint)  # one that was sent nothing
        pub.wait_for_readers(DEADLINE)

    def test_close_during_a_count_of_subscribers_ends_the_wait_of_another_thread(
        self, zmq_backend: Backend, endpoint: str
    ) -> None:
        inside, go_on = threading.Event(), threading.Event()

        class SlowlyCounting(publisher.PubSocket):
            def _poll_subscriptions(self) -> int:
                inside.set()
                go_on.wait(DEADLINE)
                return super()._poll_subscriptions()

        pub = SlowlyCounting()
        pub.connect(zmq_backend.context, endpoint)
        waiting = Task(pub.wait_for_readers, None)
        assert inside.wait(DEADLINE)
        closing = Task(pub.close)
        closing.wait_asleep()
        go_on.set()
        closing.result()
        with pytest.raises(EndpointClosedError):
            waiting.result()
        assert pub.closed


def _seen(pub: publisher.PubSocket) -> str:
    try:
        pub.wait_for_readers(0, n=100)
    except WaitTimeoutError as error:
        return str(error)
    return ""


def test_second_zmq_publisher_is_refused_and_the_first_continues(zmq_backend: Backend, endpoint: str) -> None:
    pub, sub = zmq_backend.pair(endpoint)
    for _ in range(2):
        with pytest.raises(MultiplePublishersError, match=f"process {os.getpid()}"):
            zmq_backend.pub(endpoint)
    pub.send(b"x")
    assert sub.receive() == b"x"
    pub.close()
    zmq_backend.pub(endpoint)


def test_socket_beyond_the_zmq_limit_raises_msgq_error(zmq_backend: Backend, endpoint: str) -> None:
    assert "ZMQ cannot make a socket" in run_child(zmq_children.too_many, endpoint)


def test_subscriber_can_be_closed_without_free_descriptors(zmq_backend: Backend, endpoint: str) -> None:
    assert run_child(zmq_children.closed_without_descriptors, endpoint)


class TestFork:
    def test_forked_subscriber_connects_again_and_forked_publisher_is_refused(
        self, zmq_backend: Backend, endpoint: str
    ) -> None:
        answer = run_child(zmq_children.forked, endpoint)
        assert answer == {"taken": ["True"] * 4, "received": "to both", "parent": "to both"}

    def test_publisher_in_forked_child_binds_address_after_parent_closes(
        self, zmq_backend: Backend, endpoint: str
    ) -> None:
        answer = run_child(zmq_children.forked_publisher, endpoint)
        assert answer == {"child": ["reserved", "sent", "2"], "parent": ["reserved", "sent"]}

    @pytest.mark.parametrize(
        ("kind", "how", "expected"),
        [
            ("PubSocket", "use", ["", "ConcurrentUseError", False]),
            ("PubSocket", "close", ["", "ConcurrentUseError", False]),
            ("SubSocket", "use", ["", "ConcurrentUseError", False]),
            ("SubSocket", "close", ["EndpointClosedError", "", True]),
        ],
    )
    def test_second_thread_during_reconnect_in_forked_child_is_detected(
        self, zmq_backend: Backend, endpoint: str, kind: str, how: str, expected: list[Any]
    ) -> None:
        assert run_child(zmq_children.forked_connecting, endpoint, kind, how) == expected

    def test_options_and_poll_in_forked_child_apply_to_child_socket(self, zmq_backend: Backend, endpoint: str) -> None:
        answer = run_child(zmq_children.forked_options, endpoint)
        assert answer == {"linger": 7, "child": ["later"], "parent": "held"}

    def test_publisher_connected_before_daemonizing_publishes_in_the_daemon(
        self, zmq_backend: Backend, endpoint: str
    ) -> None:
        with Child(zmq_children.forked_daemon, endpoint) as child:
            assert child.hear() == "daemon"
            sub = zmq_backend.sub(endpoint)
            child.say()
            assert sub.receive() == b"from the daemon"
            child.say()
            assert child.process.stdout is not None
            child.process.stdout.read()  # to its end: the daemon is gone

    def test_reservation_of_parent_is_unusable_in_forked_child(self, zmq_backend: Backend, endpoint: str) -> None:
        answer = run_child(zmq_children.forked_in_reservation, endpoint)
        assert answer == {"child": endpoint, "parent": "ab", "rest": None}

    def test_forked_child_without_socket_use_exits_quietly(self, zmq_backend: Backend, endpoint: str) -> None:
        code = "import sys; from tests.contract.zmq_children import *; print(forked_without_use(sys.argv[1]))"
        command = [sys.executable, "-W", "error", "-c", code, endpoint]  # without a watchdog, which does not survive
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=DEADLINE)
        assert (done.stdout, done.stderr) == ("still here\n", "")

    @pytest.mark.parametrize("how", ["receive", "poll"])
    def test_signal_handler_forking_during_a_wait_succeeds(self, zmq_backend: Backend, endpoint: str, how: str) -> None:
        """The child's wait ends with an error, the parent's goes on."""
        pub = zmq_backend.pub(endpoint)
        with Child(zmq_children.forked_in_wait, endpoint, how) as child:
            assert child.hear() == "waiting"
            pub.wait_for_readers(DEADLINE, n=1)
            wait_asleep(child.pid)
            child.kill(signal.SIGUSR1)
            wait_until(lambda: Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text())
            pub.send(b"x")
            assert child.result() == [endpoint, "x"]

    def test_forked_child_closes_no_zmq_sockets_of_the_application(
        self, zmq_backend: Backend, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "tcp")
        assert run_child(zmq_children.forked_beside_others, endpoint) == {"ours": [], "others": []}

    @pytest.mark.parametrize("transport", ["ipc", "tcp"])
    def test_living_forked_child_does_not_keep_the_publisher_address(
        self, zmq_backend: Backend, endpoint: str, transport: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And the subscriber sees that the publisher is gone, so that it finds the next one."""
        monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", transport)
        sub = zmq_backend.sub(endpoint)
        with Child(zmq_children.outlived_by_child, endpoint) as child:
            orphan = child.hear()
            assert sub.receive() == b"first"
            child.kill()
        try:
            receiving = Task(sub.receive)
            pub = zmq_backend.pub(endpoint)
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send(b"second")
            assert receiving.result() == b"second"
        finally:
            os.kill(orphan, signal.SIGKILL)


class TestEnd:
    def test_last_message_before_close_arrives(self, zmq_backend: Backend, endpoint: str) -> None:
        sub = zmq_backend.sub(endpoint)
        with Child(zmq_children.flood, endpoint, 300, 1000) as child:
            assert child.hear() == "attached"
            child.say()
            assert child.result() is None
        assert len(collect(sub, 300)) == 300

    def test_stopped_subscriber_does_not_block_process_exit(self, zmq_backend: Backend, endpoint: str) -> None:
        with Child(zmq_children.idle_subscriber, endpoint) as stopped:
            assert stopped.hear() == "connected"
            with Child(zmq_children.flood, endpoint, 2000, 20_000) as child:
                assert child.hear() == "attached"
                stopped.kill(signal.SIGSTOP)
                child.say()
                assert child.result() is None

    @pytest.mark.parametrize("how", ["open", "deleted", "blocked daemon thread"])
    def test_process_with_open_zmq_sockets_exits(self, zmq_backend: Backend, endpoint: str, how: str) -> None:
        with Child(children.exits_without_closing, "zmq", endpoint, how) as child:
            assert child.hear() == "connected"
            child.say()
            assert child.result() is None
        zmq_backend.pub(endpoint)  # the address is free

    def test_context_term_does_not_wait_for_a_stopped_subscriber(self, zmq_backend: Backend, endpoint: str) -> None:
        with Child(zmq_children.idle_subscriber, endpoint) as stopped:
            assert stopped.hear() == "connected"
            pub = zmq_backend.pub(endpoint)
            pub.wait_for_readers(DEADLINE, n=1)
            stopped.kill(signal.SIGSTOP)
            pub.send_many([LARGE] * 200)
            zmq_backend.context.term()
            assert not pub.closed
            pub.send(b"still usable")


class TestCurve:
    @pytest.fixture
    def keys(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for name in ("server", "client"):
            zmq.auth.create_certificates(tmp_path, name)
        monkeypatch.setenv("MSGQ_ZMQ_CURVE", str(tmp_path))
        return tmp_path

    def test_curve_peers_exchange_messages(self, zmq_backend: Backend, keys: Path, endpoint: str) -> None:
        pub, sub = zmq_backend.pair(endpoint)
        pub.send(b"secret")
        assert sub.receive() == b"secret"

    def test_peer_without_curve_keys_is_refused(self, zmq_backend: Backend, keys: Path, endpoint: str) -> None:
        zmq_backend.pub(endpoint)
        assert handshake_fails(publisher_address(endpoint).uri)

    def test_peer_with_wrong_curve_key_is_refused(self, zmq_backend: Backend, keys: Path, endpoint: str) -> None:
        zmq_backend.pub(endpoint)
        wrong, _ = zmq.curve_keypair()
        assert handshake_fails(publisher_address(endpoint).uri, wrong)

    @pytest.mark.parametrize("secure", [True, False])
    def test_curve_connection_transmits_no_readable_payload(
        self, zmq_backend: Backend, keys: Path, endpoint: str, secure: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not secure:
            monkeypatch.delenv("MSGQ_ZMQ_CURVE")
        pub = zmq_backend.pub(endpoint)
        with Wiretap(publisher_address(endpoint).path, keys / "tap") as tap:
            (keys / "map.toml").write_text(f'{endpoint} = "ipc://{keys}/tap"')
            monkeypatch.setenv("MSGQ_ZMQ_MAP", str(keys / "map.toml"))
            sub = zmq_backend.sub(endpoint)
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send(b"for your eyes only")
            assert sub.receive() == b"for your eyes only"
            sub.close()
            assert (b"for your eyes only" in tap.heard()) is not secure

    @pytest.mark.parametrize("name", ["server.key_secret", "client.key_secret", "server.key"])
    def test_curve_error_names_missing_certificate(
        self, zmq_backend: Backend, keys: Path, endpoint: str, name: str
    ) -> None:
        (keys / name).unlink()
        connect: Callable[[str], object] = zmq_backend.pub if name == "server.key_secret" else zmq_backend.sub
        with pytest.raises(InvalidValueError, match=name):
            connect(endpoint)

    def test_curve_certificate_without_secret_key_is_refused(
        self, zmq_backend: Backend, keys: Path, endpoint: str
    ) -> None:
        (keys / "server.key_secret").write_bytes((keys / "server.key").read_bytes())
        with pytest.raises(InvalidValueError, match="no secret key"):
            zmq_backend.pub(endpoint)


def handshake_fails(address: str, server_key: bytes | None = None) -> bool:
    """Whether a plain subscriber, with CURVE if there is a key, is turned away."""
    with zmq.Context() as context, context.socket(zmq.SUB) as plain:
        if server_key:
            plain.curve_serverkey = server_key
            plain.curve_publickey, plain.curve_secretkey = zmq.curve_keypair()
        monitor = plain.get_monitor_socket()
        plain.connect(address)
        failed = False
        while not failed and monitor.poll(DEADLINE_MS):
            event = recv_monitor_message(monitor)["event"]
            assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
            failed = event in (
                zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
                zmq.EVENT_HANDSHAKE_FAILED_AUTH,
                zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
                zmq.EVENT_DISCONNECTED,
            )
        plain.disable_monitor()
        monitor.close()
        return failed


class Wiretap:
    """Stands between one subscriber and a publisher's socket file, and hears what the publisher says."""

    def __init__(self, target: str, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._target = target
        self._task = Task(self._carry)

    def _carry(self) -> bytes:
        near, _ = self._listener.accept()
        heard = bytearray()
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(self._target)
            back = Task(_forward, near, far, bytearray())
            _forward(far, near, heard)
            back.result()
        return bytes(heard)

    def heard(self) -> bytes:
        """Return everything, when both have hung up."""
        return bytes(self._task.result())

    def __enter__(self) -> Wiretap:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def _forward(source: socket.socket, sink: socket.socket, heard: bytearray) -> None:
    try:
        while data := source.recv(65536):
            heard += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other one has hung up


class TestChoice:
    @pytest.mark.parametrize(
        ("variables", "module"),
        [
            ({"ZMQ": "1"}, "msgq.impl.zeromq.publisher"),
            ({"MSGQ_BACKEND": "zmq"}, "msgq.impl.zeromq.publisher"),
            ({"ZMQ": "1", "MSGQ_BACKEND": "msgq"}, "msgq.impl.ring.core"),
            ({"ZMQ": "0"}, "msgq.impl.ring.core"),
            ({"ZMQ": ""}, "msgq.impl.ring.core"),
        ],
    )
    def test_environment_variable_selects_the_backend(self, variables: dict[str, str], module: str) -> None:
        environment = {**os.environ, "MSGQ_BACKEND": "", **variables}
        code = "import msgq; print(msgq.PubSocket.__module__)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
        )
        assert done.stdout.strip() == module

    def test_zmq_error_without_pyzmq_names_the_package_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.startswith("msgq.impl.zeromq")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "zmq", None)
        with pytest.raises(BackendNotAvailableError, match=r"pip install 'msgq-bus\[zmq\]'"):
            backends.load_backend("zmq")
