"""Where the ZMQ backend's endpoints live, and who may publish there."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

import msgq
from msgq.common import settings, shm_paths
from msgq.errors import EndpointNameError, InvalidValueError, IpcError, MultiplePublishersError, SegmentError
from msgq.impl.base.core import Context
from msgq.impl.zeromq.addresses import ZmqAddress, compute_port, hash_fnv1a, publisher_address, subscriber_address
from msgq.impl.zeromq.claims import AddressClaim
from msgq.impl.zeromq.publisher import PubSocket
from tests.support import DEADLINE, DEADLINE_MS, Child, hear, say

VARIABLES = ("TRANSPORT", "BIND", "MAP", "CURVE", "STOCK")
TWINS = ("t141", "t480")  # two names of one port
GOLDEN = [("can", 62300), ("carState", 9041), ("controlsState", 44127), ("a", 24219), ("foobar", 35063), ("zoë", 48715)]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENPILOT_PREFIX", *(f"MSGQ_ZMQ_{variable}" for variable in VARIABLES)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def write_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write a map and put it in force."""

    def write(text: str) -> None:
        (tmp_path / "map.toml").write_text(text)
        monkeypatch.setenv("MSGQ_ZMQ_MAP", str(tmp_path / "map.toml"))

    return write


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def publish() -> Iterator[Callable[[str], PubSocket]]:
    """Connect publishers that are closed in the end."""
    made = []

    def publish(endpoint: str) -> PubSocket:
        made.append(pub := PubSocket())
        pub.connect(Context(), endpoint)
        return pub

    yield publish
    for pub in made:
        pub.close()


class TestPorts:
    @pytest.mark.parametrize(
        ("data", "value"),
        [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
    )
    def test_endpoint_hash_is_fnv_1a(self, data: bytes, value: int) -> None:
        """The vectors of its authors."""
        assert hash_fnv1a(data) == value

    @pytest.mark.parametrize(("name", "port"), GOLDEN)
    def test_publisher_port_follows_stock_rule(self, name: str, port: int) -> None:
        assert compute_port(name) == port
        assert publisher_address(name) == ZmqAddress("127.0.0.1", port)
        assert publisher_address(name).uri == f"tcp://127.0.0.1:{port}"

    def test_each_port_is_in_stock_range(self) -> None:
        ports = [compute_port(f"topic{i}") for i in range(5000)]
        assert min(ports) >= 8023
        assert max(ports) < 65535

    def test_port_hash_includes_prefix(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENPILOT_PREFIX", "sim")
        assert publisher_address("can").port == compute_port("sim/can") != compute_port("can")

    def test_subscriber_address_has_given_host(self) -> None:
        assert subscriber_address("can", "10.0.0.7").uri == f"tcp://10.0.0.7:{compute_port('can')}"
        assert subscriber_address("can", "::1").uri == f"tcp://[::1]:{compute_port('can')}"
        assert subscriber_address("can", "[::1]") == subscriber_address("can", "::1")

    def test_ipv6_address_brackets_are_removed(
        self, monkeypatch: pytest.MonkeyPatch, write_map: Callable[[str], None]
    ) -> None:
        assert msgq.zeromq_address("can", "[fe80::1]") == f"tcp://[fe80::1]:{compute_port('can')}"
        monkeypatch.setenv("MSGQ_ZMQ_BIND", "[::1]")
        assert publisher_address("can") == ZmqAddress("::1", compute_port("can"))
        write_map('can = "tcp://*:4000"')
        assert subscriber_address("can", "[::1]") == ZmqAddress("::1", 4000)

    @pytest.mark.parametrize("host", ["[::1]:5000", "[::1", "::1]", "10.0.0.7:5000", "tcp://10.0.0.7", "a/b"])
    def test_host_with_scheme_or_port_is_refused(self, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InvalidValueError, match=r"is invalid; .*without scheme and port.*MSGQ_ZMQ_MAP"):
            subscriber_address("can", host)
        monkeypatch.setenv("MSGQ_ZMQ_BIND", host)
        with pytest.raises(InvalidValueError, match=r"is invalid"):
            publisher_address("can")

    @pytest.mark.parametrize("host", ["fe80::1%eth0", "[fe80::1%eth0]", "robot-7.local", "*"])
    def test_host_names_and_ip_addresses_are_accepted(self, host: str) -> None:
        assert subscriber_address("can", host).host == host.strip("[]")

    def test_sockets_with_bracketed_ipv6_address_exchange_messages(
        self, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
            except OSError:
                pytest.skip("this machine has no IPv6")
        monkeypatch.setenv("MSGQ_ZMQ_BIND", "[::1]")
        with (
            msgq.pub_sock(endpoint, backend="zmq") as pub,
            msgq.sub_sock(endpoint, addr="[::1]", timeout=DEADLINE_MS, backend="zmq") as sub,
        ):
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send(b"x")
            assert sub.receive() == b"x"

    def test_publisher_address_uses_bind_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_BIND", "*")
        assert publisher_address("can").uri == f"tcp://*:{compute_port('can')}"


class TestAsStock:
    """MSGQ_ZMQ_STOCK: the port of stock, and the interfaces of stock."""

    @pytest.fixture(autouse=True)
    def as_stock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_STOCK", "1")
        monkeypatch.setenv("OPENPILOT_PREFIX", "sim")

    @pytest.mark.parametrize(("name", "port"), GOLDEN)
    def test_stock_port_number_depends_only_on_endpoint(self, name: str, port: int) -> None:
        assert publisher_address(name).uri == f"tcp://*:{port}"
        assert subscriber_address(name, "10.0.0.7").uri == f"tcp://10.0.0.7:{port}"
        assert msgq.zeromq_address(name) == f"tcp://127.0.0.1:{port}"

    def test_bind_variable_sets_host_of_stock_ports(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_BIND", "127.0.0.2")
        assert publisher_address("can") == ZmqAddress("127.0.0.2", 62300)
        with settings.overrides(bind_host="127.0.0.3"):
            assert publisher_address("can") == ZmqAddress("127.0.0.3", 62300)

    @pytest.mark.parametrize("value", ["", "0"])
    def test_stock_ports_are_disabled_by_variable(self, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_STOCK", value)
        assert publisher_address("can") == ZmqAddress("127.0.0.1", compute_port("sim/can"))

    def test_address_map_overrides_stock_ports_and_uses_prefix(self, write_map: Callable[[str], None]) -> None:
        write_map('can = "tcp://a:1"\n"sim/can" = "tcp://b:2"')
        assert publisher_address("can") == ZmqAddress("b", 2)

    def test_stock_ports_refuse_same_endpoint_under_two_prefixes(
        self, endpoint: str, publish: Callable[[str], PubSocket], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(endpoint)
        monkeypatch.setenv("OPENPILOT_PREFIX", "other")
        with pytest.raises(IpcError, match=f"'sim/{endpoint}'"):
            publish(endpoint)


class TestMap:
    def test_address_map_sets_address_of_endpoint(self, write_map: Callable[[str], None]) -> None:
        write_map('can = "tcp://10.0.0.7:4000"\n"odd name" = "ipc:///run/odd"\nv6 = "tcp://[::1]:4001"')
        assert publisher_address("can") == subscriber_address("can", "ignored") == ZmqAddress("10.0.0.7", 4000)
        assert publisher_address("odd name").uri == "ipc:///run/odd"
        assert publisher_address("v6") == ZmqAddress("::1", 4001)

    def test_address_map_without_endpoint_keeps_default_address(self, write_map: Callable[[str], None]) -> None:
        write_map('can = "tcp://10.0.0.7:4000"')
        assert publisher_address("other").port == compute_port("other")

    def test_address_map_with_star_lets_subscriber_choose_host(self, write_map: Callable[[str], None]) -> None:
        write_map('can = "tcp://*:4000"')
        assert publisher_address("can").uri == "tcp://*:4000"
        assert subscriber_address("can", "far.example").uri == "tcp://far.example:4000"

    def test_address_map_keys_include_prefix(
        self, write_map: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_map('can = "tcp://a:1"\n"sim/can" = "tcp://b:2"')
        monkeypatch.setenv("OPENPILOT_PREFIX", "sim")
        assert publisher_address("can") == ZmqAddress("b", 2)

    @pytest.mark.parametrize(
        "value",
        [
            '"nowhere"',
            '"tcp://host"',
            '"tcp://:5"',
            '"tcp://h:0"',
            '"tcp://h:65536"',
            '"udp://h:5"',
            "5",
            '"ipc://relative"',
            '"ipc://"',
            '"inproc://x"',
            '"tcp://h:x"',
        ],
    )
    def test_address_map_with_invalid_address_raises_with_file_and_name(
        self, write_map: Callable[[str], None], value: str
    ) -> None:
        write_map(f"can = {value}")
        with pytest.raises(InvalidValueError, match=r"map\.toml.*is not an address") as caught:
            publisher_address("can")
        assert caught.value.endpoint == "can"

    def test_address_map_with_invalid_toml_raises_with_variable_name(
        self, write_map: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_map("this is not TOML")
        with pytest.raises(InvalidValueError, match="MSGQ_ZMQ_MAP"):
            publisher_address("can")
        monkeypatch.setenv("MSGQ_ZMQ_MAP", "/nowhere/at/all")
        with pytest.raises(InvalidValueError, match="/nowhere/at/all"):
            publisher_address("can")


class TestIpc:
    @pytest.fixture(autouse=True)
    def ipc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")

    def test_socket_files_are_in_private_directory(self) -> None:
        directory = Path(publisher_address("can").path).parent
        for path in (directory, directory.parent):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
            assert path.stat().st_uid == os.geteuid()

    def test_socket_file_paths_of_names_and_prefixes_are_unique(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = [publisher_address(name).path for name in ("a", "p%2Fa", "p a")]
        monkeypatch.setenv("OPENPILOT_PREFIX", "p")
        paths = {*plain, publisher_address("a").path}
        assert len(paths) == 4
        assert len({os.path.dirname(path) for path in paths}) == 1

    def test_ipc_name_too_long_for_path_is_refused(self) -> None:
        publisher_address("x" * 60)
        with pytest.raises(EndpointNameError, match="107"):
            publisher_address("x" * 100)

    def test_unknown_transport_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "pigeons")
        with pytest.raises(InvalidValueError, match="pigeons"):
            publisher_address("can")

    def test_ipc_directory_accessible_to_others_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shm_paths, "SHARED_MEMORY", str(tmp_path))
        path = Path(publisher_address("can").path)
        path.parent.parent.chmod(0o755)
        with pytest.raises(SegmentError, match="700"):
            publisher_address("can")

    def test_ipc_directory_link_is_not_followed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shm_paths, "SHARED_MEMORY", str(tmp_path))
        (tmp_path / "elsewhere").mkdir(0o700)
        (tmp_path / f"msgqzmq_{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(SegmentError, match="path is not a private directory of this user"):
            publisher_address("can")

    def test_ipc_socket_of_killed_publisher_is_replaced(
        self, endpoint: str, publish: Callable[[str], PubSocket]
    ) -> None:
        with Child(holds, endpoint) as child:
            assert child.hear() == "connected"
            child.kill()
        path = Path(publisher_address(endpoint).path)
        assert path.is_socket()
        publish(endpoint).close()
        assert not path.exists()

    def test_file_of_other_type_at_ipc_path_is_kept(
        self, endpoint: str, tmp_path: Path, write_map: Callable[[str], None], publish: Callable[[str], PubSocket]
    ) -> None:
        (tmp_path / "precious").write_text("data")
        write_map(f'{endpoint} = "ipc://{tmp_path}/precious"')
        with pytest.raises(IpcError):
            publish(endpoint)
        assert (tmp_path / "precious").read_text() == "data"

    def test_ipc_socket_of_live_program_is_kept(self, endpoint: str, publish: Callable[[str], PubSocket]) -> None:
        path = publisher_address(endpoint).path
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(path)
            foreign.listen()
            with pytest.raises(MultiplePublishersError, match=endpoint):
                publish(endpoint)
            assert os.path.exists(path)
        os.unlink(path)

    def test_ipc_socket_exists_again_after_close(self, endpoint: str, publish: Callable[[str], PubSocket]) -> None:
        for _ in range(50):
            publish(endpoint).close()
        publish(endpoint)
        assert Path(publisher_address(endpoint).path).is_socket()


def holds(endpoint: str) -> None:
    """Publish until killed, or told to end."""
    pub = PubSocket()
    pub.connect(Context(), endpoint)
    say("connected")
    hear()
    pub.close()


class TestCollisions:
    def test_error_of_second_publisher_names_first_process(
        self, endpoint: str, write_map: Callable[[str], None], publish: Callable[[str], PubSocket], free_port: int
    ) -> None:
        write_map(f'{endpoint} = "tcp://127.0.0.1:{free_port}"')
        with Child(holds, endpoint) as child:
            assert child.hear() == "connected"
            with pytest.raises(MultiplePublishersError, match=f"process {child.pid} publishes") as caught:
                publish(endpoint)
            assert caught.value.endpoint == endpoint
            assert caught.value.errno == errno.EADDRINUSE
            child.kill()
        publish(endpoint)  # the dead hold nothing

    def test_two_endpoint_names_can_have_equal_ports(self) -> None:
        assert compute_port(TWINS[0]) == compute_port(TWINS[1])

    def test_address_collision_error_names_both_endpoints(
        self, endpoint: str, write_map: Callable[[str], None], publish: Callable[[str], PubSocket], free_port: int
    ) -> None:
        write_map(f'{endpoint} = "tcp://127.0.0.1:{free_port}"\nother = "tcp://127.0.0.1:{free_port}"')
        publish(endpoint)
        with pytest.raises(IpcError, match=f"'other'.*{free_port}.*'{endpoint}'") as caught:
            publish("other")
        assert not isinstance(caught.value, MultiplePublishersError)
        assert (caught.value.endpoint, caught.value.errno) == ("other", errno.EADDRINUSE)

    def test_publisher_on_used_port_of_all_interfaces_raises(
        self, endpoint: str, write_map: Callable[[str], None], publish: Callable[[str], PubSocket], free_port: int
    ) -> None:
        write_map(f'{endpoint} = "tcp://127.0.0.1:{free_port}"\nother = "tcp://*:{free_port}"')
        publish(endpoint)
        with pytest.raises(IpcError, match=f"'other'.*'{endpoint}'"):
            publish("other")

    def test_two_publishers_can_use_same_port_on_two_hosts(
        self, endpoint: str, write_map: Callable[[str], None], publish: Callable[[str], PubSocket], free_port: int
    ) -> None:
        write_map(f'{endpoint} = "tcp://127.0.0.1:{free_port}"\nother = "tcp://127.0.0.2:{free_port}"')
        publish(endpoint)
        publish("other")

    def test_address_used_by_another_program_raises(
        self, endpoint: str, write_map: Callable[[str], None], publish: Callable[[str], PubSocket], free_port: int
    ) -> None:
        write_map(f'{endpoint} = "tcp://127.0.0.1:{free_port}"')
        with socket.socket() as foreign:
            foreign.bind(("127.0.0.1", free_port))
            foreign.listen()
            with pytest.raises(MultiplePublishersError, match="another program"):
                publish(endpoint)
        publish(endpoint)

    def test_bind_to_address_of_another_machine_raises_with_host(
        self, endpoint: str, monkeypatch: pytest.MonkeyPatch, publish: Callable[[str], PubSocket]
    ) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_BIND", "192.0.2.1")
        with pytest.raises(IpcError, match=r"192\.0\.2\.1"):
            publish(endpoint)
        monkeypatch.setenv("MSGQ_ZMQ_BIND", "no host at all")
        with pytest.raises(InvalidValueError, match="no host"):
            publish(endpoint)

    def test_released_address_claim_leaves_no_file(
        self, endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(shm_paths, "SHARED_MEMORY", str(tmp_path))
        claim = AddressClaim(endpoint, ZmqAddress("127.0.0.1", 0))
        assert len(list(tmp_path.rglob("claims/*"))) == 1
        os.close(claim.listener)
        claim.release_address()
        assert not list(tmp_path.rglob("claims/*"))


class TestForOtherPrograms:
    def test_zeromq_address_function_returns_subscriber_address(self, write_map: Callable[[str], None]) -> None:
        assert msgq.zeromq_address("carState") == "tcp://127.0.0.1:9041"
        assert msgq.zeromq_address(b"carState", "10.0.0.7") == "tcp://10.0.0.7:9041"
        assert msgq.zeromq_address("carState", "::1") == "tcp://[::1]:9041"
        write_map('carState = "tcp://*:9001"')
        assert msgq.zeromq_address("carState", "10.0.0.7") == "tcp://10.0.0.7:9001"

    def test_zeromq_address_function_refuses_invalid_name(self) -> None:
        with pytest.raises(EndpointNameError):
            msgq.zeromq_address("a/b")

    def test_plain_zmq_socket_receives_at_zeromq_address(
        self, endpoint: str, publish: Callable[[str], PubSocket]
    ) -> None:
        pub = publish(endpoint)
        with zmq.Context() as context, context.socket(zmq.SUB) as plain:
            plain.subscribe(b"")
            plain.connect(msgq.zeromq_address(endpoint))
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send(b"x")
            assert plain.recv() == b"x"
