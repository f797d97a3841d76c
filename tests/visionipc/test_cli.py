"""`msgq frames`: what it shows is what is there, and looking leaves no trace."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from msgq.cli.app import app
from msgq.cli.frames import view
from msgq.stats import topic, topic_inodes
from tests.command import start
from tests.support import SHM, Child, hear, repeating, say, wait_until
from visionipc import FrameFormat, VisionIpcServer, get_endpoint_name, memfd, wire
from visionipc.formats import geometry

WIDTH, HEIGHT = 64, 48
RED, GREEN = (248, 0, 0), (0, 248, 0)
DEADLINE_S = 50


def serve(name: str) -> None:
    """A server of two streams, until it is told to end: NV12, and RGB with a red upper and a green lower half."""
    with VisionIpcServer(name) as server:
        server.create_buffers(0, 4, WIDTH, HEIGHT)
        server.create_buffers(7, 3, WIDTH, HEIGHT, FrameFormat.RGB24)
        server.start_listener()
        say(os.getpid())
        while (command := hear()) != "end":
            if command == "stats":
                say([server.stats(7).held, server.stats(7).clients])
                continue
            for _ in range(command):
                with server.frame(7) as frame:
                    frame.image[: HEIGHT // 2] = RED
                    frame.image[HEIGHT // 2 :] = GREEN
                server.send(0, bytes(WIDTH * HEIGHT * 3 // 2))
            say(command)


@pytest.fixture
def cameras(name: str) -> Iterator[Child]:
    with Child(serve, name) as child:
        assert child.hear() == child.pid
        yield child
        child.say("end")
        child.result()


def streaming(cameras: Child) -> AbstractContextManager[None]:
    """Send up to 200 frames a second in the background, while a verb runs in this process or another."""

    def send() -> None:
        cameras.say(1)
        cameras.hear()

    return repeating(send, 0.005)


def msgq(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["frames", *arguments])


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_list_shows_streams_with_layout_and_process(name: str, prefix: str, cameras: Child) -> None:
    found = lines(msgq("list", "--json", "--duration", "0.01", "--prefix", prefix))
    assert [(one["server"], one["stream"], one["format"], one["buffers"]) for one in found] == [
        (name, 0, "NV12", 4),
        (name, 7, "RGB24", 3),
    ]
    assert {(one["pid"], one["width"], one["height"], one["state"]) for one in found} == {
        (cameras.pid, WIDTH, HEIGHT, "serving")
    }
    assert [one["bytes"] for one in found] == [WIDTH * HEIGHT * 3 // 2, WIDTH * HEIGHT * 3]
    table = msgq("list", "--duration", "0.01", "--prefix", prefix)
    assert table.exit_code == 0
    assert "RGB24" in table.output


def test_frames_list_shows_frame_rate_of_sampling_interval(prefix: str, cameras: Child) -> None:
    assert [one["rate"] for one in lines(msgq("list", "--json", "--duration", "0.01", "--prefix", prefix))] == [
        0.0,
        0.0,
    ]
    with streaming(cameras):
        assert all(one["rate"] > 0 for one in lines(msgq("list", "--json", "--duration", "0.5", "--prefix", prefix)))


def test_frames_list_uses_no_client_row_and_no_buffer(name: str, prefix: str, cameras: Child) -> None:
    with streaming(cameras):
        msgq("list", "--duration", "0.1", "--prefix", prefix)
    assert topic(get_endpoint_name(name, 7), prefix).subscribers == ()
    cameras.say("stats")
    assert cameras.hear() == [0, []]


def stock_server(name: str) -> None:
    """A server as stock's: it answers a request's first four bytes, knows no leases, and has one stream, 1."""
    shape = geometry(FrameFormat.NV12, WIDTH, HEIGHT)
    fd = memfd.create_memfd(name, shape.size + wire.FRAME_ID_BYTES, name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(wire.socket_path(name))
        listener.listen()
        say("up")
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                (kind,) = wire.REQUEST_STRUCT.unpack(connection.recv(wire.REQUEST_STRUCT.size))
                if kind == wire.LIST_REQUEST:
                    connection.send(wire.REQUEST_STRUCT.pack(1))
                else:
                    socket.send_fds(connection, [wire.Record(shape, 5, 0, kind).pack(fd)], [fd])
    os.unlink(wire.socket_path(name))


def test_list_shows_streams_of_a_stock_server(name: str, prefix: str) -> None:
    with Child(stock_server, name) as child:
        assert child.hear() == "up"
        (found,) = lines(msgq("list", "--json", "--duration", "0.01", "--prefix", prefix))
        assert (found["pid"], found["stream"], found["format"]) == (child.pid, 1, "NV12")
        assert (found["width"], found["buffers"], found["rate"]) == (WIDTH, 1, None)
        child.result()


def test_frames_list_reports_missing_listener_of_dead_server(name: str, prefix: str) -> None:
    path = Path(f"/tmp/{prefix}_visionipc_{name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(path))
    (found,) = lines(msgq("list", "--json", "--prefix", prefix))
    assert (found["server"], found["state"], found["stream"]) == (name, "no process listens", None)
    path.unlink()


def test_list_with_prefix_shows_streams_of_that_prefix(
    name: str, prefix: str, cameras: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPILOT_PREFIX", f"{prefix}x")
    assert lines(msgq("list", "--json")) == []
    found = lines(msgq("list", "--json", "--duration", "0.01", "--prefix", prefix))
    assert {one["server"] for one in found} == {name}


def test_list_without_streams_is_empty(prefix: str) -> None:
    assert lines(msgq("list", "--json", "--prefix", prefix)) == []


def test_save_to_png_writes_picture(name: str, tmp_path: Path, cameras: Child) -> None:
    import cv2

    with streaming(cameras):
        (saved,) = lines(msgq("save", name, str(tmp_path / "one.png"), "--stream", "7", "--json"))
    assert saved["path"] == str(tmp_path / "one.png")
    found = cv2.imread(saved["path"])
    assert found is not None
    picture = found[:, :, ::-1]
    assert picture.shape == (HEIGHT, WIDTH, 3)
    assert (picture[: HEIGHT // 2] == RED).all()
    assert (picture[HEIGHT // 2 :] == GREEN).all()


def test_save_of_raw_frames_writes_unchanged_bytes(name: str, tmp_path: Path, cameras: Child) -> None:
    with streaming(cameras):
        saved = lines(msgq("save", name, str(tmp_path / "all.bin"), "--stream", "7", "--count", "3", "--raw", "--json"))
    assert [Path(one["path"]).name for one in saved] == ["all-0001.bin", "all-0002.bin", "all-0003.bin"]
    assert [one["frame_id"] for one in saved] == sorted({one["frame_id"] for one in saved})
    for one in saved:
        assert Path(one["path"]).read_bytes() == bytes(RED) * (WIDTH * HEIGHT // 2) + bytes(GREEN) * (
            WIDTH * HEIGHT // 2
        )


def test_view_without_terminal_saves_one_frame(name: str, tmp_path: Path, cameras: Child) -> None:
    with streaming(cameras):
        result = msgq("view", name, "--stream", "7", "--png", str(tmp_path / "seen.png"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")


def test_frames_view_with_json_option_prints_and_releases_frames(name: str, cameras: Child) -> None:
    with streaming(cameras):
        seen = lines(msgq("view", name, "--count", "4", "--json"))
    assert [(one["format"], one["width"]) for one in seen] == [("NV12", WIDTH)] * 4
    cameras.say("stats")
    assert cameras.hear() == [0, []]


def test_view_without_output_is_usage_error(name: str, cameras: Child) -> None:
    assert msgq("view", name).exit_code == 2


def test_frames_command_without_library_names_package(
    name: str, tmp_path: Path, cameras: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("cv2", "av"):
        monkeypatch.setitem(sys.modules, library, None)
    with streaming(cameras):
        result = msgq("save", name, str(tmp_path / "never.png"))
    assert result.exit_code == 1
    assert "pip install 'msgq-bus[frames]'" in result.output
    assert not (tmp_path / "never.png").exists()


@pytest.mark.parametrize("verb", [["view", "--json"], ["save", "/nowhere/file"]])
def test_frames_command_without_server_prints_one_line_error(name: str, verb: list[str]) -> None:
    result = msgq(verb[0], name, *verb[1:])
    assert result.exit_code == 1
    assert "msgq frames list" in result.output
    assert get_endpoint_name(name, 0) not in topic_inodes()  # a wrong name makes no topic


@pytest.mark.parametrize("verb", [["view", "--json"], ["save", "frame.png"]])
def test_frames_command_without_frames_fails_after_timeout(name: str, cameras: Child, verb: list[str]) -> None:
    result = msgq(verb[0], name, *verb[1:], "--timeout", "0.01")
    assert result.exit_code == 1
    assert "no frame within 0.01 s" in result.output


@pytest.mark.parametrize("verb", [["view", "--json", "--count", "1"], ["save", "frame.png", "--json"]])
def test_frames_command_with_prefix_finds_server_of_that_prefix(
    name: str, prefix: str, cameras: Child, verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENPILOT_PREFIX")
    monkeypatch.chdir(tmp_path)
    with streaming(cameras):
        assert lines(msgq(verb[0], name, *verb[1:], "--stream", "7", "--prefix", prefix))
    assert msgq(verb[0], name, *verb[1:], "--timeout", "0.01").exit_code == 1


def test_view_of_missing_stream_fails(name: str, cameras: Child) -> None:
    result = msgq("view", name, "--json", "--stream", "3")
    assert result.exit_code == 1
    assert "the server has 0, 7" in result.output
    assert get_endpoint_name(name, 3) not in topic_inodes()


def test_save_to_unwritable_file_prints_one_line_error(name: str, tmp_path: Path, cameras: Child) -> None:
    with streaming(cameras):
        result = msgq("save", name, str(tmp_path / "missing" / "frame"), "--raw")
    assert result.exit_code == 1
    assert "No such file or directory" in result.output
    assert len(result.output.splitlines()) == 1


def test_terminal_picture_shows_two_pixels_per_character() -> None:
    rgb = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    rgb[: HEIGHT // 2], rgb[HEIGHT // 2 :] = RED, GREEN
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=32, height=80)
    with screen.capture() as capture:
        screen.print(view.HalfBlockPicture(rgb, "a title"))
    *rows, title = capture.get().rstrip("\n").split("\n")
    assert title.strip() == "a title"
    assert [row.count("▀") for row in rows] == [32] * 12
    red, green = ";".join(map(str, RED)), ";".join(map(str, GREEN))
    assert [f"38;2;{red};48;2;{red}m" in row for row in rows] == [True] * 6 + [False] * 6
    assert [f"38;2;{green};48;2;{green}m" in row for row in rows] == [False] * 6 + [True] * 6


def test_terminal_picture_fits_width_and_keeps_aspect_ratio() -> None:
    rgb = np.zeros((1080, 1920, 3), np.uint8)
    assert view.scale_picture(rgb, 80, 1000).shape == (44, 80, 3)
    assert view.scale_picture(rgb, 1000, 46).shape == (46, 81, 3)
    assert view.scale_picture(rgb[:, :1], 5, 2).shape == (2, 1, 3)


def test_view_in_terminal_ends_after_ctrl_c(name: str, tmp_path: Path, cameras: Child) -> None:
    ours, theirs = os.openpty()
    saved = tmp_path / "last.png"
    words = "frames", "view", name, "--stream", "7", "--png", saved
    environment = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with streaming(cameras), start(*words, stdin=theirs, stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while b"RGB24" not in shown:  # the line below the first picture
            shown += os.read(ours, 1 << 16)
        process.send_signal(signal.SIGINT)
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            read_to_the_end(terminal)
        assert process.wait(DEADLINE_S) == 0
    assert "▀".encode() in shown
    assert saved.stat().st_size


def read_to_the_end(terminal: io.RawIOBase) -> None:
    try:
        while terminal.read(1 << 16):
            pass
    except OSError:  # nobody has the other end any more
        pass


def left_of_benches(prefix: str) -> list[str]:
    shm = [str(path) for path in SHM.glob(f"msgq*_{prefix}/*bench*")]
    return shm + [str(path) for path in Path("/tmp").glob(f"{prefix}_visionipc_bench*")]


def test_frames_bench_measures_two_runs_and_removes_files(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENPILOT_PREFIX")
    small = ("--width", "64", "--height", "48", "--rate", "200", "--duration", "0.3")
    fast, steady = lines(msgq("bench", *small, "--prefix", prefix, "--json"))
    for run in (fast, steady):
        assert run["frames"] > 0
        assert 0 < run["p50_us"] <= run["p99_us"] <= run["p999_us"]
    assert fast["lost"] == 0
    assert steady["frames"] <= 200 * steady["seconds"] + 2
    assert left_of_benches(prefix) == []


def test_killed_frames_bench_leaves_no_files(prefix: str) -> None:
    with start("frames", "bench", "--duration", "600") as process:
        wait_until(lambda: any("visionipc" in path for path in left_of_benches(prefix)), "a server listens")
        process.kill()
    wait_until(lambda: not left_of_benches(prefix), "its server has swept up")
