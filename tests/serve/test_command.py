"""The command `msgq serve`: its options, output and errors."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

import msgq
from tests.command import run, start
from tests.serve.foxglove_client import Server
from tests.serve.test_websocket import run_client


def test_name_without_endpoint_is_awaited_and_selects_later_endpoint(prefix: str) -> None:
    process = start("serve", "pose.*", "--prefix", prefix, "--all", "--port", "0", "--json")
    with Server(process) as server, msgq.pub_sock("pose.left"), msgq.pub_sock("other"):
        run_client(server, lambda client: client.wait_for(lambda: [*client.channels] == ["pose.left"]))
        server.process.terminate()
        assert server.process.communicate()[1] == "msgq: no endpoint matches pose.* yet; waiting\n"


def test_port_in_use_is_an_error(prefix: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = run("serve", "--port", listener.getsockname()[1], code=1)
    assert "address already in use" in done.stderr


def test_text_output_has_both_addresses(prefix: str) -> None:
    with start("serve", "--port", "0") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.terminate()
        assert process.communicate() == ("", "")
    assert lines[0].startswith("page:      http://127.0.0.1:")
    assert lines[1].startswith("websocket: ws://127.0.0.1:")
    assert lines[2] == "Ctrl-C or SIGTERM stops the command.\n"


@pytest.mark.parametrize("missing", ["aiohttp", "cv2"])
def test_missing_library_is_reported_with_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from msgq.cli import main; main(['serve', '--port', '0'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'msgq-bus[serve]'" in done.stderr
