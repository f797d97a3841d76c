"""Meters of all types of endpoint: one module. The parts are included in dependency order."""

from cpython.exc cimport PyErr_CheckSignals
from cython cimport critical_section
from libc.errno cimport ENOENT
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME

from msgq.impl.base.clock cimport host_offset_ns
from msgq.impl.base.core cimport (
    Bus, find_bus, MQ_FUTEX_WAITV_MAX, mq_futex_waitv_entry, mq_monotonic_ns, mq_read_time_ns, sleep_on_futexes,
)
from msgq.impl.sources.core cimport MQ_SOURCE_UNMAPPED, mq_source_count_unseen, mq_source_lost_is_known
from msgq.impl.sources.source cimport EndpointSource
from msgq.impl.workqueue.core cimport open_queue_file, QueueFile


from msgq.common import naming
from msgq.common.stats.meter import Distribution, MeterReading
from msgq.errors import EndpointClosedError, InvalidValueError, SegmentError
from msgq.impl.sources.source import open_events_source

include "meter.pxi"
include "source.pxi"
include "queue.pxi"
