"""Elements that one call reads or writes, and the memory of arrays for them."""


cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define mq_has_exact_reference_counts false
    #else
    #define mq_has_exact_reference_counts true
    #endif
    """
    bint mq_has_exact_reference_counts


cdef class _ArrayMemory:
    """The memory of an array, for the lifetime of this object."""
    cdef Py_buffer view
    cdef uint8_t *at
    cdef object array

    def __cinit__(self, array, bint writable):
        PyObject_GetBuffer(array, &self.view, (PyBUF_WRITABLE if writable else PyBUF_SIMPLE) | PyBUF_ND)
        self.at, self.array = <uint8_t *> self.view.buf, array

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef bint _is_unshared(PyObject *memory) noexcept:
    """Return whether only an attribute refers to an `_ArrayMemory`, and nothing else refers to its array.

    A read that fills the memory refers to it. The memory itself refers to the array twice: by `array` and `view`. The
    argument is a pointer, because Cython counts a reference for an argument that is an object. Without the GIL, the
    answer is always no, because another thread may take or return a reference during the test.
    """
    cdef PyObject *array
    if not mq_has_exact_reference_counts or Py_REFCNT(memory) != 1:
        return False
    array = <PyObject *> (<_ArrayMemory> memory).array
    return Py_REFCNT(array) == 2


cdef mq_element_selection _select_range(uint64_t first, uint64_t count) noexcept:
    cdef mq_element_selection elements
    elements.indices, elements.first, elements.count = NULL, first, count
    return elements


cdef mq_element_selection _select_indices(_ArrayMemory indices) noexcept:
    cdef mq_element_selection elements
    elements.indices, elements.first, elements.count = <const int64_t *> indices.at, 0, indices.view.shape[0]
    return elements


cdef uint8_t *_advance_selection(mq_element_selection *elements, uint8_t *to, mq_vector_read_info *info, uint64_t done,
                                 uint64_t item_bytes) noexcept:
    """Skip the elements that were read."""
    if elements.indices != NULL:
        elements.indices += done
    elements.first, elements.count = elements.first + done, elements.count - done
    if info != NULL and info.write_counts != NULL:
        info.write_counts += done
    if info != NULL and info.write_times_ns != NULL:
        info.write_times_ns += done
    return to + done * item_bytes if to != NULL else to
