"""Receivers of all frame streams of a recorder."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from msgq.common import settings
from msgq.common.message_source import MessageSource
from msgq.kinds import find_recorded_kind
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.segment_writer import EncodedChannel, encode_channel
from msgq.recording.recorder.core import Capture
from msgq.recording.recorder.frame_receiver import FrameReceiver, FrameStream, list_streams

FrameMessage = tuple[int, int, int, int, bytes]  # channel, sequence, log_time, publish_time, bytes
_SEARCH_INTERVAL_S = 0.1  # maximum delay until a new stream of a server is found


class FrameSources:
    """Receives the given streams, and all streams of the servers that are given without a stream.

    Each server without a stream has a thread, because a server that does not answer must not delay the others.

    Attributes:
        receivers: receivers of the streams, in the order of their start. Grows when a server creates a stream.
    """

    def __init__(self, streams: Iterable[FrameStream], prefix: str, capture: Capture, is_wanted: bool) -> None:
        self._prefix, self._capture, self._is_wanted = prefix, capture, is_wanted
        self._channel_numbers: dict[str, int] = {}  # numbers by endpoint
        self._recorded_frames: Counter[str] = Counter()  # frames by endpoint
        self._streams = list(streams)
        self._lock = threading.Lock()  # guards `_is_wanted` together with `receivers`
        self._stopping = threading.Event()
        single = [stream for stream in self._streams if stream.stream is not None]
        self.receivers = [FrameReceiver(stream, prefix, is_wanted) for stream in single]
        self._threads = [
            threading.Thread(target=self._search_streams, args=(server,), name="msgq frames", daemon=True)
            for server in self._streams
            if server.stream is None
        ]
        for thread in self._threads:
            thread.start()

    def _search_streams(self, server: FrameStream) -> None:
        known_streams = {stream.stream for stream in self._streams if stream.server == server.server}
        with settings.overrides(self._prefix):
            while not self._stopping.is_set():
                for stream_type in sorted(list_streams(server.server) - known_streams):
                    known_streams.add(stream_type)
                    with self._lock:
                        stream = replace(server, stream=stream_type)
                        self.receivers.append(FrameReceiver(stream, self._prefix, self._is_wanted))
                self._stopping.wait(_SEARCH_INTERVAL_S)

    def iter_messages(self, channels: dict[int, EncodedChannel]) -> Iterator[FrameMessage]:
        """Yield the frames since the last call as arguments of `ChunkBuffer.append_message`.

        The capturing thread calls this method. `channels`: all channels by number, which get those of new streams.
        """
        clock_offset_ns = self._capture.read_host_clock_ns() - time.monotonic_ns()
        for receiver in self.receivers:
            endpoint = receiver.frame_stream.endpoint
            if endpoint not in self._channel_numbers:
                self._channel_numbers[endpoint] = self._add_channel(receiver.frame_stream, channels)
            for frame in receiver.fetch_frames():
                log_time = frame.received_ns + clock_offset_ns
                sequence, publish_time = self._recorded_frames[endpoint], log_time - frame.latency_ns
                yield self._channel_numbers[endpoint], sequence, log_time, publish_time, frame.message_bytes
                self._recorded_frames[endpoint] += 1

    def _add_channel(self, stream: FrameStream, channels: dict[int, EncodedChannel]) -> int:
        number = self._capture.reserve_channel_id()
        described = MessageSource(find_recorded_kind(stream.endpoint).name)
        channels[number] = encode_channel(
            number, stream.endpoint, stream.schema, 1, metadata_keys.RECORDER_SEQUENCE, source=described
        )
        return number

    def set_wanted(self, is_wanted: bool) -> None:
        """Start or stop keeping frames."""
        with self._lock:
            self._is_wanted = is_wanted
            for receiver in self.receivers:
                receiver.is_wanted = is_wanted

    def list_missing(self) -> list[FrameStream]:
        """Return the streams that have not been found up to now, and the servers without any stream."""
        found = [receiver.frame_stream for receiver in self.receivers if receiver.was_found]
        servers = {stream.server for stream in found}
        return [s for s in self._streams if (s.server not in servers if s.stream is None else s not in found)]

    def stop_receiving(self) -> None:
        """Stop all receivers, and wait for their ends."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for receiver in self.receivers:
            receiver.stop_receiving()
