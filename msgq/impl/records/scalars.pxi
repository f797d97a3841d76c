"""The bytes of NumPy's structured scalars, where they are: asking NumPy for them takes ten times as long as a write."""


cdef object numpy_void = None           # numpy.void; None: nothing is known
cdef Py_ssize_t bytes_at = 0      # where in one the address of its bytes is
cdef Py_ssize_t dtype_at = 0      # and its dtype


cdef int learn_scalars() except -1:
    """Find both in a scalar whose both are known: so this is built without NumPy, and holds for any version of it.

    Without both, scalars are converted as everything else is.
    """
    global numpy_void, bytes_at, dtype_at
    cdef Py_buffer view
    cdef Py_ssize_t at
    cdef const void *word
    if bytes_at and dtype_at:
        return 0
    import numpy as np

    known = np.zeros(1, np.dtype([("known", "<i8")]))[0]
    dtype = known.dtype
    PyObject_GetBuffer(known, &view, PyBUF_SIMPLE)
    for at in range(sizeof(PyObject), type(known).__basicsize__ - sizeof(void *) + 1, sizeof(void *)):
        word = (<const void **> (<char *> <PyObject *> known + at))[0]
        if word == view.buf:
            bytes_at = at
        elif word == <const void *> <PyObject *> dtype:
            dtype_at = at
    PyBuffer_Release(&view)
    numpy_void = type(known) if bytes_at and dtype_at else None
    return 0


cdef object scalar_dtype(value):
    """The dtype of a structured scalar; None: it is something else."""
    return <object> (<PyObject **> (<char *> <PyObject *> value + dtype_at))[0] if type(value) is numpy_void else None


cdef const uint8_t *scalar_bytes(value) noexcept:
    """The bytes of what has such a dtype, for as long as it lives."""
    return (<const uint8_t **> (<char *> <PyObject *> value + bytes_at))[0]
