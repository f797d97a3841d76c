"""Selection of recorded endpoints of all kinds, including endpoints that appear during the recording."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from msgq.common import settings, shm_paths
from msgq.common.handler_errors import raise_handler_error
from msgq.common.message_source import MessageSource
from msgq.common.schema import Schema
from msgq.common.selection import SelectedEndpoints
from msgq.decoding.time_fields import find_time_field_offset
from msgq.errors import MsgqError, SegmentError
from msgq.impl.sources import EndpointSource
from msgq.kinds import find_carrier_endpoint, find_reported_subject, kind_of, list_stored_kinds
from msgq.kinds.opening import open_source
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.boundary_losses import BoundaryLoss, BoundaryLosses
from msgq.recording.mcap_io.segment_writer import EncodedChannel, encode_channel
from msgq.recording.recorder.core import NO_CHANNEL_REASON, Capture, FileArrival, FileWatcher

# Room for larger messages is made when they come, for headers may say any size.
_EXPECTED_MESSAGE_BYTES_MAX = 64 << 20
# A new file that cannot be opened is tried again for this time ...
_UNFINISHED_FILE_RETRY_S = 0.1
_RETRY_INTERVAL_S = 0.001  # ... at this interval; later at each scan
_MISSED_FILE_REASON = (
    "the endpoint was created and removed before the recorder could open it; possible messages are lost"
)

_logger = logging.getLogger(__name__)


def find_publish_offset(schema: Schema | None) -> int:
    """Return the byte offset of the field `publish_time` of a struct schema; -1: no such field."""
    offset = find_time_field_offset(schema, "publish_time")
    return -1 if offset is None else offset


@dataclass(slots=True)
class RecordedEndpoint:
    """A recorded endpoint, valid while its file is the same.

    Attributes:
        source: source of its messages.
        schema: schema of its next message; None: no schema, or unknown.
        publisher: publisher that took the topic over from a living publisher; "": no takeover.
    """

    source: EndpointSource
    schema: Schema | None
    publisher: str = ""

    @property
    def endpoint(self) -> str:
        """Name with the prefix of its kind."""
        return self.source.endpoint


def _make_arrival_path(file: FileArrival) -> str:
    return f"{file.directory}/{file.name}"


def _sum_losses(*losses: int | None) -> int | None:
    """Return the sum of losses; None: a loss is unknown."""
    return None if None in losses else sum(loss for loss in losses if loss is not None)


def _make_boundary_losses(first: int, lost_before: int | None) -> BoundaryLosses | None:
    """Return the losses to store in a channel; None: no losses."""
    return None if lost_before == 0 else BoundaryLosses(loss_before=BoundaryLoss(first, lost_before))


class RecordedEndpoints:
    """Endpoints of a capture.

    Endpoints that exist at the first scan are recorded from then on. Endpoints that appear later are recorded from
    their first message. If a file is unlinked, the recorder reads the file to its end, and also records a new file of
    the same name.

    The thread of the capture uses this object. Any thread may read losses, `endpoint_count` and `refusal_reasons`.
    """

    def __init__(self, capture: Capture, selection: SelectedEndpoints, prefix: str | None) -> None:
        """Start without endpoints."""
        self.endpoints_by_source: dict[int, RecordedEndpoint] = {}  # endpoints by the numbers of their sources
        self.refusal_reasons: dict[str, str] = {}  # endpoints that cannot be recorded, and why
        self._capture = capture
        self._selection = selection
        self._prefix = settings.resolve_prefix(prefix)
        # Folders of the kinds that carry messages; queues do not: channels carry their events.
        carriers = dict.fromkeys(kind_of(kind.find_carrier("")) for kind in list_stored_kinds())
        self._kind_directories = {kind: kind.locate_files(self._prefix) for kind in carriers if kind.locate_files}
        sides = (kind.locate_side_files(self._prefix) for kind in carriers)
        self._watched_directories = {*self._kind_directories.values(), *(place for place in sides if place)}
        self._has_scanned = False
        self._named_endpoints: dict[str, int] = {}  # numbers by endpoint, of those whose files have their names
        self._unlinked_sources: dict[
            int, int
        ] = {}  # CLOCK_MONOTONIC by number: when others were found to have no name any more
        self._last_inodes: dict[str, int] = {}  # inodes of the last found files, opened or not
        self._arrived_inodes: dict[str, int] = {}  # inodes of the last files that inotify reported, if opened
        # Endpoints whose files were created after the first scan, and that are not open yet.
        self._new_endpoints: set[str] = set()
        self._unfinished_deadlines_s: dict[str, float] = {}  # end of the repeated attempts to open them
        self._refused_arrivals: dict[tuple[str, int], FileArrival] = {}  # open files by endpoint and inode
        self._scanned_inodes: dict[str, int] = {}  # inodes of files that a scan found before inotify reported them
        self._lost_by_endpoint: dict[str, int | None] = {}  # losses of closed sources by endpoint
        self._losses_lock = threading.Lock()  # protects `endpoints_by_source` and `_lost_by_endpoint`
        self._assigned_epochs: dict[tuple[int, int], int] = {}  # epochs of endpoints, by number and epoch of the source
        self._last_epochs: Counter[str] = Counter()
        self._file_watcher = self._start_watcher()

    # ---- noticing ----

    def rescan_endpoints(self) -> None:
        """Join new and recreated endpoints, and leave removed endpoints."""
        self._check_files([], rescan=True)
        for number, recorded in self.endpoints_by_source.items():
            if self._capture.lacks_channel_id(number):
                self.refusal_reasons[recorded.endpoint] = NO_CHANNEL_REASON

    def handle_changes(self) -> bool:
        """Handle new files, changed schemas and changed publishers after a run. Return False if nothing changed.

        Call this method when the channels of the run are known.
        """
        sources_with_new_schema = self._capture.list_sources_with_new_schema()
        for number in sources_with_new_schema:
            self._update_schema(number)
        sources_with_new_publisher = self._capture.list_sources_with_new_publisher()
        for number in sources_with_new_publisher:
            self._update_publisher(number)
        for number, since_ns in list(self._unlinked_sources.items()):
            if self._capture.is_source_ended(number) or self.endpoints_by_source[number].source.is_finished(since_ns):
                self._remove_source(number)
        arrivals, rescan = self._poll_watcher()
        if arrivals or rescan or self._unfinished_deadlines_s:
            self._check_files(arrivals, rescan)
        return bool(sources_with_new_schema or sources_with_new_publisher or arrivals or rescan)

    def limit_wait_s(self, seconds: float) -> float:
        """Return the maximum duration of the next run in seconds, at most `seconds`."""
        return min(seconds, _RETRY_INTERVAL_S) if self._unfinished_deadlines_s else seconds

    def rejoin_at_present(self) -> None:
        """Continue all endpoints at their newest position. Skipped messages do not count as lost."""
        for number in list(self.endpoints_by_source):
            self._remove_source(number, wants_unread=False)
        self._named_endpoints.clear()
        self._new_endpoints.clear()
        self._refused_arrivals.clear()
        self._has_scanned = False
        self.rescan_endpoints()

    def _start_watcher(self) -> FileWatcher | None:
        try:
            arrivals = FileWatcher(self._watched_directories, shm_paths.SHARED_MEMORY)
        except OSError as error:
            raise_handler_error(error)
            self._fall_back_to_scans(error)
            return None
        self._capture.set_file_watcher(arrivals)
        return arrivals

    def _fall_back_to_scans(self, error: OSError) -> None:
        """Detect new endpoints by scans only."""
        self._capture.set_file_watcher(None)
        self._file_watcher = None
        text = (
            "new endpoints are detected late, and some may be missed: %s; "
            "raise fs.inotify.max_user_instances and max_user_watches, or ulimit -n"
        )
        _logger.warning(text, error.strerror)

    def _poll_watcher(self) -> tuple[list[FileArrival], bool]:
        """Return new files, and True if a scan is necessary."""
        if self._file_watcher is None:
            return [], False
        arrivals, has_overflowed = self._file_watcher.poll_arrivals()
        try:
            return arrivals, self._file_watcher.update_watches() or has_overflowed
        except OSError as error:
            raise_handler_error(error)
            self._fall_back_to_scans(error)
            return arrivals, True

    def _poll_later_arrivals(self, arrivals: list[FileArrival]) -> None:
        """Append the files that appeared meanwhile."""
        later, rescan = self._poll_watcher()
        arrivals += later + (self._rescan_until_quiet() if rescan else [])

    # ---- files ----

    def _check_files(self, arrivals: list[FileArrival], rescan: bool) -> None:
        """Check new files. `rescan`: True: scan all directories, too."""
        began = self._has_scanned
        if rescan:
            arrivals = arrivals + self._rescan_until_quiet()
        for at, arrival in enumerate(arrivals):  # the list may grow during the loop
            for endpoint in self._iter_file_endpoints(arrival.directory, arrival.name):
                if arrival.is_gone or (arrival.inode is None and not self._join_unopened_file(endpoint, arrivals, at)):
                    self._check_vanished_file(endpoint, arrivals, began)
                elif arrival.inode is not None:
                    if arrival.inode == self._arrived_inodes.get(endpoint):  # the previous file was replaced unopened
                        self._check_vanished_file(endpoint, arrivals, began)
                    self._arrived_inodes[endpoint] = arrival.inode
                    self._check_arrival(endpoint, arrivals, at, arrival.inode)
        self._scanned_inodes.clear()
        for endpoint in list(self._unfinished_deadlines_s):
            self._check_named_file(endpoint)
        for endpoint, inode in list(self._refused_arrivals):
            self._check_refused_file(endpoint, inode)

    def _rescan_until_quiet(self) -> list[FileArrival]:
        """Scan until no file appears during the scan. Return the files that appeared."""
        arrivals: list[FileArrival] = []
        rescan = True
        while rescan:
            self._scan_endpoints()
            new_arrivals, rescan = self._poll_watcher()
            arrivals += new_arrivals
        return arrivals

    def _scan_endpoints(self) -> None:
        present = dict(self._scan_directories())
        for endpoint, inode in present.items():
            if self._last_inodes.get(endpoint) != inode:
                self._scanned_inodes[endpoint] = inode
            self._check_file(endpoint, inode)
        for endpoint, number in list(self._named_endpoints.items()):
            if present.get(endpoint) != self.endpoints_by_source[number].source.inode:
                self._mark_unlinked(endpoint)
        self._has_scanned = True

    def _check_vanished_file(self, endpoint: str, arrivals: list[FileArrival], began: bool) -> None:
        """Handle a new file that was removed before it could be opened.

        If no scan joined it, its messages are missed. A file that still has its name is another one.
        """
        inode = self._scanned_inodes.get(endpoint)
        is_other = inode in {arrival.inode for arrival in arrivals} or inode == self._read_inode(endpoint)
        if inode is not None and not is_other and self._find_source_number(endpoint, inode) is not None:
            del self._scanned_inodes[endpoint]
        elif began:
            self._report_missed_file(endpoint)

    def _check_arrival(self, endpoint: str, arrivals: list[FileArrival], at: int, inode: int) -> None:
        """Join a new file by its name, or by its descriptor if it has been unlinked."""
        if inode == self._last_inodes.get(endpoint) and endpoint not in self._new_endpoints:
            return
        if inode == self._read_inode(endpoint):
            self._check_named_file(endpoint)
        if self._find_source_number(endpoint, inode) is None and self._read_inode(endpoint) != inode:
            self._poll_later_arrivals(arrivals)  # the side segment was created later
            self._join_unlinked_file(endpoint, arrivals[at:])
        elif endpoint in self._new_endpoints:
            self._refused_arrivals[endpoint, inode] = arrivals[at]

    def _check_refused_file(self, endpoint: str, inode: int) -> None:
        """Join a new file by its descriptor, or report it, if it lost its name before it could be joined."""
        is_joined = self._find_source_number(endpoint, inode) is not None
        if is_joined or self._read_inode(endpoint) != inode:
            file = self._refused_arrivals.pop((endpoint, inode))
            if not is_joined:
                self._join_unlinked_file(endpoint, [file])

    def _join_unopened_file(self, endpoint: str, arrivals: list[FileArrival], at: int) -> bool:
        """Join a new file that was not opened, by its name. Return False if another file has the name, or none has it.

        The file with the name is another one if it was created later.
        """
        inode = self._read_inode(endpoint)
        if inode is None:
            return False
        self._check_file(endpoint, inode)
        self._poll_later_arrivals(arrivals)
        path = _make_arrival_path(arrivals[at])
        return all(_make_arrival_path(later) != path for later in arrivals[at + 1 :])

    def _scan_directories(self) -> Iterator[tuple[str, int]]:
        """Yield each existing and selected endpoint, with the inode of its file."""
        for directory in {directory for directory, _ in self._kind_directories.values()}:
            for name, inode in self._list_directory_files(directory):
                for endpoint in self._iter_file_endpoints(directory, name):
                    yield endpoint, inode

    def _list_directory_files(self, directory: str) -> list[tuple[str, int]]:
        """Return names and inodes of the files in a directory; empty if the directory is not accessible."""
        self.refusal_reasons.pop(directory, None)
        try:
            with os.scandir(directory) as entries:
                return [(entry.name, entry.inode()) for entry in entries if not entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:  # the other kinds are recorded all the same
            raise_handler_error(error)
            self.refusal_reasons[directory] = f"cannot list {directory}: {error.strerror}"
            return []

    def _iter_file_endpoints(self, directory: str, file: str) -> Iterator[str]:
        """Yield the endpoint of a file if it is selected. The events channel of a queue gives the queue."""
        for kind, (where, start) in self._kind_directories.items():
            if where != directory or not file.startswith(start):
                continue
            endpoint = kind.endpoint(file[len(start) :])
            subject = find_reported_subject(endpoint)
            if subject is not None and subject.endpoint is not None:
                endpoint = subject.endpoint
            if endpoint in self._selection:
                yield endpoint

    def _make_endpoint_path(self, endpoint: str) -> str:
        carrier = find_carrier_endpoint(endpoint)
        kind = kind_of(carrier)
        directory, start = self._kind_directories[kind]
        return f"{directory}/{start}{kind.bare_name(carrier)}"

    def _read_inode(self, endpoint: str) -> int | None:
        """Return the inode of the endpoint's current file; None: no file."""
        try:
            return os.lstat(self._make_endpoint_path(endpoint)).st_ino
        except OSError as error:
            raise_handler_error(error)
            return None

    def _check_named_file(self, endpoint: str) -> None:
        inode = self._read_inode(endpoint)
        if inode is None:
            self._unfinished_deadlines_s.pop(endpoint, None)
        else:
            self._check_file(endpoint, inode)

    def _check_file(self, endpoint: str, inode: int) -> None:
        """Join the endpoint's current file, unless it is joined already."""
        if self._last_inodes.get(endpoint) != inode:
            self._last_inodes[endpoint] = inode
            self._new_endpoints.discard(endpoint)
            if self._has_scanned:
                self._new_endpoints.add(endpoint)
                self._unfinished_deadlines_s[endpoint] = time.monotonic() + _UNFINISHED_FILE_RETRY_S
        number = self._find_source_number(endpoint, inode)
        if number is None or self._capture.is_source_ended(number):
            self._join_endpoint(endpoint)
        elif number in self._unlinked_sources:  # its directory was kept from us for a while
            self._mark_unlinked(endpoint)
            self._named_endpoints[endpoint] = number
            del self._unlinked_sources[number]

    def _find_source_number(self, endpoint: str, inode: int) -> int | None:
        """Return the number of the source that reads this file; None: no such source."""
        for number in [self._named_endpoints.get(endpoint), *self._unlinked_sources]:
            if number is not None:
                source = self.endpoints_by_source[number].source
                if source.endpoint == endpoint and source.inode == inode:
                    return number
        return None

    # ---- joining and parting ----

    def _join_endpoint(self, endpoint: str) -> None:
        """Join an endpoint at its newest position. A new endpoint is read from its first message."""
        try:
            source = open_source(endpoint, self._prefix, whole=endpoint in self._new_endpoints)
            schema = source.read_message_schema()
        except (MsgqError, OSError, MemoryError) as error:  # its own bytes say how much memory it needs
            raise_handler_error(error)
            self._refuse_endpoint(endpoint, error)
            return
        self._new_endpoints.discard(endpoint)
        self._unfinished_deadlines_s.pop(endpoint, None)
        self.refusal_reasons.pop(endpoint, None)
        self._mark_unlinked(endpoint)
        self._named_endpoints[endpoint] = self._add_source(source, schema)

    def _add_source(self, source: EndpointSource, schema: Schema | None) -> int:
        number = self._capture.add_source(source, find_publish_offset(schema), follows_publisher=True)
        with self._losses_lock:
            self.endpoints_by_source[number] = RecordedEndpoint(source, schema)
            self._lost_by_endpoint.setdefault(source.endpoint, 0)
        return number

    def _join_unlinked_file(self, endpoint: str, arrivals: list[FileArrival]) -> None:
        """Join the first of these files, which has been unlinked."""
        file, later = arrivals[0], arrivals[1:]
        files = {_make_arrival_path(file): file.fd}
        kind = kind_of(find_carrier_endpoint(endpoint))
        side_place = kind.locate_side_files(self._prefix)
        side = side_place and f"{side_place[0]}/{side_place[1]}{kind.bare_name(endpoint)}"
        for other in itertools.takewhile(
            lambda other: _make_arrival_path(other) != _make_arrival_path(file), later
        ):  # the next life begins
            if side and _make_arrival_path(other) == side and other.fd >= 0:
                files.setdefault(side, other.fd)
        try:
            source = open_source(endpoint, self._prefix, whole=True, files=files)
            number = self._add_source(source, source.read_message_schema())
        except (MsgqError, OSError, MemoryError) as error:
            raise_handler_error(error)
            if os.fstat(file.fd).st_size:  # an empty file was never used
                self._report_missed_file(endpoint)
        else:
            self._unlinked_sources[number] = time.monotonic_ns()

    def _refuse_endpoint(self, endpoint: str, error: Exception) -> None:
        if isinstance(error, SegmentError) and error.errno == errno.ENOENT and endpoint in self._new_endpoints:
            self._report_missed_file(endpoint)
        else:
            self.refusal_reasons[endpoint] = str(error)
        if time.monotonic() >= self._unfinished_deadlines_s.get(endpoint, 0):
            self._unfinished_deadlines_s.pop(endpoint, None)

    def _report_missed_file(self, endpoint: str) -> None:
        """Report a file that was removed before it could be read. The number of lost messages is unknown."""
        self.refusal_reasons[endpoint] = _MISSED_FILE_REASON
        with self._losses_lock:
            self._lost_by_endpoint[endpoint] = None

    def _mark_unlinked(self, endpoint: str) -> None:
        """Mark the joined file of an endpoint as unlinked. The recorder reads the unlinked file to its end."""
        number = self._named_endpoints.pop(endpoint, None)
        if number is not None:
            self._unlinked_sources[number] = time.monotonic_ns()

    def _remove_source(self, number: int, wants_unread: bool = True) -> None:
        source = self.endpoints_by_source[number].source
        if wants_unread:  # there are some if the file was cut
            source.skip_pending_messages()
        with self._losses_lock:
            lost = _sum_losses(
                self._lost_by_endpoint[source.endpoint], source.lost, self._capture.count_skipped_messages(number)
            )
            self._lost_by_endpoint[source.endpoint] = lost
            del self.endpoints_by_source[number]
        self._unlinked_sources.pop(number, None)
        self._capture.remove_source(number)

    def skip_pending_messages(self) -> None:
        """Count pending messages as lost: no more messages are taken."""
        for recorded in self.endpoints_by_source.values():
            recorded.source.skip_pending_messages()

    def _update_schema(self, number: int) -> None:
        """If the schema changed, let the next messages begin new channels.

        The numbering continues, unless a schema of this kind begins an epoch.
        """
        recorded = self.endpoints_by_source[number]
        schema = recorded.source.read_message_schema()
        if schema != recorded.schema:
            recorded.schema = schema
            if recorded.source.schema_begins_epoch:
                self._capture.begin_epoch(number)
            else:
                self._capture.begin_new_channels(number)
        self._capture.accept_schema(number, find_publish_offset(recorded.schema))

    def _update_publisher(self, number: int) -> None:
        """After a takeover, let the next messages begin new channels, which name the publisher."""
        recorded = self.endpoints_by_source[number]
        publisher = recorded.source.poll_takeover()
        self._capture.accept_publisher(number)
        if publisher is not None and publisher != recorded.publisher:
            recorded.publisher = publisher
            self._capture.begin_new_channels(number)

    # ---- recorded channels ----

    def iter_new_channels(self, start: int) -> Iterator[tuple[int, EncodedChannel]]:
        """Yield number and records of each channel of the capture with a number of `start` or greater."""
        for channel, number, tap_epoch, part, counted, tracked, first, lost_before in self._capture.list_channels(
            start
        ):
            recorded = self.endpoints_by_source[number]
            publisher, key = recorded.source.get_origin_names(part)
            counting = metadata_keys.PUBLISHER_SEQUENCE if counted else metadata_keys.RECORDER_SEQUENCE
            epoch = self._assign_epoch(recorded.endpoint, number, tap_epoch)
            publisher = publisher or recorded.publisher
            described = MessageSource(recorded.source.kind, publisher, key, recorded.source.options_json)
            fields = recorded.endpoint, recorded.schema, epoch, counting, tracked, described
            yield channel, encode_channel(channel, *fields, boundary_losses=_make_boundary_losses(first, lost_before))

    def _assign_epoch(self, endpoint: str, number: int, source_epoch: int) -> int:
        """Return the endpoint's epoch for an epoch of a source.

        An endpoint may have several sources, also at the same time.
        """
        key = number, source_epoch
        if key not in self._assigned_epochs:
            self._last_epochs[endpoint] += 1
            self._assigned_epochs[key] = self._last_epochs[endpoint]
        return self._assigned_epochs[key]

    @property
    def endpoint_count(self) -> int:
        """Number of endpoints that were recorded or missed."""
        return len(self._lost_by_endpoint)

    @property
    def may_have_missed_endpoints(self) -> bool:
        """True if endpoints may have appeared and disappeared unnoticed."""
        return self._file_watcher is None or self._file_watcher.has_overflowed

    def find_unmatched(self) -> list[str]:
        """Return the names and expressions that have selected no endpoint up to now."""
        return self._selection.find_unmatched({*self._last_inodes, *self.count_losses()})

    def count_losses(self) -> dict[str, int | None]:
        """Return the lost messages of each endpoint; None: unknown."""
        with self._losses_lock:
            losses = dict(self._lost_by_endpoint)
            for number, recorded in self.endpoints_by_source.items():
                lost = losses[recorded.endpoint], recorded.source.lost, self._capture.count_skipped_messages(number)
                losses[recorded.endpoint] = _sum_losses(*lost)
        return losses

    @property
    def largest_message_bytes(self) -> int:
        """Maximum bytes of expected messages, and of messages that did not fit."""
        expected = max((recorded.source.max_message_bytes for recorded in self.endpoints_by_source.values()), default=0)
        return max(self._capture.needed_bytes, min(expected, _EXPECTED_MESSAGE_BYTES_MAX))
