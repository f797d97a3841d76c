# cython: boundscheck=False, wraparound=False
"""Sends played messages, in compiled code. See the type stub (ring_sender.pyi)."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN, int32_t, int64_t

import numpy as np

from msgq.impl.base.core cimport mq_lock_object, mq_monotonic_ns, mq_object_lock, mq_unlock_object
from msgq.impl.base.process cimport fork_generation
from msgq.impl.ring.core cimport PubSocket

from msgq.errors import InvalidValueError, MessageTooLargeError

UNKNOWN_AGE = INT64_MIN


def order_publish_times(const int64_t[::1] log_time, const int64_t[::1] publish_time, const int32_t[::1] code,
                        const int32_t[::1] endpoints, int64_t[::1] latest, int64_t max_skew_ns):
    cdef Py_ssize_t row, rows = log_time.shape[0]
    cdef int64_t time
    cdef int32_t endpoint
    if publish_time.shape[0] != rows or code.shape[0] != rows:
        raise InvalidValueError(
            f"{rows} rows have {publish_time.shape[0]} publish times and {code.shape[0]} codes; "
            "pass one of each per row"
        )
    times = np.empty(rows, np.int64)
    cdef int64_t[::1] into = times
    for row in range(rows):
        time = log_time[row]
        if -max_skew_ns <= publish_time[row] - time <= max_skew_ns:
            time = publish_time[row]
        _check(code[row], endpoints.shape[0])
        endpoint = endpoints[code[row]]
        _check(endpoint, latest.shape[0])
        time = max(time, latest[endpoint])
        latest[endpoint] = into[row] = time
    return times


cdef inline int _check(int64_t index, Py_ssize_t count) except -1:
    if not 0 <= index < count:
        raise InvalidValueError(f"index {index} is out of range for {count} elements")
    return 0


cdef class RingSender:
    """See the type stub."""

    cdef readonly int64_t sent_messages
    cdef readonly int64_t sent_bytes
    cdef list _sockets

    def __cinit__(self):
        self._sockets = []

    def __len__(self):
        return len(self._sockets)

    def add_socket(self, socket):
        self._sockets.append(socket if type(socket) is PubSocket else None)

    def has_ring(self, Py_ssize_t code):
        return self._sockets[code] is not None

    def send_rows(self, batch, ages, Py_ssize_t row, Py_ssize_t end, int64_t most):
        cdef tuple contents = batch.contents
        cdef const int32_t[::1] content = batch.content_index, code = batch.channel_code
        cdef const int64_t[::1] offset = batch.offset, length = batch.length, age = ages
        cdef int64_t size
        cdef bytes payloads
        cdef PubSocket socket
        cdef mq_object_lock lock
        rows = min(code.shape[0], content.shape[0], offset.shape[0], length.shape[0], age.shape[0])
        if not 0 <= row <= end <= rows:
            raise InvalidValueError(f"range {row} to {end} is outside of {rows} rows")
        most += self.sent_bytes
        while row < end and self.sent_bytes < most:
            _check(code[row], len(self._sockets))
            socket = self._sockets[code[row]]
            if socket is None:
                break
            _check(content[row], len(contents))
            payloads = contents[content[row]]
            size = length[row]
            if not (0 <= size <= len(payloads) and 0 <= offset[row] <= len(payloads) - size):
                raise InvalidValueError(
                    f"payload of {size} bytes at byte {offset[row]} is outside of the {len(payloads)} "
                    "bytes"
                )
            mq_lock_object(&lock, <PyObject *> socket)  # another thread may close it
            try:
                if socket._use_state != fork_generation:
                    socket._reopen_or_raise()
                socket._send_bytes(PyBytes_AS_STRING(payloads) + offset[row], size, _origin(socket, age[row]))
            except MessageTooLargeError:  # a writer reports the error
                break
            finally:
                mq_unlock_object(&lock)
            self.sent_messages += 1
            self.sent_bytes += size
            row += 1
        return row


cdef inline int64_t _origin(PubSocket socket, int64_t age):
    """Return the origin time for this age; 0: unknown, or the topic is not tracked."""
    if age == INT64_MIN or not socket._publisher.stamps:
        return 0
    return max(1, mq_monotonic_ns() + socket._clock_offset_ns - age)
