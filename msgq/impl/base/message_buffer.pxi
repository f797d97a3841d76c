"""The bytes of an object that a program sends, for the publishers and writers of all kinds."""


cdef int get_message_buffer(data, Py_buffer *view, str endpoint, bint can_have_schema=False,
                            int flags=PyBUF_SIMPLE) except -1:
    """Get the bytes of a message, or of an array of messages. Objects whose bytes are addresses raise.

    NumPy describes the items of an array only on request, which takes longer than a send, and not for datetimes.
    Therefore the dtype of an array stands in for the format of its buffer.
    """
    if PyBytes_CheckExact(data):
        return PyObject_GetBuffer(data, view, flags)
    dtype = getattr(data, "dtype", None)
    if getattr(dtype, "hasobject", False):
        raise address_error(data, endpoint)
    if not PyObject_CheckBuffer(data):
        raise unsendable_error(data, endpoint, can_have_schema)
    PyObject_GetBuffer(data, view, flags if dtype is not None else flags | PyBUF_ND | PyBUF_FORMAT)
    if view.format != NULL and has_addresses(view.format):
        PyBuffer_Release(view)
        raise address_error(data, endpoint)
    return 0


def copy_message(data, str endpoint, bint can_have_schema=False):
    cdef Py_buffer view
    if PyBytes_CheckExact(data):
        return data
    get_message_buffer(data, &view, endpoint, can_have_schema)
    try:
        return PyBytes_FromStringAndSize(<const char *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef bint has_addresses(const char *format) noexcept:
    """True if items of a buffer with this format contain Python objects. Names of fields are between colons."""
    cdef bint is_name = False
    while format[0]:
        if format[0] == b":":
            is_name = not is_name
        elif format[0] == b"O" and not is_name:
            return True
        format += 1
    return False
