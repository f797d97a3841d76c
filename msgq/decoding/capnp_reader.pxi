"""Messages of Cap'n Proto as Python values, in compiled code. See core.pyi.

A schema becomes readers, one for each type. A message itself contains the positions of its values. Therefore each
position is checked, and the number of values is limited. Format: https://capnproto.org/encoding.html
"""


cdef enum:
    # maximum values of a message: a Python value may take a hundred times as much memory as its bytes
    MESSAGE_VALUES_MAX = 1 << 22
    CAPNP_NESTING_MAX = 64
    # maximum text and data, as a multiple of the message's bytes, plus FREE_OUTPUT_BYTES for small messages
    AMPLIFICATION_MAX = 16
    FREE_OUTPUT_BYTES = 65536
    CAPNP_SEGMENTS_MAX = 512
    WORD_BYTES = 8

cdef enum:  # types of pointers
    POINTER_TO_STRUCT
    POINTER_TO_LIST
    POINTER_FAR

cdef enum:  # sizes of elements, with the names of the format
    ELEMENT_VOID
    ELEMENT_BIT
    ELEMENT_1_BYTE
    ELEMENT_2_BYTES
    ELEMENT_4_BYTES
    ELEMENT_8_BYTES
    ELEMENT_POINTER
    ELEMENT_STRUCT

cdef bint _is_big_endian = sys.byteorder == "big"
cdef Py_ssize_t[7] _capnp_element_bits = [0, 1, 8, 16, 32, 64, 64]  # bits of an element of each size

cdef struct CapnpPayload:
    const uint8_t *bytes
    int64_t segment_count
    int64_t[CAPNP_SEGMENTS_MAX] segment_begins  # offsets in words
    int64_t[CAPNP_SEGMENTS_MAX] segment_ends
    int64_t values_left
    int64_t bytes_left
    int levels_left

cdef struct CapnpStructLocation:  # location of a struct: its data and its pointers
    int64_t segment
    int64_t data  # offset in bits, from the beginning of the message
    int64_t data_size_bits
    int64_t pointers  # offset in words
    int64_t pointer_count

cdef struct CapnpPointerTarget:  # target of a pointer
    uint64_t pointer  # the pointer word, which contains sizes; 0: a null pointer
    int64_t segment
    int64_t at  # offset in words

cdef struct CapnpListLocation:  # location of a list
    int64_t segment
    int64_t at  # offset in words
    int64_t count
    int64_t kind
    int64_t data_words  # number of data words of each element, if elements are structs
    int64_t pointer_count


cdef inline uint64_t _capnp_load_word(CapnpPayload *p, int64_t at):
    return load_unsigned(p.bytes + at * WORD_BYTES, 8, _is_big_endian)


cdef inline int _capnp_check_range(CapnpPayload *p, int64_t segment, int64_t at, int64_t words) except -1:
    """Check that words are within a segment."""
    if at < p.segment_begins[segment] or words > p.segment_ends[segment] - at:
        raise MalformedPayloadError(f"pointer leads out of segment {segment}: {words} words at word {at}")
    return 0


cdef inline int _capnp_charge_budget(CapnpPayload *p, int64_t values, int64_t size) except -1:
    p.values_left -= values
    p.bytes_left -= size
    if p.values_left < 0:
        raise MalformedPayloadError(f"message has more than {MESSAGE_VALUES_MAX} values")
    if p.bytes_left < 0:
        raise MalformedPayloadError(f"pointers repeat the bytes of the message more than {AMPLIFICATION_MAX} times")
    return 0


cdef CapnpPointerTarget _capnp_follow_pointer(CapnpPayload *p, int64_t segment, int64_t at) except *:
    """Return the target of the pointer at this word."""
    cdef CapnpPointerTarget target
    cdef uint64_t pointer, pad
    cdef bint is_double
    _capnp_check_range(p, segment, at, 1)
    pointer = _capnp_load_word(p, at)
    if pointer & 3 == POINTER_FAR:
        is_double = (pointer >> 2) & 1
        segment = pointer >> 32
        if segment >= p.segment_count:
            raise MalformedPayloadError(
                f"pointer leads to segment {segment}; the message has {p.segment_count} segments"
            )
        at = p.segment_begins[segment] + ((pointer >> 3) & 0x1FFFFFFF)
        _capnp_check_range(p, segment, at, 2 if is_double else 1)
        pad = _capnp_load_word(p, at)
        if is_double:
            pointer = _capnp_load_word(p, at + 1)
            segment = pad >> 32
            if pad & 7 != POINTER_FAR or segment >= p.segment_count:
                raise MalformedPayloadError("far pointer leads to an invalid landing pad")
            target.at = p.segment_begins[segment] + ((pad >> 3) & 0x1FFFFFFF)
            target.pointer, target.segment = pointer, segment
            return target
        pointer = pad
    target.pointer, target.segment = pointer, segment
    target.at = at + 1 + (<int32_t> <uint32_t> pointer >> 2)
    return target


cdef bint _capnp_locate_struct(CapnpPayload *p, int64_t segment, int64_t at, CapnpStructLocation *place) except *:
    """Find the struct of a pointer. Return False for a null pointer."""
    cdef CapnpPointerTarget target = _capnp_follow_pointer(p, segment, at)
    if not target.pointer:
        return False
    if target.pointer & 3 != POINTER_TO_STRUCT:
        raise MalformedPayloadError("pointer does not lead to a struct")
    cdef int64_t words = (target.pointer >> 32) & 0xFFFF
    place.segment, place.data, place.data_size_bits = target.segment, target.at * WORD_BYTES * 8, words * WORD_BYTES * 8
    place.pointers, place.pointer_count = target.at + words, target.pointer >> 48
    _capnp_check_range(p, target.segment, target.at, words + place.pointer_count)
    return True


cdef bint _capnp_locate_list(CapnpPayload *p, int64_t segment, int64_t at, CapnpListLocation *elements) except *:
    """Find the list of a pointer. Return False for a null pointer."""
    cdef CapnpPointerTarget target = _capnp_follow_pointer(p, segment, at)
    cdef int64_t words
    if not target.pointer:
        return False
    if target.pointer & 3 != POINTER_TO_LIST:
        raise MalformedPayloadError("pointer does not lead to a list")
    elements.segment, elements.at = target.segment, target.at
    elements.kind, elements.count = (target.pointer >> 32) & 7, target.pointer >> 35
    elements.data_words, elements.pointer_count = 0, elements.kind == ELEMENT_POINTER
    if elements.kind != ELEMENT_STRUCT:
        words = (elements.count * _capnp_element_bits[elements.kind] + 63) // 64
        _capnp_check_range(p, elements.segment, elements.at, words)
        return True
    words = elements.count
    _capnp_check_range(p, elements.segment, elements.at, words + 1)
    cdef uint64_t tag = _capnp_load_word(p, elements.at)
    elements.at += 1
    elements.count, elements.data_words = (tag & 0xFFFFFFFF) >> 2, (tag >> 32) & 0xFFFF
    elements.pointer_count = tag >> 48
    if tag & 3 != POINTER_TO_STRUCT or elements.count * (elements.data_words + elements.pointer_count) > words:
        raise MalformedPayloadError("list has more elements than its words can hold")
    return True


cdef void _capnp_locate_element(const CapnpListLocation *elements, int64_t number, CapnpStructLocation *place):
    """Return the location of a list's element. Other elements than structs are treated as structs with one field."""
    place.segment, place.pointer_count = elements.segment, elements.pointer_count
    if elements.kind == ELEMENT_STRUCT:
        place.pointers = elements.at + number * (elements.data_words + elements.pointer_count) + elements.data_words
        place.data = (place.pointers - elements.data_words) * WORD_BYTES * 8
        place.data_size_bits = elements.data_words * WORD_BYTES * 8
    else:
        place.data_size_bits = 0 if elements.kind == ELEMENT_POINTER else _capnp_element_bits[elements.kind]
        place.data = elements.at * WORD_BYTES * 8 + number * place.data_size_bits
        place.pointers = elements.at + number


cdef class _CapnpValueReader:
    cdef object read_value(self, CapnpPayload *p, const CapnpStructLocation *place, int64_t number, bytes message):
        """Return the value of a field within a struct, or `_capnp_unset` if it is not set."""
        return None

    cdef object make_default_value(self, CapnpPayload *p, bytes message):
        """Return the default value of an unset field."""
        return None


cdef object _capnp_unset = object()


cdef class _CapnpScalarReader(_CapnpValueReader):
    cdef char kind
    cdef int64_t bits
    cdef uint64_t default
    cdef dict names

    def __init__(self, schema_type, default_bits):
        self.kind, self.default = ord(schema_type.code[0]), default_bits
        self.bits = 1 if schema_type.code == "b1" else 8 * int(schema_type.code[1:])
        self.names = None if schema_type.enum_names is None else dict(schema_type.enum_names)

    cdef object read_value(self, CapnpPayload *p, const CapnpStructLocation *place, int64_t number, bytes message):
        cdef int64_t at = number * self.bits
        cdef uint64_t bits = 0
        if at + self.bits <= place.data_size_bits:
            at += place.data
            if self.bits == 1:
                bits = p.bytes[at >> 3] >> (at & 7) & 1
            else:
                bits = load_unsigned(p.bytes + (at >> 3), self.bits >> 3, _is_big_endian)
        value = make_python_number(bits ^ self.default, self.kind, self.bits >> 3)
        return value if self.names is None else self.names.get(value, value)


cdef class _CapnpBytesReader(_CapnpValueReader):
    cdef bint is_text

    def __init__(self, is_text):
        self.is_text = is_text

    cdef object read_value(self, CapnpPayload *p, const CapnpStructLocation *place, int64_t number, bytes message):
        cdef CapnpListLocation elements
        if number >= place.pointer_count:
            return _capnp_unset
        if not _capnp_locate_list(p, place.segment, place.pointers + number, &elements):
            return _capnp_unset
        if elements.kind != ELEMENT_1_BYTE:
            raise MalformedPayloadError(f"list elements are not bytes; expected {'text' if self.is_text else 'data'}")
        _capnp_charge_budget(p, 1, elements.count)
        cdef const char *begin = <const char *> p.bytes + elements.at * WORD_BYTES
        if not self.is_text:
            return PyBytes_FromStringAndSize(begin, elements.count)
        if not elements.count or begin[elements.count - 1]:
            raise MalformedPayloadError("text lacks the NUL at its end")
        try:
            return PyUnicode_DecodeUTF8(begin, elements.count - 1, NULL)
        except UnicodeDecodeError as error:
            raise MalformedPayloadError(f"text contains invalid UTF-8 at byte {error.start}: {error.reason}") from None

    cdef object make_default_value(self, CapnpPayload *p, bytes message):
        return "" if self.is_text else b""


cdef class _CapnpStructReader(_CapnpValueReader):
    cdef bint is_group
    cdef int64_t discriminant_bit  # position of the union's discriminant; -1: no union
    cdef list names, readers, positions, discriminants

    cdef set_fields(self, schema_type, _CapnpReaderCache cache):
        self.is_group = schema_type.is_group
        position = schema_type.discriminant_position
        self.discriminant_bit = -1 if position is None else position * 16
        self.names = [sys.intern(field.name) for field in schema_type.fields]
        self.readers = [_capnp_make_field_reader(field, cache) for field in schema_type.fields]
        self.positions = [field.position for field in schema_type.fields]
        self.discriminants = [-1 if field.discriminant is None else field.discriminant for field in schema_type.fields]

    cdef object read_value(self, CapnpPayload *p, const CapnpStructLocation *place, int64_t number, bytes message):
        cdef CapnpStructLocation target
        if self.is_group:
            return self.read_struct_at(p, place, message)
        if number >= place.pointer_count:
            return _capnp_unset
        if not _capnp_locate_struct(p, place.segment, place.pointers + number, &target):
            return _capnp_unset
        return self.read_struct_at(p, &target, message)

    cdef object make_default_value(self, CapnpPayload *p, bytes message):
        cdef CapnpStructLocation place
        place.segment = place.data = place.data_size_bits = place.pointers = place.pointer_count = 0
        return self.read_struct_at(p, &place, message)

    cdef object read_struct_at(self, CapnpPayload *p, const CapnpStructLocation *place, bytes message):
        """Return the struct at this location."""
        cdef Py_ssize_t i = 0
        cdef int64_t has = 0, member, number
        cdef dict fields = {}
        _capnp_charge_budget(p, len(self.names) + 1, 0)
        p.levels_left -= 1
        if p.levels_left < 0:
            raise MalformedPayloadError(f"value is nested deeper than {CAPNP_NESTING_MAX} levels")
        if 0 <= self.discriminant_bit <= place.data_size_bits - 16:
            has = load_unsigned(p.bytes + ((place.data + self.discriminant_bit) >> 3), 2, _is_big_endian)
        try:
            for i in range(len(self.names)):
                member, number = self.discriminants[i], self.positions[i]
                if member < 0 or member == has:
                    value = (<_CapnpValueReader> self.readers[i]).read_value(p, place, number, message)
                    if value is not _capnp_unset:
                        fields[self.names[i]] = value
                    elif member >= 0:  # store the default, because the discriminant itself is information
                        fields[self.names[i]] = (<_CapnpValueReader> self.readers[i]).make_default_value(p, message)
        except MalformedPayloadError as fault:
            fault.path.append(f".{self.names[i]}")
            raise
        p.levels_left += 1
        return fields


cdef class _CapnpListReader(_CapnpValueReader):
    cdef _CapnpValueReader element
    cdef object dtype  # dtype of numbers that become an array
    cdef int64_t kind  # size kind of the elements, unless a later schema made the elements structs
    cdef bint are_bytes

    def __init__(self, schema_type, _CapnpReaderCache cache):
        element_type = schema_type.element_type
        self.element = _capnp_make_reader(element_type, cache)
        self.dtype, self.kind, self.are_bytes = None, ELEMENT_POINTER, False
        if isinstance(element_type, CapnpVoid):
            self.kind = ELEMENT_VOID
        elif isinstance(element_type, ScalarType):
            code = element_type.code
            kinds = {1: ELEMENT_1_BYTE, 2: ELEMENT_2_BYTES, 4: ELEMENT_4_BYTES, 8: ELEMENT_8_BYTES}
            self.kind = ELEMENT_BIT if code == "b1" else kinds[element_type.size_bytes]
            if element_type.enum_names is None:
                self.dtype, self.are_bytes = np.dtype(code).newbyteorder("<"), code == "u1"

    cdef object read_value(self, CapnpPayload *p, const CapnpStructLocation *place, int64_t number, bytes message):
        cdef CapnpListLocation elements
        if number >= place.pointer_count:
            return _capnp_unset
        if not _capnp_locate_list(p, place.segment, place.pointers + number, &elements):
            return _capnp_unset
        if isinstance(self.element, _CapnpStructReader):
            if elements.kind == ELEMENT_BIT:
                raise MalformedPayloadError("list has elements of one bit; expected structs")
        elif elements.kind != self.kind and elements.kind != ELEMENT_STRUCT:
            raise MalformedPayloadError(f"list has element size code {elements.kind}; expected {self.kind}")
        if self.dtype is None or elements.kind == ELEMENT_STRUCT:
            return self.read_elements(p, &elements, message)
        if self.are_bytes:
            _capnp_charge_budget(p, 1, elements.count)
            return PyBytes_FromStringAndSize(<const char *> p.bytes + elements.at * WORD_BYTES, elements.count)
        if self.kind != ELEMENT_BIT:
            numbers = np.frombuffer(message, self.dtype, elements.count, elements.at * WORD_BYTES)
            return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
        _capnp_charge_budget(p, 1, elements.count)
        bits = np.frombuffer(message, np.uint8, (elements.count + 7) // 8, elements.at * WORD_BYTES)
        return np.unpackbits(bits, count=elements.count, bitorder="little").view(np.bool_)

    cdef object make_default_value(self, CapnpPayload *p, bytes message):
        return b"" if self.are_bytes else [] if self.dtype is None else np.empty(0, self.dtype.newbyteorder("="))

    cdef object read_elements(self, CapnpPayload *p, const CapnpListLocation *elements, bytes message):
        cdef int64_t i = 0
        cdef CapnpStructLocation place
        cdef list values = []
        _capnp_charge_budget(p, elements.count, 0)
        try:
            for i in range(elements.count):
                _capnp_locate_element(elements, i, &place)
                if isinstance(self.element, _CapnpStructReader):
                    value = (<_CapnpStructReader> self.element).read_struct_at(p, &place, message)
                else:
                    value = self.element.read_value(p, &place, 0, message)
                values.append(None if value is _capnp_unset else value)
        except MalformedPayloadError as fault:
            fault.path.append(f"[{i}]")
            raise
        return np.array(values, self.dtype.newbyteorder("=")) if self.dtype is not None else values


cdef class _CapnpReaderCache:
    """The readers of a schema, one for each struct, and readers that have no fields yet."""

    cdef dict structs
    cdef list empty

    def __init__(self):
        self.structs, self.empty = {}, []


cdef _CapnpValueReader _capnp_make_reader(object schema_type, _CapnpReaderCache cache):
    if isinstance(schema_type, CapnpStruct):
        if schema_type not in cache.structs:
            cache.structs[schema_type] = _CapnpStructReader()
            cache.empty.append((cache.structs[schema_type], schema_type))
        return cache.structs[schema_type]
    if isinstance(schema_type, ScalarType):
        return _CapnpScalarReader(schema_type, 0)
    if isinstance(schema_type, (TextType, CapnpData)):
        return _CapnpBytesReader(isinstance(schema_type, TextType))
    if isinstance(schema_type, (CapnpVoid, CapnpAnyPointer)):
        return _CapnpValueReader()
    return _CapnpListReader(schema_type, cache)


cdef _CapnpValueReader _capnp_make_field_reader(object field, _CapnpReaderCache cache):
    if isinstance(field.value_type, ScalarType):
        return _CapnpScalarReader(field.value_type, field.default_bits)
    return _capnp_make_reader(field.value_type, cache)


cdef class CapnpReader:
    cdef _CapnpStructReader _root

    def __init__(self, struct not None):
        cache = _CapnpReaderCache()
        self._root = _capnp_make_reader(struct, cache)
        while cache.empty:
            reader, schema_type = cache.empty.pop()
            (<_CapnpStructReader> reader).set_fields(schema_type, cache)

    def read(self, bytes message not None):
        cdef CapnpPayload p
        cdef CapnpStructLocation root
        try:
            _capnp_read_segment_table(&p, message)
            if _capnp_locate_struct(&p, 0, p.segment_begins[0], &root):
                return self._root.read_struct_at(&p, &root, message)
            raise MalformedPayloadError("message has no root struct")
        except MalformedPayloadError as fault:
            raise fault.with_path() from None


cdef int _capnp_read_segment_table(CapnpPayload *p, bytes message) except -1:
    """Read the segment table."""
    cdef int64_t size = PyBytes_GET_SIZE(message), at, length, i
    p.bytes = <const uint8_t *> PyBytes_AS_STRING(message)
    p.values_left, p.levels_left = MESSAGE_VALUES_MAX, CAPNP_NESTING_MAX
    p.bytes_left = AMPLIFICATION_MAX * size + FREE_OUTPUT_BYTES
    if size < WORD_BYTES:
        raise MalformedPayloadError(f"message has {size} bytes; at least {WORD_BYTES} are needed")
    p.segment_count = <int64_t> load_unsigned(p.bytes, 4, _is_big_endian) + 1
    at = p.segment_count // 2 + 1
    if p.segment_count > CAPNP_SEGMENTS_MAX or at * WORD_BYTES > size:
        raise MalformedPayloadError(f"message has {size} bytes, too few for its {p.segment_count} segments")
    for i in range(p.segment_count):
        length = load_unsigned(p.bytes + 4 * (i + 1), 4, _is_big_endian)
        if length > size // WORD_BYTES - at:
            raise MalformedPayloadError(f"segment {i} ends after the {size} bytes of the message")
        p.segment_begins[i], p.segment_ends[i] = at, at + length
        at += length
    return 0
