"""Messages of CDR and of ROS 1 as Python values, in compiled code. See core.pyi.

A definition becomes a tree of readers, one for each type in it. Each reader checks that the bytes of its values exist,
reads them at the current position of a payload, and advances the position.
"""


cdef enum:
    ENCAPSULATION_BYTES = 4  # bytes of the encapsulation before a CDR message
    PADDING_BYTES_MAX = 3  # maximum padding bytes after a message

cdef enum:
    WIDE_TEXT_BYTES = 1  # the length of a wide text is in bytes, as in the specification
    WIDE_TEXT_UTF16_UNITS = 2  # the length is in UTF-16 units, with one unit for the end (old versions of Cyclone DDS)
    WIDE_TEXT_UTF32_UNITS = 4  # the length is in UTF-16 units, each stored in four bytes (Fast-CDR before version 2)

#: First bytes of CDR: (message is XCDR2, structs of unspecified form are preceded by their length).
_CDR_FORMS = {
    0x00: (False, False),
    **{first: (True, False) for first in (0x06, 0x10)},
    **{first: (True, True) for first in (0x08, 0x14)},
}

cdef bint _is_little = sys.byteorder == "little"

cdef struct CdrPayload:
    const uint8_t *bytes  # start of the payload, from which alignment counts
    Py_ssize_t at
    Py_ssize_t size
    Py_ssize_t align  # maximum alignment
    Py_ssize_t left  # number of values that the reader may still create
    Py_ssize_t offset  # offset of `bytes` within the message
    bint swap
    bint is_cdr
    bint is_second  # the message is XCDR2
    bint is_delimited
    int wide


cdef inline int _cdr_align_position(CdrPayload *p, Py_ssize_t size) except -1:
    p.at += -p.at & ((size if size < p.align else p.align) - 1)
    return 0


cdef inline int _cdr_check_range(CdrPayload *p, Py_ssize_t count, Py_ssize_t size) except -1:
    """Check that `count` elements of `size` bytes exist. Neither the sum nor the product can overflow."""
    if p.at > p.size or count > (p.size - p.at) // size:
        if count == 1:
            raise MalformedPayloadError(f"message ends too early, after {p.size + p.offset} bytes")
        left = max(p.size - p.at, 0)
        raise MalformedPayloadError(f"{count} elements of {size} bytes do not fit into the remaining {left} bytes")
    return 0


cdef inline uint32_t _cdr_read_u32(CdrPayload *p) except? 0xFFFFFFFF:
    _cdr_align_position(p, 4)
    _cdr_check_range(p, 1, 4)
    p.at += 4
    return <uint32_t> load_unsigned(p.bytes + p.at - 4, 4, p.swap)


cdef inline Py_ssize_t _cdr_enter_delimited(CdrPayload *p) except -1:
    """Read the length of the following data, and limit reads to it. Return the previous limit."""
    cdef Py_ssize_t length = _cdr_read_u32(p), size = p.size
    _cdr_check_range(p, length, 1)
    p.size = p.at + length
    return size


cdef inline int _cdr_leave_delimited(CdrPayload *p, Py_ssize_t size) except -1:
    """Move to the end of the data of `_cdr_enter_delimited`.

    It may contain fields that this definition does not know.
    """
    p.at, p.size = p.size, size
    return 0


cdef inline int _cdr_charge_values(CdrPayload *p, Py_ssize_t values) except -1:
    p.left -= values
    if p.left < 0:
        raise MalformedPayloadError(f"message has more than {MESSAGE_VALUES_MAX} values")
    return 0


cdef class _CdrValueReader:
    cdef Py_ssize_t min_bytes  # minimum bytes of a value, without padding
    cdef Py_ssize_t fields  # number of values within the value

    cdef object read_value(self, CdrPayload *p, bytes message):
        raise NotImplementedError


cdef class _CdrNumberReader(_CdrValueReader):
    cdef char kind
    cdef Py_ssize_t size

    def __init__(self, schema_type):
        self.kind, self.size = ord(schema_type.code[0]), int(schema_type.code[1:])

    cdef object read_value(self, CdrPayload *p, bytes message):
        _cdr_align_position(p, self.size)
        _cdr_check_range(p, 1, self.size)
        p.at += self.size
        return make_python_number(load_unsigned(p.bytes + p.at - self.size, self.size, p.swap), self.kind, self.size)


cdef class _CdrEnumReader(_CdrValueReader):
    cdef dict names

    def __init__(self, schema_type):
        self.names = dict(schema_type.enum_names)

    cdef object read_value(self, CdrPayload *p, bytes message):
        cdef uint32_t number = _cdr_read_u32(p)
        return self.names.get(<int32_t> number, <int32_t> number)


cdef class _CdrTextReader(_CdrValueReader):
    cdef object read_value(self, CdrPayload *p, bytes message):
        cdef Py_ssize_t length = _cdr_read_u32(p)
        _cdr_check_range(p, length, 1)
        cdef const char *place = <const char *> p.bytes + p.at
        p.at += length
        if p.is_cdr and length:
            length -= 1  # without the NUL byte at the end
        try:
            return PyUnicode_DecodeUTF8(place, length, NULL)
        except UnicodeDecodeError as error:
            raise MalformedPayloadError(f"text contains invalid UTF-8 at byte {error.start}: {error.reason}") from None


cdef class _CdrWideTextReader(_CdrValueReader):
    cdef object read_value(self, CdrPayload *p, bytes message):
        cdef Py_ssize_t count = _cdr_read_u32(p)
        _cdr_check_range(p, count, p.wide)
        p.at += count * p.wide
        content = PyBytes_FromStringAndSize(<const char *> p.bytes + p.at - count * p.wide, count * p.wide)
        order = "le" if p.swap != _is_little else "be"
        try:
            if p.wide == WIDE_TEXT_UTF32_UNITS:
                content = content.decode(f"utf-32-{order}", "surrogatepass").encode(f"utf-16-{order}", "surrogatepass")
            elif p.wide == WIDE_TEXT_UTF16_UNITS:
                content = content[:max(len(content) - 2, 0)]
            return content.decode(f"utf-16-{order}")
        except UnicodeDecodeError as error:
            raise MalformedPayloadError(
                f"wide text contains invalid UTF-16 at byte {error.start}: "
                f"{error.reason}"
            ) from None


cdef class _CdrElementsReader(_CdrValueReader):
    """Arrays and sequences.

    Attributes:
        count: number of elements; -1: the message contains it.
    """

    cdef Py_ssize_t count

    def __init__(self, schema_type):
        self.count = schema_type.element_count if isinstance(schema_type, CdrArray) else -1


cdef class _CdrBytesReader(_CdrElementsReader):
    cdef object read_value(self, CdrPayload *p, bytes message):
        cdef Py_ssize_t count = self.count if self.count >= 0 else _cdr_read_u32(p)
        _cdr_check_range(p, count, 1)
        p.at += count
        return PyBytes_FromStringAndSize(<const char *> p.bytes + p.at - count, count)


cdef class _CdrNumberArrayReader(_CdrElementsReader):
    cdef object dtype, swapped
    cdef Py_ssize_t size
    cdef bint are_booleans

    def __init__(self, schema_type):
        super().__init__(schema_type)
        self.are_booleans = schema_type.element_type.code == "b1"
        self.dtype = np.dtype("u1" if self.are_booleans else schema_type.element_type.code)
        self.swapped = self.dtype.newbyteorder()
        self.size = self.dtype.itemsize

    cdef object read_value(self, CdrPayload *p, bytes message):
        cdef Py_ssize_t count = self.count if self.count >= 0 else _cdr_read_u32(p)
        if not count:
            return np.empty(0, np.bool_ if self.are_booleans else self.dtype)
        _cdr_align_position(p, self.size)
        _cdr_check_range(p, count, self.size)
        numbers = np.frombuffer(message, self.swapped if p.swap else self.dtype, count, p.offset + p.at)
        p.at += count * self.size
        if self.are_booleans:
            return numbers != 0
        return numbers.astype(self.dtype) if p.swap else numbers


cdef class _CdrListReader(_CdrElementsReader):
    cdef _CdrValueReader element
    cdef bint has_length  # in XCDR2, a length precedes all elements

    def __init__(self, schema_type):
        super().__init__(schema_type)
        self.element = _cdr_make_reader(schema_type.element_type)
        inner = schema_type.element_type
        is_array = isinstance(schema_type, CdrArray)
        while is_array and isinstance(inner, CdrArray):  # the dimensions form one array
            inner = inner.element_type
        self.has_length = not _is_number(inner)

    cdef object read_value(self, CdrPayload *p, bytes message):
        cdef Py_ssize_t size = p.size, i = 0, count
        cdef bint has_end = p.is_second and self.has_length
        if has_end:
            size = _cdr_enter_delimited(p)
        count = self.count if self.count >= 0 else _cdr_read_u32(p)
        _cdr_check_range(p, count, self.element.min_bytes)
        _cdr_charge_values(p, count * self.element.fields)
        cdef list values = PyList_New(count)
        try:
            for i in range(count):
                value = self.element.read_value(p, message)
                Py_INCREF(value)  # the list steals the reference
                PyList_SET_ITEM(values, i, value)
        except MalformedPayloadError as fault:
            del values[i:]
            fault.path.append(f"[{i}]")
            raise
        if has_end:
            _cdr_leave_delimited(p, size)
        return values


cdef class _CdrStructReader(_CdrValueReader):
    cdef tuple names, readers
    cdef bint is_appendable, is_open

    def __init__(self, schema_type):
        self.names = tuple(sys.intern(name) for name, _ in schema_type.fields)
        self.readers = tuple(_cdr_make_reader(kind) for _, kind in schema_type.fields)
        self.is_appendable, self.is_open = schema_type.is_appendable is True, schema_type.is_appendable is None

    cdef object read_value(self, CdrPayload *p, bytes message):
        cdef Py_ssize_t i = 0, size = p.size
        cdef bint has_end = p.is_second and (self.is_appendable or (self.is_open and p.is_delimited))
        cdef dict fields = {}
        if has_end:
            size = _cdr_enter_delimited(p)
        try:
            for i in range(len(self.names)):
                fields[self.names[i]] = (<_CdrValueReader> self.readers[i]).read_value(p, message)
        except MalformedPayloadError as fault:
            fault.path.append(f".{self.names[i]}")
            raise
        if has_end:
            _cdr_leave_delimited(p, size)
        return fields


cdef bint _is_number(object schema_type):
    return isinstance(schema_type, ScalarType) and schema_type.enum_names is None


cdef _CdrValueReader _cdr_make_reader(object schema_type):
    cdef _CdrValueReader reader
    if _is_number(schema_type):
        reader = _CdrNumberReader(schema_type)
    elif isinstance(schema_type, ScalarType):
        reader = _CdrEnumReader(schema_type)
    elif isinstance(schema_type, TextType):
        reader = _CdrWideTextReader() if schema_type.is_wide else _CdrTextReader()
    elif isinstance(schema_type, CdrStruct):
        reader = _CdrStructReader(schema_type)
    elif isinstance(schema_type, UnsupportedType):
        raise ValueError(f"schema has {schema_type.description}, which is not supported")
    elif is_byte_array(schema_type):
        reader = _CdrBytesReader(schema_type)
    else:
        has_numbers = _is_number(schema_type.element_type)
        reader = _CdrNumberArrayReader(schema_type) if has_numbers else _CdrListReader(schema_type)
    size = measure_type(schema_type)
    reader.min_bytes, reader.fields = size.min_bytes, size.field_count
    return reader


def _cdr_has_wide_text(schema_type):
    if isinstance(schema_type, CdrStruct):
        return any(_cdr_has_wide_text(kind) for _, kind in schema_type.fields)
    if isinstance(schema_type, (CdrArray, CdrSequence)):
        return _cdr_has_wide_text(schema_type.element_type)
    return schema_type == TextType(is_wide=True)


cdef class CdrReader:
    cdef _CdrValueReader _root
    cdef bint _is_cdr
    cdef list _widths  # possible units of wide texts; the last unit that worked comes first

    def __init__(self, struct not None, bint is_cdr):
        self._root, self._is_cdr = _cdr_make_reader(struct), is_cdr
        self._widths = [WIDE_TEXT_BYTES]
        if is_cdr and _cdr_has_wide_text(struct):
            self._widths += [WIDE_TEXT_UTF32_UNITS, WIDE_TEXT_UTF16_UNITS]

    def read(self, bytes message not None):
        cdef int wide
        first = None
        for wide in self._widths:
            try:
                value = self._read_message(message, wide)
            except MalformedPayloadError as fault:
                first = first or fault
                continue
            if first is not None:
                self._widths.sort(key=lambda width: width != wide)
            return value
        raise first.with_path()

    cdef object _read_message(self, bytes message, int wide):
        cdef CdrPayload p
        p.bytes = <const uint8_t *> PyBytes_AS_STRING(message)
        p.at, p.size, p.left, p.wide = 0, PyBytes_GET_SIZE(message), MESSAGE_VALUES_MAX, wide
        p.align, p.offset, p.is_cdr = 1, 0, self._is_cdr
        p.swap, p.is_second, p.is_delimited = not _is_little, False, False
        if self._is_cdr:
            _cdr_read_encapsulation(&p)
        value = self._root.read_value(&p, message)
        if p.size - p.at > (PADDING_BYTES_MAX if self._is_cdr else 0):
            raise MalformedPayloadError(
                f"message has {p.size + p.offset} bytes, "
                f"of which the schema leaves {p.size - p.at} unused"
            )
        return value


cdef int _cdr_read_encapsulation(CdrPayload *p) except -1:
    if p.size < ENCAPSULATION_BYTES:
        raise MalformedPayloadError(f"message has {p.size} bytes; a CDR header has {ENCAPSULATION_BYTES}")
    cdef int kind = p.bytes[0] << 8 | p.bytes[1]
    form = _CDR_FORMS.get(kind & ~1)
    if form is None:
        raise MalformedPayloadError(
            f"CDR representation 0x{kind:04x} is not supported; "
            "supported are CDR and XCDR2 without numbered members"
        )
    p.is_second, p.is_delimited = form
    p.swap = (kind & 1) != _is_little
    p.bytes += ENCAPSULATION_BYTES
    p.size -= ENCAPSULATION_BYTES
    p.offset = ENCAPSULATION_BYTES
    p.align = 4 if p.is_second else 8
    return 0
