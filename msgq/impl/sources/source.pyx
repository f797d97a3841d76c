"""Sources of messages from any type of endpoint: the Python side of source.h."""

from cython cimport critical_section, no_gc_clear
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.errno cimport ENOENT
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from msgq.impl.channel.core cimport (
    MQ_CHANNEL_PUBLISHERS, mq_channel_has_publisher, mq_channel_skip_message, mq_channel_subscriber_join,
)
from msgq.impl.channel.core cimport ChannelFile
from msgq.impl.channel.core cimport MappedPool, open_pool
from msgq.impl.base.core cimport MQ_ALIVE, mq_liveness_probe, mq_liveness_probe_begin, mq_liveness_probe_end
from msgq.impl.base.core cimport Context, mq_copy_from_shared, mq_schema_parts, override_open_files, read_schema
from msgq.impl.base.core cimport mq_lock_object, mq_object_lock, mq_unlock_object
from msgq.impl.records.core cimport MQ_RECORD_EXCLUSIVE, MQ_RECORD_KEY_BYTES, mq_board_value_bytes, mq_record_config
from msgq.impl.records.core cimport RecordFile, open_record_file
from msgq.impl.ring.core cimport check_usable
from msgq.impl.ring.core cimport (
    mq_ring_write_pointer, mq_ring_write_uid, mq_ring_header, mq_ring_side_schema, mq_ring_subscriber,
    mq_ring_subscriber_is_readable, mq_ring_subscriber_has_no_publisher, mq_ring_subscriber_recover_from_lap,
    MQ_RING_PUBLISHERS, mq_participant_snapshot, mq_ring_row_liveness, mq_ring_snapshot_publisher,
)
from msgq.impl.ring.core cimport SubSocket
from msgq.impl.base.process cimport fork_generation
from msgq.impl.sources.core cimport (
    MQ_RECORD_SCAN_ELEMENTS, MQ_SOURCE_CHANNEL, MQ_SOURCE_POLLED, MQ_SOURCE_RECORDS, mq_polled_source_has_pending,
    MQ_SOURCE_RING, mq_channel_source_skip_pending, mq_channel_source_has_pending, mq_record_source_has_scanned_since,
    mq_record_source_follow_writes,
    mq_source, mq_source_load_schema_seq, mq_ring_source_has_seen_schema, mq_ring_source_note_schema,
)

from array import array
from itertools import accumulate
import json

from msgq.common import record_changes
from msgq.common import naming, settings
from msgq.errors import CorruptSegmentError, IpcError, SegmentError, SegmentSizeError
from msgq.impl.base.files import read_file_status
from msgq.impl.channel.core import open_channel_file
from msgq.impl.records.options import read_schema_dtype
from msgq.impl.workqueue.core import QueueWatch
from msgq.common.naming import events_channel
from msgq.common.schema import Schema


cdef class EndpointSource:
    """See source.pyi."""

    def __init__(self):
        raise TypeError("a Source comes from open_source")

    cdef int prepare_to_take(self) except -1:
        return 0

    cdef int prepare_to_count(self) except -1:
        return 0

    cdef int map_missing_pool(self) except -1:
        return 0

    cdef int handle_corruption(self) except -1:
        return 0

    def get_origin_names(self, origin_id):
        return "", ""

    def poll_takeover(self):
        return None

    @property
    def schema(self):
        return None

    def read_message_schema(self):
        # before the read, so that a later change is detected
        self.c.schema_seq_seen = mq_source_load_schema_seq(&self.c)
        return self.schema

    @property
    def max_message_bytes(self):
        return 0

    @property
    def options_json(self):
        return ""

    @property
    def lost(self):
        return 0

    @property
    def schema_begins_epoch(self):
        return False

    def skip_pending_messages(self):
        """Do nothing: records have no pending messages."""

    def is_finished(self, int64_t since_ns):
        return True

    def close(self):
        """Do nothing: a source leaves no trace."""

    def __repr__(self):
        return f"<msgq Source {self.endpoint!r}>"


def open_topic_source(str name, str prefix, bint whole, files=None):
    former = override_open_files(files)
    try:
        return _open_topic(name, prefix, whole)
    finally:
        override_open_files(former)


def open_channel_source(str name, str prefix, bint whole, files=None):
    former = override_open_files(files)
    try:
        return _open_channel(naming.CHANNEL_NAME_PREFIX + name, "channel", name, prefix, whole)
    finally:
        override_open_files(former)


def open_events_source(str queue, str prefix, bint whole, files=None):
    former = override_open_files(files)
    try:
        return _open_channel(naming.QUEUE_NAME_PREFIX + queue, "queue", events_channel(queue), prefix, whole)
    finally:
        override_open_files(former)


def open_record_source(str name, str prefix, bint whole, files=None):
    former = override_open_files(files)
    try:
        return _open_records(naming.RECORDS_NAME_PREFIX + name, name, prefix)
    finally:
        override_open_files(former)


cdef object _set_endpoint(EndpointSource source, str endpoint, str kind, str in_prefix):
    source.endpoint, source.kind, source.prefix = endpoint, kind, in_prefix
    return source


# ---- topics ----

cdef object _read_topic_schema(const mq_ring_subscriber *subscriber):
    cdef mq_schema_parts at
    if subscriber.side == NULL:
        return None
    at = mq_ring_side_schema(subscriber.side)
    return read_schema(&at)


cdef object _read_schema_at(mq_source *source, uint64_t position):
    """Return the schema of the topic's message at this position; None: no schema, or the schema was replaced."""
    cdef uint64_t seq
    for _ in range(100):  # if the schema changes in each round, the next call continues
        seq = mq_source_load_schema_seq(source)
        schema = _read_topic_schema(source.ring_subscriber)
        if mq_source_load_schema_seq(source) == seq:
            return schema if mq_ring_source_note_schema(source, seq, position) else None
    return None


cdef inline uint64_t _received_position(SubSocket socket) noexcept:
    """Return a position inside of the message that was received last. A message has at least 8 bytes."""
    return socket._subscriber.cursor - 8


cdef class SchemaReader:
    """See source.pyi."""

    cdef mq_source _source
    cdef object _schema
    cdef readonly bint is_replaced

    def read_next(self, SubSocket socket not None):
        with critical_section(socket):
            if socket._use_state == fork_generation:  # else another thread has closed the new connection already
                self._read_at(socket, socket._subscriber.cursor)

    def read_received(self, SubSocket socket not None):
        cdef mq_object_lock lock
        mq_lock_object(&lock, <PyObject *> socket)
        try:
            self._read_new_schema(socket, _received_position(socket))
        finally:
            mq_unlock_object(&lock)
        return self._schema

    cdef int _read_new_schema(self, SubSocket socket, uint64_t position) except -1:
        if socket._use_state == fork_generation:  # else another thread has closed the socket after the receive
            self._source.ring_subscriber = &socket._subscriber
            if not mq_ring_source_has_seen_schema(&self._source, position):
                self._read_at(socket, position)
        return 0

    cdef int _read_at(self, SubSocket socket, uint64_t position) except -1:
        self._source.kind, self._source.ring_subscriber = MQ_SOURCE_RING, &socket._subscriber
        self._schema = _read_schema_at(&self._source, position)
        self.is_replaced = self._schema is None and _read_topic_schema(&socket._subscriber) is not None
        return 0


cdef class TopicSource(EndpointSource):
    """A topic, read by a passive subscriber."""

    @property
    def socket(self):
        return self._socket

    @property
    def schema(self):
        return _read_topic_schema(&self._socket._subscriber)

    def read_message_schema(self):
        self._message_schema = _read_schema_at(&self.c, self._socket._subscriber.cursor)
        return self._message_schema

    def receive_with_schema(self):
        data = self._socket.receive(True)
        if data is None:
            return None
        if not mq_ring_source_has_seen_schema(&self.c, _received_position(self._socket)):
            self._message_schema = _read_schema_at(&self.c, _received_position(self._socket))
        return data, self._message_schema

    @property
    def max_message_bytes(self):
        return self._socket._subscriber.data_bytes // 3

    @property
    def lost(self):
        return self._socket.lost

    @property
    def schema_begins_epoch(self):
        return True

    def skip_pending_messages(self):
        try:
            self._socket._subscriber.lost += len(self._socket.receive_many())
        except (CorruptSegmentError, SegmentSizeError):
            self._socket._subscriber.lost_unknown = True

    def is_finished(self, int64_t since_ns):
        cdef const mq_ring_subscriber *subscriber = &self._socket._subscriber
        # liveness first: the last message is visible then
        return mq_ring_subscriber_has_no_publisher(subscriber) and not mq_ring_subscriber_is_readable(subscriber)

    def poll_takeover(self):
        cdef const mq_ring_subscriber *subscriber = &self._socket._subscriber
        cdef mq_participant_snapshot publisher
        cdef mq_liveness_probe probe
        cdef uint64_t messages, size, former = self._publisher_uid
        cdef bint former_lives = False
        cdef bytes name
        found = None
        self.c.write_uid_seen = mq_ring_write_uid(subscriber.ring)
        if not self.c.write_uid_seen:
            self._publisher_uid = 0
        if subscriber.side == NULL or self.c.write_uid_seen == former:
            return None
        probe = mq_liveness_probe_begin(subscriber.liveness_file)
        for row in range(MQ_RING_PUBLISHERS):
            mq_ring_snapshot_publisher(subscriber.side, row, &publisher, &messages, &size)
            if publisher.uid and publisher.uid == self.c.write_uid_seen:
                self._publisher_uid = publisher.uid
                name = publisher.name
                found = f"{name.decode(errors='replace')} {publisher.pid}"
            elif former and publisher.uid == former:
                former_lives = mq_ring_row_liveness(&probe, subscriber.side, row) == MQ_ALIVE
        mq_liveness_probe_end(&probe)
        return found and (found if former_lives else "")

    def close(self):
        self._socket.close()

    cdef int prepare_to_take(self) except -1:
        return check_usable(self._socket)  # searches for a side segment if there was none

    cdef int handle_corruption(self) except -1:
        if self._socket._remap_if_grown():
            return 0
        mq_ring_subscriber_recover_from_lap(&self._socket._subscriber)
        raise CorruptSegmentError("no message at the expected position: another program wrote into the ring; reading "
                                  "continues at the newest message", self.endpoint, self._socket._ring.path)


cdef object _open_topic(str endpoint, str in_prefix, bint whole):
    cdef TopicSource source = TopicSource.__new__(TopicSource)
    cdef SubSocket socket = SubSocket()
    socket._from_oldest = whole
    with settings.overrides(in_prefix):
        socket.connect(Context(), endpoint, passive=True)
    if whole and _has_lost_side_segment(socket):
        raise SegmentError("was removed during opening: its side segment is missing",
                           endpoint, socket._ring.path, ENOENT)
    source._socket, source.inode = socket, socket._ring.inode
    source.c.kind, source.c.ring_subscriber = MQ_SOURCE_RING, &socket._subscriber
    source.poll_takeover()  # store the present publisher, so that the next call finds only later publishers
    return _set_endpoint(source, endpoint, "topic", in_prefix)


cdef bint _has_lost_side_segment(SubSocket socket) except -1:
    """True if the side segment was removed, so that the ring's content is unknown. Stock never clears its uid."""
    cdef mq_ring_header *ring = socket._subscriber.ring
    if socket._side is not None:
        return False
    status = read_file_status(socket._ring.path)
    named = status is not None and status.number == socket._ring.inode
    return not named or (mq_ring_write_uid(ring) == 0 and mq_ring_write_pointer(ring) != 0)


# ---- channels, and events of queues ----

@no_gc_clear  # C code uses the mappings
cdef class ChannelSource(EndpointSource):
    """A channel, read by its own subscriber without a row."""

    @property
    def schema(self):
        return self._channel_file.schema

    @property
    def max_message_bytes(self):
        return max([(<MappedPool> pool).slots.slot_bytes for pool in self._pools if pool is not None], default=0)

    @property
    def options_json(self):
        if self.endpoint.startswith(naming.QUEUE_NAME_PREFIX):
            return _describe_queue_options(self.endpoint.removeprefix(naming.QUEUE_NAME_PREFIX), self.prefix)
        capacity, _, _, stamps = self._channel_file.config
        facts = {"capacity": capacity, "slot_bytes": self.max_message_bytes or None, "stamps": stamps}
        return json.dumps({name: value for name, value in facts.items() if value is not None})

    @property
    def lost(self):
        return self._channel_source.subscriber.lost

    def skip_pending_messages(self):
        mq_channel_source_skip_pending(&self._channel_source)

    def is_finished(self, int64_t since_ns):
        if mq_channel_has_publisher(self._channel_file.header, self._channel_file.liveness_file()):
            return False
        return not mq_channel_source_has_pending(&self._channel_source)

    def get_origin_names(self, origin_id):
        return self._publishers[origin_id], ""

    cdef int map_missing_pool(self) except -1:
        """Map the pool of the message that was found. If the pool is missing or invalid, skip the message."""
        cdef MappedPool pool = None
        cdef unsigned row = self._channel_source.at.row
        try:
            pool = open_pool(self._channel_file, self._channel_source.at.pool_uid, False)
        except IpcError:
            self._skip_message()
            raise
        if pool is None:  # another process removed it
            return self._skip_message()
        self._channel_source.origin_ids[row] = self._origin_ids.setdefault(pool.node, len(self._publishers))
        if self._channel_source.origin_ids[row] == len(self._publishers):
            self._publishers.append(pool.node)
        self._channel_source.pool_not_truncated[row] = pool.not_truncated
        self._channel_source.subscriber.pools[row] = pool.slots
        self._pools[row] = pool  # the previous pool is unmapped: no pointer refers to it
        return 0

    cdef int _skip_message(self) except -1:
        mq_channel_skip_message(&self._channel_source.subscriber, &self._channel_source.at)
        return 0

    cdef int handle_corruption(self) except -1:
        self._channel_file.check_truncation()
        self._skip_message()
        text = f"no message at position {self._channel_source.at.position}: another program wrote into the file"
        raise CorruptSegmentError(f"{text}; it counts as lost", self.endpoint, self._channel_file.path)


def _describe_queue_options(queue, in_prefix):
    try:
        stats = QueueWatch(queue, in_prefix).stats()
    except SegmentError:  # the queue was removed, and its events still exist
        return ""
    return json.dumps({"max_messages": stats.max_messages, "max_message_size": stats.max_message_size})


cdef object _open_channel(str endpoint, str kind, str channel, str in_prefix, bint whole):
    cdef ChannelSource source = ChannelSource.__new__(ChannelSource)
    cdef ChannelFile channel_file = open_channel_file(channel, in_prefix)
    memset(&source._channel_source, 0, sizeof(source._channel_source))
    source._channel_file, source.inode = channel_file, channel_file.inode
    source._channel_source.subscriber.header = channel_file.header
    source._channel_source.subscriber.not_truncated = channel_file.not_truncated
    source._pools, source._publishers, source._origin_ids = [None] * MQ_CHANNEL_PUBLISHERS, [], {}
    mq_channel_subscriber_join(&source._channel_source.subscriber, not whole)
    source.c.kind, source.c.channel_source = MQ_SOURCE_CHANNEL, &source._channel_source
    return _set_endpoint(source, endpoint, kind, in_prefix)


# ---- vectors and boards ----

@no_gc_clear  # C code uses the mappings
cdef class RecordSource(EndpointSource):
    """A vector or board, scanned for changes."""

    def __dealloc__(self):
        PyMem_Free(self._record_source.seen_write_counts)

    @property
    def schema(self):
        schema = self._file.schema
        if self._file.is_board():
            return schema
        return make_change_schema(schema, self._record_source.parts.config.item_bytes)

    @property
    def max_message_bytes(self):
        return 0  # memory is allocated when needed: few values have the maximum size

    @property
    def options_json(self):
        cdef const mq_record_config *config = &self._record_source.parts.config
        if self._file.is_board():
            value_bytes = mq_board_value_bytes(&self._record_source.parts)
            facts = {"form": "board", "keys": config.length, "value_bytes": value_bytes}
        else:
            facts = {"form": "vector", "length": config.length, "copies": config.copies,
                     "exclusive": config.flags & MQ_RECORD_EXCLUSIVE != 0}
        return json.dumps(facts)

    def get_origin_names(self, origin_id):
        cdef char name[MQ_RECORD_KEY_BYTES]
        cdef uint64_t index = origin_id
        if not self._file.is_board() or index >= self._record_source.parts.config.length:
            return "", ""
        mq_copy_from_shared(name, self._record_source.parts.key_table[index].name, sizeof(name))
        return "", name[:sizeof(name)].partition(b"\0")[0].decode(errors="replace")

    def is_finished(self, int64_t since_ns):
        return mq_record_source_has_scanned_since(&self._record_source, since_ns)

    cdef int prepare_to_count(self) except -1:
        mq_record_source_follow_writes(&self._record_source)
        return 0

    cdef int handle_corruption(self) except -1:
        self._file.check_truncation()
        raise CorruptSegmentError("has a value of invalid length: another program wrote into the file; remove it",
                                  self.endpoint, self._file.path)


def make_change_schema(schema, item_bytes):
    """Return the schema of a vector's changes, or None if its header has no dtype of that size."""
    try:
        read_schema_dtype(schema, item_bytes, "")
        fields = [*record_changes.CHANGE_HEAD_FIELDS, (record_changes.VALUE_FIELD, json.loads(schema.data))]
        return Schema(schema.name, "struct", json.dumps(fields).encode())
    except (IpcError, ValueError):  # ValueError: with the additional fields, the schema is too long
        return None


cdef object _open_records(str endpoint, str name, str in_prefix):
    cdef RecordSource source = RecordSource.__new__(RecordSource)
    cdef RecordFile file = open_record_file(name, in_prefix)
    memset(&source._record_source, 0, sizeof(source._record_source))
    source._file, source.inode = file, file.segment.inode
    source._record_source.parts, source._record_source.not_truncated = file.parts, file.not_truncated
    source._record_source.virtual_ns = NULL if file.bus is None else &file.bus.clock.now_ns
    source._record_source.elements_left = MQ_RECORD_SCAN_ELEMENTS
    source._record_source.seen_write_counts = <uint64_t *> PyMem_Calloc(file.parts.config.length, sizeof(uint64_t))
    if source._record_source.seen_write_counts == NULL:
        raise MemoryError(f"{endpoint}: no memory for the counts of {file.parts.config.length} elements")
    source.c.kind, source.c.record_source = MQ_SOURCE_RECORDS, &source._record_source
    return _set_endpoint(source, endpoint, "records", in_prefix)


# ---- types whose files C cannot read ----

@no_gc_clear  # C code reads the batch
cdef class PolledSource(EndpointSource):
    """See source.pyi."""

    def __init__(self, str endpoint, str kind, str prefix, inode):
        memset(&self._polled_source, 0, sizeof(self._polled_source))
        self.c.kind, self.c.polled_source, self.inode = MQ_SOURCE_POLLED, &self._polled_source, inode
        _set_endpoint(self, endpoint, kind, prefix)

    def poll(self):
        return []

    def is_finished(self, int64_t since_ns):
        return not mq_polled_source_has_pending(&self._polled_source)

    cdef int prepare_to_take(self) except -1:
        if mq_polled_source_has_pending(&self._polled_source):
            return 0
        messages = self.poll()
        data = b"".join([payload for payload, _ in messages])
        ends = array("Q", accumulate([len(payload) for payload, _ in messages]))
        times = array("q", [time_ns for _, time_ns in messages])
        self._polled_batch = data, ends, times
        self._polled_source.payloads = <const uint8_t *> <const char *> data
        self._polled_source.payload_ends = <const uint64_t *> <size_t> ends.buffer_info()[0]
        self._polled_source.publish_times = <const int64_t *> <size_t> times.buffer_info()[0]
        self._polled_source.next, self._polled_source.count = 0, len(messages)
        return 0
