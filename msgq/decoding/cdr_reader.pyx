# cython: boundscheck=False, wraparound=False, cdivision=True
"""Messages of CDR and of ROS 1 as Python values, below Python: see values.pyi.

A definition becomes a tree of takers, one for each type in it. Each takes its values from where a payload is, checks
first that they are there, and moves on behind them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, uint8_t, uint32_t

from msgq.decoding.numbers cimport number_of, take_bits

import sys

import numpy as np

from msgq.decoding import type_model
from msgq.decoding.type_model import Array, Enum, Number, Sequence, Struct, Text, Unknown
from msgq.decoding.fault import FaultError

cdef enum:
    ENCAPSULATION = 4  # bytes before a message in CDR
    PADDING_MAX = 3  # and behind it
    VALUES_MAX = 1 << 22  # of a message: a value in Python is a hundred times as large as its bytes may be

cdef enum:
    WIDE_BYTES = 1  # a wide text's length is in bytes, as the specification has it
    WIDE_WORDS = 2  # in units of two bytes, with one for an end; old versions of Cyclone
    WIDE_QUADS = 4  # in such units, each in four bytes; Fast-CDR before version 2

#: What comes first in CDR: whether it is XCDR2, and whether a struct that leaves it open has its length before it.
_FORMS = {
    0x00: (False, False),
    **{first: (True, False) for first in (0x06, 0x10)},
    **{first: (True, True) for first in (0x08, 0x14)},
}

cdef bint _is_little = sys.byteorder == "little"

cdef struct Payload:
    const uint8_t *bytes  # alignment counts from here
    Py_ssize_t at
    Py_ssize_t size
    Py_ssize_t align  # at most
    Py_ssize_t left  # values that may still be made
    Py_ssize_t offset  # of `bytes` within the message
    bint swap
    bint is_cdr
    bint is_second  # XCDR2
    bint is_delimited
    int wide


cdef inline int _align(Payload *p, Py_ssize_t size) except -1:
    p.at += -p.at & ((size if size < p.align else p.align) - 1)
    return 0


cdef inline int _need(Payload *p, Py_ssize_t count, Py_ssize_t size) except -1:
    """Check that so many elements are still there; neither the sum nor the product can overflow."""
    if p.at > p.size or count > (p.size - p.at) // size:
        if count == 1:
            raise FaultError(f"it ends after {p.size + p.offset} bytes")
        raise FaultError(f"{count} elements of {size} bytes are not in the {max(p.size - p.at, 0)} bytes that are left")
    return 0


cdef inline uint32_t _u32(Payload *p) except? 0xFFFFFFFF:
    _align(p, 4)
    _need(p, 1, 4)
    p.at += 4
    return <uint32_t> take_bits(p.bytes + p.at - 4, 4, p.swap)


cdef inline Py_ssize_t _enter(Payload *p) except -1:
    """Take the length of what follows; what is read then ends there. Return where all ends."""
    cdef Py_ssize_t length = _u32(p), size = p.size
    _need(p, length, 1)
    p.size = p.at + length
    return size


cdef inline int _leave(Payload *p, Py_ssize_t size) except -1:
    """Go to the end of what `_enter` began: behind it may be what this definition does not know."""
    p.at, p.size = p.size, size
    return 0


cdef inline int _spend(Payload *p, Py_ssize_t values) except -1:
    p.left -= values
    if p.left < 0:
        raise FaultError(f"the message has more than {VALUES_MAX} values")
    return 0


cdef class _Taker:
    cdef Py_ssize_t least  # bytes of a value, without padding
    cdef Py_ssize_t fields  # values within it

    cdef object take(self, Payload *p, bytes message):
        raise NotImplementedError


cdef class _Number(_Taker):
    cdef char kind
    cdef Py_ssize_t size

    def __init__(self, of):
        self.kind, self.size = ord(of.code[0]), int(of.code[1:])

    cdef object take(self, Payload *p, bytes message):
        _align(p, self.size)
        _need(p, 1, self.size)
        p.at += self.size
        return number_of(take_bits(p.bytes + p.at - self.size, self.size, p.swap), self.kind, self.size)


cdef class _Enum(_Taker):
    cdef dict names

    def __init__(self, of):
        self.names = dict(of.names)

    cdef object take(self, Payload *p, bytes message):
        cdef uint32_t number = _u32(p)
        return self.names.get(<int32_t> number, <int32_t> number)


cdef class _Text(_Taker):
    cdef object take(self, Payload *p, bytes message):
        cdef Py_ssize_t length = _u32(p)
        _need(p, length, 1)
        cdef const char *place = <const char *> p.bytes + p.at
        p.at += length
        if p.is_cdr and length:
            length -= 1  # the NUL at its end
        try:
            return PyUnicode_DecodeUTF8(place, length, NULL)
        except UnicodeDecodeError as error:
            raise FaultError(f"a text is no UTF-8: {error.reason}") from None


cdef class _WideText(_Taker):
    cdef object take(self, Payload *p, bytes message):
        cdef Py_ssize_t count = _u32(p)
        _need(p, count, p.wide)
        p.at += count * p.wide
        content = PyBytes_FromStringAndSize(<const char *> p.bytes + p.at - count * p.wide, count * p.wide)
        order = "le" if p.swap != _is_little else "be"
        try:
            if p.wide == WIDE_QUADS:
                content = content.decode(f"utf-32-{order}", "surrogatepass").encode(f"utf-16-{order}", "surrogatepass")
            elif p.wide == WIDE_WORDS:
                content = content[:max(len(content) - 2, 0)]
            return content.decode(f"utf-16-{order}")
        except UnicodeDecodeError as error:
            raise FaultError(f"a wide text is no UTF-16: {error.reason}") from None


cdef class _Several(_Taker):
    """Arrays and sequences.

    Attributes
    ----------
    count : of elements; -1: the message says it.
    """

    cdef Py_ssize_t count

    def __init__(self, of):
        self.count = of.length if isinstance(of, Array) else -1


cdef class _Octets(_Several):
    cdef object take(self, Payload *p, bytes message):
        cdef Py_ssize_t count = self.count if self.count >= 0 else _u32(p)
        _need(p, count, 1)
        p.at += count
        return PyBytes_FromStringAndSize(<const char *> p.bytes + p.at - count, count)


cdef class _Numbers(_Several):
    cdef object dtype, swapped
    cdef Py_ssize_t size
    cdef bint are_truths

    def __init__(self, of):
        super().__init__(of)
        self.are_truths = of.of.code == "b1"
        self.dtype = np.dtype("u1" if self.are_truths else of.of.code)
        self.swapped = self.dtype.newbyteorder()
        self.size = self.dtype.itemsize

    cdef object take(self, Payload *p, bytes message):
        cdef Py_ssize_t count = self.count if self.count >= 0 else _u32(p)
        if not count:
            return np.empty(0, np.bool_ if self.are_truths else self.dtype)
        _align(p, self.size)
        _need(p, count, self.size)
        found = np.frombuffer(message, self.swapped if p.swap else self.dtype, count, p.offset + p.at)
        p.at += count * self.size
        if self.are_truths:
            return found != 0
        return found.astype(self.dtype) if p.swap else found


cdef class _List(_Several):
    cdef _Taker of
    cdef bint has_length  # in XCDR2, before all elements

    def __init__(self, of):
        super().__init__(of)
        self.of = _taker(of.of)
        inner = of.of
        while isinstance(inner, Array) and isinstance(of, Array):  # dimensions of one array
            inner = inner.of
        self.has_length = not isinstance(inner, Number)

    cdef object take(self, Payload *p, bytes message):
        cdef Py_ssize_t size = p.size, i = 0, count
        cdef bint has_end = p.is_second and self.has_length
        if has_end:
            size = _enter(p)
        count = self.count if self.count >= 0 else _u32(p)
        _need(p, count, self.of.least)
        _spend(p, count * self.of.fields)
        cdef list made = PyList_New(count)
        try:
            for i in range(count):
                value = self.of.take(p, message)
                Py_INCREF(value)  # the list takes it over
                PyList_SET_ITEM(made, i, value)
        except FaultError as fault:
            del made[i:]
            fault.path.append(f"[{i}]")
            raise
        if has_end:
            _leave(p, size)
        return made


cdef class _Struct(_Taker):
    cdef tuple names, takers
    cdef bint is_appendable, is_open

    def __init__(self, of):
        self.names = tuple(sys.intern(name) for name, _ in of.fields)
        self.takers = tuple(_taker(kind) for _, kind in of.fields)
        self.is_appendable, self.is_open = of.appendable is True, of.appendable is None

    cdef object take(self, Payload *p, bytes message):
        cdef Py_ssize_t i = 0, size = p.size
        cdef bint has_end = p.is_second and (self.is_appendable or (self.is_open and p.is_delimited))
        cdef dict made = {}
        if has_end:
            size = _enter(p)
        try:
            for i in range(len(self.names)):
                made[self.names[i]] = (<_Taker> self.takers[i]).take(p, message)
        except FaultError as fault:
            fault.path.append(f".{self.names[i]}")
            raise
        if has_end:
            _leave(p, size)
        return made


cdef _Taker _taker(object of):
    cdef _Taker made
    if isinstance(of, Number):
        made = _Number(of)
    elif isinstance(of, Text):
        made = _WideText() if of.wide else _Text()
    elif isinstance(of, Enum):
        made = _Enum(of)
    elif isinstance(of, Struct):
        made = _Struct(of)
    elif isinstance(of, Unknown):
        raise ValueError(f"it has {of.what}, which nothing here decodes")
    elif type_model.is_octets(of):
        made = _Octets(of)
    else:
        made = _Numbers(of) if isinstance(of.of, Number) else _List(of)
    size = type_model.bounds(of)
    made.least, made.fields = size.least, size.fields
    return made


def _has_wide(of):
    if isinstance(of, Struct):
        return any(_has_wide(kind) for _, kind in of.fields)
    return _has_wide(of.of) if isinstance(of, (Array, Sequence)) else of == Text(wide=True)


cdef class ValueReader:
    cdef _Taker _of
    cdef bint _is_cdr
    cdef list _widths  # what wide texts may be; what was right last comes first

    def __init__(self, struct not None, bint is_cdr):
        self._of, self._is_cdr = _taker(struct), is_cdr
        self._widths = [WIDE_BYTES, WIDE_QUADS, WIDE_WORDS] if is_cdr and _has_wide(struct) else [WIDE_BYTES]

    def read(self, bytes message not None):
        cdef int wide
        first = None
        for wide in self._widths:
            try:
                found = self._read(message, wide)
            except FaultError as fault:
                first = first or fault
                continue
            if first is not None:
                self._widths.sort(key=lambda width: width != wide)
            return found
        raise first.with_path()

    cdef object _read(self, bytes message, int wide):
        cdef Payload p
        p.bytes = <const uint8_t *> PyBytes_AS_STRING(message)
        p.at, p.size, p.left, p.wide = 0, PyBytes_GET_SIZE(message), VALUES_MAX, wide
        p.align, p.offset, p.is_cdr = 1, 0, self._is_cdr
        p.swap, p.is_second, p.is_delimited = not _is_little, False, False
        if self._is_cdr:
            _begin_cdr(&p)
        found = self._of.take(&p, message)
        if p.size - p.at > (PADDING_MAX if self._is_cdr else 0):
            raise FaultError(f"{p.size - p.at} of its {p.size + p.offset} bytes are left")
        return found


cdef int _begin_cdr(Payload *p) except -1:
    if p.size < ENCAPSULATION:
        raise FaultError(f"it has {p.size} bytes, and CDR begins with {ENCAPSULATION}")
    cdef int kind = p.bytes[0] << 8 | p.bytes[1]
    form = _FORMS.get(kind & ~1)
    if form is None:
        raise FaultError(f"its form 0x{kind:04x} is neither CDR nor XCDR2 without numbered members")
    p.is_second, p.is_delimited = form
    p.swap = (kind & 1) != _is_little
    p.bytes += ENCAPSULATION
    p.size -= ENCAPSULATION
    p.offset = ENCAPSULATION
    p.align = 4 if p.is_second else 8
    return 0
