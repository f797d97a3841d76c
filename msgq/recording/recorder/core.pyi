"""The recorder below Python: sources into chunks, and the files that appear meanwhile."""

from collections.abc import Iterable
from typing import final

from msgq.impl.sources.source import EndpointSource
from msgq.recording.mcap_io.core import ChunkBuffer

@final
class FileArrival:
    """A file that got a name."""

    @property
    def directory(self) -> str:
        """The directory that it is in."""
    @property
    def name(self) -> str:
        """Its name there."""
    @property
    def fd(self) -> int:
        """A descriptor for reading, of the moment when it came, closed with this object; -1: it would not open."""
    @property
    def inode(self) -> int | None:
        """Its number; None where it could not be opened."""
    @property
    def is_gone(self) -> bool:
        """Whether it had no such name any more."""

@final
class FileWatcher:
    """Tells of files that are made in some directories, or moved there, and opens them at once.

    For one thread at a time. `Capture.watch` has it look while a run is under way.
    """

    def __init__(self, places: Iterable[tuple[str, str]], parent: str) -> None:
        """Look from now on.

        Parameters
        ----------
        places : at most 8 directories, and what the names of files that are meant start with there. A directory may
            come and go, in `parent`.
        parent : a directory that is there.

        Raises
        ------
        OSError : this user has no inotify instances or watches left, or this process no descriptors.
        """

    @property
    def has_overflowed(self) -> bool:
        """Whether files ever came that nobody was told of: the kernel keeps so many only."""

    def poll_arrivals(self) -> tuple[list[FileArrival], bool]:
        """Return the files that got their names since, in this order, without waiting: 256 at most, the next ones then.

        And whether some were not told (a directory has just come, or they were too many): look at all.

        Raises
        ------
        OSError : as above, for a directory that has just come.
        """

CAPTURE_BATCH_MAX: int  # messages that a source may give before the next one's turn
NO_CHANNEL_REASON: str  # why messages have no channel

@final
class Capture:
    """Records endpoints side by side, each from a source that nobody else uses. For one thread at a time, but for
    `interrupt`.

    Raises
    ------
    RecordingError : the process has no descriptors left.
    """

    @property
    def clock_offset_ns(self) -> int:
        """Of the host's clock to CLOCK_MONOTONIC: log_time is the latter plus this, and so never goes back."""

    @property
    def needed_bytes(self) -> int:
        """Bytes of the largest message for which a chunk had no room; 0: all had."""

    def add_source(self, source: EndpointSource, publish_offset: int = -1) -> int:
        """Record what a source gives; return its number.

        Parameters
        ----------
        source : one that nobody else takes from, whose schema was read.
        publish_offset : where in a message its publishing time is (u64, ns since the epoch), where the source does not
            say it; -1: nowhere.
        """

    def remove_source(self, source: int) -> None:
        """Take no more from a source, by its number, which another one may get. Its channels keep theirs."""

    def set_file_watcher(self, watcher: FileWatcher | None) -> None:
        """Open files that come while a run is under way, and end it then."""

    def list_sources_with_new_schema(self) -> list[int]:
        """Return the sources, by their numbers, whose schema has changed since it was read last.

        Nothing is taken from them before `describe`, so that no message is recorded with a schema of the past.
        """

    def accept_schema(self, source: int, publish_offset: int = -1) -> None:
        """Go on with a source whose schema was just read.

        Parameters
        ----------
        source : its number.
        publish_offset : as for `add_source`.
        """

    def begin_epoch(self, source: int) -> None:
        """Let the next message of a source, by its number, begin another numbering, and so another channel."""

    def begin_new_channels(self, source: int) -> None:
        """Let the next messages of a source, by its number, begin other channels of the numbering that goes on."""

    def capture_messages(self, chunk: ChunkBuffer, seconds: float) -> bool:
        """Record into the chunk, without the GIL, until it is full (True), the time is over, somebody interrupts, a
        schema changes, or a file comes.

        Parameters
        ----------
        chunk : what it holds stays. One that is full at once, and empty, is too small: see `needed`.
        seconds : at most 3600.

        Raises
        ------
        SegmentError : a pool of a channel cannot be mapped, which costs its message; what was recorded is in the chunk,
            and a next call goes on.
        CorruptSegmentError : a source holds nonsense; as above.
        SegmentSizeError : somebody made a file smaller; as above, but that source has ended.

        Notes
        -----
        A message of more than 1 GiB is passed over, and so is one that needs a new channel after 65535: see `passed`.
        """

    def interrupt_capture(self) -> None:
        """End the run that is under way, or else the next one, within some 0.5 ms; what was published before is taken.

        Any thread may call it.
        """

    def reserve_channel_id(self) -> int:
        """Return a channel's number for messages from elsewhere.

        Raises
        ------
        RecordingError : no channel is left.
        """

    def read_host_clock_ns(self) -> int:
        """Return the time for a log_time: ns since the epoch, as `clock_offset_ns` says."""

    def list_channels(self, start: int = 1) -> list[tuple[int, int, int, int, bool, bool, int, int | None]]:
        """Return the sources' channels whose numbers are `start` or greater.

        Of each: its number; source, epoch and part of the source (publisher or key); whether publishers number the
        messages; whether messages have stamps; the low 32 bits of the number of its first message; how many messages
        were lost before that one where no gap in the numbering shows them (None: unknown).
        """

    def is_source_ended(self, source: int) -> bool:
        """Return whether nothing comes from the source any more, because somebody made its file smaller."""

    def count_skipped_messages(self, source: int) -> int:
        """Return the messages that were taken from a source and are in no chunk."""

    def lacks_channel_id(self, source: int) -> bool:
        """Return whether some of those are in none since no channel was left."""
