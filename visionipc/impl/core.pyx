"""Leases and the work of each frame: one module. The parts are included in dependency order.

The work of each frame is in C, because most frames arrive after a sleep, when the caches are cold.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cython cimport critical_section, final, freelist, no_gc_clear
from libc.errno cimport errno
from libc.stdint cimport UINT32_MAX
from libc.string cimport memcpy, memset
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close

from msgq.impl.base.core cimport (
    CLOSED, mq_copy_to_shared, MQ_DEAD, mq_liveness, mq_liveness_file_make, mq_liveness_is_locked, mq_liveness_lock,
    mq_liveness_probe, mq_liveness_probe_begin, mq_liveness_probe_end, mq_liveness_unlock, mq_monotonic_ns,
    mq_owner_liveness, mq_process_liveness, mq_read_clock_ns, MappedView, parse_timeout_ms,
)
from msgq.impl.base.clock cimport host_time_of
from msgq.impl.base.process cimport fork_generation, new_uid, this_process
from msgq.impl.ring.core cimport mq_ring_publisher_may_have_stock_readers, PubSocket, SubSocket

import os

from msgq.errors import (
    ConcurrentUseError, EndpointClosedError, ForkedSocketError, InvalidValueError, IpcError, MessageSizeError,
    MultiplePublishersError, SegmentError, StateError,
)

include "leases.pxi"
include "pictures.pxi"
include "outgoing.pxi"
include "incoming.pxi"
