"""Rings into the chunks of a recording, below Python."""

from typing import final

from msgq.impl.ring.subscriber import SubSocket
from msgq.recording.format.chunk import Chunk

@final
class Capture:
    """Records endpoints side by side, each by a passive subscriber that nobody else uses. For one thread at a time."""

    @property
    def clock_offset_ns(self) -> int:
        """CLOCK_REALTIME - CLOCK_MONOTONIC; log_time is the latter plus this, and so never goes back."""

    def add(self, socket: SubSocket, publish_offset: int = -1) -> int:
        """Record what comes to a connected subscriber from now on; return the number of the source.

        Parameters
        ----------
        socket : connected, passive.
        publish_offset : where in a message its publishing time is (u64, ns since the epoch); -1: nowhere.
        """

    def begin_epoch(self, source: int, publish_offset: int = -1) -> None:
        """Let the next message of a source begin another channel.

        Parameters
        ----------
        source : its number.
        publish_offset : as for `add`.
        """

    def replace(self, source: int, socket: SubSocket, publish_offset: int = -1) -> None:
        """Go on with another subscriber, because the endpoint was made anew, or after a pause. Begins a new epoch.

        Parameters
        ----------
        source : as `add` returned it.
        socket : as for `add`.
        publish_offset : as for `add`.
        """

    def run(self, chunk: Chunk, seconds: float) -> bool:
        """Record into the chunk, without the GIL, until it is full (True) or the time is over.

        Parameters
        ----------
        chunk : what it holds stays.
        seconds : at most 3600.

        Raises
        ------
        CorruptSegmentError : a ring holds nonsense; what was recorded is in the chunk, and a next call goes on.
        SegmentSizeError : somebody made a ring smaller; as above, but that source has ended until it is replaced.
        RecordingError : no channel is left, after 65535.
        """

    def new_channel(self) -> int:
        """Return a channel's number for messages from elsewhere.

        Raises
        ------
        RecordingError : no channel is left.
        """

    def now(self) -> int:
        """Return the time for a log_time: ns since the epoch, as `clock_offset_ns` says."""

    def channels(self, start: int = 1) -> list[tuple[int, int, int, bool, bool]]:
        """Return number, source, epoch, whether publishers count, and whether messages have stamps, of the sources'
        channels from `start` on.
        """

    def lost(self, source: int) -> int | None:
        """Return the messages that its subscriber has lost; None: unknown, under a stock publisher."""

    def unread(self, source: int) -> int | None:
        """Pass over what is pending, and return how many messages that was; None: unknown, the ring holds nonsense."""

    def ended(self, source: int) -> bool:
        """Return whether nothing comes from the source any more, because somebody made its ring smaller."""
