"""NumPy, imported at the first vector, and the bytes of NumPy's structured scalars in place. To get them from NumPy
takes ten times as long as a write.
"""


cdef object numpy = None  # the module; None: not imported yet
cdef object f8_dtype = None, index_dtype = None  # dtypes of floats and of indexes
cdef object make_integer_check = None  # integer_fields.make_integer_check
cdef object numpy_void = None  # numpy.void, if its layout is known
cdef Py_ssize_t scalar_bytes_offset = 0  # offset in a scalar of the address of the scalar's bytes
cdef Py_ssize_t scalar_dtype_offset = 0  # offset in a scalar of the scalar's dtype
cdef object _numpy_lock = object()  # its critical section orders the loads of threads


cdef int load_numpy() except -1:
    """Import NumPy once, because an import takes 0.3 us for a loaded module."""
    with cython.critical_section(_numpy_lock):
        return _load_numpy_once()


cdef int _load_numpy_once() except -1:
    global numpy, f8_dtype, index_dtype, make_integer_check
    if numpy is not None:
        return 0
    import numpy as np

    from msgq.impl.records import integer_fields

    learn_scalar_layout(np)
    f8_dtype, index_dtype, make_integer_check = np.dtype("=f8"), np.dtype(np.int64), integer_fields.make_integer_check
    numpy = np
    return 0


cdef int learn_scalar_layout(np) except -1:
    """Find both offsets in a scalar with known contents.

    So this module needs no NumPy headers, and works with any version.

    Without both offsets, scalars are converted like other values.
    """
    global numpy_void, scalar_bytes_offset, scalar_dtype_offset
    cdef Py_buffer view
    cdef Py_ssize_t at
    cdef const void *word
    known = np.zeros(1, np.dtype([("known", "<i8")]))[0]
    dtype = known.dtype
    PyObject_GetBuffer(known, &view, PyBUF_SIMPLE)
    for at in range(sizeof(PyObject), type(known).__basicsize__ - sizeof(void *) + 1, sizeof(void *)):
        word = (<const void **> (<char *> <PyObject *> known + at))[0]
        if word == view.buf:
            scalar_bytes_offset = at
        elif word == <const void *> <PyObject *> dtype:
            scalar_dtype_offset = at
    PyBuffer_Release(&view)
    numpy_void = type(known) if scalar_bytes_offset and scalar_dtype_offset else None
    return 0


cdef object get_scalar_dtype(value):
    """Return the dtype of a structured scalar, or None for other values."""
    if type(value) is not numpy_void:
        return None
    return <object> (<PyObject **> (<char *> <PyObject *> value + scalar_dtype_offset))[0]


cdef const uint8_t *get_scalar_bytes(value) noexcept:
    """Return the bytes of a scalar with such a dtype, valid for its lifetime."""
    return (<const uint8_t **> (<char *> <PyObject *> value + scalar_bytes_offset))[0]
