# cython: language_level=3, freethreading_compatible=False
"""Read a topic's files for msgq.stats: mapped read-only, no lock, no trace."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from msgq.impl.core cimport (
    MQ_PUBLISHERS, MQ_READERS, MQ_SCHEMA_DATA_MAX, MQ_SCHEMA_ENCODING, MQ_SCHEMA_NAME, mq_ring_header,
    mq_schema_read, mq_side,
)
from msgq.impl.segment cimport Topic, watch_topic

from msgq.impl.liveness import process_alive
from msgq.schema import Schema
from msgq.stats import Participant, SubscriberInfo, TopicStats


cdef extern from "snapshot.h" nogil:
    ctypedef struct mq_identity_copy:
        uint64_t uid
        uint64_t pid
        uint64_t thread_id
        uint64_t start_time
        uint64_t pid_namespace
        char name[17]
    ctypedef struct mq_reader_copy:
        mq_identity_copy who
        uint64_t cursor
        uint64_t received
        uint64_t lost
        uint64_t lost_unknown
        uint64_t resets
    void mq_copy_publisher(const mq_side *side, int entry, mq_identity_copy *who, uint64_t *sent, uint64_t *size)
    void mq_copy_reader(const mq_side *side, int entry, mq_reader_copy *out)
    uint64_t mq_read_write_pointer(const mq_ring_header *ring)
    uint64_t mq_read_write_uid(const mq_ring_header *ring)
    uint64_t mq_read_created_ns(const mq_side *side)
    int mq_count_stock(const mq_ring_header *ring, const mq_side *side)


cdef object _participant(const mq_identity_copy *who):
    cdef bytes name = who.name
    alive = process_alive(who.pid, who.start_time, who.pid_namespace)
    return Participant(who.pid, who.thread_id, who.start_time, name.decode(errors="replace"), alive)


cdef object _lag_bytes(uint64_t position, uint64_t cursor, uint32_t data_bytes):
    cdef uint32_t laps = <uint32_t> (position >> 32) - <uint32_t> (cursor >> 32)
    ahead = <int64_t> <uint32_t> position - <int64_t> <uint32_t> cursor + laps * <int64_t> data_bytes
    return ahead if laps <= 1 and 0 <= ahead <= data_bytes else None


cdef tuple _subscribers(const mq_side *side, uint64_t position, uint32_t data_bytes):
    cdef mq_reader_copy reader
    found = []
    for i in range(MQ_READERS):
        mq_copy_reader(side, i, &reader)
        if reader.who.uid:
            lost = None if reader.lost_unknown else reader.lost
            lag = _lag_bytes(position, reader.cursor, data_bytes)
            found.append(SubscriberInfo(_participant(&reader.who), reader.received, lost, reader.resets, lag))
    return tuple(found)


cdef tuple _publisher(const mq_side *side, uint64_t uid):
    """Return (participant or None, messages, bytes)."""
    cdef mq_identity_copy who
    cdef uint64_t sent = 0, size = 0, sent_most = 0, size_most = 0
    current = None
    for i in range(MQ_PUBLISHERS):
        mq_copy_publisher(side, i, &who, &sent, &size)
        sent_most, size_most = max(sent_most, sent), max(size_most, size)  # each goes on from its forerunner's
        if uid and who.uid == uid:
            current = _participant(&who)
    return current, sent_most, size_most


cdef object _schema(const mq_side *side):
    cdef char name[MQ_SCHEMA_NAME + 1]
    cdef char encoding[MQ_SCHEMA_ENCODING + 1]
    cdef uint64_t size = 0
    cdef char *data = <char *> malloc(MQ_SCHEMA_DATA_MAX)
    if data == NULL:
        raise MemoryError()
    try:
        name[MQ_SCHEMA_NAME] = encoding[MQ_SCHEMA_ENCODING] = 0
        if not mq_schema_read(side, name, encoding, data, &size) or not name[0]:
            return None
        return Schema((<bytes> name).decode(), (<bytes> encoding).decode(), data[:size])
    except ValueError:
        return None  # not UTF-8, so no text of ours
    finally:
        free(data)


def read_topic(str endpoint, str in_prefix):
    cdef Topic topic = watch_topic(endpoint, in_prefix)
    cdef const mq_ring_header *ring = <mq_ring_header *> topic.ring.address
    cdef const mq_side *side = NULL if topic.side is None else <mq_side *> topic.side.address
    cdef uint64_t position = mq_read_write_pointer(ring)
    cdef uint64_t uid = mq_read_write_uid(ring)
    publisher = messages = size = schema = created = None
    subscribers = ()
    if side != NULL:
        publisher, messages, size = _publisher(side, uid)
        subscribers = _subscribers(side, position, topic.data_bytes)
        schema = _schema(side)
        created = mq_read_created_ns(side)
    kind = "ours" if publisher is not None else "stock" if uid else "none"
    return TopicStats(endpoint, topic.ring.path, topic.data_bytes, publisher, kind, messages, size,
                      (position >> 32, position & 0xFFFFFFFF), subscribers, mq_count_stock(ring, side), schema, created)
