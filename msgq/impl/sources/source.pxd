from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport ChannelFile
from msgq.impl.records.core cimport RecordFile
from msgq.impl.ring.core cimport SubSocket
from msgq.impl.sources.core cimport mq_channel_source, mq_polled_source, mq_record_source, mq_source


cdef class EndpointSource:
    """See source.pyi. C code takes messages from `c` during the lifetime of this object."""
    cdef mq_source c
    cdef readonly str endpoint, kind, prefix
    cdef readonly object inode
    cdef int prepare_to_take(self) except -1  # called with the GIL before C takes messages
    cdef int prepare_to_count(self) except -1    # called once, if a meter takes the messages
    cdef int map_missing_pool(self) except -1    # call this after MQ_SOURCE_UNMAPPED
    # Call this after MQ_SOURCE_CORRUPT. Prepares C to continue, and raises an error. Returns 0 if the data is valid.
    cdef int handle_corruption(self) except -1


cdef class TopicSource(EndpointSource):
    cdef SubSocket _socket
    cdef object _message_schema  # schema that was read last
    cdef uint64_t _publisher_uid  # uid of the last publisher that was found; 0: the publisher closed the topic


cdef class ChannelSource(EndpointSource):
    cdef ChannelFile _channel_file
    cdef mq_channel_source _channel_source
    cdef list _pools  # MappedPool objects by row; None: not mapped
    cdef list _publishers  # names by id
    cdef dict _origin_ids  # ids by name
    cdef int _skip_message(self) except -1


cdef class RecordSource(EndpointSource):
    cdef RecordFile _file
    cdef mq_record_source _record_source


cdef class PolledSource(EndpointSource):
    cdef mq_polled_source _polled_source
    cdef object _polled_batch  # memory of `_polled_source`
