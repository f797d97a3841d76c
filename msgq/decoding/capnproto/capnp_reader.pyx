# cython: boundscheck=False, wraparound=False, cdivision=True
"""Messages of Cap'n Proto as Python values, below Python: see words.pyi.

A schema becomes takers, one for each type. What they take lies at places that the message itself says, so that each
place is checked, and what is made is counted. Format: https://capnproto.org/encoding.html
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from msgq.decoding.numbers cimport number_of, take_bits

import sys

import numpy as np

from msgq.decoding.capnproto.schema_types import Data, Opaque, Scalar, Struct, Text, Void
from msgq.decoding.fault import FaultError

cdef enum:
    VALUES_MAX = 1 << 22  # of a message: a value in Python is a hundred times as large as its bytes may be
    LEVELS_MAX = 64
    TIMES_MAX = 16  # as often as a message's bytes may be in texts and bytes, and something for small ones
    BYTES_FREE = 65536
    SEGMENTS_MAX = 512
    WORD = 8

cdef enum:  # what a pointer is
    TO_STRUCT
    TO_LIST
    FAR

cdef enum:  # sizes of elements, in the words of the format
    OF_VOID
    OF_BIT
    OF_1
    OF_2
    OF_4
    OF_8
    OF_POINTER
    OF_STRUCT

cdef bint _is_swapped = sys.byteorder == "big"
cdef Py_ssize_t[7] _bits = [0, 1, 8, 16, 32, 64, 64]  # of an element, by its size

cdef struct Payload:
    const uint8_t *bytes
    int64_t segments
    int64_t[SEGMENTS_MAX] begins  # in words
    int64_t[SEGMENTS_MAX] ends
    int64_t values_left
    int64_t bytes_left
    int levels_left

cdef struct Place:  # of a struct: what it has of data, and of pointers
    int64_t segment
    int64_t data  # in bits, from the message's first one on
    int64_t data_bits
    int64_t pointers  # in words
    int64_t pointer_count

cdef struct Found:  # what a pointer leads to
    uint64_t pointer  # what says its sizes; 0: it leads nowhere
    int64_t segment
    int64_t at  # in words

cdef struct Elements:  # of a list
    int64_t segment
    int64_t at  # in words
    int64_t count
    int64_t kind
    int64_t data_words  # of each, if they are structs
    int64_t pointer_count


cdef inline uint64_t _word(Payload *p, int64_t at):
    return take_bits(p.bytes + at * WORD, 8, _is_swapped)


cdef inline int _need(Payload *p, int64_t segment, int64_t at, int64_t words) except -1:
    """Check that words are within a segment."""
    if at < p.begins[segment] or words > p.ends[segment] - at:
        raise FaultError(f"{words} words at word {at} are not in segment {segment}")
    return 0


cdef inline int _spend(Payload *p, int64_t values, int64_t size) except -1:
    p.values_left -= values
    p.bytes_left -= size
    if p.values_left < 0:
        raise FaultError(f"the message has more than {VALUES_MAX} values")
    if p.bytes_left < 0:
        raise FaultError(f"the message has its own bytes more than {TIMES_MAX} times")
    return 0


cdef Found _follow(Payload *p, int64_t segment, int64_t at) except *:
    """Return what the pointer at this word leads to."""
    cdef Found found
    cdef uint64_t pointer, pad
    cdef bint is_double
    _need(p, segment, at, 1)
    pointer = _word(p, at)
    if pointer & 3 == FAR:
        is_double = (pointer >> 2) & 1
        segment = pointer >> 32
        if segment >= p.segments:
            raise FaultError(f"it leads to segment {segment} of {p.segments}")
        at = p.begins[segment] + ((pointer >> 3) & 0x1FFFFFFF)
        _need(p, segment, at, 2 if is_double else 1)
        pad = _word(p, at)
        if is_double:
            pointer = _word(p, at + 1)
            segment = pad >> 32
            if pad & 7 != FAR or segment >= p.segments:
                raise FaultError("it leads to what leads nowhere")
            found.at = p.begins[segment] + ((pad >> 3) & 0x1FFFFFFF)
            found.pointer, found.segment = pointer, segment
            return found
        pointer = pad
    found.pointer, found.segment = pointer, segment
    found.at = at + 1 + (<int32_t> <uint32_t> pointer >> 2)
    return found


cdef bint _struct_place(Payload *p, int64_t segment, int64_t at, Place *place) except *:
    """Find the struct that a pointer leads to; False: it leads nowhere."""
    cdef Found found = _follow(p, segment, at)
    if not found.pointer:
        return False
    if found.pointer & 3 != TO_STRUCT:
        raise FaultError("it is no struct")
    cdef int64_t words = (found.pointer >> 32) & 0xFFFF
    place.segment, place.data, place.data_bits = found.segment, found.at * WORD * 8, words * WORD * 8
    place.pointers, place.pointer_count = found.at + words, found.pointer >> 48
    _need(p, found.segment, found.at, words + place.pointer_count)
    return True


cdef bint _list_place(Payload *p, int64_t segment, int64_t at, Elements *of) except *:
    """Find the list that a pointer leads to; False: it leads nowhere."""
    cdef Found found = _follow(p, segment, at)
    cdef int64_t words
    if not found.pointer:
        return False
    if found.pointer & 3 != TO_LIST:
        raise FaultError("it is no list")
    of.segment, of.at, of.kind, of.count = found.segment, found.at, (found.pointer >> 32) & 7, found.pointer >> 35
    of.data_words, of.pointer_count = 0, of.kind == OF_POINTER
    if of.kind != OF_STRUCT:
        _need(p, of.segment, of.at, (of.count * _bits[of.kind] + 63) // 64)
        return True
    words = of.count
    _need(p, of.segment, of.at, words + 1)
    cdef uint64_t tag = _word(p, of.at)
    of.at += 1
    of.count, of.data_words, of.pointer_count = (tag & 0xFFFFFFFF) >> 2, (tag >> 32) & 0xFFFF, tag >> 48
    if tag & 3 != TO_STRUCT or of.count * (of.data_words + of.pointer_count) > words:
        raise FaultError("a list's elements are more than its words")
    return True


cdef void _element(const Elements *of, int64_t number, Place *place):
    """Say where an element of a list of structs is; of a list of anything else, as if each had one field."""
    place.segment, place.pointer_count = of.segment, of.pointer_count
    if of.kind == OF_STRUCT:
        place.pointers = of.at + number * (of.data_words + of.pointer_count) + of.data_words
        place.data, place.data_bits = (place.pointers - of.data_words) * WORD * 8, of.data_words * WORD * 8
    else:
        place.data_bits = 0 if of.kind == OF_POINTER else _bits[of.kind]
        place.data = of.at * WORD * 8 + number * place.data_bits
        place.pointers = of.at + number


cdef class _Taker:
    cdef object take(self, Payload *p, const Place *place, int64_t number, bytes message):
        """Return the value of a field at a place within a struct; `_NOTHING` if it is not set."""
        return None

    cdef object nothing(self, Payload *p, bytes message):
        """Return the value of what is not set."""
        return None


cdef object _NOTHING = object()


cdef class _Scalar(_Taker):
    cdef char kind
    cdef int64_t bits
    cdef uint64_t default
    cdef dict names

    def __init__(self, of):
        self.kind, self.default = ord(of.code[0]), of.default
        self.bits = 1 if of.code == "b1" else 8 * int(of.code[1:])
        self.names = None if of.names is None else dict(of.names)

    cdef object take(self, Payload *p, const Place *place, int64_t number, bytes message):
        cdef int64_t at = number * self.bits
        cdef uint64_t found = 0
        if at + self.bits <= place.data_bits:
            at += place.data
            if self.bits == 1:
                found = p.bytes[at >> 3] >> (at & 7) & 1
            else:
                found = take_bits(p.bytes + (at >> 3), self.bits >> 3, _is_swapped)
        value = number_of(found ^ self.default, self.kind, self.bits >> 3)
        return value if self.names is None else self.names.get(value, value)


cdef class _Text(_Taker):
    cdef bint is_text

    def __init__(self, is_text):
        self.is_text = is_text

    cdef object take(self, Payload *p, const Place *place, int64_t number, bytes message):
        cdef Elements of
        if number >= place.pointer_count or not _list_place(p, place.segment, place.pointers + number, &of):
            return _NOTHING
        if of.kind != OF_1:
            raise FaultError("it is no text" if self.is_text else "it is no data")
        _spend(p, 1, of.count)
        cdef const char *begin = <const char *> p.bytes + of.at * WORD
        if not self.is_text:
            return PyBytes_FromStringAndSize(begin, of.count)
        if not of.count or begin[of.count - 1]:
            raise FaultError("a text lacks the NUL at its end")
        try:
            return PyUnicode_DecodeUTF8(begin, of.count - 1, NULL)
        except UnicodeDecodeError as error:
            raise FaultError(f"a text is no UTF-8: {error.reason}") from None

    cdef object nothing(self, Payload *p, bytes message):
        return "" if self.is_text else b""


cdef class _Struct(_Taker):
    cdef bint is_group
    cdef int64_t union_bits  # where the union is; -1: there is none
    cdef list names, takers, places, members

    cdef fill(self, of, _Made made):
        self.is_group = of.is_group
        self.union_bits = -1 if of.union_place is None else of.union_place * 16
        self.names = [sys.intern(field.name) for field in of.fields]
        self.takers = [_taker(field.of, made) for field in of.fields]
        self.places = [field.place for field in of.fields]
        self.members = [-1 if field.member is None else field.member for field in of.fields]

    cdef object take(self, Payload *p, const Place *place, int64_t number, bytes message):
        cdef Place there
        if self.is_group:
            return self.take_at(p, place, message)
        if number >= place.pointer_count or not _struct_place(p, place.segment, place.pointers + number, &there):
            return _NOTHING
        return self.take_at(p, &there, message)

    cdef object nothing(self, Payload *p, bytes message):
        cdef Place place
        place.segment = place.data = place.data_bits = place.pointers = place.pointer_count = 0
        return self.take_at(p, &place, message)

    cdef object take_at(self, Payload *p, const Place *place, bytes message):
        """Return the struct that is here."""
        cdef Py_ssize_t i = 0
        cdef int64_t has = 0, member, number
        cdef dict made = {}
        _spend(p, len(self.names) + 1, 0)
        p.levels_left -= 1
        if p.levels_left < 0:
            raise FaultError(f"it is nested deeper than {LEVELS_MAX} levels")
        if 0 <= self.union_bits <= place.data_bits - 16:
            has = take_bits(p.bytes + ((place.data + self.union_bits) >> 3), 2, _is_swapped)
        try:
            for i in range(len(self.names)):
                member, number = self.members[i], self.places[i]
                if member < 0 or member == has:
                    value = (<_Taker> self.takers[i]).take(p, place, number, message)
                    if value is not _NOTHING:
                        made[self.names[i]] = value
                    elif member >= 0:  # that it is this one, is what the message says
                        made[self.names[i]] = (<_Taker> self.takers[i]).nothing(p, message)
        except FaultError as fault:
            fault.path.append(f".{self.names[i]}")
            raise
        p.levels_left += 1
        return made


cdef class _List(_Taker):
    cdef _Taker of
    cdef object dtype  # of numbers that become an array
    cdef int64_t kind  # that its elements have, unless they became structs when the schema grew
    cdef bint are_octets

    def __init__(self, of, _Made made):
        self.of, self.dtype, self.kind, self.are_octets = _taker(of.of, made), None, OF_POINTER, False
        if isinstance(of.of, Void):
            self.kind = OF_VOID
        elif isinstance(of.of, Scalar):
            self.kind = OF_BIT if of.of.code == "b1" else {1: OF_1, 2: OF_2, 4: OF_4, 8: OF_8}[int(of.of.code[1:])]
            if of.of.names is None:
                self.dtype, self.are_octets = np.dtype(of.of.code).newbyteorder("<"), of.of.code == "u1"

    cdef object take(self, Payload *p, const Place *place, int64_t number, bytes message):
        cdef Elements of
        if number >= place.pointer_count or not _list_place(p, place.segment, place.pointers + number, &of):
            return _NOTHING
        if isinstance(self.of, _Struct):
            if of.kind == OF_BIT:
                raise FaultError("structs are no list of bits")
        elif of.kind != self.kind and of.kind != OF_STRUCT:
            raise FaultError(f"a list's elements are of the size {of.kind} and not {self.kind}")
        if self.dtype is None or of.kind == OF_STRUCT:
            return self.one_by_one(p, &of, message)
        if self.are_octets:
            _spend(p, 1, of.count)
            return PyBytes_FromStringAndSize(<const char *> p.bytes + of.at * WORD, of.count)
        if self.kind != OF_BIT:
            found = np.frombuffer(message, self.dtype, of.count, of.at * WORD)
            return found.astype(found.dtype.newbyteorder("="), copy=False)
        _spend(p, 1, of.count)
        bits = np.frombuffer(message, np.uint8, (of.count + 7) // 8, of.at * WORD)
        return np.unpackbits(bits, count=of.count, bitorder="little").view(np.bool_)

    cdef object nothing(self, Payload *p, bytes message):
        return b"" if self.are_octets else [] if self.dtype is None else np.empty(0, self.dtype.newbyteorder("="))

    cdef object one_by_one(self, Payload *p, const Elements *of, bytes message):
        cdef int64_t i = 0
        cdef Place place
        cdef list made = []
        _spend(p, of.count, 0)
        try:
            for i in range(of.count):
                _element(of, i, &place)
                if isinstance(self.of, _Struct):
                    value = (<_Struct> self.of).take_at(p, &place, message)
                else:
                    value = self.of.take(p, &place, 0, message)
                made.append(None if value is _NOTHING else value)
        except FaultError as fault:
            fault.path.append(f"[{i}]")
            raise
        return np.array(made, self.dtype.newbyteorder("=")) if self.dtype is not None else made


cdef class _Made:
    """What was made of a schema so far: a taker of each struct, and those that have no fields yet."""

    cdef dict structs
    cdef list empty

    def __init__(self):
        self.structs, self.empty = {}, []


cdef _Taker _taker(object of, _Made made):
    if isinstance(of, Struct):
        if of not in made.structs:
            made.structs[of] = _Struct()
            made.empty.append((made.structs[of], of))
        return made.structs[of]
    if isinstance(of, Scalar):
        return _Scalar(of)
    if isinstance(of, (Text, Data)):
        return _Text(isinstance(of, Text))
    if isinstance(of, (Void, Opaque)):
        return _Taker()
    return _List(of, made)


cdef class StructReader:
    cdef _Struct _root

    def __init__(self, struct not None):
        made = _Made()
        self._root = _taker(struct, made)
        while made.empty:
            found, of = made.empty.pop()
            (<_Struct> found).fill(of, made)

    def read(self, bytes message not None):
        cdef Payload p
        cdef Place root
        try:
            _begin(&p, message)
            if _struct_place(&p, 0, p.begins[0], &root):
                return self._root.take_at(&p, &root, message)
            raise FaultError("it has no root")
        except FaultError as fault:
            raise fault.with_path() from None


cdef int _begin(Payload *p, bytes message) except -1:
    """Find the segments."""
    cdef int64_t size = PyBytes_GET_SIZE(message), at, length, i
    p.bytes = <const uint8_t *> PyBytes_AS_STRING(message)
    p.values_left, p.bytes_left, p.levels_left = VALUES_MAX, TIMES_MAX * size + BYTES_FREE, LEVELS_MAX
    if size < WORD:
        raise FaultError(f"it has {size} bytes, and at least {WORD} are needed")
    p.segments = <int64_t> take_bits(p.bytes, 4, _is_swapped) + 1
    at = p.segments // 2 + 1
    if p.segments > SEGMENTS_MAX or at * WORD > size:
        raise FaultError(f"it has {p.segments} segments, and {size} bytes")
    for i in range(p.segments):
        length = take_bits(p.bytes + 4 * (i + 1), 4, _is_swapped)
        if length > size // WORD - at:
            raise FaultError(f"its segment {i} ends behind its {size} bytes")
        p.begins[i], p.ends[i] = at, at + length
        at += length
    return 0
