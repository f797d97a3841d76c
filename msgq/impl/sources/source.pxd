from msgq.impl.channel.core cimport ChannelFile
from msgq.impl.records.core cimport RecordFile
from msgq.impl.ring.core cimport SubSocket
from msgq.impl.sources.core cimport mq_channel_source, mq_polled_source, mq_record_source, mq_source


cdef class EndpointSource:
    """See source.pyi. What C takes from is `c`, as long as this object is there."""
    cdef mq_source c
    cdef readonly str endpoint, kind, prefix
    cdef readonly object inode
    cdef int prepare_to_take(self) except -1        # before C takes from it, with the GIL
    cdef int map_missing_pool(self) except -1    # after MQ_SOURCE_UNMAPPED
    # After MQ_SOURCE_CORRUPT: raise, so that C can continue. 0: nothing was wrong.
    cdef int handle_corruption(self) except -1


cdef class TopicSource(EndpointSource):
    cdef SubSocket _socket


cdef class ChannelSource(EndpointSource):
    cdef ChannelFile _channel_file
    cdef mq_channel_source _channel_source
    cdef list _pools            # of PoolFile, by row; None: not mapped
    cdef list _publishers       # names, by part
    cdef dict _origin_ids            # and back
    cdef int _skip_message(self) except -1


cdef class RecordSource(EndpointSource):
    cdef RecordFile _file
    cdef mq_record_source _record_source


cdef class PolledSource(EndpointSource):
    cdef mq_polled_source _polled_source
    cdef object _polled_batch          # what `_polled_source` points into
