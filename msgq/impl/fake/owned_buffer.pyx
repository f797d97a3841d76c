"""Bytes as buffers, for Python classes, which cannot be buffers before Python 3.12."""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from msgq.impl.base.foreign_names import unsendable_error


cdef class OwnedBuffer:
    """See owned_buffer.pyi."""

    cdef object _bytes  # no other code has it, so a bytearray stays in place
    cdef readonly Py_ssize_t export_count
    cdef object __weakref__

    def __init__(self, content):
        self._bytes = content if isinstance(content, bytes) else bytearray(<Py_ssize_t> content)

    def __len__(self):
        return len(self._bytes)

    def check_exportable(self):
        pass

    def copy_bytes(self, size):
        return bytes(self._bytes[:size])

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        self.check_exportable()
        readonly = isinstance(self._bytes, bytes)
        start = PyBytes_AS_STRING(self._bytes) if readonly else PyByteArray_AS_STRING(self._bytes)
        PyBuffer_FillInfo(buffer, self, start, len(self._bytes), readonly, flags)
        self.export_count += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.export_count -= 1


def copy_buffer(data):
    cdef Py_buffer view
    if not PyObject_CheckBuffer(data):
        raise unsendable_error(data, "")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return PyBytes_FromStringAndSize(<const char *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
