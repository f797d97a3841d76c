"""A forked process of the tests behaves like a new one: streams, environment, exit codes, and its end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests import fork_server
from tests.fork_server import ForkedProcess, _Server
from tests.support import Child, say

PIPES: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}


def start_forked_process(function: str, *arguments: object, **options: Any) -> ForkedProcess:
    return ForkedProcess(__name__, function, arguments, **{**PIPES, **options})


def print_and_exit(code: Any) -> None:
    print("out")
    print("grüß\udcff", file=sys.stderr)
    sys.exit(code)


@pytest.mark.parametrize(("code", "status", "said"), [(None, 0, ""), (3, 3, ""), ("why", 1, "why\n")])
def test_forked_process_exits_like_new_process(code: object, status: int, said: str) -> None:
    with start_forked_process("print_and_exit", code) as process:
        assert process.communicate() == ("out\n", f"grüß\\udcff\n{said}")
        assert process.returncode == status


def raise_value_error() -> None:
    raise ValueError("wrong")


def test_forked_process_with_exception_prints_traceback() -> None:
    with start_forked_process("raise_value_error") as process:
        assert process.communicate()[1].endswith("ValueError: wrong\n")
        assert process.returncode == 1


def leave_late() -> None:
    def outlast() -> None:
        threading.main_thread().join()
        print("thread")

    atexit.register(print, "at exit")
    threading.Thread(target=outlast).start()


def test_forked_process_waits_for_threads_and_runs_exit_handlers() -> None:
    with start_forked_process("leave_late") as process:
        assert process.communicate() == ("null\nthread\nat exit\n", "")


def print_later() -> None:
    sys.stdin.read()
    print("out")
    sys.exit(0)


def test_forked_process_with_closed_pipe_exits_with_code_120() -> None:
    with start_forked_process("print_later") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.close()
        assert process.wait() == 120


def describe_process() -> list[Any]:
    return [os.getcwd(), os.environ.get("FORKED"), os.getppid(), sys.stdin.read()]


def test_forked_process_has_requested_directory_and_environment_and_parent(tmp_path: Path) -> None:
    with start_forked_process("describe_process", cwd=tmp_path, env={**os.environ, "FORKED": "yes"}) as process:
        output, _ = process.communicate("input")
    assert output == f'["{tmp_path}", "yes", {os.getpid()}, "input"]\n'


def wait_for_signal() -> None:
    print("up", flush=True)
    while True:  # a signal just before `signal.pause()` would be handled when that ends
        time.sleep(0.001)


def test_ctrl_c_in_terminal_of_new_session_reaches_forked_process() -> None:
    leader, terminal = os.openpty()
    try:
        with start_forked_process("wait_for_signal", stdin=terminal, start_new_session=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            os.write(leader, b"\x03")
            assert process.wait() == -signal.SIGINT
    finally:
        os.close(leader)
        os.close(terminal)


def test_fork_server_stops_while_child_holds_server_socket() -> None:
    server = _Server()
    if (pid := os.fork()) == 0:
        signal.pause()
    try:
        server.stop()
        assert server._process.returncode == 0
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait_for_kill() -> None:
    say("started")
    signal.pause()


def test_child_is_killed_if_orphans_cannot_be_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's child would have another parent, so `kill` would take it for a process that has ended."""
    monkeypatch.setattr(fork_server, "_PR_SET_CHILD_SUBREAPER", 9999)  # an option that no kernel knows
    with pytest.raises(OSError, match="cannot set PR_SET_CHILD_SUBREAPER"):
        start_forked_process("wait_for_kill")
    with Child(wait_for_kill) as child:
        assert child.hear() == "started"
        child.kill()
        assert child.process.returncode == -signal.SIGKILL
