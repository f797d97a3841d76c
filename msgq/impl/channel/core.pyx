"""Channels in shared memory: one module. The parts are included in dependency order."""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_ND, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.slice cimport PySlice_Check, PySlice_GetIndicesEx
from cpython.weakref cimport PyWeakref_NewRef
from cython cimport no_gc, no_gc_clear
from libc.errno cimport EMFILE, ENFILE, ENOENT, ENOMEM, ENOSPC, ESTALE
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.unistd cimport usleep

from msgq.impl.base.clock cimport bus_time_ns, current_origin, host_offset_ns, refuse_foreign_origin
from msgq.impl.base.core cimport (
    adopt_mapping, BUSY, close_at_exit, CLOSED, write_full_schema, read_full_schema, EndpointFile,
    expose_buffer, find_bus, get_message_buffer, WAIT_FOREVER, LARGE_BYTES, load_event_loop, mq_close_file,
    MQ_ERROR_PATH_BYTES, mq_add_to_shared_counter, mq_lock_object, mq_object_lock, mq_unlock_object,
    mq_copy_to_shared, mq_copy_from_shared, MQ_DEAD,
    mq_eventcount_has_waiters_mp, mq_eventcount_notify_mp, mq_eventcount_prepare_wait_mp, mq_futex_wait,
    mq_futex_wake_all, mq_futex_word, mq_liveness_is_locked, mq_liveness_lock, mq_liveness_probe_begin,
    mq_liveness_probe_end, mq_liveness_unlock, mq_monotonic_ns, mq_poll_ops, mq_poll_prepare_wait_mp,
    mq_mapping_was_truncated, open_file, raise_error, read_participant, pin_view, remove_file,
    parse_timeout_ns, segment_error, truncated_error, usage_error, use_memory, wait_until_ready,
)
from msgq.impl.base.process cimport fork_generation, read_own_identity, is_alive, text as _text, this_process

from msgq.common import settings, shm_paths
from msgq.errors import (
    CorruptSegmentError, EndpointClosedError, ForkedSocketError, InvalidValueError, LostMessagesError,
    MessageSizeError, MessageTooLargeError, MsgqError, PoolExhaustedError, SegmentError, StateError, TooManyViewsError,
)
from msgq.impl.base.files import read_file_status
from msgq.impl.channel.pool_files import list_pools
from msgq.impl.base.argument_checks import assign_bytes, check_limit, check_range, pickle_error
from msgq.impl.base.foreign_names import add_advice

cdef extern from "Python.h":
    Py_ssize_t PyNumber_AsSsize_t(number, void *overflow) except? -1  # NULL: return the nearest limit

include "options.pxi"
include "snapshot.pxi"
include "channelfile.pxi"
include "subscriber_rows.pxi"
include "publisher_pool.pxi"
include "publisher.pxi"
include "loan.pxi"
include "sample.pxi"
include "view.pxi"
include "subscriber.pxi"

add_advice(Publisher)
add_advice(Subscriber)
