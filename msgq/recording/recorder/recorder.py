"""Recorder: one thread receives messages of all kinds, another compresses and writes, a third syncs the disk."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Self

from msgq.common import settings
from msgq.common.selection import EndpointChoice, EndpointPattern, SelectedEndpoints, select_endpoints
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.common.thread_samples import SAMPLES_ENDPOINT
from msgq.errors import (
    ForkedSocketError,
    RecordingError,
    SegmentError,
    StateError,
)
from msgq.impl.base.argument_checks import warn_program
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, EncodedChannel
from msgq.recording.recorder.chunk_queue import ChunkQueue
from msgq.recording.recorder.core import CAPTURE_BATCH_MAX, Capture
from msgq.recording.recorder.endpoints import RecordedEndpoints
from msgq.recording.recorder.frame_receiver import FrameStream
from msgq.recording.recorder.frame_sources import FrameSources
from msgq.recording.recorder.loss_accounting import LossAccounting, UnwrittenMessages
from msgq.recording.recorder.option_checks import check_backend, check_size_options
from msgq.recording.recorder.rolling_writer import RecordingLimits, RollingWriter
from msgq.recording.recorder.snapshot_buffer import SnapshotBuffer
from msgq.recording.recorder.stats import RecorderStats
from msgq.recording.recorder.thread_observer import ThreadObserver
from msgq.recording.recorder.wall_clock import WallClock

_RESCAN_INTERVAL_S = 0.5  # inotify reports neither removed files, nor files that become readable
_SYNC_INTERVAL_S = 0.25  # a power failure costs the messages of this time, and the messages that a kill costs
_RUN_SECONDS_MAX = 0.25  # frames and samples of threads are written after a run
_FINAL_RUN_S = 0.001  # time for the last messages, because vectors and boards are polled at this interval
_FINAL_RUNS_MAX = 1 << 16  # ends the last run although a publisher continues


class Recorder:
    """Records endpoints of all kinds from shared memory into MCAP files, without leaving a trace in the endpoints.

    Each recorded message has its recording time, its publishing time if known, and its number among all published
    messages. A gap in the numbers is a loss. If the disk or the machine is too slow, the recorder counts the lost
    messages. After a kill at any moment, the files stay readable. A kill costs at most `RecorderStats.at_risk_bytes`:
    the open chunk and `cache_bytes`.

    The recorder runs in its own threads, from construction to `stop`. Any thread may call the methods. After a fork,
    the recorder belongs to the parent: the end of a ``with`` block in the child does not stop it.

    Args:
        path: a directory for the segments, or one file with a name that ends in ".mcap".
        endpoints: a name or compiled regular expression, or a list of them; None: all endpoints. Names have the prefix
            of their kind: none for topics, "channel/", "records/", or "queue/" (a queue with events). Endpoints that
            appear later are recorded, too. `stop` warns with `MsgqWarning` of names and expressions that selected
            nothing. An empty list is valid only with `frames`.
        exclude: endpoints to skip, in the same form; None or an empty list: none.
        prefix: prefix of the endpoints; None: the current prefix.
        compression: "zstd", "lz4" or "none".
        level: level of the compression; None: 1 for zstd, 0 for lz4.
        chunk_bytes: maximum bytes of a chunk. The chunk ends at the first of its limits. A kill costs the open chunk.
        chunk_seconds: maximum seconds of a chunk.
        cache_bytes: maximum bytes of messages that wait for compression and writing. Two chunks may always wait,
            regardless of their size. A kill also costs the waiting messages. Above half of the limit, chunks are
            written uncompressed. At the limit, messages stay in the rings as long as the rings have room. Messages of
            `snapshot` do not count.
        limits: limits of segments and of the disk.
        snapshot_seconds: keep the latest seconds in memory, until `snapshot` writes them.
        snapshot_bytes: keep the latest bytes in memory, until `snapshot` writes them.
        start_paused: True: record nothing before `resume`.
        frames: frame streams to record as pictures, and servers whose streams are all recorded. The endpoints that
            announce frames contain no pictures.

    Raises:
        RecordingError: a recording exists at `path`, or nothing can be written there.
        InvalidValueError: an argument is out of range.
        BackendNotAvailableError: the backend is fake.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        endpoints: EndpointChoice | None = None,
        *,
        exclude: EndpointPattern | Iterable[EndpointPattern] | None = None,
        prefix: str | None = None,
        compression: str = "zstd",
        level: int | None = None,
        chunk_bytes: int = 1 << 20,
        chunk_seconds: float = 0.25,
        cache_bytes: int = 8 << 20,
        limits: RecordingLimits | None = None,
        snapshot_seconds: float | None = None,
        snapshot_bytes: int | None = None,
        start_paused: bool = False,
        frames: Iterable[FrameStream] = (),
    ) -> None:
        """Start recording."""
        check_size_options(chunk_bytes, chunk_seconds, cache_bytes)
        self._pid = os.getpid()
        self._chunk_bytes, self._chunk_seconds = chunk_bytes, chunk_seconds
        self._capture = Capture()
        check_backend()
        resolved_prefix = settings.resolve_prefix(prefix)
        frames = list(frames)
        selection = select_endpoints(endpoints, exclude, may_be_empty=bool(frames))
        self._recorded_endpoints = RecordedEndpoints(self._capture, selection, resolved_prefix)
        self._warns_of_unmatched = not isinstance(endpoints, SelectedEndpoints)
        self._wall_clock = WallClock()
        compressor, offset_ns = ChunkCompressor(compression, level), self._capture.clock_offset_ns
        limits = limits or RecordingLimits()
        self._rolling_writer = RollingWriter(
            Path(path), limits, compressor, offset_ns, self._wall_clock, resolved_prefix
        )
        self._keeps_snapshot = snapshot_seconds is not None or snapshot_bytes is not None
        snapshot_buffer = SnapshotBuffer(snapshot_seconds, snapshot_bytes) if self._keeps_snapshot else None
        self._chunk_queue = ChunkQueue(cache_bytes, chunk_bytes, snapshot_buffer)
        self._encoded_channels: dict[int, EncodedChannel] = {}
        self._message_count = self._payload_bytes = self._corrupt_count = 0
        self._loss_accounting = LossAccounting()
        self._unwritten_messages = UnwrittenMessages()
        self._has_failed = False  # True after a failed write of a chunk
        self._is_paused = start_paused
        self._is_capture_paused = start_paused  # state of the capturing thread, which follows `_is_paused`
        self._is_stopping = self._is_stopped = self._is_snapshot_wanted = False
        self._error: Exception | None = None
        self._output_closed = threading.Event()
        self._state_changed = threading.Condition()
        self._recorded_endpoints.rescan_endpoints()
        self._open_chunk = self._chunk_queue.open_next_chunk(self._recorded_endpoints.largest_message_bytes)
        self._frame_sources = FrameSources(frames, resolved_prefix, self._capture, is_wanted=not start_paused)
        self._thread_observer = ThreadObserver(
            self._recorded_endpoints, resolved_prefix, self._capture, not start_paused
        )
        self._threads = self._start_threads()

    def _start_threads(self) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._run_thread, args=(work,), name="msgq record", daemon=True)
            for work in (self._run_capture, self._write_chunks, self._sync_until_closed)
        ]
        for thread in threads:
            thread.start()
        return threads

    def __repr__(self) -> str:
        state = "stopped" if not self.running else "paused" if self._is_paused else "recording"
        counted = format_count_noun(self._message_count, "message")
        return f"<Recorder {str(self._rolling_writer.path)!r}, {state}: {counted}>"

    # ---- calls of other threads ----

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ForkedSocketError(
                f"the recorder of '{self._rolling_writer.path}' belongs to the parent process; "
                "create another in this process"
            )

    def pause(self) -> None:
        """Stop recording until `resume`. Messages during the pause are no losses."""
        self._check_process()
        self._set_paused(True)

    def resume(self) -> None:
        """Continue recording with the newest messages."""
        self._check_process()
        self._set_paused(False)

    def _set_paused(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        self._frame_sources.set_wanted(not is_paused)
        self._thread_observer.set_wanted(not is_paused)
        self._wake_capture()

    def _wake_capture(self) -> None:
        """Wake the capturing thread, so that it handles a request."""
        with self._state_changed:
            self._state_changed.notify_all()
        self._capture.interrupt_capture()

    @property
    def paused(self) -> bool:
        """True while the recorder is paused."""
        return self._is_paused

    def snapshot(self) -> None:
        """Write the messages in memory that were published before this call. The files follow soon after the call.

        Messages that arrive while a snapshot is written belong to the next snapshot.

        Raises:
            StateError: the recorder keeps no messages in memory.
        """
        self._check_process()
        if not self._keeps_snapshot:
            raise StateError(
                "the recorder writes all messages, so snapshots are off; pass snapshot_seconds or snapshot_bytes"
            )
        self._is_snapshot_wanted = True
        self._wake_capture()

    def stats(self) -> RecorderStats:
        """Return the current statistics."""
        self._check_process()
        losses = self._compute_losses().values()
        lost = (
            None
            if None in losses or self._recorded_endpoints.may_have_missed_endpoints
            else sum(loss for loss in losses if loss is not None)
        )
        writer = self._rolling_writer
        return RecorderStats(
            self._message_count - self._unwritten_messages.message_counts.total(),
            self._payload_bytes - self._unwritten_messages.used_bytes,
            writer.written_bytes,
            self._chunk_queue.waiting_bytes,
            self._chunk_queue.at_risk_bytes,
            writer.uncompressed_chunks,
            lost,
            self._recorded_endpoints.endpoint_count + len(self._frame_sources.receivers),
            writer.segment_count,
            writer.removed_segments,
            writer.read_free_bytes(),
            self._list_refused_endpoints(),
            self._corrupt_count,
        )

    def _list_refused_endpoints(self) -> dict[str, str]:
        broken = {
            receiver.frame_stream.endpoint: str(receiver.error)
            for receiver in self._frame_sources.receivers
            if receiver.error is not None
        }
        missing_samples = self._thread_observer.explain_missing_samples()
        if missing_samples:
            broken[SAMPLES_ENDPOINT] = missing_samples
        return {**self._recorded_endpoints.refusal_reasons, **broken}

    @property
    def running(self) -> bool:
        """True until `stop`, or until an error. `stop` raises this error."""
        return not self._is_stopping

    def stop(self) -> RecorderStats:
        """Write pending messages, finish the files, and return the final statistics. A second stop has no effect.

        After an error, use `stats` for the final statistics. Messages published before this call count as lost if they
        are missing in the files. Names that selected nothing are a `MsgqWarning`.

        Raises:
            RecordingError: the disk was full or failed.
            ForkedSocketError: this is a forked child. The recording continues in the parent.
        """
        self._check_process()
        self._thread_observer.stop()
        self._is_stopping = True
        self._wake_capture()
        for thread in self._threads:
            thread.join()
        self._frame_sources.stop_receiving()
        if self._error is not None:
            if not self._is_stopped:
                self._lose_pending_messages()
            self._is_stopped = True
            raise self._error
        if not self._is_stopped and self._warns_of_unmatched:
            self._warn_of_missing()
        self._is_stopped = True
        return self.stats()

    def _warn_of_missing(self) -> None:
        """Warn of names, expressions and frames that selected nothing until now."""
        missing = [repr(text) for text in self._recorded_endpoints.find_unmatched()]
        missing += map(str, self.missing_frames)
        if missing:
            warn_program(f"nothing was recorded of {join_first_texts(missing)}, which never existed; check the names")

    @property
    def missing_frames(self) -> list[FrameStream]:
        """Elements of `frames` that have not been found up to now."""
        return self._frame_sources.list_missing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid == os.getpid():
            self.stop()

    def _run_thread(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # `stop` raises it
            self._record_failure(error)

    def _record_failure(self, error: Exception) -> None:
        """End the recording."""
        if isinstance(error, OSError):  # an error of the disk
            text = f"recording '{self._rolling_writer.path}' cannot be written: {error.strerror}"
            error = RecordingError(text, errno=error.errno)
        self._error = self._error or error
        self._is_stopping = True
        self._wake_capture()
        self._chunk_queue.abandon_waits()

    # ---- the capturing thread ----

    def _run_capture(self) -> None:
        try:
            self._capture_until_stop()
            if self._error is not None:
                self._lose_pending_messages()
        except BaseException:
            self._lose_open_chunk()
            self._lose_pending_messages()
            raise
        finally:
            self._chunk_queue.end_input()

    def _lose_open_chunk(self) -> None:
        """Count the messages of the open chunk as lost."""
        chunk = self._chunk_queue.open_chunk
        if chunk is not None:
            self._count_captured_messages(chunk)
            self._unwritten_messages.add_chunk(chunk, self._encoded_channels)

    def _lose_pending_messages(self) -> None:
        """Count messages as lost that were published until now and not recorded."""
        if not (self._is_capture_paused or self._keeps_snapshot):
            self._recorded_endpoints.skip_pending_messages()

    def _capture_until_stop(self) -> None:
        scanned_at = time.monotonic()
        while not self._is_stopping:
            self._wall_clock.sample_offset()
            if self._is_snapshot_due():
                self._write_snapshot()
            if self._is_paused:
                self._is_capture_paused = True
                with self._state_changed:
                    self._state_changed.wait_for(
                        lambda: self._is_stopping or not self._is_paused or self._is_snapshot_due(), self._chunk_seconds
                    )
                continue
            if self._is_capture_paused:
                self._is_capture_paused = False
                self._recorded_endpoints.rejoin_at_present()
            self._fill_open_chunk(self._recorded_endpoints.limit_wait_s(self._chunk_seconds))
            self._recorded_endpoints.handle_changes()
            self._submit_open_chunk()
            if time.monotonic() - scanned_at >= _RESCAN_INTERVAL_S:
                scanned_at = time.monotonic()
                self._recorded_endpoints.rescan_endpoints()
        if not self._is_capture_paused:  # after a pause, all present messages are older than a possible `resume`
            self._recorded_endpoints.rescan_endpoints()
            self._capture_remaining_messages()
        if self._is_snapshot_wanted:
            self._chunk_queue.release_snapshot()

    def _is_snapshot_due(self) -> bool:
        """Return True if a snapshot is requested and no other snapshot is being written."""
        return self._is_snapshot_wanted and self._chunk_queue.is_idle

    def _write_snapshot(self) -> None:
        self._is_snapshot_wanted = False
        if not self._is_capture_paused:
            self._capture_remaining_messages()
        self._chunk_queue.release_snapshot()

    def _capture_remaining_messages(self) -> None:
        """Record all messages that were published until now, and submit the chunk."""
        until = time.monotonic() + _FINAL_RUN_S
        for _ in range(_FINAL_RUNS_MAX):
            if self._is_paused or self._error is not None:  # after an error, no thread writes the messages
                break
            before = len(self._open_chunk)
            is_last = time.monotonic() >= until  # read before the run, so that the last run begins after `until`
            full = self._fill_open_chunk(0)
            may_have_more = len(self._open_chunk) - before >= CAPTURE_BATCH_MAX
            if full:
                self._submit_open_chunk()
            elif not self._recorded_endpoints.handle_changes() and not may_have_more and is_last:
                break
        self._submit_open_chunk()

    def _fill_open_chunk(self, seconds: float) -> bool:
        """Record into the open chunk. Return True if the chunk is full."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            run_until = min(until, now + _RUN_SECONDS_MAX)
            full = self._capture_once(max(0.0, run_until - now))
            has_ended_early = time.monotonic() < run_until  # something is to do
            if full or has_ended_early or run_until >= until:
                return full

    def _capture_once(self, seconds: float) -> bool:
        full = False
        try:
            full = self._capture.capture_messages(self._open_chunk, seconds)
        except SegmentError:  # the next scan opens the endpoint again if possible
            self._corrupt_count += 1
        self._encoded_channels.update(self._recorded_endpoints.iter_new_channels(len(self._encoded_channels) + 1))
        if not self._is_paused:
            self._append_other_messages()
        return full

    def _append_other_messages(self) -> None:
        """Append the frames, and the samples of threads."""
        sources = self._frame_sources, self._thread_observer
        for fields in itertools.chain(*(source.iter_messages(self._encoded_channels) for source in sources)):
            if not self._open_chunk.append_message(*fields):
                self._submit_open_chunk(len(fields[-1]))
                self._open_chunk.append_message(*fields)

    def _submit_open_chunk(self, largest: int = 0) -> None:
        """Submit the open chunk for writing, and open another chunk with room for the largest message."""
        largest = max(largest, self._recorded_endpoints.largest_message_bytes)
        if len(self._open_chunk):
            self._count_captured_messages(self._open_chunk)
            self._chunk_queue.put_chunk(self._open_chunk)
        elif self._open_chunk.capacity_bytes >= self._chunk_bytes + largest:
            return
        self._open_chunk = self._chunk_queue.open_next_chunk(largest)

    def _count_captured_messages(self, chunk: ChunkBuffer) -> None:
        self._message_count += len(chunk)
        self._payload_bytes += chunk.used_bytes

    # ---- the writing thread ----

    def _write_chunks(self) -> None:
        try:
            while (item := self._chunk_queue.get_next_chunk()) is not None:
                self._write_or_lose_chunk(*item)
                self._chunk_queue.recycle_chunk(item[0])
                if self._is_snapshot_due():
                    self._wake_capture()
        finally:
            try:
                self._close_output()
            finally:
                self._output_closed.set()

    def _write_or_lose_chunk(self, chunk: ChunkBuffer, behind: bool) -> None:
        """Write a chunk. After a failure all later chunks count as lost, so that the files have no gaps."""
        if not self._has_failed:
            try:
                self._rolling_writer.write_chunk(
                    chunk, self._encoded_channels, self._build_losses_metadata, compress=not behind
                )
            except Exception as error:  # from the disk or the compressor
                self._has_failed = True
                self._record_failure(error)
            else:
                self._loss_accounting.count_chunk(chunk, self._encoded_channels)
                return
        self._unwritten_messages.add_chunk(chunk, self._encoded_channels)

    def _close_output(self) -> None:
        stating = (
            ()
            if self._keeps_snapshot
            else self._loss_accounting.iter_channels_with_losses(
                self._compute_losses(), max(self._encoded_channels, default=0)
            )
        )
        self._rolling_writer.close(self._build_losses_metadata(), stating)

    # ---- the syncing thread ----

    def _sync_until_closed(self) -> None:
        synced = 0
        while not self._output_closed.wait(_SYNC_INTERVAL_S):
            written = self._rolling_writer.written_bytes
            if written != synced:
                self._rolling_writer.sync_to_disk()
                synced = written

    # ---- losses ----

    def _compute_losses(self) -> dict[str, int | None]:
        """Return the number of lost messages by endpoint; None: unknown."""
        losses = self._recorded_endpoints.count_losses()
        losses |= {receiver.frame_stream.endpoint: receiver.lost_frames for receiver in self._frame_sources.receivers}
        unwritten = self._unwritten_messages.message_counts
        return {name: None if lost is None else lost + unwritten[name] for name, lost in losses.items()}

    def _build_losses_metadata(self) -> dict[str, str]:
        """Return the losses as files store them."""
        return {
            name: metadata_keys.UNKNOWN_LOSSES if lost is None else str(lost)
            for name, lost in self._compute_losses().items()
        }
