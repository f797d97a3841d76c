"""Work queues in shared memory: one module. The parts are included in dependency order."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cython cimport no_gc_clear
from libc.stdint cimport UINT64_MAX
from libc.string cimport memcpy, memset
from posix.stat cimport struct_stat

from msgq.impl.base.clock cimport bus_time_ns, change_origin, current_origin, host_offset_ns, refuse_foreign_origin
from msgq.impl.base.core cimport (
    check_file, close_at_exit, CLOSED, encode_full_schema, find_bus, read_full_schema,
    get_message_buffer, WAIT_FOREVER, LARGE_BYTES, load_event_loop,
    mq_lock_object, mq_object_lock, mq_unlock_object,
    mq_read_clock_ns, mq_copy_to_shared, mq_copy_from_shared, mq_futex_wake_all, mq_futex_word,
    mq_liveness_probe_begin, mq_liveness_probe_end, mq_liveness_unlock, mq_monotonic_ns, mq_poll_ops,
    mq_schema_parts_from_block,
    mq_schema_write_if_missing, map_file, mq_mapping_was_truncated, MQ_NS_PER_S, parse_timeout_ns, raise_error,
    read_participant, remove_file, wait_until_ready, warn_in_event_loop, watcher_lock, watcher_unlock,
)
from msgq.impl.base.process cimport fork_generation, read_own_identity, text, this_process
from msgq.impl.workqueue.message cimport new_message

from _collections import deque

from msgq.common import naming, settings, shm_paths
from msgq.common.naming import events_channel
from msgq.errors import (
    ConcurrentUseError, CorruptSegmentError, EndpointClosedError, ForkedSocketError, IpcError, MsgqError,
    QueueBusyError, StateError,
)
from msgq.impl.base.argument_checks import check_limit, check_range
from msgq.impl.base.files import read_file_status
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.base.process import process_name
from msgq.impl.workqueue import options
from msgq.impl.workqueue.removal import remove_events

include "queuefile.pxi"
include "events.pxi"
include "handle.pxi"
include "queue_wait.pxi"
include "queue_bus.pxi"
include "job.pxi"
include "notification.pxi"
include "queue.pxi"
include "browser.pxi"
include "snapshot.pxi"

add_advice(MessageQueue)
