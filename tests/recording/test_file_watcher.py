"""Files that get a name, by inotify: each is told once, and open even if its name is gone by then."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path

import pytest

from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.recorder.core import Capture, FileArrival, FileWatcher
from tests.support import DEADLINE, Task, in_fork


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ours"
    made.mkdir()
    return made


@pytest.fixture
def arrivals(folder: Path) -> FileWatcher:
    return FileWatcher([(str(folder), "a_")], str(folder.parent))


def poll_arrivals(arrivals: FileWatcher) -> tuple[list[FileArrival], bool]:
    found, has_overflowed = arrivals.poll_arrivals()
    return found, arrivals.update_watches() or has_overflowed


def poll_arrived_files(arrivals: FileWatcher) -> list[FileArrival]:
    found, look = poll_arrivals(arrivals)
    assert not look
    return found


def to_be_looked(arrivals: FileWatcher) -> bool:
    return poll_arrivals(arrivals)[1]


def poll_arrived_names(arrivals: FileWatcher) -> list[str]:
    return [f"{arrival.directory}/{arrival.name}" for arrival in poll_arrived_files(arrivals)]


def test_created_or_moved_file_is_reported_once(arrivals: FileWatcher, folder: Path) -> None:
    (folder / "a_1").touch()
    (folder.parent / "elsewhere").touch()
    (folder.parent / "elsewhere").rename(folder / "a_2")
    os.link(folder / "a_1", folder / "a_3")
    assert poll_arrived_names(arrivals) == [f"{folder}/a_{number}" for number in (1, 2, 3)]
    (folder / "a_1").write_text("it is known")
    assert poll_arrived_names(arrivals) == []


def test_other_names_and_directories_are_not_reported(arrivals: FileWatcher, folder: Path) -> None:
    for name in ("b_1", "a", "xa_1"):
        (folder / name).touch()
    (folder / "a_folder").mkdir()
    assert poll_arrived_names(arrivals) == []


def test_reported_file_is_open(arrivals: FileWatcher, folder: Path) -> None:
    (folder / "a_1").write_text("text")
    (arrival,) = poll_arrived_files(arrivals)
    (folder / "a_1").unlink()
    assert os.pread(arrival.fd, 9, 0) == b"text"
    assert (arrival.inode, arrival.is_gone) == (os.fstat(arrival.fd).st_ino, False)
    assert not os.get_inheritable(arrival.fd)
    fd = arrival.fd
    del arrival
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_removed_file_is_reported_as_gone(arrivals: FileWatcher, folder: Path) -> None:
    (folder / "a_1").touch()
    (folder / "a_1").unlink()
    (arrival,) = poll_arrived_files(arrivals)
    assert (arrival.name, arrival.fd, arrival.inode, arrival.is_gone) == ("a_1", -1, None, True)


def test_symbolic_link_is_not_followed(arrivals: FileWatcher, folder: Path) -> None:
    (folder / "a_1").symlink_to("/etc/passwd")
    (arrival,) = poll_arrived_files(arrivals)
    assert (arrival.fd, arrival.is_gone) == (-1, False)


def test_capture_with_pending_new_files_ends_at_once(arrivals: FileWatcher, folder: Path) -> None:
    """As the second part of a run does that maps a pool just after a file came."""
    capture = Capture()
    capture.set_file_watcher(arrivals)
    (folder / "a_1").touch()
    for _ in range(2):
        assert Task(capture.capture_messages, ChunkBuffer(1024, 1024), 2 * DEADLINE).result() is False
    assert poll_arrived_names(arrivals) == [f"{folder}/a_1"]


def test_capture_opens_new_file_and_ends(arrivals: FileWatcher, folder: Path) -> None:
    capture = Capture()
    capture.set_file_watcher(arrivals)
    running = Task(capture.capture_messages, ChunkBuffer(1024, 1024), 2 * DEADLINE)
    running.wait_asleep()
    (folder / "b_1").touch()  # not a wanted name
    running.wait_asleep()
    begin = time.monotonic()
    (folder / "a_1").write_text("text")
    assert running.result() is False
    assert time.monotonic() - begin < DEADLINE
    (folder / "a_1").unlink()
    (arrival,) = poll_arrived_files(arrivals)
    assert arrival.fd >= 0
    capture.set_file_watcher(None)
    (folder / "a_2").touch()
    assert not capture.capture_messages(ChunkBuffer(1024, 1024), 0.01)


def test_new_directory_needs_full_scan(folder: Path) -> None:
    later = folder.parent / "later"
    arrivals = FileWatcher([(str(folder), "a_"), (str(later), "")], str(folder.parent))
    (folder / "a_1").touch()
    assert poll_arrived_names(arrivals) == [f"{folder}/a_1"]
    later.mkdir()
    (later / "1").touch()
    assert to_be_looked(arrivals)
    (later / "2").touch()
    assert poll_arrived_names(arrivals) == [f"{later}/2"]


def test_recreated_or_moved_directory_is_detected(folder: Path) -> None:
    later = folder / "later"
    arrivals = FileWatcher([(str(later), "")], str(folder))
    for _ in range(3):
        later.mkdir()
        assert to_be_looked(arrivals)
        shutil.rmtree(later)
        assert poll_arrived_names(arrivals) == []
    (folder / "other").mkdir()
    (folder / "other").rename(later)
    assert to_be_looked(arrivals)
    later.rename(folder / "elsewhere")
    assert poll_arrived_names(arrivals) == []
    (folder / "elsewhere" / "1").touch()
    assert poll_arrived_names(arrivals) == []
    later.mkdir()
    (later / "2").touch()
    assert to_be_looked(arrivals)


def test_recreated_directory_with_open_old_file_is_detected(folder: Path) -> None:
    """Such a file keeps its directory alive, so that nothing tells of its end."""
    later = folder / "later"
    later.mkdir()
    arrivals = FileWatcher([(str(later), "")], str(folder))
    (later / "1").touch()
    with (later / "1").open():
        shutil.rmtree(later)
        later.mkdir()
        assert to_be_looked(arrivals)
        (later / "2").touch()
        assert poll_arrived_names(arrivals) == [f"{later}/2"]


def test_file_in_place_of_directory_is_not_watched(folder: Path) -> None:
    later = folder / "later"
    arrivals = FileWatcher([(str(later), "")], str(folder))
    later.touch()
    assert poll_arrived_names(arrivals) == []
    later.unlink()
    later.mkdir()
    assert to_be_looked(arrivals)


def test_file_events_beyond_buffer_size_stay_in_kernel_queue(arrivals: FileWatcher, folder: Path) -> None:
    for number in range(1000):
        (folder / f"a_{number}").touch()
    found: list[str] = []
    while more := poll_arrived_names(arrivals):
        assert len(more) <= 256
        found += more
    assert found == [f"{folder}/a_{number}" for number in range(1000)]
    assert not arrivals.has_overflowed


def test_new_file_is_reported_with_its_directory(folder: Path) -> None:
    later = folder.parent / "later"
    arrivals = FileWatcher([(str(folder), "a_"), (str(later), "")], str(folder.parent))
    (folder / "a_1").write_text("text")
    later.mkdir()
    (arrival,), look = poll_arrivals(arrivals)
    assert look
    assert os.pread(arrival.fd, 9, 0) == b"text"


def test_file_watcher_opens_at_most_64_new_files_at_once(arrivals: FileWatcher, folder: Path) -> None:
    for number in range(200):
        (folder / f"a_{number}").touch()
    before = len(os.listdir("/proc/self/fd"))
    found = poll_arrived_files(arrivals)
    assert len(os.listdir("/proc/self/fd")) == before + 64
    assert [arrival.name for arrival in found] == [f"a_{number}" for number in range(200)]
    assert [arrival.fd >= 0 for arrival in found] == [True] * 64 + [False] * 136
    assert not any(arrival.is_gone for arrival in found)


@pytest.mark.ci
def test_kernel_queue_overflow_needs_full_scan(arrivals: FileWatcher, folder: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip(f"this kernel keeps {most} events")
    one, other = folder / "b_1", folder / "b_2"
    one.touch()
    for _ in range(most // 2 + 1):  # two that are equal in a row would be one event
        one.rename(other)
        other.rename(one)
    assert to_be_looked(arrivals)
    assert arrivals.has_overflowed
    (folder / "a_1").touch()
    assert poll_arrived_names(arrivals) == [f"{folder}/a_1"]


def test_watcher_without_descriptors_raises_error(folder: Path) -> None:
    def starved() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with pytest.raises(OSError, match="Too many open files"):
            FileWatcher([(str(folder), "")], str(folder.parent))

    assert in_fork(starved) == 0


def test_file_is_not_reported_as_gone_without_free_descriptor(arrivals: FileWatcher, folder: Path) -> None:
    def starved() -> None:
        (folder / "a_1").touch()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
        (arrival,) = poll_arrived_files(arrivals)
        assert (arrival.fd, arrival.is_gone) == (-1, False)

    assert in_fork(starved) == 0


def test_closed_file_watcher_leaves_no_open_descriptor(folder: Path) -> None:
    before = os.listdir("/proc/self/fd")
    arrivals = FileWatcher([(str(folder), "a_"), (str(folder), "b_"), (str(folder / "none"), "")], str(folder.parent))
    (folder / "a_1").touch()
    found = arrivals.poll_arrivals()
    (folder / "b_1").touch()
    capture = Capture()
    capture.set_file_watcher(arrivals)
    capture.capture_messages(ChunkBuffer(1024, 1024), 10)
    del found, arrivals, capture
    assert os.listdir("/proc/self/fd") == before


def test_watcher_with_too_many_directories_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="9 directories exceed"):
        FileWatcher([(str(folder), "")] * 9, str(folder))
