"""Messages of FlatBuffers as Python values, below Python: see core.pyi.

A schema becomes readers, one for each type. The values lie at places that the message itself says, so that each
place is checked, and the values are counted. Format: https://flatbuffers.dev/internals/
"""


cdef enum:
    FLAT_LEVELS_MAX = 100
    VTABLE_BYTES = 4  # before the places of fields

_FLAT_ELEMENTS = (flatbuffer.Scalar, flatbuffer.FixedStruct, flatbuffer.Table, flatbuffer.String)  # of vectors

cdef struct FlatPayload:
    const uint8_t *bytes
    Py_ssize_t size
    Py_ssize_t values_left
    Py_ssize_t bytes_left
    int levels_left


cdef inline int _flat_need(FlatPayload *p, Py_ssize_t at, Py_ssize_t count, Py_ssize_t size) except -1:
    """Check that so many elements are at a place."""
    if at < 0 or at > p.size or count > (p.size - at) // size:
        raise MalformedPayloadError(f"{count} elements of {size} bytes are not at byte {at} of {p.size}")
    return 0


cdef inline uint16_t _flat_u16(FlatPayload *p, Py_ssize_t at) except? 0xFFFF:
    _flat_need(p, at, 1, 2)
    return <uint16_t> take_bits(p.bytes + at, 2, _is_swapped)


cdef inline uint32_t _flat_u32(FlatPayload *p, Py_ssize_t at) except? 0xFFFFFFFF:
    _flat_need(p, at, 1, 4)
    return <uint32_t> take_bits(p.bytes + at, 4, _is_swapped)


cdef inline int _flat_spend(FlatPayload *p, Py_ssize_t values, Py_ssize_t size) except -1:
    p.values_left -= values
    p.bytes_left -= size
    if p.values_left < 0:
        raise MalformedPayloadError(f"the message has more than {VALUES_MAX} values")
    if p.bytes_left < 0:
        raise MalformedPayloadError(f"the message has its own bytes more than {TIMES_MAX} times")
    return 0


cdef class _FlatValueReader:
    cdef Py_ssize_t size  # bytes in the place itself

    cdef object read(self, FlatPayload *p, Py_ssize_t at, bytes message):
        """Return the value at a place, of which `size` bytes are there."""
        raise NotImplementedError


cdef class _FlatReaders:
    """What was made of a schema so far: a reader of each table, and those that have no fields yet."""

    cdef dict tables
    cdef list empty

    def __init__(self):
        self.tables, self.empty = {}, []


cdef class _FlatScalar(_FlatValueReader):
    cdef char kind
    cdef dict names

    def __init__(self, schema_type):
        self.kind = ord(schema_type.code[0])
        self.names = None if schema_type.names is None else dict(schema_type.names)

    cdef object read(self, FlatPayload *p, Py_ssize_t at, bytes message):
        value = number_of(take_bits(p.bytes + at, self.size, _is_swapped), self.kind, self.size)
        return value if self.names is None else self.names.get(value, value)


cdef class _FlatString(_FlatValueReader):
    cdef object read(self, FlatPayload *p, Py_ssize_t at, bytes message):
        at += _flat_u32(p, at)
        cdef Py_ssize_t length = _flat_u32(p, at)
        _flat_need(p, at + 4, length, 1)
        _flat_spend(p, 1, length)
        try:
            return PyUnicode_DecodeUTF8(<const char *> p.bytes + at + 4, length, NULL)
        except UnicodeDecodeError as error:
            raise MalformedPayloadError(f"a text is no UTF-8: {error.reason}") from None


cdef class _FlatElements(_FlatValueReader):
    """Vectors, and arrays, whose elements are in the place itself.

    Attributes
    ----------
    count : of elements of an array; -1: of a vector, which says it.
    """

    cdef _FlatValueReader element
    cdef Py_ssize_t count
    cdef object dtype  # of numbers that become an array
    cdef bint are_octets, are_truths

    def __init__(self, schema_type, _FlatReaders cache):
        value_type = schema_type.value_type
        is_array = isinstance(schema_type, flatbuffer.FixedArray)
        possible = (flatbuffer.Scalar, flatbuffer.FixedStruct) if is_array else _FLAT_ELEMENTS
        _flat_check_inner(schema_type, value_type, possible)
        self.element = _flat_reader(value_type, cache)
        self.count = schema_type.length if isinstance(schema_type, flatbuffer.FixedArray) else -1
        code = value_type.code if isinstance(value_type, flatbuffer.Scalar) and value_type.names is None else None
        self.are_octets, self.are_truths = code == "u1", code == "b1"
        self.dtype = None if code is None else np.dtype("u1" if self.are_truths else code).newbyteorder("<")

    cdef object read(self, FlatPayload *p, Py_ssize_t at, bytes message):
        cdef Py_ssize_t count = self.count, i = 0
        if count < 0:
            at += _flat_u32(p, at)
            count = _flat_u32(p, at)
            at += 4
        _flat_need(p, at, count, self.element.size)
        if self.are_octets:
            _flat_spend(p, 1, count)
            return PyBytes_FromStringAndSize(<const char *> p.bytes + at, count)
        if self.dtype is not None:
            numbers = np.frombuffer(message, self.dtype, count, at)
            return numbers != 0 if self.are_truths else numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
        _flat_spend(p, count, 0)
        values = []
        try:
            for i in range(count):
                values.append(self.element.read(p, at + i * self.element.size, message))
        except MalformedPayloadError as fault:
            fault.path.append(f"[{i}]")
            raise
        return values


cdef class _FlatFixedStruct(_FlatValueReader):
    cdef tuple names, places, readers

    def __init__(self, schema_type, _FlatReaders cache):
        self.names = tuple(sys.intern(name) for name, _, _ in schema_type.fields)
        self.places = tuple(place for _, place, _ in schema_type.fields)
        self.readers = tuple(_flat_reader(kind, cache) for _, _, kind in schema_type.fields)

    cdef object read(self, FlatPayload *p, Py_ssize_t at, bytes message):
        cdef Py_ssize_t i, place
        cdef dict fields = {}
        _flat_spend(p, len(self.names), 0)
        for i in range(len(self.names)):
            place = self.places[i]
            fields[self.names[i]] = (<_FlatValueReader> self.readers[i]).read(p, at + place, message)
        return fields


cdef class _FlatUnion(_FlatValueReader):
    """What a union may have; the table that has it looks which it is."""

    cdef dict kinds

    def __init__(self, schema_type, _FlatReaders cache):
        for kind in schema_type.kinds.values():
            _flat_check_inner(schema_type, kind, (flatbuffer.Table, flatbuffer.FixedStruct, flatbuffer.String))
        self.kinds = {number: _flat_reader(kind, cache) for number, kind in schema_type.kinds.items()}

    cdef object take_kind(self, FlatPayload *p, Py_ssize_t at, bytes message, int kind):
        reader = self.kinds.get(kind)
        if reader is None:
            raise MalformedPayloadError(f"it has the type {kind}, which the schema does not know")
        if isinstance(reader, _FlatFixedStruct):
            at += _flat_u32(p, at)
            _flat_need(p, at, 1, (<_FlatValueReader> reader).size)
        return (<_FlatValueReader> reader).read(p, at, message)


cdef class _FlatTable(_FlatValueReader):
    cdef list names, places, readers, missing

    cdef fill(self, schema_type, _FlatReaders cache):
        self.names = [sys.intern(name) for name, _, _, _ in schema_type.fields]
        self.places = [place for _, place, _, _ in schema_type.fields]
        self.readers = [_flat_reader(kind, cache) for _, _, kind, _ in schema_type.fields]
        self.missing = [value for _, _, _, value in schema_type.fields]

    cdef object read(self, FlatPayload *p, Py_ssize_t at, bytes message):
        return self.read_at(p, at + _flat_u32(p, at), message)

    cdef object read_at(self, FlatPayload *p, Py_ssize_t at, bytes message):
        """Return the table whose first byte is here."""
        cdef Py_ssize_t i = 0, vtable = at - <int32_t> _flat_u32(p, at), place
        cdef Py_ssize_t size = _flat_u16(p, vtable)
        cdef dict fields = {}
        _flat_need(p, vtable, 1, size or VTABLE_BYTES)
        _flat_spend(p, len(self.names) + 1, 0)
        p.levels_left -= 1
        if p.levels_left < 0:
            raise MalformedPayloadError(f"it is nested deeper than {FLAT_LEVELS_MAX} levels")
        try:
            for i in range(len(self.names)):
                place = self.places[i]
                fields[self.names[i]] = self.field(p, at, vtable, size, place, i, message)
        except MalformedPayloadError as fault:
            fault.path.append(f".{self.names[i]}")
            raise
        p.levels_left += 1
        return fields

    cdef object field(self, FlatPayload *p, Py_ssize_t at, Py_ssize_t vtable, Py_ssize_t size, Py_ssize_t place,
                      Py_ssize_t number, bytes message):
        cdef _FlatValueReader reader = self.readers[number]
        cdef Py_ssize_t offset = _flat_field_place(p, vtable, size, place), kind
        if not offset:
            return self.missing[number]
        _flat_need(p, at + offset, 1, reader.size)
        if not isinstance(reader, _FlatUnion):
            return reader.read(p, at + offset, message)
        kind = _flat_field_place(p, vtable, size, place - 2)
        if not kind:
            return None
        _flat_need(p, at + kind, 1, 1)
        if not p.bytes[at + kind]:
            return None
        return (<_FlatUnion> reader).take_kind(p, at + offset, message, p.bytes[at + kind])


cdef inline Py_ssize_t _flat_field_place(
    FlatPayload *p, Py_ssize_t vtable, Py_ssize_t size, Py_ssize_t place
) except -1:
    """Return where a field is, from its table on; 0: it is missing."""
    return _flat_u16(p, vtable + place) if VTABLE_BYTES <= place <= size - 2 else 0


cdef _FlatValueReader _flat_reader(object schema_type, _FlatReaders cache):
    cdef _FlatValueReader reader
    if isinstance(schema_type, flatbuffer.Table):
        if schema_type not in cache.tables:
            cache.tables[schema_type] = _FlatTable()
            cache.empty.append((cache.tables[schema_type], schema_type))
        reader = cache.tables[schema_type]
    elif isinstance(schema_type, flatbuffer.Scalar):
        reader = _FlatScalar(schema_type)
    elif isinstance(schema_type, flatbuffer.String):
        reader = _FlatString()
    elif isinstance(schema_type, flatbuffer.FixedStruct):
        reader = _FlatFixedStruct(schema_type, cache)
    elif isinstance(schema_type, flatbuffer.Union):
        reader = _FlatUnion(schema_type, cache)
    else:
        reader = _FlatElements(schema_type, cache)
    reader.size = flatbuffer.inline_size(schema_type)
    return reader


def _flat_check_inner(schema_type, inner, kinds):
    if not isinstance(inner, kinds):
        raise ValueError(f"it has a {type(schema_type).__name__} of {type(inner).__name__}, which nothing here reads")


cdef class FlatBufferReader:
    cdef _FlatTable _root

    def __init__(self, table not None):
        cache = _FlatReaders()
        self._root = _flat_reader(table, cache)
        while cache.empty:
            reader, schema_type = cache.empty.pop()
            (<_FlatTable> reader).fill(schema_type, cache)

    def read(self, bytes message not None):
        cdef FlatPayload p
        p.bytes, p.size = <const uint8_t *> PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message)
        p.values_left, p.bytes_left, p.levels_left = VALUES_MAX, TIMES_MAX * p.size + BYTES_FREE, FLAT_LEVELS_MAX
        try:
            return self._root.read(&p, 0, message)
        except MalformedPayloadError as fault:
            raise fault.with_path() from None
