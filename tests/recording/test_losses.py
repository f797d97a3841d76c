"""Losses that no gap shows: the recorder, `msgq.losses`, and each reader of its files count the same."""

from __future__ import annotations

import errno
import itertools
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcap import records

import msgq
from msgq import errors
from msgq.recording import LogReader, Recorder
from msgq.recording.mcap_io import segment_file
from msgq.recording.mcap_io.core import write_and_commit
from msgq.recording.mcap_io.segment_writer import ChunkCompressor
from msgq.recording.merge.log_copy import write_merged_log, write_time_slices
from msgq.recording.recorder.rolling_writer import RecordingLimits
from msgq.recording.repair.recover import recover, reindex
from tests.command import run
from tests.recording import logs
from tests.recording.losses import FEWEST, Bus, Losses, bus, count_losses, holding, read_stated_losses, record
from tests.support import wait_until

__all__ = ["bus", "holding"]


def read_shown_losses(path: Path, *options: str) -> Losses:
    """Return the losses that `msgq bag info` prints."""
    lines = map(json.loads, run("bag", "info", "--json", path, *options).stdout.splitlines())
    return {line["endpoint"]: line["lost"] for line in lines if "endpoint" in line}


def test_losses_before_first_message_are_equal_in_all_readers(
    bus: Bus, holding: threading.Lock, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    recorder = record(bus, path, holding)
    losses = recorder._recorded_endpoints.count_losses()
    infos = LogReader(path).endpoints
    assert all(lost is not None and lost > FEWEST for name, lost in losses.items() if name in bus.published)
    assert losses["records/vector"] == 0
    assert sum(lost or 0 for lost in losses.values()) == recorder.stats().lost
    for endpoint, published in bus.published.items():
        assert infos[endpoint].messages + (losses[endpoint] or 0) == published
    assert (
        read_stated_losses(path)
        == count_losses(path)
        == read_shown_losses(path)
        == read_shown_losses(path, "--scan")
        == losses
    )


def test_losses_before_first_message_count_once_in_segments_and_pieces(
    bus: Bus, holding: threading.Lock, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    record(bus, path, holding, RecordingLimits(split_messages=500))
    losses = count_losses(path)
    segments = sorted(path.glob("*.mcap"))
    assert read_stated_losses(path) == losses
    later = count_losses(*(one for one in segments if (LogReader(one).start_time or 0) > bus.middle))
    assert later.keys() >= bus.published.keys()
    assert all((losses[name] or 0) - (lost or 0) > FEWEST for name, lost in later.items() if name in bus.published)
    pieces = [piece for piece, _ in write_time_slices(LogReader(path), tmp_path / "pieces", 20_000_000)]
    assert len(pieces) > 1
    assert count_losses(tmp_path / "pieces") == losses


def test_losses_before_first_message_are_kept_by_copies(bus: Bus, holding: threading.Lock, tmp_path: Path) -> None:
    path = tmp_path / "log"
    record(bus, path, holding)
    losses = count_losses(path)
    copies = {name: tmp_path / f"{name}.mcap" for name in ("all", "one", "twice", "later")}
    write_merged_log([LogReader(path)], copies["all"])
    assert count_losses(copies["all"]) == read_shown_losses(copies["all"]) == losses
    write_merged_log([LogReader(path, endpoints=["channel/channel"])], copies["one"])
    assert count_losses(copies["one"]) == {"channel/channel": losses["channel/channel"]}
    write_merged_log([LogReader(path), LogReader(path)], copies["twice"])
    assert count_losses(copies["twice"]) == {name: 2 * (lost or 0) for name, lost in losses.items()}
    write_merged_log([LogReader(path, start=bus.middle)], copies["later"])
    later = count_losses(path, start=bus.middle)
    assert count_losses(copies["later"]) == read_shown_losses(copies["later"], "--scan") == later
    assert all(FEWEST < (lost or 0) < (losses[name] or 0) - FEWEST for name, lost in later.items())


def test_losses_before_first_message_are_known_in_truncated_file(
    bus: Bus, holding: threading.Lock, tmp_path: Path
) -> None:
    path = tmp_path / "log.mcap"
    losses = record(bus, path, holding)._recorded_endpoints.count_losses()
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"msgq.losses") - 50])
    assert count_losses(path) == losses
    assert count_losses(recover(path).output) == losses
    assert count_losses(reindex(path).output) == losses


def accounts_for(recorder: Recorder, published: int) -> bool:
    return recorder.stats().messages + (recorder.stats().lost or 0) == published


def test_losses_between_two_epochs_are_counted(holding: threading.Lock, tmp_path: Path) -> None:
    """A topic whose schema changes begins an epoch, in which losses before its first message are no gap."""
    published = 0
    with Recorder(tmp_path / "log", chunk_seconds=0.01) as recorder, ExitStack() as stack:
        for name in ("first", "second", "third"):
            pub = stack.enter_context(msgq.PubSocket())
            for count in (1000, 10):
                with holding:
                    if count == 1000:
                        pub.connect(msgq.context, "e", 4096, schema=msgq.Schema(name, "json"))
                    pub.send_many([b"{}"] * count)
                published += count
                wait_until(partial(accounts_for, recorder, published))
    stats = recorder.stats()
    info = LogReader(tmp_path / "log").endpoints["e"]
    assert (stats.messages + (stats.lost or 0), info.messages) == (3030, stats.messages)
    assert (info.epochs, info.lost) == (3, stats.lost)
    assert (stats.lost or 0) > 1000


# ---- endpoints without any recorded message ----


def test_losses_of_endpoint_without_messages_are_shown_by_all_readers(bus: Bus, tmp_path: Path) -> None:
    path = tmp_path / "log.mcap"
    limits = RecordingLimits(max_total_bytes=10, min_free_bytes=0)
    recorder = Recorder(path, bus.published, limits=limits, chunk_seconds=0.01)
    bus.send(300)
    wait_until(lambda: not recorder.running)
    with pytest.raises(errors.RecordingError):
        recorder.stop()
    losses = read_stated_losses(path)
    assert losses.keys() == bus.published.keys()
    assert all(losses.values())
    assert count_losses(path) == read_shown_losses(path) == read_shown_losses(path, "--scan") == losses
    info = LogReader(path).endpoints["channel/channel"]
    assert (info.kind, info.messages, info.first_time, info.last_time) == ("channel", 0, None, None)
    assert [line.split()[-2] for line in run("bag", "info", path).stdout.splitlines() if "queue/queue" in line]
    whole = path.read_bytes()
    (tmp_path / "cut.mcap").write_bytes(whole[: whole.rindex(b"msgq.losses") - 50])
    assert count_losses(recover(tmp_path / "cut.mcap").output) == losses


def write_file_with_lost_endpoint(path: Path, lost: object, endpoint: str = "lost") -> Path:
    """Write a file with messages at 1000, 2000 and 3000, and an endpoint whose messages were all lost."""
    one, other = (
        build_channel_with_losses(1),
        records.Channel(2, endpoint, "", {"epoch": "1", "sequence": "published", "unrecorded": str(lost)}, 0),
    )
    chunks = [logs.build_chunk_record(one, logs.message(1, number, 1000 * number)) for number in (1, 2, 3)]
    return logs.write_unclosed_file(path, *chunks, other)


def test_losses_of_endpoint_without_messages_count_at_start_of_log(tmp_path: Path) -> None:
    path = write_file_with_lost_endpoint(tmp_path / "a.mcap", 5000)
    whole, rest = {"e": 0, "lost": 5000}, {"e": 0}
    assert count_losses(path) == count_losses(path, end=2500) == read_shown_losses(path, "--scan") == whole
    assert {endpoint: lost for endpoint, lost in read_shown_losses(path).items() if lost} == {"lost": 5000}
    assert count_losses(path, start=2000) == count_losses(path, endpoints=["e"]) == rest
    assert count_losses(path, path) == whole
    pieces = [piece for piece, _ in write_time_slices(LogReader(path), tmp_path / "pieces", 1000)]
    assert [count_losses(piece) for piece in pieces] == [whole, rest, rest]
    write_merged_log([*map(LogReader, pieces)], tmp_path / "again.mcap")
    write_merged_log([LogReader(path, start=2000)], tmp_path / "later.mcap")
    assert count_losses(tmp_path / "again.mcap")["lost"] == 5000
    assert count_losses(tmp_path / "later.mcap") == rest


def test_losses_of_endpoint_without_messages_add_up_in_copies(tmp_path: Path) -> None:
    one, other = (
        write_file_with_lost_endpoint(tmp_path / "a.mcap", 5000),
        write_file_with_lost_endpoint(tmp_path / "b.mcap", 70, "e"),
    )
    write_merged_log([LogReader(one), LogReader(one)], tmp_path / "twice.mcap")
    assert count_losses(tmp_path / "twice.mcap")["lost"] == 10_000
    assert count_losses(other) == {"e": 0}  # there are messages with this numbering
    write_merged_log(
        [LogReader(one), LogReader(write_file_with_lost_endpoint(tmp_path / "c.mcap", 70, "other"))],
        tmp_path / "both.mcap",
    )
    assert count_losses(tmp_path / "both.mcap") == {"e": 0, "lost": 5000, "other": 70}


def test_to_numpy_of_endpoint_with_losses_and_no_messages_raises(tmp_path: Path) -> None:
    schema = records.Schema(id=1, name="n", encoding="struct", data=b'[["x", "<u1"]]')
    made = records.Channel(1, "e", "struct", {"epoch": "2", "sequence": "published"}, 1)
    lost = records.Channel(2, "e", "", {"epoch": "1", "sequence": "published", "unrecorded": "7"}, 0)
    path = logs.write_unclosed_file(
        tmp_path / "a.mcap", schema, logs.build_chunk_record(made, logs.message(1, 5, 1000)), lost
    )
    assert count_losses(path) == {"e": 7}
    with pytest.raises(errors.RecordingError, match="no messages"):
        LogReader(write_file_with_lost_endpoint(tmp_path / "b.mcap", 5000)).to_numpy("lost")


@pytest.mark.parametrize("lost", ["", "-1", "unknown", "9" * 400, 1 << 63, "0", "1\0"])
def test_impossible_loss_count_of_endpoint_without_messages_is_ignored(tmp_path: Path, lost: object) -> None:
    assert count_losses(write_file_with_lost_endpoint(tmp_path / "a.mcap", lost)) == {"e": 0}


# ---- stated losses of a channel ----


def build_channel_with_losses(number: int, **metadata: object) -> records.Channel:
    """Return a channel of the one numbering of these files."""
    said = {"epoch": "1", "sequence": "published"} | {name: str(value) for name, value in metadata.items()}
    return records.Channel(number, "e", "", said, 0)


def of_file(tmp_path: Path, first: records.Channel, *others: records.Channel, start: int | None = None) -> int | None:
    """Return the losses of a file with the messages 5, 6 and 9 of the first of these channels."""
    messages = [logs.message(first.id, sequence, 1000 + sequence) for sequence in (5, 6, 9)]
    path = logs.write_unclosed_file(tmp_path / "a.mcap", logs.build_chunk_record(first, *messages), *others)
    return LogReader(path, start=start).endpoints["e"].lost


def test_stored_loss_count_applies_only_if_adjacent_message_is_present(tmp_path: Path) -> None:
    plain = build_channel_with_losses(1)
    before, after = (
        build_channel_with_losses(1, first_sequence=5, lost_before=40),
        build_channel_with_losses(2, last_sequence=9, lost_after=300),
    )
    assert of_file(tmp_path, plain) == 2
    assert of_file(tmp_path, before) == 42
    assert of_file(tmp_path, plain, after) == 302
    assert of_file(tmp_path, before, after) == 342
    assert of_file(tmp_path, before, after, start=1006) == 302
    assert of_file(tmp_path, build_channel_with_losses(1, first_sequence=6, lost_before=40)) == 2
    assert of_file(tmp_path, plain, build_channel_with_losses(2, last_sequence=6, lost_after=300)) == 2
    assert of_file(tmp_path, before, build_channel_with_losses(2, last_sequence=9, lost_after=40)) == 82


def test_unknown_losses_at_one_end_of_log_make_total_unknown(tmp_path: Path) -> None:
    assert of_file(tmp_path, build_channel_with_losses(1, first_sequence=5, lost_before="unknown")) is None
    assert (
        of_file(
            tmp_path, build_channel_with_losses(1), build_channel_with_losses(2, last_sequence=9, lost_after="unknown")
        )
        is None
    )
    assert of_file(tmp_path, build_channel_with_losses(1, first_sequence=5, lost_before="unknown"), start=1006) == 2


@pytest.mark.parametrize("lost", ["", "-1", "1e3", "\u0665", "9" * 400, 1 << 63, "lots"])
def test_impossible_loss_count_at_one_end_of_log_is_ignored(tmp_path: Path, lost: object) -> None:
    assert of_file(tmp_path, build_channel_with_losses(1, first_sequence=5, lost_before=lost)) == 2
    assert of_file(tmp_path, build_channel_with_losses(1, first_sequence=lost, lost_before=7)) == 2
    assert of_file(tmp_path, build_channel_with_losses(1, lost_before=7, last_sequence=9)) == 2


# ---- failures ----

ROOM = 30_000  # bytes of the disk, or until it fails
Injury = Callable[[pytest.MonkeyPatch], None]


def make_failing_call(call: str, number: int, after: int = ROOM, fits: int = 0) -> Injury:
    """Return what lets a function that writes fail after so many bytes: "pwritev", or a function of `os`.

    Writes of fewer than `fits` bytes succeed.
    """

    def inject(monkeypatch: pytest.MonkeyPatch) -> None:
        real = getattr(os, call)
        written = 0

        def counting(descriptor: int, offset: int, parts: Sequence[Any], steps: Sequence[Callable[[], object]]) -> None:
            nonlocal written
            size = sum(map(len, parts))
            if call == "pwritev" and written + size > after and size >= fits:
                raise OSError(number, os.strerror(number))
            written += size
            write_and_commit(descriptor, offset, parts, steps)

        def failing(*arguments: Any, **options: Any) -> Any:
            if written > after and (call != "open" or str(arguments[0]).endswith(".mcap")):
                raise OSError(number, os.strerror(number))
            return real(*arguments, **options)

        monkeypatch.setattr(segment_file, "write_and_commit", counting)
        if call != "pwritev":
            monkeypatch.setattr(os, call, failing)

    return inject


def bad_compressor(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = itertools.count()
    real = ChunkCompressor.compress_chunk

    def compress(self: ChunkCompressor, content: memoryview[int]) -> bytes | memoryview[int]:
        if next(chunks) == 3:
            raise MemoryError("no memory to compress")
        return real(self, content)

    monkeypatch.setattr(ChunkCompressor, "compress_chunk", compress)


def bad_taker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that takes fails while a chunk is open."""
    frames = Recorder._append_other_messages

    def take_frames(recorder: Recorder) -> None:
        frames(recorder)
        if recorder.stats().messages > 200 and len(recorder._open_chunk):
            raise MemoryError("no memory")

    monkeypatch.setattr(Recorder, "_append_other_messages", take_frames)


DIRECTORY, FILE = "log", "log.mcap"
NO_SPLIT, SPLIT = RecordingLimits(), RecordingLimits(split_messages=100)
FAILURES = {
    "data": (make_failing_call("pwritev", errno.ENOSPC, fits=5000), FILE, NO_SPLIT),
    "data of a later segment": (make_failing_call("pwritev", errno.ENOSPC, fits=5000), DIRECTORY, SPLIT),
    "device": (make_failing_call("pwritev", errno.EIO), FILE, NO_SPLIT),
    "end of a segment": (make_failing_call("pwritev", errno.ENOSPC), DIRECTORY, SPLIT),
    "new segment": (make_failing_call("open", errno.ENOSPC), DIRECTORY, SPLIT),
    "sync": (make_failing_call("fdatasync", errno.EIO), FILE, NO_SPLIT),
    "last sync": (make_failing_call("fsync", errno.EIO, 0), FILE, NO_SPLIT),
    "size of the file": (lambda _: None, FILE, RecordingLimits(max_total_bytes=ROOM)),
    "compressor": (bad_compressor, DIRECTORY, NO_SPLIT),
    "taker": (bad_taker, DIRECTORY, NO_SPLIT),
}


#: Failures after which the file takes what is stated of losses.
STATED = {"data", "data of a later segment", "sync", "size of the file", "compressor", "taker"}


def in_files(path: Path) -> Counter[str]:
    return Counter(message.endpoint for message in LogReader(path))


@pytest.mark.parametrize("failure", FAILURES)
def test_unwritten_messages_of_failed_recorder_count_as_lost(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    inject, name, limits = FAILURES[failure]
    options: dict[str, Any] = {"chunk_bytes": 10_000, "chunk_seconds": 0.01, "compression": "none"}
    if failure == "compressor":
        options["compression"] = "zstd"
    path = tmp_path / name
    recorder = Recorder(path, bus.published, limits=replace(limits, min_free_bytes=0), **options)
    with monkeypatch.context() as injured:
        inject(injured)
        if failure == "last sync":
            bus.send(200)
            recorder._is_stopping = True
        while recorder.running:
            bus.send(50)
        wait_until(recorder._output_closed.is_set)
        bus.send(30)
        with pytest.raises((errors.RecordingError, MemoryError)):
            recorder.stop()
    stats: Any = recorder.stats()
    found = in_files(path)
    lost = {endpoint: count - found[endpoint] for endpoint, count in bus.published.items()}
    assert recorder._compute_losses() == lost
    assert (stats.messages, stats.lost) == (found.total(), sum(lost.values()))
    assert stats.lost >= 3 * 30
    assert (stats.waiting_bytes, stats.at_risk_bytes) == (0, 0)
    bus.send(1)
    with pytest.raises((errors.RecordingError, MemoryError)):
        recorder.stop()
    assert recorder.stats().lost == stats.lost
    if failure in STATED:  # losses until the recorder failed
        wanted = {endpoint: count for endpoint, count in read_stated_losses(path).items() if found[endpoint] or count}
        assert count_losses(path) == read_shown_losses(path) == wanted
        assert 0 < sum(count or 0 for count in read_stated_losses(path).values()) <= stats.lost
