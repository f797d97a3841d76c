"""Vectors and boards in shared memory, and spans of a stage: one module. The parts are included in dependency order."""

cimport cython
from cpython.buffer cimport PyBUF_ND, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cython cimport no_gc_clear
from libc.errno cimport errno
from libc.string cimport memcpy, memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, mmap, munmap, PROT_READ, PROT_WRITE

from msgq.impl.base.clock cimport (
    bus_time_ns, change_origin, current_origin, host_offset_ns, host_time_ns, new_origin, prepare_origins,
)
from msgq.impl.base.core cimport (
    adopt_mapping, close_at_exit, CLOSED, find_bus, write_full_schema, read_full_schema, WAIT_FOREVER, LARGE_BYTES,
    get_message_buffer, load_event_loop, MQ_DEAD, mq_liveness_unlock,
    mq_copy_from_shared, mq_eventcount_has_waiters_mp, mq_eventcount_prepare_wait_mp, mq_liveness_probe_begin,
    mq_liveness_probe_end, mq_load_acquire_u64, mq_load_relaxed_u64, mq_lock_object, mq_mapping, mq_mapping_new,
    mq_monotonic_ns, MQ_NS_PER_MS, MQ_NS_PER_S, mq_participant_liveness, mq_poll_prepare_wait_mp, mq_schema_parts,
    mq_schema_parts_from_block, mq_unlock_object, parse_timeout_ns, raise_error, read_participant, remove_file,
    segment_error, usage_error, wait_until_ready, watcher_lock, watcher_unlock,
)
from msgq.impl.base.process cimport fork_generation, read_own_identity, text, this_process

import weakref

from msgq.common import naming, settings, shm_paths
from msgq.common.dtypes import struct_schema
from msgq.errors import (
    ConcurrentUseError, CorruptSegmentError, EndpointClosedError, ForkedSocketError,
    MultiplePublishersError, SegmentError,
)
from msgq.impl.records import arrays, options
from msgq.impl.records.values import Changes, Value, ChangeIterator
from msgq.impl.base.core import copy_message
from msgq.impl.base.foreign_names import add_advice, key_assignment_error

include "scalars.pxi"
include "recordfile.pxi"
include "handle.pxi"
include "element_selection.pxi"
include "vector.pxi"
include "seqlock.pxi"
include "board.pxi"
include "buswrite.pxi"
include "snapshot.pxi"
include "spans.pxi"

add_advice(Board)
add_advice(SeqlockVector)
