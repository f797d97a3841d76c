"""The recorder's compiled code: sources into chunks, and files that appear during a run."""

from collections.abc import Iterable
from typing import final

from msgq.impl.sources.source import EndpointSource
from msgq.recording.mcap_io.core import ChunkBuffer

@final
class FileArrival:
    """A file that got a name."""

    @property
    def directory(self) -> str:
        """Directory of the file."""
    @property
    def name(self) -> str:
        """Name of the file in the directory."""
    @property
    def fd(self) -> int:
        """Descriptor for reading, opened when the file appeared, and closed with this object; -1: the file could not be
        opened.
        """
    @property
    def inode(self) -> int | None:
        """Inode of the file; None if it could not be opened."""
    @property
    def is_gone(self) -> bool:
        """True if the file was removed before it could be opened."""

@final
class FileWatcher:
    """Detects files that are created in directories, or moved there, and opens them at once.

    One thread at a time. `Capture.set_file_watcher` lets it work during a run.
    """

    def __init__(self, places: Iterable[tuple[str, str]], parent: str) -> None:
        """Watch from now on.

        Parameters
        ----------
        places : at most 8 directories, each with the prefix of the file names. A directory may appear and disappear
            within `parent`.
        parent : an existing directory.

        Raises
        ------
        OSError : this user has no inotify instances or watches left, or this process has no descriptors left.
        """

    @property
    def has_overflowed(self) -> bool:
        """True if files were ever missed, because the kernel's queue is limited."""

    def poll_arrivals(self) -> tuple[list[FileArrival], bool]:
        """Return files created since the last call, oldest first, at most 256. Does not wait.

        The second value is True if files may have been missed, because a directory just appeared or there were too
        many. Then scan the directories.

        Raises
        ------
        OSError : as above, for a directory that just appeared.
        """

CAPTURE_BATCH_MAX: int  # messages of a source before the next source's turn
NO_CHANNEL_REASON: str  # why messages have no channel

@final
class Capture:
    """Records several endpoints, each from its own source. One thread at a time, except `interrupt_capture`.

    Raises
    ------
    RecordingError : the process has no descriptors left.
    """

    @property
    def clock_offset_ns(self) -> int:
        """Host's clock minus CLOCK_MONOTONIC. log_time is CLOCK_MONOTONIC plus this constant, so it never decreases."""

    @property
    def needed_bytes(self) -> int:
        """Bytes of the largest message that did not fit into a chunk; 0: none."""

    def add_source(self, source: EndpointSource, publish_offset: int = -1) -> int:
        """Record a source. Returns its number.

        Parameters
        ----------
        source : a source that no other code uses, whose schema was read.
        publish_offset : offset in a message of its publish time (u64, ns since the epoch), if the source does not
            provide it; -1: none.
        """

    def remove_source(self, source: int) -> None:
        """Stop recording a source. Another source may get its number. Its channels keep their ids."""

    def set_file_watcher(self, watcher: FileWatcher | None) -> None:
        """Open new files during a run, and end the run then."""

    def list_sources_with_new_schema(self) -> list[int]:
        """Return the numbers of sources whose schema changed since its last read.

        No message is taken from them before `accept_schema`, so no message is recorded with an outdated schema.
        """

    def accept_schema(self, source: int, publish_offset: int = -1) -> None:
        """Continue with a source whose schema was just read.

        Parameters
        ----------
        source : number of the source.
        publish_offset : as for `add_source`.
        """

    def begin_epoch(self, source: int) -> None:
        """Let the next message of a source begin a new numbering, and so a new channel."""

    def begin_new_channels(self, source: int) -> None:
        """Let the next messages of a source begin new channels that continue the numbering."""

    def capture_messages(self, chunk: ChunkBuffer, seconds: float) -> bool:
        """Record into the chunk, without the GIL. Returns True if the chunk is full.

        The call also ends at the time limit, after an interrupt, a change of a schema, or a new file.

        Parameters
        ----------
        chunk : the chunk; its content stays. If an empty chunk is full at once, it is too small: see `needed_bytes`.
        seconds : time limit, at most 3600.

        Raises
        ------
        SegmentError : a pool of a channel cannot be mapped, and its message is lost. Recorded messages are in the
            chunk, and the next call continues.
        CorruptSegmentError : a source has invalid data; otherwise as above.
        SegmentSizeError : another program truncated a file; otherwise as above, but that source has ended.

        Notes
        -----
        Messages of more than 1 GiB are skipped, and so are messages that need a new channel after 65535 channels: see
        `count_skipped_messages`.
        """

    def interrupt_capture(self) -> None:
        """End the current run, or the next one, within about 0.5 ms. Messages published before are recorded.

        Any thread may call it.
        """

    def reserve_channel_id(self) -> int:
        """Return a channel id for messages from elsewhere.

        Raises
        ------
        RecordingError : no channel id is left.
        """

    def read_host_clock_ns(self) -> int:
        """Return the current time for a log_time: ns since the epoch, by `clock_offset_ns`."""

    def list_channels(self, start: int = 1) -> list[tuple[int, int, int, int, bool, bool, int, int | None]]:
        """Return the sources' channels with ids of `start` or greater.

        For each channel: its id; source, epoch and part of the source (publisher or key); True if publishers number the
        messages; True if messages have stamps; the low 32 bits of the number of its first message; the number of
        messages lost before that one without a gap in the numbering (None: unknown).
        """

    def is_source_ended(self, source: int) -> bool:
        """Return True if the source has ended because another program truncated its file."""

    def count_skipped_messages(self, source: int) -> int:
        """Return the number of messages that were taken from a source and not recorded."""

    def lacks_channel_id(self, source: int) -> bool:
        """Return True if some of those were not recorded because no channel id was left."""
