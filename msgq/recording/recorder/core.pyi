"""The recorder's compiled code: copies messages into chunks, and detects files that appear during a run."""

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
        """Descriptor for reading; -1: the file could not be opened.

        The descriptor is opened when the file appears, and closed with this object.
        """
    @property
    def inode(self) -> int | None:
        """Inode of the file; None if it could not be opened."""
    @property
    def is_gone(self) -> bool:
        """True if the file was removed before it could be opened."""

@final
class FileWatcher:
    """Detects files that are created in directories or moved into directories, and opens each file at once.

    One thread at a time. `Capture.set_file_watcher` makes a capture use the watcher during a run.
    """

    def __init__(self, places: Iterable[tuple[str, str]], parent: str) -> None:
        """Begin to watch the directories.

        Args:
            places: at most 8 directories, each with the prefix of the file names. A directory may appear and disappear
                within `parent`.
            parent: an existing directory.

        Raises:
            OSError: this user has no inotify instances or watches left, or this process has no descriptors left.
        """

    @property
    def has_overflowed(self) -> bool:
        """True if the watcher missed files, because too many files appeared at the same time."""

    def poll_arrivals(self) -> tuple[list[FileArrival], bool]:
        """Return files created since the last call, oldest first, at most 256. Does not wait.

        The second value is True if the watcher missed files, because too many files appeared. In this case, scan the
        directories. After each call, also call `update_watches`.
        """

    def update_watches(self) -> bool:
        """Watch the directories that `poll_arrivals` saw appear.

        Return True if there are some. In this case, scan the directories, because the first files may have appeared
        before the watch.

        Raises:
            OSError: this user has no inotify watches left.
        """

CAPTURE_BATCH_MAX: int  # messages of a source before the next source's turn
NO_CHANNEL_REASON: str  # why messages have no channel

@final
class Capture:
    """Records several endpoints, each from its own source. One thread at a time, except `interrupt_capture`.

    Raises:
        RecordingError: the process has no descriptors left.
    """

    @property
    def clock_offset_ns(self) -> int:
        """Host's clock minus CLOCK_MONOTONIC.

        log_time is CLOCK_MONOTONIC plus this constant, so log_time never decreases.
        """

    @property
    def needed_bytes(self) -> int:
        """Bytes of the largest message that did not fit into a chunk; 0: none."""

    def add_source(self, source: EndpointSource, publish_offset: int = -1, follows_publisher: bool = False) -> int:
        """Record a source. Returns its number.

        Args:
            source: a source that no other code uses, whose schema was read.
            publish_offset: byte offset in a message of the publish time (u64, ns since the epoch), for sources without
                publish times; -1: no publish time in the message.
            follows_publisher: True: a new publisher of a topic ends a run, and the source continues after
                `accept_publisher`.
        """

    def remove_source(self, source: int) -> None:
        """Stop recording a source.

        The channels of the source keep their ids. A later source may get the same number.
        """

    def set_file_watcher(self, watcher: FileWatcher | None) -> None:
        """If a file appears during a run, open the file and end the run."""

    def list_sources_with_new_schema(self) -> list[int]:
        """Return the numbers of sources whose schema changed since its last read.

        Until `accept_schema` is called, no message is taken from these sources, so each message is recorded with the
        current schema.
        """

    def accept_schema(self, source: int, publish_offset: int = -1) -> None:
        """Continue with a source whose schema was just read.

        Args:
            source: number of the source.
            publish_offset: as for `add_source`.
        """

    def list_sources_with_new_publisher(self) -> list[int]:
        """Return the numbers of topics with `follows_publisher` whose publisher changed since `accept_publisher`.

        After 200 changes, the list no longer contains the topic.
        """

    def accept_publisher(self, source: int) -> None:
        """Continue with a topic whose `poll_takeover` was just called."""

    def begin_epoch(self, source: int) -> None:
        """Begin a new numbering, and therefore a new channel, with the next message of a source."""

    def begin_new_channels(self, source: int) -> None:
        """Begin new channels with the next messages of a source, and continue the numbering."""

    def capture_messages(self, chunk: ChunkBuffer, seconds: float) -> bool:
        """Record into the chunk, without the GIL. Returns True if the chunk is full.

        The call also ends at the time limit, after an interrupt, after a change of a schema, or after a new file
        appears.

        Args:
            chunk: chunk to which messages are appended. If an empty chunk is full at once, the chunk is too small; see
                `needed_bytes`.
            seconds: time limit, at most 3600.

        Raises:
            SegmentError: a pool of a channel cannot be mapped, and its message is lost. Recorded messages are in the
                chunk, and the next call continues.
            CorruptSegmentError: a source has invalid data. Recorded messages are in the chunk, and the next call
                continues.
            SegmentSizeError: another program truncated a file, so its source has ended. Recorded messages are in the
                chunk, and the next call continues with the other sources.

        Notes:
            Messages of more than 1 GiB are skipped. If 65535 channels exist, messages that need a new channel are also
            skipped; see `count_skipped_messages`.
        """

    def interrupt_capture(self) -> None:
        """End the current run within about 0.5 ms. If no run is active, end the next run.

        Messages published before the call are recorded. Any thread may call this method.
        """

    def reserve_channel_id(self) -> int:
        """Return a channel id for messages from elsewhere.

        Raises:
            RecordingError: no channel id is left.
        """

    def read_host_clock_ns(self) -> int:
        """Return the current time as a log_time, in ns since the epoch (see `clock_offset_ns`)."""

    def list_channels(self, start: int = 1) -> list[tuple[int, int, int, int, bool, bool, int, int | None]]:
        """Return the sources' channels with ids of `start` or greater.

        Each entry has eight values: (1) id of the channel, (2) number of the source, (3) epoch, (4) part of the source
        (publisher or key), (5) True if publishers number the messages, (6) True if messages have stamps, (7) low 32
        bits of the first message's number, (8) number of messages lost before the first message without a gap in the
        numbering (None: unknown).
        """

    def is_source_ended(self, source: int) -> bool:
        """Return True if the source has ended because another program truncated its file."""

    def count_skipped_messages(self, source: int) -> int:
        """Return the number of messages that were taken from a source and not recorded."""

    def lacks_channel_id(self, source: int) -> bool:
        """Return True if some messages of a source were not recorded because no channel id was left."""
