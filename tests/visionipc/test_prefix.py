"""A server and its clients choose a prefix with an argument; without it they use that of the environment, as stock."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from msgq.errors import EndpointNameError
from msgq.simulation import Simulation
from tests.support import wait_until
from tests.visionipc.conftest import HEIGHT, SOCKETS, WIDTH
from visionipc import VisionBuf, VisionIpcClient, VisionIpcServer, get_endpoint_name

SHM = Path("/dev/shm")
SIZE = WIDTH * HEIGHT * 3 // 2


@pytest.fixture
def prefixes(prefix: str) -> Iterator[tuple[str, str]]:
    """Two prefixes that are not in the environment; their files are removed afterwards."""
    names = f"{prefix}a", f"{prefix}b"
    yield names
    for name in names:
        for start in ("msgq_", "msgqside_"):
            shutil.rmtree(SHM / f"{start}{name}", ignore_errors=True)


@pytest.fixture(params=["shared memory", "fake"])
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    run: AbstractContextManager[object] = Simulation() if request.param == "fake" else nullcontext()
    with run:
        yield


def start_server(name: str, prefix: str | None) -> VisionIpcServer:
    server = VisionIpcServer(name, prefix=prefix)
    server.create_buffers(0, 4, WIDTH, HEIGHT)
    server.start_listener()
    return server


@pytest.mark.usefixtures("backend")
def test_servers_of_two_prefixes_are_separate(prefixes: tuple[str, str], token: str) -> None:
    with (
        start_server(token, prefixes[0]) as first,
        start_server(token, prefixes[1]) as second,
        VisionIpcClient(token, 0, False, prefix=prefixes[0]) as first_client,
        VisionIpcClient(token, 0, False, prefix=prefixes[1]) as second_client,
        VisionIpcClient(token, 0, False) as client_without,
    ):
        assert first_client.connect(True)
        assert second_client.connect(True)
        assert not client_without.connect(False)
        assert VisionIpcClient.available_streams(token, False, prefix=prefixes[0]) == {0}
        assert VisionIpcClient.available_streams(token, False) == set()
        first.send(0, bytes(SIZE), frame_id=1)
        second.send(0, bytes(SIZE), frame_id=2)
        frames = [client.recv(1000) for client in (first_client, second_client)]
        assert [frame and frame.frame_id for frame in frames] == [1, 2]
        del frames
        assert first_client.recv(0) is second_client.recv(0) is None


@pytest.mark.usefixtures("backend")
def test_prefix_argument_and_environment_select_same_server(prefix: str, token: str) -> None:
    with start_server(token, None), VisionIpcClient(token, 0, False, prefix=prefix) as client:
        assert client.connect(True)


def test_prefix_is_part_of_stock_paths(prefix: str, prefixes: tuple[str, str], token: str) -> None:
    with start_server(token, prefixes[0]), start_server(token, None):
        for used in (prefix, prefixes[0]):
            assert (SOCKETS / f"{used}_visionipc_{token}").is_socket()
            assert (SHM / f"msgq_{used}" / get_endpoint_name(token, 0)).exists()


def test_client_follows_restarted_server_of_its_prefix(prefixes: tuple[str, str], token: str) -> None:
    with VisionIpcClient(token, 0, False, prefix=prefixes[0]) as client:
        with start_server(token, prefixes[0]):
            assert client.connect(True)
        with start_server(token, prefixes[0]) as server:

            def receive_new_frame() -> VisionBuf | None:
                """Send a frame and receive it; None: the new server was too slow for the client's request."""
                server.send(0, bytes(SIZE), frame_id=7)
                return client.recv(100)

            frame: VisionBuf = wait_until(receive_new_frame)
            assert (frame.frame_id, client.connections) == (7, 2)


@pytest.mark.usefixtures("backend")
def test_prefix_of_environment_is_read_at_creation(
    prefix: str, prefixes: tuple[str, str], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = VisionIpcServer(token), VisionIpcClient(token, 0, False)
    monkeypatch.setenv("OPENPILOT_PREFIX", prefixes[0])
    server.create_buffers(0, 4, WIDTH, HEIGHT)
    server.start_listener()
    with server, client, start_server(token, None) as other, VisionIpcClient(token, 0, False, prefix=prefix) as peer:
        assert client.connect(True)
        assert peer.connect(True)
        other.send(0, bytes(SIZE), frame_id=1)
        server.send(0, bytes(SIZE), frame_id=2)
        frames = [each.recv(1000) for each in (client, peer)]
        assert [frame and frame.frame_id for frame in frames] == [2, 2]
        del frames


def test_prefix_with_slash_is_refused(token: str) -> None:
    with pytest.raises(EndpointNameError):
        VisionIpcServer(token, prefix="a/b")
    with pytest.raises(EndpointNameError):
        VisionIpcClient(token, 0, False, prefix="a/b")
