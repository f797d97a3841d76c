"""Guards for sockets of another library: one thread at a time, in the process that connected.

Such a socket crashes if two threads or a forked child use it. Every call therefore checks the use state first, as in
the ring's sockets (publisher.pxi). This module has the shared code of these calls, and the two that must be fast. The
ZMQ backend derives its sockets from it.
"""

from cpython.buffer cimport PyBUF_READ, PyBuffer_Release
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject_GenericSetAttr
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_INCREF
from cython cimport critical_section
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from posix.unistd cimport usleep

from msgq.impl.base.core cimport (
    BUSY, check_context_open, CLOSED, Context, deadline_after, get_message_buffer, WAIT_FOREVER, ForkAwareHandle,
    mq_monotonic_ns,
    parse_timeout_ns, refuse_in_simulation, warn_in_event_loop,
    MQ_NS_PER_MS, RESERVED,
)
from msgq.impl.base.process cimport fork_generation

import os

from msgq.errors import (
    EndpointClosedError, ForkedSocketError, IpcError, MessageTooLargeError, StateError,
)
from msgq.impl.base.argument_checks import (
    check_non_blocking, check_send_flags, zmq_untracked_error, option_error, pickle_error,
)


cdef extern from "poll.h" nogil:
    enum:
        POLLIN
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *descriptors, unsigned long count, int timeout_ms)


cdef enum:
    ZMQ_DONTWAIT = 1
    SENDS_PER_POLL = 1024


cdef class SocketGuard(ForkAwareHandle):
    """See the type stub (guard.pyi)."""

    cdef bint _close_requested
    cdef object _zmq_call
    cdef object _would_block_error

    def __reduce__(self):
        raise pickle_error(self)

    def __setattr__(self, str name, value):
        try:
            PyObject_GenericSetAttr(self, name, value)
        except AttributeError:
            raise option_error(self, name, self._endpoint) from None

    def _check_connectable(self, Context context not None, str name not None):
        check_context_open(context, name)
        refuse_in_simulation(name)
        if self._use_state != CLOSED:
            raise StateError("socket is connected already; close it first", self._endpoint)
        self._endpoint = name

    def _mark_open(self, call, would_block):
        self._zmq_call, self._would_block_error = call, would_block
        if self._use_state == CLOSED:  # otherwise it connects in a forked child, and is busy until then
            self._close_requested = False
            self._fork_generation = self._use_state = fork_generation

    def _is_open_here(self):
        return self._use_state != CLOSED and self._fork_generation == fork_generation

    def _check_open(self):
        if self._use_state != fork_generation:
            self._reopen_or_raise()

    cdef int _reopen_in_child(self) except -1:
        """Connect again. No other thread can use the socket during this."""
        self._close_requested = False  # requested by a thread of the parent
        self._zmq_call = None
        try:
            self._connect_in_this_process()
        except BaseException:
            if self._close_requested:
                self._use_state = CLOSED
            raise
        self._end_use()
        return self._check_not_forked()

    cdef int _check_not_forked(self) except -1:
        """Raise in the child if a fork happened during a call."""
        if self._fork_generation != fork_generation:
            text = "process was forked during this call or reservation; start it again in the child"
            raise ForkedSocketError(text, self._endpoint)
        return 0

    cdef int _begin_use(self) except -1:
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        self._use_state, self._user_thread_id = BUSY, PyThread_get_thread_ident()
        return 0

    cdef int _end_use(self) except -1:
        if self._close_requested and self._fork_generation == fork_generation:
            self._close_and_release()
            raise EndpointClosedError("was closed during the wait", self._endpoint)
        self._use_state = self._fork_generation
        return 0

    def _call_exclusively(self, call, *args):
        self._begin_use()
        try:
            return call(*args)
        finally:
            self._end_use()

    def _sleep_on_descriptors(self, list descriptors, int64_t deadline_ns, int64_t max_sleep_ms):
        cdef Py_ssize_t i, count = len(descriptors)
        cdef int ready_count
        cdef pollfd *waited
        self._run_signal_handlers()
        if deadline_ns >= 0:
            max_sleep_ms = min(max_sleep_ms, (deadline_ns - mq_monotonic_ns() + MQ_NS_PER_MS - 1) // MQ_NS_PER_MS)
            if max_sleep_ms <= 0:
                return False
        waited = <pollfd *> PyMem_Malloc(count * sizeof(pollfd))
        if waited == NULL:
            raise MemoryError
        try:
            for i in range(count):
                waited[i].fd, waited[i].events = descriptors[i], POLLIN
            with nogil:
                ready_count = poll(waited, count, max_sleep_ms)
            if ready_count < 0 and errno != EINTR:
                raise IpcError(f"cannot wait: {os.strerror(errno)}", self._endpoint, errno)
        finally:
            PyMem_Free(waited)
        self._run_signal_handlers()  # here, not in the following call of the other library
        return True

    cdef int _run_signal_handlers(self) except -1:
        PyErr_CheckSignals()
        return self._check_not_forked()

    def _mark_reserved(self):
        self._check_open()
        self._use_state = RESERVED

    def _end_reservation(self):
        self._check_not_forked()
        if self._use_state != RESERVED:
            self._reopen_or_raise()
        self._use_state = self._fork_generation

    def _wake_waiting_thread(self):
        pass

    cdef int _end_use_and_close(self) except -1:
        """Close the socket, after another thread's call ends."""
        self._close_requested = True
        if self._use_state == BUSY:
            if self._zmq_call is not None:  # otherwise it connects in a forked child, and no thread sleeps
                self._wake_waiting_thread()
            if self._user_thread_id == PyThread_get_thread_ident():
                return 0  # in a signal handler that interrupted our own call: its end sees _close_requested
        while self._use_state == BUSY:
            with nogil:
                usleep(200)
            PyErr_CheckSignals()
        if self._use_state != CLOSED:
            self._close_and_release()
        return 0

    def _close_and_release(self):
        self._use_state = CLOSED
        self._zmq_call = None
        self._close_zmq_sockets()


def keep_forever(inherited):
    Py_INCREF(inherited)


def call_all_exclusively(list guards, call, *args):
    cdef SocketGuard guard
    cdef int acquired = 0
    error = None
    try:
        for guard in guards:
            with critical_section(guard):
                guard._begin_use()
            acquired += 1
        return call(*args)
    finally:
        for guard in guards[:acquired]:
            try:
                with critical_section(guard):
                    guard._end_use()
            except EndpointClosedError as closed:
                error = closed
        if error is not None:
            raise error


cdef class GuardedSender(SocketGuard):
    """See the type stub (guard.pyi)."""

    cdef bint _is_counting  # the thread that uses the socket counts subscribers, and `close` waits for its end
    cdef readonly int64_t _sent_count
    cdef readonly int64_t _sent_bytes
    cdef public int64_t _message_bytes_max

    def _mark_open(self, call, would_block):
        self._sent_count = self._sent_bytes = 0
        SocketGuard._mark_open(self, call, would_block)

    def send(self, data, /, int flags=0, copy=True, *, int64_t origin_time=0):
        cdef Py_buffer view
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        if flags:
            check_send_flags(flags, self._endpoint)
        if origin_time:
            raise zmq_untracked_error(self._endpoint)
        self._use_state = BUSY
        try:
            if self._sent_count % SENDS_PER_POLL == 0:
                self._poll_subscriptions()
            if PyBytes_CheckExact(data):
                self._send_bytes(data, PyBytes_GET_SIZE(data))
                return
            get_message_buffer(data, &view, self._endpoint, True)
            try:  # pyzmq copies the message, and would refuse datetimes of NumPy
                self._send_bytes(PyMemoryView_FromMemory(<char *> view.buf, view.len, PyBUF_READ), view.len)
            finally:
                PyBuffer_Release(&view)
        finally:
            self._use_state = self._fork_generation

    cdef int _send_bytes(self, data, Py_ssize_t size) except -1:
        if self._message_bytes_max and size > self._message_bytes_max:
            text = f"message has {size} bytes, but subscribers accept {self._message_bytes_max}"
            raise MessageTooLargeError(f"{text} (MSGQ_ZMQ_MAX_BYTES); raise it on both sides", self._endpoint)
        try:
            self._zmq_call(data, ZMQ_DONTWAIT)
        except self._would_block_error:
            self._send_past_full_queues(data)
        self._sent_count += 1
        self._sent_bytes += size
        return 0

    def _count_exclusively(self, count_readers):
        self._begin_use()
        self._is_counting = True
        try:
            return count_readers()
        finally:
            self._is_counting = False
            self._end_use()

    def close(self):
        if not self._is_open_here():
            self._use_state = CLOSED
            return
        if self._use_state == RESERVED or (self._use_state == BUSY and not self._is_counting):
            self._reopen_or_raise()
        self._end_use_and_close()


cdef class GuardedReceiver(SocketGuard):
    """See the type stub (guard.pyi)."""

    cdef public bint _receives_directly
    cdef public int64_t _received_count
    cdef public int64_t _timeout_ms
    cdef public int _zmq_fd

    def __cinit__(self):
        self._timeout_ms = WAIT_FOREVER

    def _mark_open(self, call, would_block, int zmq_fd):
        self._received_count = 0
        self._zmq_fd = zmq_fd
        SocketGuard._mark_open(self, call, would_block)

    def _receive_one(self, bint non_blocking):
        cdef int64_t max_sleep_ms, deadline
        try:
            return self._zmq_call(ZMQ_DONTWAIT)
        except self._would_block_error:
            max_sleep_ms = self._reconnect_if_lost()
            if non_blocking or self._timeout_ms == 0:
                raise
        warn_in_event_loop()
        deadline = deadline_after(self._timeout_ms)
        while True:
            in_time = self._sleep_on_descriptors([self._zmq_fd], deadline, max_sleep_ms)
            try:
                return self._zmq_call(ZMQ_DONTWAIT)
            except self._would_block_error:
                if not in_time:
                    raise
                max_sleep_ms = self._reconnect_if_lost()

    def receive(self, non_blocking=False, *, timeout=None):
        cdef int64_t previous_timeout_ms = self._timeout_ms
        if non_blocking is not True and non_blocking is not False:
            check_non_blocking(non_blocking, self._endpoint)
            non_blocking = bool(non_blocking)
        wait_ns = None if timeout is None else parse_timeout_ns(timeout, self._endpoint)
        self._begin_use()
        try:
            if wait_ns is not None:
                self._timeout_ms = (wait_ns + MQ_NS_PER_MS - 1) // MQ_NS_PER_MS
            message = self._receive_one(non_blocking) if self._receives_directly else self._receive_next(non_blocking)
            self._received_count += 1
            return message
        except self._would_block_error:
            return None
        finally:
            if wait_ns is not None:
                self._timeout_ms = previous_timeout_ms
            self._end_use()

    def close(self):
        if self._is_open_here():
            self._end_use_and_close()
        else:
            self._use_state = CLOSED
