# cython: boundscheck=False, wraparound=False
"""Rows of a scan as messages. See message_builder.pyi."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t

from msgq.errors import InvalidValueError
from msgq.recording.reader.message import Message

cdef extern from *:
    void PyObject_GC_UnTrack(void *object)
    ctypedef struct TypeObject "PyTypeObject":
        object (*tp_alloc)(TypeObject *kind, Py_ssize_t items)

cdef enum:
    FIELDS = 9  # fields of a Message


cdef inline int _put(object message, Py_ssize_t field, object value) except -1:
    Py_INCREF(value)  # the tuple steals the reference
    PyTuple_SET_ITEM(message, field, value)
    return 0


def build_messages(object found not None, Py_ssize_t begin, Py_ssize_t end, list channels not None):
    cdef const uint8_t[::1] content = found.content
    cdef const int32_t[::1] code = found.channel_code
    cdef const int64_t[::1] sequence = found.sequence, log_time = found.log_time
    cdef const int64_t[::1] publish_time = found.publish_time, origin_time = found.origin_time
    cdef const int64_t[::1] offset = found.offset, length = found.length
    cdef const char *start = <const char *> &content[0] if content.shape[0] else NULL
    cdef TypeObject *kind = <TypeObject *> Message
    cdef Py_ssize_t row, size = content.shape[0], known = len(channels)
    cdef tuple channel
    cdef object message
    cdef list made
    cdef Py_ssize_t rows = min(code.shape[0], sequence.shape[0], log_time.shape[0], publish_time.shape[0],
                               origin_time.shape[0], offset.shape[0], length.shape[0])
    if not 0 <= begin <= end <= rows:
        raise InvalidValueError(f"range {begin} to {end} is outside of {rows} rows")
    for row in range(begin, end):
        if not (0 <= code[row] < known and 0 <= length[row] <= size and 0 <= offset[row] <= size - length[row]):
            raise InvalidValueError("the content differs from the scanned bytes; pass the same bytes")
    made = PyList_New(end - begin)
    for row in range(begin, end):
        channel = <tuple> channels[code[row]]
        message = kind.tp_alloc(kind, FIELDS)
        _put(message, 0, channel[0])
        _put(message, 1, PyBytes_FromStringAndSize(start + offset[row], length[row]))
        _put(message, 2, log_time[row])
        _put(message, 3, publish_time[row])
        _put(message, 4, sequence[row])
        _put(message, 5, channel[1])
        _put(message, 6, channel[2])
        _put(message, 7, origin_time[row])
        _put(message, 8, channel[3])
        PyObject_GC_UnTrack(<void *> message)  # none of its values refers to it
        Py_INCREF(message)
        PyList_SET_ITEM(made, row - begin, message)
    return made
