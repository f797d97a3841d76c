"""Messages of Cap'n Proto as Python values, below Python: see core.pyi.

A schema becomes readers, one for each type. The values lie at places that the message itself says, so that each
place is checked, and the values are counted. Format: https://capnproto.org/encoding.html
"""


cdef enum:
    VALUES_MAX = 1 << 22  # of a message: a value in Python is a hundred times as large as its bytes may be
    CAPNP_LEVELS_MAX = 64
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
cdef Py_ssize_t[7] _capnp_bits = [0, 1, 8, 16, 32, 64, 64]  # of an element, by its size

cdef struct CapnpPayload:
    const uint8_t *bytes
    int64_t segments
    int64_t[SEGMENTS_MAX] begins  # in words
    int64_t[SEGMENTS_MAX] ends
    int64_t values_left
    int64_t bytes_left
    int levels_left

cdef struct CapnpStructPlace:  # of a struct: what it has of data, and of pointers
    int64_t segment
    int64_t data  # in bits, from the message's first one on
    int64_t data_bits
    int64_t pointers  # in words
    int64_t pointer_count

cdef struct CapnpPointer:  # what a pointer leads to
    uint64_t pointer  # what says its sizes; 0: it leads nowhere
    int64_t segment
    int64_t at  # in words

cdef struct CapnpListPlace:  # of a list
    int64_t segment
    int64_t at  # in words
    int64_t count
    int64_t kind
    int64_t data_words  # of each, if they are structs
    int64_t pointer_count


cdef inline uint64_t _capnp_word(CapnpPayload *p, int64_t at):
    return take_bits(p.bytes + at * WORD, 8, _is_swapped)


cdef inline int _capnp_need(CapnpPayload *p, int64_t segment, int64_t at, int64_t words) except -1:
    """Check that words are within a segment."""
    if at < p.begins[segment] or words > p.ends[segment] - at:
        raise MalformedPayloadError(f"{words} words at word {at} are not in segment {segment}")
    return 0


cdef inline int _capnp_spend(CapnpPayload *p, int64_t values, int64_t size) except -1:
    p.values_left -= values
    p.bytes_left -= size
    if p.values_left < 0:
        raise MalformedPayloadError(f"the message has more than {VALUES_MAX} values")
    if p.bytes_left < 0:
        raise MalformedPayloadError(f"the message has its own bytes more than {TIMES_MAX} times")
    return 0


cdef CapnpPointer _capnp_follow(CapnpPayload *p, int64_t segment, int64_t at) except *:
    """Return what the pointer at this word leads to."""
    cdef CapnpPointer target
    cdef uint64_t pointer, pad
    cdef bint is_double
    _capnp_need(p, segment, at, 1)
    pointer = _capnp_word(p, at)
    if pointer & 3 == FAR:
        is_double = (pointer >> 2) & 1
        segment = pointer >> 32
        if segment >= p.segments:
            raise MalformedPayloadError(f"it leads to segment {segment} of {p.segments}")
        at = p.begins[segment] + ((pointer >> 3) & 0x1FFFFFFF)
        _capnp_need(p, segment, at, 2 if is_double else 1)
        pad = _capnp_word(p, at)
        if is_double:
            pointer = _capnp_word(p, at + 1)
            segment = pad >> 32
            if pad & 7 != FAR or segment >= p.segments:
                raise MalformedPayloadError("it leads to what leads nowhere")
            target.at = p.begins[segment] + ((pad >> 3) & 0x1FFFFFFF)
            target.pointer, target.segment = pointer, segment
            return target
        pointer = pad
    target.pointer, target.segment = pointer, segment
    target.at = at + 1 + (<int32_t> <uint32_t> pointer >> 2)
    return target


cdef bint _capnp_struct_place(CapnpPayload *p, int64_t segment, int64_t at, CapnpStructPlace *place) except *:
    """Find the struct that a pointer leads to; False: it leads nowhere."""
    cdef CapnpPointer target = _capnp_follow(p, segment, at)
    if not target.pointer:
        return False
    if target.pointer & 3 != TO_STRUCT:
        raise MalformedPayloadError("it is no struct")
    cdef int64_t words = (target.pointer >> 32) & 0xFFFF
    place.segment, place.data, place.data_bits = target.segment, target.at * WORD * 8, words * WORD * 8
    place.pointers, place.pointer_count = target.at + words, target.pointer >> 48
    _capnp_need(p, target.segment, target.at, words + place.pointer_count)
    return True


cdef bint _capnp_list_place(CapnpPayload *p, int64_t segment, int64_t at, CapnpListPlace *elements) except *:
    """Find the list that a pointer leads to; False: it leads nowhere."""
    cdef CapnpPointer target = _capnp_follow(p, segment, at)
    cdef int64_t words
    if not target.pointer:
        return False
    if target.pointer & 3 != TO_LIST:
        raise MalformedPayloadError("it is no list")
    elements.segment, elements.at = target.segment, target.at
    elements.kind, elements.count = (target.pointer >> 32) & 7, target.pointer >> 35
    elements.data_words, elements.pointer_count = 0, elements.kind == OF_POINTER
    if elements.kind != OF_STRUCT:
        _capnp_need(p, elements.segment, elements.at, (elements.count * _capnp_bits[elements.kind] + 63) // 64)
        return True
    words = elements.count
    _capnp_need(p, elements.segment, elements.at, words + 1)
    cdef uint64_t tag = _capnp_word(p, elements.at)
    elements.at += 1
    elements.count, elements.data_words = (tag & 0xFFFFFFFF) >> 2, (tag >> 32) & 0xFFFF
    elements.pointer_count = tag >> 48
    if tag & 3 != TO_STRUCT or elements.count * (elements.data_words + elements.pointer_count) > words:
        raise MalformedPayloadError("a list's elements are more than its words")
    return True


cdef void _capnp_element(const CapnpListPlace *elements, int64_t number, CapnpStructPlace *place):
    """Say where an element of a list of structs is; of a list of anything else, as if each had one field."""
    place.segment, place.pointer_count = elements.segment, elements.pointer_count
    if elements.kind == OF_STRUCT:
        place.pointers = elements.at + number * (elements.data_words + elements.pointer_count) + elements.data_words
        place.data, place.data_bits = (place.pointers - elements.data_words) * WORD * 8, elements.data_words * WORD * 8
    else:
        place.data_bits = 0 if elements.kind == OF_POINTER else _capnp_bits[elements.kind]
        place.data = elements.at * WORD * 8 + number * place.data_bits
        place.pointers = elements.at + number


cdef class _CapnpValueReader:
    cdef object read(self, CapnpPayload *p, const CapnpStructPlace *place, int64_t number, bytes message):
        """Return the value of a field at a place within a struct; `_NOTHING` if it is not set."""
        return None

    cdef object nothing(self, CapnpPayload *p, bytes message):
        """Return the value of what is not set."""
        return None


cdef object _capnp_nothing = object()


cdef class _CapnpScalar(_CapnpValueReader):
    cdef char kind
    cdef int64_t bits
    cdef uint64_t default
    cdef dict names

    def __init__(self, schema_type):
        self.kind, self.default = ord(schema_type.code[0]), schema_type.default
        self.bits = 1 if schema_type.code == "b1" else 8 * int(schema_type.code[1:])
        self.names = None if schema_type.names is None else dict(schema_type.names)

    cdef object read(self, CapnpPayload *p, const CapnpStructPlace *place, int64_t number, bytes message):
        cdef int64_t at = number * self.bits
        cdef uint64_t bits = 0
        if at + self.bits <= place.data_bits:
            at += place.data
            if self.bits == 1:
                bits = p.bytes[at >> 3] >> (at & 7) & 1
            else:
                bits = take_bits(p.bytes + (at >> 3), self.bits >> 3, _is_swapped)
        value = number_of(bits ^ self.default, self.kind, self.bits >> 3)
        return value if self.names is None else self.names.get(value, value)


cdef class _CapnpText(_CapnpValueReader):
    cdef bint is_text

    def __init__(self, is_text):
        self.is_text = is_text

    cdef object read(self, CapnpPayload *p, const CapnpStructPlace *place, int64_t number, bytes message):
        cdef CapnpListPlace elements
        if number >= place.pointer_count or not _capnp_list_place(p, place.segment, place.pointers + number, &elements):
            return _capnp_nothing
        if elements.kind != OF_1:
            raise MalformedPayloadError("it is no text" if self.is_text else "it is no data")
        _capnp_spend(p, 1, elements.count)
        cdef const char *begin = <const char *> p.bytes + elements.at * WORD
        if not self.is_text:
            return PyBytes_FromStringAndSize(begin, elements.count)
        if not elements.count or begin[elements.count - 1]:
            raise MalformedPayloadError("a text lacks the NUL at its end")
        try:
            return PyUnicode_DecodeUTF8(begin, elements.count - 1, NULL)
        except UnicodeDecodeError as error:
            raise MalformedPayloadError(f"a text is no UTF-8: {error.reason}") from None

    cdef object nothing(self, CapnpPayload *p, bytes message):
        return "" if self.is_text else b""


cdef class _CapnpStruct(_CapnpValueReader):
    cdef bint is_group
    cdef int64_t union_bits  # where the union is; -1: there is none
    cdef list names, readers, places, members

    cdef fill(self, schema_type, _CapnpReaders cache):
        self.is_group = schema_type.is_group
        self.union_bits = -1 if schema_type.union_place is None else schema_type.union_place * 16
        self.names = [sys.intern(field.name) for field in schema_type.fields]
        self.readers = [_capnp_reader(field.value_type, cache) for field in schema_type.fields]
        self.places = [field.place for field in schema_type.fields]
        self.members = [-1 if field.member is None else field.member for field in schema_type.fields]

    cdef object read(self, CapnpPayload *p, const CapnpStructPlace *place, int64_t number, bytes message):
        cdef CapnpStructPlace target
        if self.is_group:
            return self.read_at(p, place, message)
        if number >= place.pointer_count or not _capnp_struct_place(p, place.segment, place.pointers + number, &target):
            return _capnp_nothing
        return self.read_at(p, &target, message)

    cdef object nothing(self, CapnpPayload *p, bytes message):
        cdef CapnpStructPlace place
        place.segment = place.data = place.data_bits = place.pointers = place.pointer_count = 0
        return self.read_at(p, &place, message)

    cdef object read_at(self, CapnpPayload *p, const CapnpStructPlace *place, bytes message):
        """Return the struct that is here."""
        cdef Py_ssize_t i = 0
        cdef int64_t has = 0, member, number
        cdef dict fields = {}
        _capnp_spend(p, len(self.names) + 1, 0)
        p.levels_left -= 1
        if p.levels_left < 0:
            raise MalformedPayloadError(f"it is nested deeper than {CAPNP_LEVELS_MAX} levels")
        if 0 <= self.union_bits <= place.data_bits - 16:
            has = take_bits(p.bytes + ((place.data + self.union_bits) >> 3), 2, _is_swapped)
        try:
            for i in range(len(self.names)):
                member, number = self.members[i], self.places[i]
                if member < 0 or member == has:
                    value = (<_CapnpValueReader> self.readers[i]).read(p, place, number, message)
                    if value is not _capnp_nothing:
                        fields[self.names[i]] = value
                    elif member >= 0:  # that it is this one, is what the message says
                        fields[self.names[i]] = (<_CapnpValueReader> self.readers[i]).nothing(p, message)
        except MalformedPayloadError as fault:
            fault.path.append(f".{self.names[i]}")
            raise
        p.levels_left += 1
        return fields


cdef class _CapnpList(_CapnpValueReader):
    cdef _CapnpValueReader element
    cdef object dtype  # of numbers that become an array
    cdef int64_t kind  # that its elements have, unless they became structs when the schema grew
    cdef bint are_octets

    def __init__(self, schema_type, _CapnpReaders cache):
        value_type = schema_type.value_type
        self.element, self.dtype, self.kind, self.are_octets = _capnp_reader(value_type, cache), None, OF_POINTER, False
        if isinstance(value_type, capnproto.Void):
            self.kind = OF_VOID
        elif isinstance(value_type, capnproto.Scalar):
            code = value_type.code
            self.kind = OF_BIT if code == "b1" else {1: OF_1, 2: OF_2, 4: OF_4, 8: OF_8}[int(code[1:])]
            if value_type.names is None:
                self.dtype, self.are_octets = np.dtype(code).newbyteorder("<"), code == "u1"

    cdef object read(self, CapnpPayload *p, const CapnpStructPlace *place, int64_t number, bytes message):
        cdef CapnpListPlace elements
        if number >= place.pointer_count or not _capnp_list_place(p, place.segment, place.pointers + number, &elements):
            return _capnp_nothing
        if isinstance(self.element, _CapnpStruct):
            if elements.kind == OF_BIT:
                raise MalformedPayloadError("structs are no list of bits")
        elif elements.kind != self.kind and elements.kind != OF_STRUCT:
            raise MalformedPayloadError(f"a list's elements are of the size {elements.kind} and not {self.kind}")
        if self.dtype is None or elements.kind == OF_STRUCT:
            return self.one_by_one(p, &elements, message)
        if self.are_octets:
            _capnp_spend(p, 1, elements.count)
            return PyBytes_FromStringAndSize(<const char *> p.bytes + elements.at * WORD, elements.count)
        if self.kind != OF_BIT:
            numbers = np.frombuffer(message, self.dtype, elements.count, elements.at * WORD)
            return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
        _capnp_spend(p, 1, elements.count)
        bits = np.frombuffer(message, np.uint8, (elements.count + 7) // 8, elements.at * WORD)
        return np.unpackbits(bits, count=elements.count, bitorder="little").view(np.bool_)

    cdef object nothing(self, CapnpPayload *p, bytes message):
        return b"" if self.are_octets else [] if self.dtype is None else np.empty(0, self.dtype.newbyteorder("="))

    cdef object one_by_one(self, CapnpPayload *p, const CapnpListPlace *elements, bytes message):
        cdef int64_t i = 0
        cdef CapnpStructPlace place
        cdef list values = []
        _capnp_spend(p, elements.count, 0)
        try:
            for i in range(elements.count):
                _capnp_element(elements, i, &place)
                if isinstance(self.element, _CapnpStruct):
                    value = (<_CapnpStruct> self.element).read_at(p, &place, message)
                else:
                    value = self.element.read(p, &place, 0, message)
                values.append(None if value is _capnp_nothing else value)
        except MalformedPayloadError as fault:
            fault.path.append(f"[{i}]")
            raise
        return np.array(values, self.dtype.newbyteorder("=")) if self.dtype is not None else values


cdef class _CapnpReaders:
    """The readers of a schema: one for each struct, and those that have no fields yet."""

    cdef dict structs
    cdef list empty

    def __init__(self):
        self.structs, self.empty = {}, []


cdef _CapnpValueReader _capnp_reader(object schema_type, _CapnpReaders cache):
    if isinstance(schema_type, capnproto.Struct):
        if schema_type not in cache.structs:
            cache.structs[schema_type] = _CapnpStruct()
            cache.empty.append((cache.structs[schema_type], schema_type))
        return cache.structs[schema_type]
    if isinstance(schema_type, capnproto.Scalar):
        return _CapnpScalar(schema_type)
    if isinstance(schema_type, (capnproto.Text, capnproto.Data)):
        return _CapnpText(isinstance(schema_type, capnproto.Text))
    if isinstance(schema_type, (capnproto.Void, capnproto.Opaque)):
        return _CapnpValueReader()
    return _CapnpList(schema_type, cache)


cdef class CapnpReader:
    cdef _CapnpStruct _root

    def __init__(self, struct not None):
        cache = _CapnpReaders()
        self._root = _capnp_reader(struct, cache)
        while cache.empty:
            reader, schema_type = cache.empty.pop()
            (<_CapnpStruct> reader).fill(schema_type, cache)

    def read(self, bytes message not None):
        cdef CapnpPayload p
        cdef CapnpStructPlace root
        try:
            _capnp_begin(&p, message)
            if _capnp_struct_place(&p, 0, p.begins[0], &root):
                return self._root.read_at(&p, &root, message)
            raise MalformedPayloadError("it has no root")
        except MalformedPayloadError as fault:
            raise fault.with_path() from None


cdef int _capnp_begin(CapnpPayload *p, bytes message) except -1:
    """Find the segments."""
    cdef int64_t size = PyBytes_GET_SIZE(message), at, length, i
    p.bytes = <const uint8_t *> PyBytes_AS_STRING(message)
    p.values_left, p.bytes_left, p.levels_left = VALUES_MAX, TIMES_MAX * size + BYTES_FREE, CAPNP_LEVELS_MAX
    if size < WORD:
        raise MalformedPayloadError(f"it has {size} bytes, and at least {WORD} are needed")
    p.segments = <int64_t> take_bits(p.bytes, 4, _is_swapped) + 1
    at = p.segments // 2 + 1
    if p.segments > SEGMENTS_MAX or at * WORD > size:
        raise MalformedPayloadError(f"it has {p.segments} segments, and {size} bytes")
    for i in range(p.segments):
        length = take_bits(p.bytes + 4 * (i + 1), 4, _is_swapped)
        if length > size // WORD - at:
            raise MalformedPayloadError(f"its segment {i} ends behind its {size} bytes")
        p.begins[i], p.ends[i] = at, at + length
        at += length
    return 0
