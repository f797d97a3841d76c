"""Topics in shared memory: one module. Its parts are included below, in the order of their dependencies."""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_ND, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject_GenericSetAttr
from libc.errno cimport EEXIST, ENOENT, ENOSPC
from libc.stdint cimport INT64_MAX, UINT64_MAX
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.stat cimport struct_stat
from posix.unistd cimport usleep

from msgq.impl.base.clock cimport (
    bus_time_ns, current_origin, host_offset_ns, new_origin, prepare_origins, refuse_foreign_origin,
)
from msgq.impl.base.core cimport (
    adopt_mapping, BUSY, c_bool, can_order_stores, check_file, check_context_open, close_at_exit, CLOSED, Context,
    create_file, get_message_buffer,
    exception_of, WAIT_FOREVER, LARGE_BYTES, load_file_policy, lock_file, LOCK_WAIT_NS, map_file, MQ_ALIVE,
    mq_close_file, mq_copy_to_shared, mq_copy_from_shared, MQ_DEAD, MQ_FILE_EXISTS, MQ_FILE_LOCKED, MQ_FILE_MISSING,
    ForkAwareHandle, mq_liveness_unlock, mq_liveness_is_locked, mq_liveness_probe_begin, mq_liveness_probe_end,
    mq_makes_holes, mq_mapping_was_truncated,
    mq_monotonic_ns, MQ_NS_PER_MS, MQ_ONLY_CREATE, MQ_ONLY_OPEN, MQ_OPEN_OR_CREATE, mq_thread_liveness, name_file,
    open_file, parse_timeout_ms, parse_timeout_ns, raise_error, read_schema, remove_file, RESERVED,
    segment_error, unlock_file, usage_error, use_memory,
    wait_for_file_lock, wait_until_ready, write_schema,
)
from msgq.impl.base.process cimport is_alive, read_own_identity, text

from _collections_abc import Iterator  # Python has loaded this module already

from msgq.common import naming, settings, shm_paths
from msgq.errors import (
    CorruptSegmentError, ForkedSocketError, InvalidValueError, IpcError, MessageSizeError,
    MessageTooLargeError, MultiplePublishersError, SegmentError, StateError,
)
from msgq.impl.base.argument_checks import (
    check_before_connect, check_limit, check_linger, check_non_blocking, check_origin, check_rcvhwm, check_send_flags,
    check_sndhwm, constructor_error,
    check_sndtimeo, parse_receive_flags, untracked_topic_error, option_error, pickle_error, takeover_error,
    tracking_mismatch_error,
)
from msgq.impl.base.foreign_names import add_advice

include "topic.pxi"
include "pub_connection.pxi"
include "publisher.pxi"
include "sub_connection.pxi"
include "subscriber.pxi"
include "view.pxi"
include "snapshot.pxi"

add_advice(PubSocket)
add_advice(SubSocket)
