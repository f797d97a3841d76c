"""Recordings in an object store: what is transferred, and what happens if an object changes or is missing."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from msgq.common.storage.url_path import UrlPath
from msgq.errors import InvalidValueError, RecordingError, StorageError
from msgq.recording import LogReader, recover
from msgq.recording.mcap_io.object_reader import _PAGE_BYTES, _TAIL_BYTES, ObjectReader
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.mcap_io.recording_files import list_directory_recordings, list_recordings
from tests import command
from tests.object_store import SECRET, ObjectStore
from tests.recording.logs import write_log
from tests.store_proxy import BUSY, LOST_REQUEST, LOST_RESPONSE, TORN_RESPONSE, StoreProxy
from tests.support import in_fork

pytestmark = pytest.mark.ci
MESSAGES = 2000


@pytest.fixture
def read_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each range that was read from the store."""
    sizes: list[int] = []
    read_range = ObjectReader.read_range

    def read_and_count(reader: ObjectReader, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read_range(reader, offset, size)

    monkeypatch.setattr(ObjectReader, "read_range", read_and_count)
    return sizes


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of 250 chunks with 8 messages each, which do not compress."""
    payloads = random.Random(MESSAGES).randbytes
    return write_log(tmp_path / "drive.mcap", *(("imu", 1000 + n, payloads(512)) for n in range(MESSAGES)))


def upload(store: ObjectStore, key: str, data: bytes) -> str:
    store.connect().put_object(Bucket=store.bucket, Key=key, Body=data)
    return f"{store.url}/{key}"


def test_object_reads_like_the_local_file(object_store: ObjectStore, recording: Path) -> None:
    url = upload(object_store, "runs/drive.mcap", recording.read_bytes())
    log, local = LogReader(url, storage_options=object_store.options), LogReader(recording)
    assert [message.data for message in log] == [message.data for message in local]
    assert log.endpoints == local.endpoints
    assert [message.log_time for message in log.between(1500, 1510)] == list(range(1500, 1510))
    assert not log.problems
    parts = [pickle.loads(pickle.dumps(part)) for part in log.split(100_000)]
    assert len(parts) > 1
    assert sum(len(list(part)) for part in parts) == MESSAGES


def test_directory_and_pattern_in_a_store_select_recordings(object_store: ObjectStore, recording: Path) -> None:
    data = recording.read_bytes()
    for key in ("date=1/a/000000.mcap", "date=1/a/000001.mcap", "date=2/b.mcap", "date=2/note.txt", "other/c.mcap"):
        upload(object_store, key, data)
    store, options = object_store.url, object_store.options

    def select(*texts: str) -> list[str]:
        return [str(path).removeprefix(f"{store}/") for path in list_recordings(texts, problems, options)]

    problems: list[Problem] = []
    assert len(LogReader(f"{store}/date=1/a", storage_options=options).files) == 2
    assert select(f"{store}/date=*/") == ["date=1/a/000000.mcap", "date=1/a/000001.mcap", "date=2/b.mcap"]
    assert select(f"{store}/date=2/*.mcap", f"{store}/other") == ["date=2/b.mcap", "other/c.mcap"]
    assert not problems
    with pytest.raises(RecordingError, match="does not exist"):
        select(f"{store}/date=3")
    upload(object_store, "empty/note.txt", b"")
    assert not select(f"{store}/empty")
    assert "no .mcap file" in problems[0].reason


def test_summary_and_a_time_range_transfer_little(
    object_store: ObjectStore, recording: Path, read_sizes: list[int]
) -> None:
    url = upload(object_store, "drive.mcap", recording.read_bytes())
    log = LogReader(url, storage_options=object_store.options)
    assert log.counts == {"imu": MESSAGES}
    summary = sum(read_sizes)
    assert summary < 60_000 < recording.stat().st_size / 10  # bytes of 250 chunk indexes
    assert len(read_sizes) <= 3  # the beginning, the end, and what lies before the summary
    assert len(list(log.between(1500, 1510))) == 10
    assert sum(read_sizes) - summary < 4 * 5000


def test_reader_reads_ahead_and_reads_each_chunk_once(
    object_store: ObjectStore, recording: Path, read_sizes: list[int]
) -> None:
    url = upload(object_store, "drive.mcap", recording.read_bytes())
    log = LogReader(url, storage_options=object_store.options)
    read_sizes.clear()
    assert next(iter(log)).log_time == 1000
    assert len(read_sizes) == 1
    read_sizes.clear()
    assert sum(1 for _ in log) == MESSAGES
    assert len(read_sizes) == len(log.files[0].blocks)


def test_replaced_object_is_an_error_after_the_last_message(object_store: ObjectStore, recording: Path) -> None:
    data = recording.read_bytes()
    url = upload(object_store, "drive.mcap", data)
    log = LogReader(url, storage_options=object_store.options)
    messages = iter(log)
    next(messages)
    upload(object_store, "drive.mcap", data[:-1] + b"?")
    with pytest.raises(StorageError, match="was replaced while it was read"):
        list(messages)


def test_object_that_becomes_shorter_or_disappears_is_an_error(object_store: ObjectStore, recording: Path) -> None:
    data = recording.read_bytes()
    url = upload(object_store, "drive.mcap", data)
    log = LogReader(url, storage_options=object_store.options)
    upload(object_store, "drive.mcap", data[:5000])
    with pytest.raises(StorageError):
        list(log)
    object_store.connect().delete_object(Bucket=object_store.bucket, Key="drive.mcap")
    with pytest.raises(StorageError):
        list(log)
    with pytest.raises(StorageError, match="does not exist"):
        LogReader(url, storage_options=object_store.options)


def test_damaged_and_truncated_objects_are_read_like_local_files(object_store: ObjectStore, recording: Path) -> None:
    data = bytearray(recording.read_bytes())
    data[50_000:50_020] = bytes(20)
    for key, content in (("damaged.mcap", bytes(data)), ("truncated.mcap", bytes(data[:200_000]))):
        recording.write_bytes(content)
        log = LogReader(upload(object_store, key, content), storage_options=object_store.options)
        local = LogReader(recording)
        assert [message.log_time for message in log] == [message.log_time for message in local]
        assert [(one.offset, one.reason) for one in log.problems] == [
            (one.offset, one.reason) for one in local.problems
        ]
        assert log.problems


def test_object_that_is_compressed_as_a_whole_is_read_from_a_copy(object_store: ObjectStore, recording: Path) -> None:
    packed = zstandard.ZstdCompressor().compress(recording.read_bytes())
    url = upload(object_store, "drive.mcap.zstd", packed)
    assert len(list(LogReader(url, storage_options=object_store.options))) == MESSAGES


def test_bag_commands_take_urls_with_credentials_of_the_environment(
    s3_environment: ObjectStore, recording: Path, tmp_path: Path
) -> None:
    url = upload(s3_environment, "runs/drive.mcap", recording.read_bytes())

    def run(*words: str) -> str:
        answer = command.run("bag", *words, code=None).output
        assert SECRET not in answer
        return answer

    assert "2,000" in run("info", url)
    assert run("cat", url, "--start", "0", "--end", "0.000000002").count("imu") == 2
    assert "2,000 messages" in run("doctor", url)
    assert "does not exist" in run("info", f"{url}x")
    assert "repair needs local files" in run("recover", url)
    run("filter", url, "-o", str(tmp_path / "copy.mcap"))
    assert LogReader(tmp_path / "copy.mcap").messages == MESSAGES


def test_wrong_credentials_and_unknown_schemes_raise_errors_without_secrets(
    object_store: ObjectStore, recording: Path
) -> None:
    with pytest.raises(InvalidValueError, match="not supported"):
        LogReader("https://host/drive.mcap")
    with pytest.raises(InvalidValueError, match="local path"):
        LogReader(recording, storage_options=object_store.options)
    with pytest.raises(InvalidValueError, match="copy it"):
        recover(f"{object_store.url}/drive.mcap")
    log = LogReader(upload(object_store, "drive.mcap", recording.read_bytes()), storage_options=object_store.options)
    assert SECRET not in repr((log, log.files[0].path, log.files[0].file_source))


def test_empty_object_and_missing_bucket_are_errors_of_recordings(object_store: ObjectStore) -> None:
    with pytest.raises(RecordingError, match="not an MCAP file"):
        LogReader(upload(object_store, "empty.mcap", b""), storage_options=object_store.options)
    for url in ("s3://no-such-bucket-of-tests", f"{object_store.url}-*", ""):
        with pytest.raises(RecordingError, match="does not exist"):
            list_recordings([url], [], object_store.options)


def test_store_that_fails_is_no_damage_of_the_recording(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first chunk describes the channel, so a reader of the end opens the object a second time."""
    data = write_log(tmp_path / "a.mcap", *(("imu", 1000 + n, bytes(64)) for n in range(500))).read_bytes()
    url = upload(object_store, "a.mcap", data[: len(data) * 9 // 10])
    log = LogReader(url, storage_options=object_store.options, start=1300)

    def fail(*_: object) -> None:
        raise StorageError("the store failed", errno=5)

    monkeypatch.setattr(ObjectReader, "__init__", fail)
    with pytest.raises(StorageError, match="the store failed"):
        list(log)


def test_listing_in_a_store_continues_at_a_recording(object_store: ObjectStore) -> None:
    for key in ("d=1/a/0.mcap", "d=1/b/0.mcap", "d=2/a/0.mcap", "d=2/a/1.mcap", "d=2/b.mcap", "d=3/x/y/0.mcap"):
        upload(object_store, f"runs/{key}", b"")
    directory = UrlPath(f"{object_store.url}/runs", object_store.options)

    def select(first: str | None) -> list[str]:
        paths = list_directory_recordings(directory, [], None if first is None else directory / first)
        return [str(path).removeprefix(f"{directory}/") for path in paths]

    every = select(None)
    assert every == ["d=1/a/0.mcap", "d=1/b/0.mcap", "d=2/b.mcap", "d=2/a/0.mcap", "d=2/a/1.mcap", "d=3/x/y/0.mcap"]
    for number, first in enumerate(every):
        assert select(first) == every[number:]


def test_forked_child_gets_an_error_instead_of_hanging(object_store: ObjectStore, recording: Path) -> None:
    """The parent is reading ahead at the fork. The child has none of its threads."""
    log = LogReader(upload(object_store, "drive.mcap", recording.read_bytes()), storage_options=object_store.options)
    messages = iter(log)
    for _ in range(300):
        next(messages)

    def read_all(reads: Iterable[object]) -> None:
        with pytest.raises(StorageError, match="in a forked process whose parent has opened a store"):
            list(reads)

    def open_again() -> None:
        with pytest.raises(StorageError, match="spawn"):
            LogReader(f"{object_store.url}/drive.mcap", storage_options=object_store.options)

    for read in (partial(read_all, messages), partial(read_all, log), open_again):
        assert in_fork(read) == 0
    assert len(list(messages)) == MESSAGES - 300


def test_each_range_of_an_object_has_its_bytes(object_store: ObjectStore) -> None:
    """Ranges at the borders of pages, within several pages, and at both sides of the beginning of the end."""
    data = random.Random(1).randbytes(_TAIL_BYTES + 5 * _PAGE_BYTES + 100)
    path = UrlPath(upload(object_store, "bytes", data), object_store.options)
    borders = [*range(0, 6 * _PAGE_BYTES, _PAGE_BYTES), len(data) - _TAIL_BYTES, len(data)]
    offsets = sorted({max(0, border + step) for border in borders for step in (-1, 0, 1)})
    with ObjectReader(path) as reader:
        for offset in offsets:
            for size in (0, 1, 2, _PAGE_BYTES - 1, _PAGE_BYTES, _PAGE_BYTES + 1):
                assert reader.pread(size, offset) == data[offset : offset + size], (offset, size)
        assert reader.pread(2 * len(data), 10) == data[10:], "up to the end"
        planned = [(offset, 3000) for offset in offsets if offset + 3000 <= len(data)]
        reader.plan_reads(planned)
        assert [reader.pread(size, offset) for offset, size in planned] == [
            data[offset : offset + size] for offset, size in planned
        ]


def test_range_that_a_store_shortens_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As HDFS answers after the file became shorter. pyarrow's S3 returns bytes of any value instead."""
    file = SimpleNamespace(size=lambda: 100_000, metadata=lambda: {"etag": "1"}, read_at=lambda size, offset: b"x")
    monkeypatch.setattr(ObjectReader, "_open_file", lambda _: file)
    with pytest.raises(StorageError, match="became shorter while it was read; open it again"):
        ObjectReader(UrlPath("hdfs://host/drive.mcap")).pread(10_000, 45_000)


def test_object_replaced_within_the_same_second_is_noticed(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = upload(object_store, "bytes", bytes(100))
    monkeypatch.setattr(UrlPath, "describe_file", lambda _: SimpleNamespace(mtime_ns=1))
    with ObjectReader(UrlPath(url, object_store.options)) as reader:
        reader.check_unchanged()
        upload(object_store, "bytes", bytes(99) + b"x")
        with pytest.raises(StorageError, match="was replaced while it was read"):
            reader.check_unchanged()


@pytest.mark.parametrize("fault", [LOST_REQUEST, LOST_RESPONSE, TORN_RESPONSE, BUSY])
def test_reader_repeats_failed_requests(object_store: ObjectStore, recording: Path, fault: str) -> None:
    url = upload(object_store, "drive.mcap", recording.read_bytes())
    with StoreProxy(object_store.endpoint) as proxy:
        log = LogReader(url, storage_options=object_store.options | {"AWS_ENDPOINT_URL": proxy.endpoint})
        proxy.inject(lambda number: fault if number % 40 == 3 else "")
        assert [message.log_time for message in log] == list(range(1000, 1000 + MESSAGES))
        assert len(proxy.requests) > 200
    assert not log.problems
