# cython: boundscheck=False, wraparound=False, cdivision=True
"""Messages of FlatBuffers as Python values, below Python: see tables.pyi.

A schema becomes takers, one for each type. What they take lies at places that the message itself says, so that each
place is checked, and what is made is counted. Format: https://flatbuffers.dev/internals/
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t

from msgq.decoding.numbers cimport number_of, take_bits

import sys

import numpy as np

from msgq.decoding.fault import FaultError
from msgq.decoding.flatbuffer.schema_types import FixedArray, FixedStruct, Scalar, String, Table, Union, inline_size

cdef enum:
    VALUES_MAX = 1 << 22  # of a message: a value in Python is a hundred times as large as its bytes may be
    LEVELS_MAX = 100
    TIMES_MAX = 16  # as often as a message's bytes may be in texts and bytes, and something for small ones
    BYTES_FREE = 65536
    VTABLE_BYTES = 4  # before the places of fields

_ELEMENTS = (Scalar, FixedStruct, Table, String)  # of vectors
cdef bint _is_swapped = sys.byteorder == "big"

cdef struct Payload:
    const uint8_t *bytes
    Py_ssize_t size
    Py_ssize_t values_left
    Py_ssize_t bytes_left
    int levels_left


cdef inline int _need(Payload *p, Py_ssize_t at, Py_ssize_t count, Py_ssize_t size) except -1:
    """Check that so many elements are at a place."""
    if at < 0 or at > p.size or count > (p.size - at) // size:
        raise FaultError(f"{count} elements of {size} bytes are not at byte {at} of {p.size}")
    return 0


cdef inline uint16_t _u16(Payload *p, Py_ssize_t at) except? 0xFFFF:
    _need(p, at, 1, 2)
    return <uint16_t> take_bits(p.bytes + at, 2, _is_swapped)


cdef inline uint32_t _u32(Payload *p, Py_ssize_t at) except? 0xFFFFFFFF:
    _need(p, at, 1, 4)
    return <uint32_t> take_bits(p.bytes + at, 4, _is_swapped)


cdef inline int _spend(Payload *p, Py_ssize_t values, Py_ssize_t size) except -1:
    p.values_left -= values
    p.bytes_left -= size
    if p.values_left < 0:
        raise FaultError(f"the message has more than {VALUES_MAX} values")
    if p.bytes_left < 0:
        raise FaultError(f"the message has its own bytes more than {TIMES_MAX} times")
    return 0


cdef class _Taker:
    cdef Py_ssize_t size  # bytes in the place itself

    cdef object take(self, Payload *p, Py_ssize_t at, bytes message):
        """Return the value at a place, of which `size` bytes are there."""
        raise NotImplementedError


cdef class _Made:
    """What was made of a schema so far: a taker of each table, and those that have no fields yet."""

    cdef dict tables
    cdef list empty

    def __init__(self):
        self.tables, self.empty = {}, []


cdef class _Scalar(_Taker):
    cdef char kind
    cdef dict names

    def __init__(self, of):
        self.kind = ord(of.code[0])
        self.names = None if of.names is None else dict(of.names)

    cdef object take(self, Payload *p, Py_ssize_t at, bytes message):
        found = number_of(take_bits(p.bytes + at, self.size, _is_swapped), self.kind, self.size)
        return found if self.names is None else self.names.get(found, found)


cdef class _String(_Taker):
    cdef object take(self, Payload *p, Py_ssize_t at, bytes message):
        at += _u32(p, at)
        cdef Py_ssize_t length = _u32(p, at)
        _need(p, at + 4, length, 1)
        _spend(p, 1, length)
        try:
            return PyUnicode_DecodeUTF8(<const char *> p.bytes + at + 4, length, NULL)
        except UnicodeDecodeError as error:
            raise FaultError(f"a text is no UTF-8: {error.reason}") from None


cdef class _Several(_Taker):
    """Vectors, and arrays, whose elements are in the place itself.

    Attributes
    ----------
    count : of elements of an array; -1: of a vector, which says it.
    """

    cdef _Taker of
    cdef Py_ssize_t count
    cdef object dtype  # of numbers that become an array
    cdef bint are_octets, are_truths

    def __init__(self, of, _Made made):
        _check_of(of, of.of, (Scalar, FixedStruct) if isinstance(of, FixedArray) else _ELEMENTS)
        self.of = _taker(of.of, made)
        self.count = of.length if isinstance(of, FixedArray) else -1
        code = of.of.code if isinstance(of.of, Scalar) and of.of.names is None else None
        self.are_octets, self.are_truths = code == "u1", code == "b1"
        self.dtype = None if code is None else np.dtype("u1" if self.are_truths else code).newbyteorder("<")

    cdef object take(self, Payload *p, Py_ssize_t at, bytes message):
        cdef Py_ssize_t count = self.count, i = 0
        if count < 0:
            at += _u32(p, at)
            count = _u32(p, at)
            at += 4
        _need(p, at, count, self.of.size)
        if self.are_octets:
            _spend(p, 1, count)
            return PyBytes_FromStringAndSize(<const char *> p.bytes + at, count)
        if self.dtype is not None:
            found = np.frombuffer(message, self.dtype, count, at)
            return found != 0 if self.are_truths else found.astype(found.dtype.newbyteorder("="), copy=False)
        _spend(p, count, 0)
        made = []
        try:
            for i in range(count):
                made.append(self.of.take(p, at + i * self.of.size, message))
        except FaultError as fault:
            fault.path.append(f"[{i}]")
            raise
        return made


cdef class _FixedStruct(_Taker):
    cdef tuple names, places, takers

    def __init__(self, of, _Made made):
        self.names = tuple(sys.intern(name) for name, _, _ in of.fields)
        self.places = tuple(place for _, place, _ in of.fields)
        self.takers = tuple(_taker(kind, made) for _, _, kind in of.fields)

    cdef object take(self, Payload *p, Py_ssize_t at, bytes message):
        cdef Py_ssize_t i, place
        cdef dict made = {}
        _spend(p, len(self.names), 0)
        for i in range(len(self.names)):
            place = self.places[i]
            made[self.names[i]] = (<_Taker> self.takers[i]).take(p, at + place, message)
        return made


cdef class _Union(_Taker):
    """What a union may have; the table that has it looks which it is."""

    cdef dict kinds

    def __init__(self, of, _Made made):
        for kind in of.kinds.values():
            _check_of(of, kind, (Table, FixedStruct, String))
        self.kinds = {number: _taker(kind, made) for number, kind in of.kinds.items()}

    cdef object take_kind(self, Payload *p, Py_ssize_t at, bytes message, int kind):
        taker = self.kinds.get(kind)
        if taker is None:
            raise FaultError(f"it has the type {kind}, which the schema does not know")
        if isinstance(taker, _FixedStruct):
            at += _u32(p, at)
            _need(p, at, 1, (<_Taker> taker).size)
        return (<_Taker> taker).take(p, at, message)


cdef class _Table(_Taker):
    cdef list names, places, takers, missing

    cdef fill(self, of, _Made made):
        self.names = [sys.intern(name) for name, _, _, _ in of.fields]
        self.places = [place for _, place, _, _ in of.fields]
        self.takers = [_taker(kind, made) for _, _, kind, _ in of.fields]
        self.missing = [value for _, _, _, value in of.fields]

    cdef object take(self, Payload *p, Py_ssize_t at, bytes message):
        return self.take_at(p, at + _u32(p, at), message)

    cdef object take_at(self, Payload *p, Py_ssize_t at, bytes message):
        """Return the table whose first byte is here."""
        cdef Py_ssize_t i = 0, vtable = at - <int32_t> _u32(p, at), place
        cdef Py_ssize_t size = _u16(p, vtable)
        cdef dict made = {}
        _need(p, vtable, 1, size or VTABLE_BYTES)
        _spend(p, len(self.names) + 1, 0)
        p.levels_left -= 1
        if p.levels_left < 0:
            raise FaultError(f"it is nested deeper than {LEVELS_MAX} levels")
        try:
            for i in range(len(self.names)):
                place = self.places[i]
                made[self.names[i]] = self.field(p, at, vtable, size, place, i, message)
        except FaultError as fault:
            fault.path.append(f".{self.names[i]}")
            raise
        p.levels_left += 1
        return made

    cdef object field(self, Payload *p, Py_ssize_t at, Py_ssize_t vtable, Py_ssize_t size, Py_ssize_t place,
                      Py_ssize_t number, bytes message):
        cdef _Taker taker = self.takers[number]
        cdef Py_ssize_t there = _place(p, vtable, size, place), kind
        if not there:
            return self.missing[number]
        _need(p, at + there, 1, taker.size)
        if not isinstance(taker, _Union):
            return taker.take(p, at + there, message)
        kind = _place(p, vtable, size, place - 2)
        if not kind:
            return None
        _need(p, at + kind, 1, 1)
        if not p.bytes[at + kind]:
            return None
        return (<_Union> taker).take_kind(p, at + there, message, p.bytes[at + kind])


cdef inline Py_ssize_t _place(Payload *p, Py_ssize_t vtable, Py_ssize_t size, Py_ssize_t place) except -1:
    """Return where a field is, from its table on; 0: it is missing."""
    return _u16(p, vtable + place) if VTABLE_BYTES <= place <= size - 2 else 0


cdef _Taker _taker(object of, _Made made):
    cdef _Taker found
    if isinstance(of, Table):
        if of not in made.tables:
            made.tables[of] = _Table()
            made.empty.append((made.tables[of], of))
        found = made.tables[of]
    elif isinstance(of, Scalar):
        found = _Scalar(of)
    elif isinstance(of, String):
        found = _String()
    elif isinstance(of, FixedStruct):
        found = _FixedStruct(of, made)
    elif isinstance(of, Union):
        found = _Union(of, made)
    else:
        found = _Several(of, made)
    found.size = inline_size(of)
    return found


def _check_of(of, inner, kinds):
    if not isinstance(inner, kinds):
        raise ValueError(f"it has a {type(of).__name__} of {type(inner).__name__}, which nothing here reads")


cdef class TableReader:
    cdef _Table _root

    def __init__(self, table not None):
        made = _Made()
        self._root = _taker(table, made)
        while made.empty:
            found, of = made.empty.pop()
            (<_Table> found).fill(of, made)

    def read(self, bytes message not None):
        cdef Payload p
        p.bytes, p.size = <const uint8_t *> PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message)
        p.values_left, p.bytes_left, p.levels_left = VALUES_MAX, TIMES_MAX * p.size + BYTES_FREE, LEVELS_MAX
        try:
            return self._root.take(&p, 0, message)
        except FaultError as fault:
            raise fault.with_path() from None
