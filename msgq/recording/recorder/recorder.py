"""The recorder: one thread takes messages from endpoints of all kinds, another compresses and writes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Self

from msgq import kinds, naming
from msgq.errors import (
    ForkedSocketError,
    InvalidValueError,
    RecordingError,
    SegmentError,
    StateError,
)
from msgq.recording.format import conventions
from msgq.recording.format.chunk import Chunk
from msgq.recording.format.writer import ChannelRecords, Compressor, channel_records
from msgq.recording.recorder.capture import Capture
from msgq.recording.recorder.endpoints import RecordedEndpoints
from msgq.recording.recorder.output import Limits, Memory, Output
from msgq.recording.recorder.ros_images import FrameChoice, FrameReceiver
from msgq.selection import Choice, Selection
from msgq.source import Source

_LOOK_S = 0.5  # between two looks for new endpoints
_QUEUE_BYTES = 128 << 20  # of chunks that wait for the disk; beyond it the rings hold what they can


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """What a recorder has done so far.

    Attributes
    ----------
    messages, payload_bytes : taken from endpoints (record headers included in the latter).
    written_bytes : on disk.
    waiting_bytes : on the way there, or kept in memory.
    lost : messages that were published and are not in the recording; None: unknown, under a stock publisher. What is
        overwritten in a vector or board between two looks is none: the counts of its values tell it.
    endpoints : that are recorded.
    segments, removed_segments : of the recording; removed because of `max_bytes`.
    free_bytes : left on the disk.
    refused : endpoints that could not be recorded, and why.
    corrupt : times that an endpoint held nonsense.
    """

    messages: int
    payload_bytes: int
    written_bytes: int
    waiting_bytes: int
    lost: int | None
    endpoints: int
    segments: int
    removed_segments: int
    free_bytes: int
    refused: dict[str, str]
    corrupt: int


class Recorder:
    """Records endpoints of all kinds, over shared memory, into MCAP files, without any trace in them.

    Each message gets the time at which it was recorded, the time at which it was published where that is known, and
    its number among all that were published, so that a gap in the numbers is a loss. What is lost (the disk or this
    machine was too slow) is counted, never silent. A kill at any moment leaves files that can be read, up to the chunk
    that was open.

    Runs from construction to `stop`, in threads of its own. Any thread may call the methods. After a fork it is the
    parent's: a child that leaves its with block does not end it.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        endpoints: Iterable[Choice] = (),
        *,
        exclude: Iterable[Choice] = (),
        prefix: str | None = None,
        compression: str = "zstd",
        level: int | None = None,
        chunk_bytes: int = 1 << 20,
        chunk_seconds: float = 0.25,
        limits: Limits | None = None,
        snapshot_seconds: float | None = None,
        snapshot_bytes: int | None = None,
        paused: bool = False,
        frames: Iterable[FrameChoice] = (),
    ) -> None:
        """Start recording.

        Parameters
        ----------
        path : a directory for the segments, or one file, which ends in ".mcap".
        endpoints : names, and compiled expressions, as `Selection` has them; none: all. Those that are no topics have
            the mark of their kind before the name: "channel/", "records/", "queue/" (of a queue with events). Those
            that appear later are joined.
        exclude : the same, of what is not wanted.
        prefix : of the endpoints; None: the one in force.
        compression : "zstd", "lz4" or "none".
        level : of the compression; None: 1 for zstd, 0 for lz4.
        chunk_bytes, chunk_seconds : a chunk ends with whichever comes first; the open one is what a kill costs.
        limits : of segments and of the disk.
        snapshot_seconds, snapshot_bytes : keep the last so much in memory instead, until `snapshot` is called.
        paused : record nothing before `resume`.
        frames : streams of visionipc to record as pictures. (The endpoints that announce frames hold none.)

        Raises
        ------
        RecordingError : there is a recording, or nothing can be written there.
        InvalidValueError : a value that is not possible.
        """
        if chunk_bytes < 1024 or not 0.001 <= chunk_seconds <= 60:
            text = f"chunks of {chunk_bytes} bytes, {chunk_seconds} s are not possible; give 1024 or more, 0.001 to 60"
            raise InvalidValueError(text)
        self._pid = os.getpid()
        self._chunk_bytes, self._chunk_seconds = chunk_bytes, chunk_seconds
        self._capture = Capture()
        where = naming.checked_prefix(prefix)
        self._sources = RecordedEndpoints(self._capture, Selection(tuple(endpoints) or None, exclude), where)
        self._output = Output(
            Path(path), limits or Limits(), Compressor(compression, level), self._capture.clock_offset_ns, where
        )
        keeps = snapshot_seconds is not None or snapshot_bytes is not None
        self._memory = Memory(snapshot_seconds, snapshot_bytes) if keeps else None
        self._channels: dict[int, ChannelRecords] = {}
        self._messages = self._bytes = self._waiting_bytes = self._corrupt = 0
        self._paused = self._was_paused = paused  # the latter as far as the thread that takes has noticed
        self._stopping = False
        self._snapshot_wanted = False
        self._error: Exception | None = None
        self._queue: list[Chunk] = []
        self._spare: list[Chunk] = []
        self._changed = threading.Condition()
        self._sources.look()
        self._receivers = [(FrameReceiver(choice, where), self._frame_channel(choice)) for choice in frames]
        self._want_frames()
        self._recorded = dict.fromkeys((number for _, number in self._receivers), 0)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name="msgq record", daemon=True)
            for work in (self._take, self._write)
        ]
        for thread in self._threads:
            thread.start()

    def _frame_channel(self, choice: FrameChoice) -> int:
        number = self._capture.new_channel()
        described = Source(kinds.FRAMES)
        self._channels[number] = channel_records(
            number, choice.endpoint, choice.schema, 1, conventions.RECEIVED, source=described
        )
        return number

    # ---- what other threads may ask ----

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ForkedSocketError(f"the recorder of {self._output.path} is the parent's; make one here")

    def pause(self) -> None:
        """Record nothing, until `resume`. What comes meanwhile is no loss."""
        self._check_process()
        self._paused = True
        self._want_frames()

    def resume(self) -> None:
        """Go on at the present."""
        self._check_process()
        self._paused = False
        self._want_frames()
        with self._changed:
            self._changed.notify_all()

    def _want_frames(self) -> None:
        for receiver, _ in self._receivers:
            receiver.wanted = not self._paused

    @property
    def paused(self) -> bool:
        """Whether nothing is recorded at the moment."""
        return self._paused

    def snapshot(self) -> None:
        """Write what is kept in memory, soon.

        Raises
        ------
        StateError : the recorder keeps nothing in memory.
        """
        self._check_process()
        if self._memory is None:
            raise StateError("the recorder writes everything; give snapshot_seconds or snapshot_bytes")
        with self._changed:
            self._snapshot_wanted = True
            self._changed.notify_all()

    def stats(self) -> RecorderStats:
        """Return what was done so far."""
        losses = [*self._sources.losses().values(), *(receiver.lost for receiver, _ in self._receivers)]
        lost = None if None in losses else sum(loss for loss in losses if loss is not None)
        output = self._output
        kept = self._memory.bytes if self._memory is not None else 0
        return RecorderStats(
            self._messages,
            self._bytes,
            output.bytes,
            self._waiting_bytes + kept,
            lost,
            len(self._sources.all) + len(self._receivers),
            output.segments,
            output.removed_segments,
            output.free_bytes(),
            self._refused(),
            self._corrupt,
        )

    def _refused(self) -> dict[str, str]:
        broken = {
            receiver.choice.endpoint: str(receiver.error)
            for receiver, _ in self._receivers
            if receiver.error is not None
        }
        return {**self._sources.refused, **broken}

    @property
    def running(self) -> bool:
        """False after `stop`, and after an error, which `stop` raises."""
        return not self._stopping

    def stop(self) -> RecorderStats:
        """Write what is pending, end the files, and return the last figures. Twice does nothing more.

        Raises
        ------
        RecordingError : what ended the recording, if it was not this call: the disk was full, or failed.
        ForkedSocketError : this is a forked child; the recording goes on.
        """
        self._check_process()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for receiver, _ in self._receivers:
            receiver.close()
        if self._error is not None:
            raise self._error
        return self.stats()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid == os.getpid():
            self.stop()

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except Exception as error:  # whatever it is, whoever waits for the recorder must hear of it
            if isinstance(error, OSError):  # of the disk, where nothing said it better
                text = f"cannot write {self._output.path}: {error.strerror}"
                error = RecordingError(text, errno=error.errno)
            with self._changed:
                self._error = self._error or error
                self._stopping = True
                self._changed.notify_all()

    # ---- the thread that takes ----

    def _take(self) -> None:
        chunk = self._fresh()
        looked = time.monotonic()
        while not self._stopping:
            if self._paused:
                self._was_paused = True
                with self._changed:
                    self._changed.wait(self._chunk_seconds)
                continue
            if self._was_paused:
                self._was_paused = False
                self._sources.rejoin()
            chunk = self._take_into(chunk, self._chunk_seconds)
            if time.monotonic() - looked >= _LOOK_S:
                looked = time.monotonic()
                self._sources.look()
        if self._was_paused:  # also if somebody has just resumed: what is there now came before
            return
        self._sources.look()
        for _ in range(1 << 16):  # what was published before the stop; a publisher that goes on cannot hold us up
            before = self._messages
            if not self._paused and self._error is None:  # after an error nobody writes it
                chunk = self._take_into(chunk, 0)
            if self._messages == before:
                break

    def _take_into(self, chunk: Chunk, seconds: float) -> Chunk:
        """Fill a chunk and hand it on; return the next one to fill."""
        try:
            self._capture.run(chunk, seconds)
        except SegmentError:  # the next look joins it again, if it must
            self._corrupt += 1
        self._channels.update(self._sources.new_channels(len(self._channels) + 1))
        if not self._paused:
            chunk = self._take_frames(chunk)
        if not len(chunk):
            return chunk if chunk.room >= self._chunk_bytes + self._sources.largest else self._fresh()
        self._hand_on(chunk)
        return self._fresh()

    def _hand_on(self, chunk: Chunk) -> None:
        with self._changed:
            self._messages += len(chunk)
            self._bytes += chunk.used
            self._waiting_bytes += chunk.used
            self._queue.append(chunk)
            self._changed.notify_all()
            while self._waiting_bytes > _QUEUE_BYTES and not self._error:
                self._changed.wait()

    def _take_frames(self, chunk: Chunk) -> Chunk:
        """Append the frames that have come; return the chunk that they are in, perhaps another one."""
        for receiver, number in self._receivers:
            for frame in receiver.fetch():
                fields = (number, self._recorded[number], self._capture.now(), frame.publish_time, frame.data)
                if not chunk.append(*fields):
                    if len(chunk):
                        self._hand_on(chunk)
                    chunk = Chunk(self._chunk_bytes, max(self._sources.largest, len(frame.data)))
                    chunk.append(*fields)
                self._recorded[number] += 1
        return chunk

    def _fresh(self) -> Chunk:
        wanted = self._chunk_bytes + self._sources.largest
        with self._changed:
            while self._spare:
                chunk = self._spare.pop()
                if chunk.room >= wanted:
                    return chunk
        return Chunk(self._chunk_bytes, self._sources.largest)

    # ---- the thread that writes ----

    def _write(self) -> None:
        try:
            while (chunks := self._next_chunks()) is not None:
                for chunk in chunks:
                    self._output.write(chunk, self._channels, self._losses)
                    self._done(chunk)
        finally:
            self._output.close(self._losses())

    def _next_chunks(self) -> list[Chunk] | None:
        """Wait for chunks that are to be written; None: there will be none."""
        while True:
            with self._changed:
                taking = self._threads[0].is_alive()
                if not self._queue and not self._snapshot_wanted:
                    if not taking:
                        return None
                    self._changed.wait(0.05 if self._stopping else None)
                    continue
                chunks, self._queue = self._queue, []
            if self._memory is None:
                return chunks
            self._wait_more(-sum(chunk.used for chunk in chunks))
            for chunk in chunks:
                for old in self._memory.keep(chunk):
                    self._done(old, was_waiting=False)
            if self._snapshot_wanted:
                self._snapshot_wanted = False
                kept = self._memory.take()
                self._wait_more(sum(chunk.used for chunk in kept))
                return kept

    def _wait_more(self, change: int) -> None:
        with self._changed:
            self._waiting_bytes += change
            self._changed.notify_all()

    def _done(self, chunk: Chunk, was_waiting: bool = True) -> None:
        with self._changed:
            self._waiting_bytes -= chunk.used if was_waiting else 0
            chunk.clear()
            if len(self._spare) < 8:
                self._spare.append(chunk)
            self._changed.notify_all()

    def _losses(self) -> dict[str, str]:
        lost = {
            **self._sources.losses(),
            **{receiver.choice.endpoint: receiver.lost for receiver, _ in self._receivers},
        }
        return {name: "unknown" if count is None else str(count) for name, count in lost.items()}
