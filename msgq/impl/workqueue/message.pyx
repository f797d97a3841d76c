"""A received message: a pair with more attributes, like os.stat_result. See message.pyi."""

from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t


cdef extern from *:  # Python.h, which is included anyway
    ctypedef struct PyStructSequence_Field:
        const char *name
        const char *doc
    ctypedef struct PyStructSequence_Desc:
        const char *name
        const char *doc
        PyStructSequence_Field *fields
        int n_in_sequence
    type PyStructSequence_NewType(PyStructSequence_Desc *desc)
    object PyStructSequence_New(type kind)
    void PyStructSequence_SetItem(object made, Py_ssize_t i, object value)


# Same texts as in message.pyi: the type is created at run time, so the compiler cannot copy them.
cdef PyStructSequence_Field[6] _fields
_fields[0] = PyStructSequence_Field("data", "Bytes of the message.")
_fields[1] = PyStructSequence_Field("priority", "Priority, 0 to 32767. Larger priorities are received first.")
_fields[2] = PyStructSequence_Field("deliveries", "Number of deliveries, including this delivery.")
_fields[3] = PyStructSequence_Field("sent_time", "Send time, nanoseconds of the host's clock (clock.md).")
_fields[4] = PyStructSequence_Field("origin_time", "Origin time set by the sender, nanoseconds; 0: none.")
_fields[5] = PyStructSequence_Field(NULL, NULL)

cdef PyStructSequence_Desc _description
_description.name = "msgq.workqueue.Message"
_description.doc = "A message of a queue: the pair ``(data, priority)`` with more attributes. Messages can be pickled."
_description.fields = _fields
_description.n_in_sequence = 2

cdef type _Message = PyStructSequence_NewType(&_description)
Message = _Message


cdef inline void _set_field(object made, Py_ssize_t i, object value) noexcept:
    Py_INCREF(value)  # SetItem steals the reference
    PyStructSequence_SetItem(made, i, value)


cdef object new_message(bytes data, uint64_t priority, uint64_t deliveries, uint64_t sent_time, uint64_t origin_time):
    made = PyStructSequence_New(_Message)
    _set_field(made, 0, data)
    _set_field(made, 1, priority)
    _set_field(made, 2, deliveries)
    _set_field(made, 3, sent_time)
    _set_field(made, 4, origin_time)
    return made


def message(bytes data not None, uint64_t priority, uint64_t deliveries, uint64_t sent_time, uint64_t origin_time):
    return new_message(data, priority, deliveries, sent_time, origin_time)
