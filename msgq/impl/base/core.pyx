"""Shared memory and waiting for all types of endpoint: one module. The parts are included in dependency order."""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.weakref cimport PyWeakref_NewRef
from cython cimport no_gc, no_gc_clear
from libc.errno cimport (
    EAGAIN, EEXIST, EINTR, ENOENT, ENOSYS, EPERM, errno,
)
from libc.limits cimport INT_MAX
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t, uint8_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strcmp
from posix.fcntl cimport F_SETFL, fcntl, O_NONBLOCK
from posix.mman cimport MAP_FAILED, MAP_SHARED, mmap, munmap, PROT_READ, PROT_WRITE
from posix.stat cimport fstat, struct_stat
from posix.types cimport uid_t
from posix.unistd cimport close, lseek, SEEK_CUR, SEEK_SET, usleep

from msgq.common.environment cimport file_group, is_preallocation_enabled, is_sigbus_handled, trusted_users
from msgq.impl.base.process cimport fork_generation, is_alive, new_uid, random_u32, text

import _signal  # a part of Python's signal, whose import takes longer
import atexit
import os
from _thread import _local  # threading.local

from msgq.common import naming, settings
from msgq.errors import (
    BoardFullError, ChannelMismatchError, ConcurrentUseError, CorruptSegmentError, EndpointClosedError,
    ForkedSocketError, InterruptedWaitError, InvalidValueError, IpcError, KeyTakenError, LayoutVersionError,
    MessageTooLargeError, MsgqError, MultiplePublishersError, MultipleWritersError,
    SegmentError, SegmentSizeError, StateError, TooManyHandlesError, TooManyPublishersError, TooManySubscribersError,
    TooManyWritersError,
)
from msgq.impl.base.argument_checks import (
    address_error, not_connected_error, timeout_ms, timeout_ns, unsendable_error, warn_program,
)


cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(PyObject *mapping, object key) except? NULL
    PyObject *PyImport_GetModuleDict()
    ctypedef struct PyTypeObject:
        PyObject *tp_mro
    Py_ssize_t Py_REFCNT(PyObject *)  # a pointer, because Cython's own declaration counts a temporary reference
    void PyType_Modified(PyTypeObject *kind)
    PyObject **PySequence_Fast_ITEMS(tuple items)
    Py_ssize_t PyTuple_GET_SIZE(tuple items)


def add_hidden_base(type kind, type base):
    cdef PyTypeObject *changed_type = <PyTypeObject *> kind
    cdef PyObject *former = changed_type.tp_mro
    cdef tuple order = (*kind.__mro__[:-1], base, object)
    Py_INCREF(order)
    changed_type.tp_mro = <PyObject *> order
    PyType_Modified(changed_type)
    Py_DECREF(<object> former)


include "segment.pxi"
include "bus.pxi"
include "owners.pxi"
include "schema.pxi"
include "endpointfile.pxi"
include "message_buffer.pxi"
include "views.pxi"
include "wake.pxi"
include "context.pxi"
include "handle.pxi"
include "signal_log.pxi"
include "timeouts.pxi"
include "waiting.pxi"
include "shared_handle.pxi"
include "poller.pxi"
