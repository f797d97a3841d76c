"""Messages of FlatBuffers as Python values, in compiled code. See core.pyi.

A schema becomes readers, one for each type. A message itself contains the offsets of its values. Therefore each offset
is checked, and the number of values is limited. Format: https://flatbuffers.dev/internals/
"""


cdef enum:
    FLATBUFFER_NESTING_MAX = 100
    VTABLE_HEADER_BYTES = 4  # bytes of a vtable before the offsets of fields

_FLATBUFFER_ELEMENT_TYPES = (ScalarType, FlatbufferStruct, FlatbufferTable, TextType)  # element types of vectors

cdef struct FlatbufferPayload:
    const uint8_t *bytes
    Py_ssize_t size
    Py_ssize_t values_left
    Py_ssize_t bytes_left
    int levels_left


cdef inline int _flatbuffer_check_range(
    FlatbufferPayload *p, Py_ssize_t at, Py_ssize_t count, Py_ssize_t size
) except -1:
    """Check that `count` elements of `size` bytes exist at an offset."""
    if at < 0 or at > p.size or count > (p.size - at) // size:
        raise MalformedPayloadError(
            f"offset leads out of the message of {p.size} bytes: "
            f"{count} elements of {size} bytes at byte {at}"
        )
    return 0


cdef inline uint16_t _flatbuffer_load_u16(FlatbufferPayload *p, Py_ssize_t at) except? 0xFFFF:
    _flatbuffer_check_range(p, at, 1, 2)
    return <uint16_t> load_unsigned(p.bytes + at, 2, _is_big_endian)


cdef inline uint32_t _flatbuffer_load_u32(FlatbufferPayload *p, Py_ssize_t at) except? 0xFFFFFFFF:
    _flatbuffer_check_range(p, at, 1, 4)
    return <uint32_t> load_unsigned(p.bytes + at, 4, _is_big_endian)


cdef inline int _flatbuffer_charge_budget(FlatbufferPayload *p, Py_ssize_t values, Py_ssize_t size) except -1:
    p.values_left -= values
    p.bytes_left -= size
    if p.values_left < 0:
        raise MalformedPayloadError(f"message has more than {MESSAGE_VALUES_MAX} values")
    if p.bytes_left < 0:
        raise MalformedPayloadError(f"offsets repeat the bytes of the message more than {AMPLIFICATION_MAX} times")
    return 0


cdef class _FlatbufferValueReader:
    cdef Py_ssize_t size  # bytes of the value, stored in place

    cdef object read_value(self, FlatbufferPayload *p, Py_ssize_t at, bytes message):
        """Return the value at an offset, where `size` bytes exist."""
        raise NotImplementedError


cdef class _FlatbufferReaderCache:
    """The readers of a schema, one for each table, and readers that have no fields yet."""

    cdef dict tables
    cdef list empty

    def __init__(self):
        self.tables, self.empty = {}, []


cdef class _FlatbufferScalarReader(_FlatbufferValueReader):
    cdef char kind
    cdef dict names

    def __init__(self, schema_type):
        self.kind = ord(schema_type.code[0])
        self.names = None if schema_type.enum_names is None else dict(schema_type.enum_names)

    cdef object read_value(self, FlatbufferPayload *p, Py_ssize_t at, bytes message):
        value = make_python_number(load_unsigned(p.bytes + at, self.size, _is_big_endian), self.kind, self.size)
        return value if self.names is None else self.names.get(value, value)


cdef class _FlatbufferTextReader(_FlatbufferValueReader):
    cdef object read_value(self, FlatbufferPayload *p, Py_ssize_t at, bytes message):
        at += _flatbuffer_load_u32(p, at)
        cdef Py_ssize_t length = _flatbuffer_load_u32(p, at)
        _flatbuffer_check_range(p, at + 4, length, 1)
        _flatbuffer_charge_budget(p, 1, length)
        try:
            return PyUnicode_DecodeUTF8(<const char *> p.bytes + at + 4, length, NULL)
        except UnicodeDecodeError as error:
            raise MalformedPayloadError(f"text contains invalid UTF-8 at byte {error.start}: {error.reason}") from None


cdef class _FlatbufferVectorReader(_FlatbufferValueReader):
    """Vectors, and arrays, whose elements are stored in place.

    Attributes:
        count: elements of an array; -1: of a vector, which contains it.
    """

    cdef _FlatbufferValueReader element
    cdef Py_ssize_t count
    cdef object dtype  # dtype of numbers that become an array
    cdef bint are_bytes, are_booleans

    def __init__(self, schema_type, _FlatbufferReaderCache cache):
        element_type = schema_type.element_type
        is_array = isinstance(schema_type, FlatbufferArray)
        possible = (ScalarType, FlatbufferStruct) if is_array else _FLATBUFFER_ELEMENT_TYPES
        _flatbuffer_check_element_type(schema_type, element_type, possible)
        self.element = _flatbuffer_make_reader(element_type, cache)
        self.count = schema_type.element_count if isinstance(schema_type, FlatbufferArray) else -1
        code = element_type.code if isinstance(element_type, ScalarType) and element_type.enum_names is None else None
        self.are_bytes, self.are_booleans = code == "u1", code == "b1"
        self.dtype = None if code is None else np.dtype("u1" if self.are_booleans else code).newbyteorder("<")

    cdef object read_value(self, FlatbufferPayload *p, Py_ssize_t at, bytes message):
        cdef Py_ssize_t count = self.count, i = 0
        if count < 0:
            at += _flatbuffer_load_u32(p, at)
            count = _flatbuffer_load_u32(p, at)
            at += 4
        _flatbuffer_check_range(p, at, count, self.element.size)
        if self.are_bytes:
            _flatbuffer_charge_budget(p, 1, count)
            return PyBytes_FromStringAndSize(<const char *> p.bytes + at, count)
        if self.dtype is not None:
            numbers = np.frombuffer(message, self.dtype, count, at)
            return numbers != 0 if self.are_booleans else numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
        _flatbuffer_charge_budget(p, count, 0)
        values = []
        try:
            for i in range(count):
                values.append(self.element.read_value(p, at + i * self.element.size, message))
        except MalformedPayloadError as fault:
            fault.path.append(f"[{i}]")
            raise
        return values


cdef class _FlatbufferStructReader(_FlatbufferValueReader):
    cdef tuple names, offsets, readers

    def __init__(self, schema_type, _FlatbufferReaderCache cache):
        self.names = tuple(sys.intern(name) for name, _, _ in schema_type.fields)
        self.offsets = tuple(place for _, place, _ in schema_type.fields)
        self.readers = tuple(_flatbuffer_make_reader(kind, cache) for _, _, kind in schema_type.fields)

    cdef object read_value(self, FlatbufferPayload *p, Py_ssize_t at, bytes message):
        cdef Py_ssize_t i, place
        cdef dict fields = {}
        _flatbuffer_charge_budget(p, len(self.names), 0)
        for i in range(len(self.names)):
            place = self.offsets[i]
            fields[self.names[i]] = (<_FlatbufferValueReader> self.readers[i]).read_value(p, at + place, message)
        return fields


cdef class _FlatbufferUnionReader(_FlatbufferValueReader):
    """The possible members of a union. The table of the union selects one."""

    cdef dict member_readers

    def __init__(self, schema_type, _FlatbufferReaderCache cache):
        for kind in schema_type.member_types.values():
            _flatbuffer_check_element_type(schema_type, kind, (FlatbufferTable, FlatbufferStruct, TextType))
        members = schema_type.member_types.items()
        self.member_readers = {number: _flatbuffer_make_reader(kind, cache) for number, kind in members}

    cdef object read_member(self, FlatbufferPayload *p, Py_ssize_t at, bytes message, int kind):
        reader = self.member_readers.get(kind)
        if reader is None:
            raise MalformedPayloadError(f"union has type {kind}, which the schema does not define")
        if isinstance(reader, _FlatbufferStructReader):
            at += _flatbuffer_load_u32(p, at)
            _flatbuffer_check_range(p, at, 1, (<_FlatbufferValueReader> reader).size)
        return (<_FlatbufferValueReader> reader).read_value(p, at, message)


cdef class _FlatbufferTableReader(_FlatbufferValueReader):
    cdef list names, offsets, readers, defaults

    cdef set_fields(self, schema_type, _FlatbufferReaderCache cache):
        self.names = [sys.intern(name) for name, _, _, _ in schema_type.fields]
        self.offsets = [place for _, place, _, _ in schema_type.fields]
        self.readers = [_flatbuffer_make_reader(kind, cache) for _, _, kind, _ in schema_type.fields]
        self.defaults = [value for _, _, _, value in schema_type.fields]

    cdef object read_value(self, FlatbufferPayload *p, Py_ssize_t at, bytes message):
        return self.read_table_at(p, at + _flatbuffer_load_u32(p, at), message)

    cdef object read_table_at(self, FlatbufferPayload *p, Py_ssize_t at, bytes message):
        """Return the table at this offset."""
        cdef Py_ssize_t i = 0, vtable = at - <int32_t> _flatbuffer_load_u32(p, at), place
        cdef Py_ssize_t size = _flatbuffer_load_u16(p, vtable)
        cdef dict fields = {}
        _flatbuffer_check_range(p, vtable, 1, size or VTABLE_HEADER_BYTES)
        _flatbuffer_charge_budget(p, len(self.names) + 1, 0)
        p.levels_left -= 1
        if p.levels_left < 0:
            raise MalformedPayloadError(f"value is nested deeper than {FLATBUFFER_NESTING_MAX} levels")
        try:
            for i in range(len(self.names)):
                place = self.offsets[i]
                fields[self.names[i]] = self.read_field(p, at, vtable, size, place, i, message)
        except MalformedPayloadError as fault:
            fault.path.append(f".{self.names[i]}")
            raise
        p.levels_left += 1
        return fields

    cdef object read_field(self, FlatbufferPayload *p, Py_ssize_t at, Py_ssize_t vtable, Py_ssize_t size,
                           Py_ssize_t place, Py_ssize_t number, bytes message):
        cdef _FlatbufferValueReader reader = self.readers[number]
        cdef Py_ssize_t offset = _flatbuffer_locate_field(p, vtable, size, place), kind
        if not offset:
            return self.defaults[number]
        _flatbuffer_check_range(p, at + offset, 1, reader.size)
        if not isinstance(reader, _FlatbufferUnionReader):
            return reader.read_value(p, at + offset, message)
        kind = _flatbuffer_locate_field(p, vtable, size, place - 2)
        if not kind:
            return None
        _flatbuffer_check_range(p, at + kind, 1, 1)
        if not p.bytes[at + kind]:
            return None
        return (<_FlatbufferUnionReader> reader).read_member(p, at + offset, message, p.bytes[at + kind])


cdef inline Py_ssize_t _flatbuffer_locate_field(
    FlatbufferPayload *p, Py_ssize_t vtable, Py_ssize_t size, Py_ssize_t place
) except -1:
    """Return the offset of a field from its table; 0: the field is missing."""
    return _flatbuffer_load_u16(p, vtable + place) if VTABLE_HEADER_BYTES <= place <= size - 2 else 0


cdef _FlatbufferValueReader _flatbuffer_make_reader(object schema_type, _FlatbufferReaderCache cache):
    cdef _FlatbufferValueReader reader
    if isinstance(schema_type, FlatbufferTable):
        if schema_type not in cache.tables:
            cache.tables[schema_type] = _FlatbufferTableReader()
            cache.empty.append((cache.tables[schema_type], schema_type))
        reader = cache.tables[schema_type]
    elif isinstance(schema_type, ScalarType):
        reader = _FlatbufferScalarReader(schema_type)
    elif isinstance(schema_type, TextType):
        reader = _FlatbufferTextReader()
    elif isinstance(schema_type, FlatbufferStruct):
        reader = _FlatbufferStructReader(schema_type, cache)
    elif isinstance(schema_type, FlatbufferUnion):
        reader = _FlatbufferUnionReader(schema_type, cache)
    else:
        reader = _FlatbufferVectorReader(schema_type, cache)
    reader.size = measure_inline_bytes(schema_type)
    return reader


def _flatbuffer_check_element_type(schema_type, inner, kinds):
    if not isinstance(inner, kinds):
        raise ValueError(f"schema has a {type(schema_type).__name__} of {type(inner).__name__}, which is not supported")


cdef class FlatBufferReader:
    cdef _FlatbufferTableReader _root

    def __init__(self, table not None):
        cache = _FlatbufferReaderCache()
        self._root = _flatbuffer_make_reader(table, cache)
        while cache.empty:
            reader, schema_type = cache.empty.pop()
            (<_FlatbufferTableReader> reader).set_fields(schema_type, cache)

    def read(self, bytes message not None):
        cdef FlatbufferPayload p
        p.bytes, p.size = <const uint8_t *> PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message)
        p.values_left, p.levels_left = MESSAGE_VALUES_MAX, FLATBUFFER_NESTING_MAX
        p.bytes_left = AMPLIFICATION_MAX * p.size + FREE_OUTPUT_BYTES
        try:
            return self._root.read_value(&p, 0, message)
        except MalformedPayloadError as fault:
            raise fault.with_path() from None
