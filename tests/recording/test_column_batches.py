"""Messages as bursts of columns: those that iteration gives, in its order, and in that of their publishing."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgq import errors
from msgq.recording import LogReader
from msgq.recording.player import timed_messages
from msgq.recording.player.ring_sender import RingSender, order_publish_times
from msgq.recording.player.timed_messages import MAX_PUBLISH_SKEW_NS, iter_batches_by_time
from msgq.recording.reader import column_batches
from msgq.recording.reader.column_batches import MessageBatch
from msgq.recording.reader.message import Message
from tests.recording.logs import (
    FOREIGN,
    build_chunk_record,
    channel,
    message,
    write_foreign,
    write_log,
    write_unclosed_file,
)

NS = 1_000_000_000
BEGIN = 1_700_000_000 * NS


def read_batch_rows(log: LogReader, given: Iterator[MessageBatch]) -> list[tuple[int, str, bytes, int, int]]:
    """Return of each message time, endpoint, data, log_time, publish_time."""
    found = []
    for batch in given:
        assert (np.diff(batch.order_time) >= 0).all()
        for row in range(len(batch)):
            begin = batch.offset[row]
            data = batch.contents[batch.content_index[row]][begin : begin + batch.length[row]]
            times = int(batch.log_time[row]), int(batch.publish_time[row])
            found.append((int(batch.order_time[row]), log.channels[batch.channel_code[row]].endpoint, data, *times))
    return found


def read_message_rows(log: LogReader) -> list[tuple[int, str, bytes, int, int]]:
    return [(m.log_time, m.endpoint, m.data, m.log_time, m.publish_time) for m in log]


def in_published_order(log: LogReader) -> list[tuple[int, str, bytes]]:
    """Put messages in order one by one, as it is defined: the yardstick."""
    waiting: list[tuple[int, int, Message]] = []
    latest: dict[str, int] = {}
    for number, found in enumerate(log):
        believed = abs(found.publish_time - found.log_time) <= MAX_PUBLISH_SKEW_NS
        time_ns = max(found.publish_time if believed else found.log_time, latest.get(found.endpoint, 0))
        latest[found.endpoint] = time_ns
        heappush(waiting, (time_ns, number, found))
    ordered = [heappop(waiting) for _ in range(len(waiting))]
    return [(time_ns, found.endpoint, found.data) for time_ns, _, found in ordered]


@pytest.mark.parametrize("kind", FOREIGN)
def test_batches_equal_iterated_messages(tmp_path: Path, kind: str) -> None:
    log = LogReader(write_foreign(tmp_path / "a.mcap", **FOREIGN[kind]))
    assert read_batch_rows(log, log.iter_batches()) == read_message_rows(log)
    part = log.between(1500, 2500)
    assert read_batch_rows(part, part.iter_batches()) == read_message_rows(part)


def write_disordered_files(path: Path, seed: int, spread_ns: int, files: int = 3) -> LogReader:
    """Write files that overlap in time, whose messages were published at other times, some impossible ones."""
    random = np.random.default_rng(seed)
    path.mkdir()
    for number in range(files):
        times = np.sort(random.integers(0, 20, 400)) * NS // 5
        late = random.integers(-spread_ns, spread_ns, 400)
        messages = [
            (f"e{i % 7}", BEGIN + int(t), b"%d %d" % (number, i), BEGIN + int(t) - int(late[i]))
            for i, t in enumerate(times)
        ]
        write_log(path / f"{number}.mcap", *messages)
    return LogReader(path)


@pytest.mark.parametrize("seed", range(3))
def test_batches_of_overlapping_chunks_are_ordered(tmp_path: Path, seed: int) -> None:
    log = write_disordered_files(tmp_path / "log", seed, NS)
    assert read_batch_rows(log, log.iter_batches()) == read_message_rows(log)


@pytest.mark.parametrize(("seed", "spread_ns"), [(0, NS // 3), (1, NS), (2, 3 * NS), (3, 1)])
def test_batches_in_publish_order_equal_iterated_messages(tmp_path: Path, seed: int, spread_ns: int) -> None:
    log = write_disordered_files(tmp_path / "log", seed, spread_ns)
    assert [row[:3] for row in read_batch_rows(log, iter_batches_by_time(log, "publish_time"))] == in_published_order(
        log
    )


def test_batches_of_ordered_log_span_at_most_two_chunks(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", *(("e", BEGIN + i * NS // 10, bytes(100)) for i in range(1000)))
    log = LogReader(path)
    given = list(iter_batches_by_time(log, "publish_time"))
    assert len(given) > 20
    assert sum(map(len, given)) == 1000
    assert all(len(batch.contents) <= 2 for batch in given)


def test_batch_order_buffer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failure would mean: a file whose messages all have one time, or a fast one, is held in memory as a whole."""
    monkeypatch.setattr(timed_messages, "_UNORDERED_BYTES_MAX", 20_000)
    held = []
    added = column_batches.BatchMergeBuffer.add_batch

    def add(self: Any, batch: MessageBatch) -> None:
        added(self, batch)
        held.append(self.memory_bytes)

    monkeypatch.setattr(column_batches.BatchMergeBuffer, "add_batch", add)
    for number, (of_log, early, late) in enumerate([(100, 7, 0), (3000, 1, 0), (3000, 7, 0), (1, 7, 0), (1, 0, 500)]):
        held.clear()
        times = (BEGIN + i // of_log for i in range(3000))
        sent = (i % 5 * early // 5 - (i % 5 == 4) * late for i in range(3000))
        messages = ((f"e{i % 5}", t, bytes(200), t + s) for i, (t, s) in enumerate(zip(times, sent, strict=True)))
        log = LogReader(write_log(tmp_path / f"{number}.mcap", *messages))
        found = read_batch_rows(log, iter_batches_by_time(log, "publish_time"))
        assert len(found) == 3000
        assert all(before[0] <= after[0] for before, after in pairwise(found))
        assert max(held) < 60_000


def test_message_too_late_for_ordering_gets_time_of_previous_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second message leaves because of its size, the third one at the end of the log."""
    monkeypatch.setattr(timed_messages, "_UNORDERED_BYTES_MAX", 8000)
    sent = [("a", 5, 10_000, 5), ("b", 6, 10_000, 3), ("c", 7, 100, 4)]  # endpoint, log_time, bytes, publish_time
    messages = ((name, BEGIN + time, bytes(size), BEGIN + published) for name, time, size, published in sent)
    log = LogReader(write_log(tmp_path / "a.mcap", *messages))
    found = [
        (time - BEGIN, name, published - BEGIN)
        for time, name, _, _, published in read_batch_rows(log, iter_batches_by_time(log, "publish_time"))
    ]
    assert found == [(5, "a", 5), (5, "b", 3), (5, "c", 4)]


def test_chunks_with_excessive_time_overlap_are_skipped_and_reported(tmp_path: Path) -> None:
    parts = (message(1, i, t, bytes(400)) for i, t in enumerate((1, 9, 2, 8, 3, 7, 4, 6)))
    chunks = [build_chunk_record(channel(1, "e"), one, two) for one, two in zip(*[parts] * 2, strict=True)] * 8
    log = LogReader(write_unclosed_file(tmp_path / "a.mcap", *chunks), max_chunk_bytes=1500)
    found = read_batch_rows(log, log.iter_batches())
    assert 0 < len(found) < 64
    assert [row[0] for row in found] == sorted(row[0] for row in found)
    assert "overlap in time" in log.problems[0].reason


# ---- below Python ----


def test_publish_order_with_invalid_arguments_is_refused() -> None:
    times, codes = np.array([5, 6]), np.zeros(2, np.int32)
    latest = np.zeros(1, np.int64)
    assert order_publish_times(times, np.array([4, 3]), codes, codes[:1], latest, 10).tolist() == [4, 4]
    assert latest.tolist() == [4]
    for wrong in ((times, times[:1], codes, codes[:1], latest), (times, times, codes, codes[:0], latest)):
        with pytest.raises(errors.InvalidValueError):
            order_publish_times(*wrong, 10)
    with pytest.raises(errors.InvalidValueError):
        order_publish_times(times, times, codes, np.ones(1, np.int32), latest, 10)


@pytest.mark.parametrize(
    ("name", "value"), [("content_index", 1), ("offset", 3), ("offset", -1), ("length", 5), ("channel_code", 1)]
)
def test_ring_sender_rejects_byte_ranges_beyond_message_data(prefix: str, name: str, value: int) -> None:
    import msgq

    columns = {
        name: np.zeros(1, np.int64) for name in ("order_time", "log_time", "publish_time", "origin_time", "offset")
    }
    columns |= {"content_index": np.zeros(1, np.int32), "channel_code": np.zeros(1, np.int32), "length": np.array([2])}
    batch, ages = MessageBatch((b"abcd",), **columns), np.zeros(1, np.int64)
    direct = RingSender()
    subscriber = msgq.sub_sock("e")
    with msgq.pub_sock("e") as socket:
        direct.add_socket(socket)
        assert direct.send_rows(batch, ages, 0, 1, 100) == 1
        assert (direct.sent_messages, direct.sent_bytes) == (1, 2)
        columns[name][0] = value
        with pytest.raises(errors.InvalidValueError):
            direct.send_rows(batch, ages, 0, 1, 100)
        for begin, end in ((-1, 1), (1, 0), (0, 2)):
            with pytest.raises(errors.InvalidValueError):
                direct.send_rows(batch, ages, begin, end, 100)
    assert msgq.drain_sock_raw(subscriber) == [b"ab"]
