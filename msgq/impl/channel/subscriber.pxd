from libc.stdint cimport int64_t, uint8_t, uint64_t

from msgq.impl.channel.core cimport mq_channel_message, mq_channel_poll_state, mq_channel_status, mq_channel_subscriber
from msgq.impl.channel.channelfile cimport ChannelFile
from msgq.impl.channel.subscriber_rows cimport MappedPool, SubscriberRows
from msgq.impl.base.views cimport HeldView
from msgq.impl.base.waiting cimport Waitable


cdef class Subscriber(Waitable):
    cdef readonly str name      # of the node
    cdef readonly int max_views
    cdef ChannelFile _file
    cdef SubscriberRows _rows     # None: passive, it leaves no trace
    cdef mq_channel_subscriber c
    cdef list _pools            # of MappedPool, by row; None: not mapped
    cdef mq_channel_poll_state _poll_state
    cdef mq_channel_message _last
    cdef MappedPool _last_pool
    cdef bint _raise_on_lost           # on loss
    cdef uint64_t _lost_reported         # losses that were raised
    cdef int64_t _nap           # how long to sleep unannounced next, ns; 0: have ourselves woken
    cdef int _join(self) except -1
    cdef bint _next_message(self, mq_channel_message *message) except -1
    cdef bint _await_message(self, mq_channel_message *message, object timeout) except -1
    cdef bint _accept(self, const mq_channel_message *message) except -1
    cdef int _map_pool(self, const mq_channel_message *message) except -1
    cdef bint _takes_views(self) noexcept
    cdef object _receive(self, object timeout)
    cdef bint _should_give_up(self, int *torn, object timeout) noexcept
    cdef bytes _copy(self, const mq_channel_message *message)
    cdef uint64_t _take_batch(self, uint8_t *out, uint64_t size, uint64_t max_count) noexcept
    cdef uint64_t _max_count(self, object limit) except? 0


cdef class Sample(HeldView):
    cdef readonly uint64_t position, publish_time, origin_time
    cdef readonly object publisher
