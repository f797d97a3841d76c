from msgq.impl.channel.core cimport ChannelFile
from msgq.impl.records.core cimport RecordFile
from msgq.impl.ring.core cimport SubSocket
from msgq.impl.sources.core cimport mq_channel_source, mq_polled_source, mq_record_source, mq_source


cdef class Source:
    """See source.pyi. What C takes from is `c`, as long as this object is there."""
    cdef mq_source c
    cdef readonly str endpoint, kind, prefix
    cdef readonly object inode
    cdef int prepare(self) except -1        # before C takes from it, with the GIL
    cdef int map_missing(self) except -1    # after MQ_SOURCE_UNMAPPED
    cdef int repair(self) except -1         # after MQ_SOURCE_CORRUPT: raise, so that C can go on; 0: nothing was wrong


cdef class TopicSource(Source):
    cdef SubSocket _socket


cdef class ChannelSource(Source):
    cdef ChannelFile _channel_file
    cdef mq_channel_source _from
    cdef list _pools            # of PoolFile, by row; None: not mapped
    cdef list _publishers       # names, by part
    cdef dict _origin_ids            # and back
    cdef int _skip_message(self) except -1


cdef class RecordSource(Source):
    cdef RecordFile _file
    cdef mq_record_source _from


cdef class PolledSource(Source):
    cdef mq_polled_source _from
    cdef object _batch          # what `_from` points into
