"""C and C++ programs take part as Python does: in both directions, killed, with hostile files."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import msgq
from msgq.impl.base import clock
from msgq.kinds.opening import open_feed
from tests.support import DEADLINE, DEADLINE_MS, ROOT, SHM, wait_asleep, wait_until
from tests.unit.c_programs import INCLUDE, UNITS, Program

READING = struct.Struct("<Qd")
NUMBER = struct.Struct("<d")
QUOTE = [("price", "<f8"), ("size", "<i8")]


# ---- topics ----


def test_c_subscriber_receives_messages_of_python(programs: Path, prefix: str) -> None:
    with Program(programs / "topic", "subscribe", "t", "1000") as program:
        assert program.hear() == "ready"
        [reader] = msgq.stats.topic("t").subscribers
        assert (reader.participant.pid, reader.participant.name, reader.participant.alive) == (
            program.pid,
            "topic",
            True,
        )
        with msgq.pub_sock("t") as publisher:
            for i in range(1000):
                publisher.send(READING.pack(i, i / 2))
            assert program.end() == [f"{i} {i / 2:.1f}" for i in range(1000)] + ["received 1000, lost 0"]
    assert msgq.stats.topic("t").subscribers == ()


def test_c_publisher_sends_messages_to_python(programs: Path, prefix: str) -> None:
    with msgq.sub_sock("t", timeout=DEADLINE_MS) as subscriber:
        with Program(programs / "topic", "publish", "t", "1000") as program:
            received = [READING.unpack(subscriber.receive() or b"") for _ in range(1000)]
            program.end()
        assert received == [(i, 20 + i / 2) for i in range(1000)]
        assert subscriber.lost == 0
        assert msgq.stats.topic("t").messages == 1000


def test_cpp_program_echoes_messages_of_all_sizes(programs: Path, prefix: str) -> None:
    sizes = [1, 7, 8, 4096, 65536, 0]
    with Program(programs / "topic-cpp", "t", str(len(sizes))) as program:
        assert program.hear() == "ready"
        info = msgq.stats.topic("t:back").publisher
        assert info is not None
        assert (info.pid, info.name) == (program.pid, "topic-cpp")
        with msgq.pub_sock("t") as publisher, msgq.sub_sock("t:back", timeout=DEADLINE_MS) as subscriber:
            for size in sizes:
                data = random.Random(size).randbytes(size)
                publisher.send(data)
                assert subscriber.receive() == data[::-1]
        program.end()


def test_c_publisher_sends_timestamps_on_tracked_topic(programs: Path, prefix: str) -> None:
    msgq.pub_sock("t", tracked=True).close()
    with msgq.sub_sock("t", timeout=DEADLINE_MS) as subscriber:
        before = clock.time_ns()
        with Program(programs / "topic", "publish", "t", "10") as program:
            messages = [subscriber.receive_tracked() for _ in range(10)]
            program.end()
        times = [message.publish_time for message in messages if message is not None]
        assert [READING.unpack(message.data)[0] for message in messages if message is not None] == [*range(10)]
        assert times == [message.origin_time for message in messages if message is not None]
        assert times == sorted(set(times))
        assert before <= times[0] <= times[-1] <= clock.time_ns()


def test_new_publisher_replaces_live_or_killed_c_publisher(programs: Path, prefix: str) -> None:
    with Program(programs / "topic-cpp", "t", "2") as program:
        assert program.hear() == "ready"
        program.kill()
        stats = msgq.stats.topic("t:back")
        assert stats.publisher is None or stats.publisher.alive is False
        with msgq.sub_sock("t:back", timeout=DEADLINE_MS) as subscriber, msgq.pub_sock("t:back") as publisher:
            publisher.send(b"again")
            assert subscriber.receive() == b"again"
    with Program(programs / "topic-cpp", "t", "2") as program, msgq.pub_sock("t") as publisher:
        assert program.hear() == "ready"
        assert [reader.participant.alive for reader in msgq.stats.topic("t").subscribers] == [False, True]
        with msgq.pub_sock("t:back"):
            publisher.send(b"first")
            assert program.process.wait(DEADLINE) == 1
        assert "another publisher took over" in program.process.communicate()[1]


# ---- channels ----


def test_c_channel_subscriber_receives_from_python(programs: Path, prefix: str) -> None:
    channel = msgq.Channel("chat", node="Ann")
    with Program(programs / "channel", "listen", "chat", "100") as program:
        assert program.hear() == "ready"
        [listener] = msgq.stats.channel("chat").subscribers
        assert (listener.participant.pid, listener.node, listener.participant.alive) == (program.pid, "listener", True)
        with channel.publisher() as publisher:
            for i in range(100):
                publisher.send(f"hello {i}".encode())
                heard = program.hear()
                assert heard == f"Ann: hello {i}"
        assert program.end() == ["received 100, lost 0"]
    channel.close()


def test_python_subscriber_receives_from_c_channel_publisher(programs: Path, prefix: str) -> None:
    channel = msgq.Channel("chat", capacity=128)
    with channel.subscriber() as subscriber:
        before = clock.time_ns()
        with Program(programs / "channel", "say", "chat", "100") as program:
            heard = [subscriber.receive(DEADLINE) for _ in range(100)]
            program.end()
        assert heard == [f"line {i}".encode() for i in range(100)]
        assert subscriber.lost == 0
        last = subscriber.last
        assert last is not None
        assert last.publisher.name == "speaker"
        assert last.publisher.pid == program.pid
        assert before <= last.publish_time <= clock.time_ns()
    channel.close()


def test_cpp_program_receives_and_answers_on_channels(programs: Path, prefix: str) -> None:
    with Program(programs / "channel-cpp", "n", "50") as program:
        assert program.hear() == "ready"
        numbers, sums = msgq.Channel("n"), msgq.Channel("n.sums")
        with numbers.publisher() as publisher, sums.subscriber() as subscriber:
            for i in range(50):
                publisher.send(NUMBER.pack(i))
                assert subscriber.receive(DEADLINE) == NUMBER.pack(i * (i + 1) / 2)
            program.end()
        numbers.close()
        sums.close()


def test_slots_of_killed_c_channel_publisher_are_reclaimed(programs: Path, prefix: str) -> None:
    channel = msgq.Channel("n.sums", capacity=4)
    for _ in range(3):
        with Program(programs / "channel-cpp", "n", "1") as program:
            assert program.hear() == "ready"
            [publisher] = msgq.stats.channel("n.sums").publishers  # the row of the one before was cleared
            assert (publisher.participant.pid, publisher.node) == (program.pid, "adder")
            program.kill()
    assert any(SHM.glob(f"msgqpool_{prefix}/n.sums:*"))
    with channel.publisher(), channel.subscriber():
        assert len([*SHM.glob(f"msgqpool_{prefix}/n.sums:*")]) == 1, "pools of the dead without messages are removed"
    channel.close()


# ---- work queues ----


def test_c_worker_takes_messages_of_python(programs: Path, prefix: str) -> None:
    with msgq.MessageQueue("jobs") as queue:
        for i in range(50):
            queue.send(f"{i}".encode(), i % 3)
        with Program(programs / "queue", "work", "jobs", "50") as program:
            expected = [f"{i}, priority {p}, delivery 1" for p in (2, 1, 0) for i in range(50) if i % 3 == p]
            assert program.end() == expected
        assert queue.current_messages == queue.in_flight == 0


def test_c_sender_sends_queue_messages_to_python(programs: Path, prefix: str) -> None:
    with msgq.MessageQueue("jobs", max_messages=16) as queue:  # the sender waits for room
        with Program(programs / "queue", "send", "jobs", "100") as program:
            wait_until(lambda: queue.current_messages == 16)
            received = [queue.receive(timeout=DEADLINE) for _ in range(100)]
            program.end()
        assert sorted(m.data for m in received if m) == sorted(f"job {i}".encode() for i in range(100))
        for priority in (0, 1):
            of_one = [int(m.data.split()[1]) for m in received if m and m.priority == priority]
            assert of_one == sorted(of_one)
        assert queue.receive(timeout=0) is None


def test_cpp_program_forwards_between_queues(programs: Path, prefix: str) -> None:
    with Program(programs / "queue-cpp", "jobs", "20") as program:
        assert program.hear() == "ready"
        with msgq.MessageQueue("jobs", 0) as todo, msgq.MessageQueue("jobs.done", 0) as done:
            assert (todo.max_messages, todo.max_message_size) == (8, 64)
            for i in range(20):
                todo.send(f"piece {i}".encode(), 7, timeout=DEADLINE)
                message = done.receive(timeout=DEADLINE)
                assert message is not None
                assert (message.data, message.priority) == (f"PIECE {i}".encode(), 7)
            program.end()
            assert todo.in_flight == 0


def test_job_of_killed_c_worker_returns_to_queue(programs: Path, prefix: str) -> None:
    with msgq.MessageQueue("jobs") as queue:
        queue.send(b"piece")
        with Program(programs / "queue", "hang", "jobs", "1") as program:
            assert program.hear() == "piece, priority 0, delivery 1"
            stats = msgq.stats.queue("jobs")
            assert program.pid in [handle.participant.pid for handle in stats.handles]
            assert queue.receive(timeout=0) is None
            program.kill()
            message = queue.receive(timeout=DEADLINE)
        assert message is not None
        assert (message.data, message.deliveries) == (b"piece", 2)


# ---- records ----


def test_c_program_reads_vector_written_by_python(programs: Path, prefix: str) -> None:
    with Program(programs / "records", "watch", "quotes", "8") as program:
        assert program.hear() == "ready"
        with msgq.SeqlockVector("quotes") as quotes:
            assert (quotes.dtype.descr, len(quotes)) == (QUOTE, 8)
            for i in range(8):
                quotes[i] = (i + 0.5, -i)
                assert program.hear() == f"{i} {i + 0.5:.1f} {-i}"
        program.end()


def test_c_program_writes_vector_read_by_python(programs: Path, prefix: str) -> None:
    with msgq.SeqlockVector("quotes", QUOTE, 8) as quotes:
        before = clock.time_ns()
        with Program(programs / "records", "write", "quotes", "20") as program:
            program.end()
        assert quotes.read().tolist() == [(100.0 + i, 10 * i) for i in (16, 17, 18, 19, 12, 13, 14, 15)]
        assert quotes.counts().tolist() == [3, 3, 3, 3, 2, 2, 2, 2]
        assert all(before <= time <= clock.time_ns() for time in quotes.times())
        assert len(quotes.changes().indices) == 8


def test_c_program_refuses_vector_with_different_dtype(programs: Path, prefix: str) -> None:
    msgq.SeqlockVector("quotes", [("price", "<f8"), ("size", "<f8")], 8).close()
    with Program(programs / "records", "write", "quotes", "1") as program:
        assert program.process.wait(DEADLINE) == 1
        assert "another dtype" in program.process.communicate()[1]


def test_killed_c_writer_keeps_its_values_and_frees_its_row(programs: Path, prefix: str) -> None:
    with msgq.SeqlockVector("quotes", QUOTE, 8, exclusive=True) as quotes:
        with Program(programs / "records", "hold", "quotes", "1") as program:
            assert program.hear() == "written"
            writer = msgq.stats.record("quotes").writers
            assert [(w.participant.pid, w.participant.alive) for w in writer] == [(program.pid, True)]
            with pytest.raises(msgq.errors.MultipleWritersError, match=str(program.pid)):
                quotes[0] = (0, 0)
            program.kill()
        assert quotes[0].tolist() == (100.0, 0)
        quotes[0] = (1.5, 2)
        assert quotes[0].tolist() == (1.5, 2)


def test_cpp_program_reads_and_writes_board(programs: Path, prefix: str) -> None:
    with msgq.Board("plant") as board, board.declare("wish") as wish:
        with Program(programs / "records-cpp", "plant", "21") as program:
            assert program.hear() == "ready"
            state = board.observe("state")
            for i in range(20):
                wish.write(NUMBER.pack(i))
                assert program.hear() == f"{2 * i:.1f}"
                value = state.read()
                assert value is not None
                assert (value.data, value.count) == (NUMBER.pack(2 * i), i + 1)
            with pytest.raises(msgq.errors.KeyTakenError):
                board.declare("state")
            program.kill()
        with board.declare("state") as ours:
            ours.write(b"ours")
        assert state.data() == b"ours"


def test_c_calls_behave_as_documented(programs: Path, prefix: str) -> None:
    done = subprocess.run([programs / "c-contracts", "name"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- polls ----


@pytest.mark.parametrize("kernel", ["with-waitv", "without-waitv"])
def test_c_poll_of_all_kinds_keeps_its_contract(programs: Path, prefix: str, kernel: str) -> None:
    done = subprocess.run([programs / "c-poll", kernel], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_c_poll_waits_for_handles_of_all_kinds_at_once(programs: Path, prefix: str) -> None:
    with Program(programs / "poll", "p") as program:
        assert program.hear() == "ready"
        with msgq.pub_sock("p") as publisher, msgq.Channel("p").publisher() as speaker:
            for _ in range(3):
                publisher.send(b"one")
                assert program.hear() == "topic one"
                speaker.send(b"two")
                assert program.hear() == "channel two"
        with msgq.SeqlockVector("p") as vector:
            vector[2] = 1.5
            assert program.hear() == "vector 2 1.5"
        with msgq.MessageQueue("p") as queue:
            queue.send(b"three")
            assert program.end() == ["queue three", "end"]


def test_signal_ends_c_poll(programs: Path, prefix: str) -> None:
    with Program(programs / "poll", "p") as program:
        assert program.hear() == "ready"
        wait_asleep(program.pid)
        program.process.send_signal(signal.SIGINT)
        assert program.end() == ["interrupted"]


def test_signal_between_two_sleeps_of_c_wait_ends_the_wait(programs: Path) -> None:
    done = subprocess.run([programs / "c-waiting"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_c_function_refuses_null_pointers(programs: Path, prefix: str) -> None:
    done = subprocess.run([programs / "c-null"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout.splitlines()[-2:]


def test_messages_of_c_publishers_have_their_schemas(programs: Path, prefix: str) -> None:
    with msgq.PubSocket() as publisher:
        publisher.connect(msgq.context, "t", schema=msgq.Schema("First", "json"))
    feed = open_feed("t")
    subprocess.run([programs / "c-contracts", "t", "First", "Second"], check=True)
    found = [(item.data, item.schema and item.schema.name) for item in feed.take_items()]
    assert found == [(b"First", "First"), (b"Second", "Second")]


# ---- files ----

ROLES = [
    ("topic", "subscribe", "msgq_"),
    ("topic", "publish", "msgq_"),
    ("topic", "subscribe", "msgqside_"),
    ("channel", "listen", "msgqchan_"),
    ("channel", "say", "msgqchan_"),
    ("queue", "work", "msgqjobs_"),
    ("records", "watch", "msgqrec_"),
]


@pytest.mark.parametrize(("program", "role", "start"), ROLES)
@pytest.mark.parametrize("size", [1, 4096, 1 << 17])
def test_c_program_reports_invalid_files(
    programs: Path, endpoint: str, program: str, role: str, start: str, size: int
) -> None:
    path = SHM / f"{start}{endpoint}"
    path.write_bytes(random.Random(size).randbytes(size))
    with Program(programs / program, role, endpoint, "1") as running:
        code = running.process.wait(DEADLINE)
        said = running.process.communicate()[1]
    assert code == 1, said
    assert endpoint in said


@pytest.mark.parametrize(("program", "role", "start"), [ROLES[0], ROLES[3], ROLES[5], ROLES[6]])
def test_c_program_creates_files_with_requested_mode(
    programs: Path, prefix: str, program: str, role: str, start: str
) -> None:
    folder = SHM / f"{start}{prefix}"
    last = folder if program != "topic" else SHM / f"msgqside_{prefix}"  # the ring is the first of two files
    with Program(programs / program, role, "e", "1", env={"MSGQ_MODE": "660"}):
        wait_until(lambda: (last / "e").exists())
    assert (folder / "e").stat().st_mode & 0o7777 == 0o660
    assert folder.stat().st_mode & 0o7777 == 0o1770


@pytest.mark.parametrize("variable", ["MSGQ_MODE", "MSGQ_TRUST", "MSGQ_SPIN_US", "MSGQ_SIGBUS", "MSGQ_GROUP"])
def test_c_program_with_invalid_environment_gets_error(programs: Path, prefix: str, variable: str) -> None:
    with Program(programs / "queue", "send", "e", "1", env={variable: "nonsense"}) as program:
        assert program.process.wait(DEADLINE) == 1
        assert variable in program.process.communicate()[1]


def test_c_program_refuses_linked_files_and_files_of_other_users(programs: Path, endpoint: str, tmp_path: Path) -> None:
    path = SHM / f"msgqjobs_{endpoint}"
    os.symlink(tmp_path / "there", path)
    with Program(programs / "queue", "send", endpoint, "1") as program:
        assert program.process.wait(DEADLINE) == 1
    path.unlink()
    msgq.MessageQueue(endpoint).close()
    other = SHM / f"msgqjobs_{endpoint}b"
    os.link(path, other)
    with Program(programs / "queue", "send", endpoint, "1") as program:
        assert program.process.wait(DEADLINE) == 1
        assert "hard links" in program.process.communicate()[1]
    other.unlink()


# ---- installed files ----


def test_pkg_config_file_has_paths_of_headers_and_sources() -> None:
    text = (INCLUDE / "msgq.pc").read_text()
    assert f"Version: {msgq.__version__}\n" in text
    named = [
        word.rpartition("/")[2] for line in text.splitlines() if line.startswith("sources=") for word in line.split()
    ]
    assert sorted(named) == sorted(path.name for path in UNITS.glob("*.c"))
    assert f"set(PACKAGE_VERSION {msgq.__version__})\n" in (INCLUDE / "cmake/msgq-config-version.cmake").read_text()


def guide_code_block(language: str, beginning: str) -> str:
    """Return a block of docs/guides/c.md."""
    page = (ROOT / "docs" / "guides" / "c.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    found: list[str] = [text for kind, text in blocks if kind == language and text.startswith(beginning)]
    assert len(found) == 1
    return found[0]


needs_pkg_config = pytest.mark.skipif(not shutil.which("pkg-config"), reason="pkg-config is not installed")


@needs_pkg_config
@pytest.mark.ci
@pytest.mark.parametrize("end", [".c", ".cpp"])
def test_compiler_commands_of_guide_work(tmp_path: Path, prefix: str, end: str) -> None:
    (tmp_path / f"program{end}").write_text(guide_code_block("c", "#include <msgq/topic.h>"))
    lines = guide_code_block("", "export")
    if end == ".cpp":
        lines = lines.splitlines()[0] + "\n" + guide_code_block("", "cc -O2")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-e", "-c", lines], cwd=tmp_path, env=env, check=True)
    with msgq.sub_sock("temperature", timeout=DEADLINE_MS) as subscriber, Program(tmp_path / "program") as program:
        program.end()
        assert subscriber.receive() == NUMBER.pack(21.5)


@pytest.mark.ci
def test_cmake_package_of_guide_builds_cpp_program(tmp_path: Path, prefix: str) -> None:
    lines = guide_code_block("cmake", "project(program")
    (tmp_path / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.18)\n{lines}")
    (tmp_path / "program.cpp").write_text(guide_code_block("cpp", "#include <msgq.hpp>"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "CMAKE_PREFIX_PATH": msgq.get_include()}
    for command in (["cmake", "-S", ".", "-B", "built"], ["cmake", "--build", "built"]):
        subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    with (
        msgq.sub_sock("temperature", timeout=DEADLINE_MS) as subscriber,
        Program(tmp_path / "built/program") as program,
    ):
        assert program.end() == ["nobody answered"]
        assert subscriber.receive() == NUMBER.pack(21.5)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("languages", "version", "text"),
    [("CXX", "", "give project() the language C"), ("C CXX", "0.2", "requested version"), ("C", "1.0", "requested")],
)
def test_cmake_package_refuses_projects_with_a_reason(tmp_path: Path, languages: str, version: str, text: str) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(program {languages})\nfind_package(msgq {version} REQUIRED)\n"
    )
    env = {**os.environ, "CMAKE_PREFIX_PATH": msgq.get_include()}
    command = [shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "cmake"]
    done = subprocess.run([*command, "-S", ".", "-B", "built"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert text in " ".join(done.stderr.split())


# ---- the classes of msgq.hpp, and removal ----


def test_cpp_classes_own_their_handles(programs: Path, prefix: str) -> None:
    with Program(programs / "cpp-handles", "own", "x") as program:
        assert program.end() == []
    assert msgq.stats.endpoints() == []


def test_cpp_vector_shares_records_with_python(programs: Path, prefix: str) -> None:
    with msgq.SeqlockVector("quotes", QUOTE, 4) as quotes:
        with Program(programs / "cpp-handles", "vector", "quotes") as program:
            assert program.hear() == "ready"
            quotes[1] = (2.5, 7)
            program.end()
        assert quotes[2].tolist() == (5.0, 14)


def test_c_library_removes_all_files_of_endpoints(programs: Path, prefix: str) -> None:
    with (
        msgq.pub_sock("x", tracked=True) as topic,
        msgq.Channel("x") as channel,
        channel.publisher() as publisher,
        msgq.MessageQueue("x", events=True) as queue,
        msgq.Board("x") as board,
    ):
        publisher.send(b"message")
        queue.send(b"message")
        assert len(msgq.stats.endpoints()) == 5  # with the channel of the queue's events
        with Program(programs / "cpp-handles", "remove", "x") as program:
            assert program.end() == ["1 1 1 1", "0 0 0 0"]
        assert [path for path in SHM.glob(f"msgq*_{prefix}/*") if path.is_file()] == []
        topic.send(b"open handles continue")
        publisher.send(b"message")
        assert queue.receive(timeout=0) is not None
        board.declare("key").write(b"value")
