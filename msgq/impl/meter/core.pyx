"""Meters of all types of endpoint: one module. The parts are included in dependency order."""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENOENT
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME

from msgq.impl.base.clock cimport host_offset_ns
from msgq.impl.base.core cimport (
    Context, MQ_FUTEX_32, MQ_FUTEX_WAITV_MAX, mq_futex_waitv_entry, mq_monotonic_ns, sleep_on_futexes,
)
from msgq.impl.channel.core cimport mq_channel_message, Subscriber
from msgq.impl.records.core cimport make_record_file, RecordFile
from msgq.impl.ring.core cimport check_usable, SubSocket
from msgq.impl.workqueue.core cimport queue_file, QueueFile


from msgq.common import naming
from msgq.common.naming import events_channel
from msgq.common.stats.meter import Distribution, MeterReading
from msgq.errors import CorruptSegmentError, EndpointClosedError, InvalidValueError, SegmentError
from msgq.impl.channel.core import open_channel_file

include "meter.pxi"
include "channel.pxi"
include "queue.pxi"
include "records.pxi"
include "topic.pxi"
include "polled.pxi"
