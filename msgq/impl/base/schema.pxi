"""The schema descriptor of a segment as a msgq.Schema. See schema.h for the order of the steps."""


cdef int write_schema(const mq_schema_parts *at, object schema) except -1:
    """Write the schema. The caller holds the component's lock, and has checked that the schema fits."""
    mq_schema_write(at, schema.name.encode(), schema.encodings.encode(), schema.data, len(schema.data))
    return 0


cdef object read_schema(const mq_schema_parts *at):
    """Return the schema without marks. Return None if there is none, or its text is invalid."""
    parts = _read_schema_parts(at)
    try:
        return None if parts is None else _make_schema(parts)
    except ValueError:
        return None  # a schema that another program wrote is too long


cdef enum:
    KNOWN_SCHEMAS_MAX = 64  # most programs open several endpoints with few schemas
cdef dict _known_schemas = {}  # schemas by the argument of `_make_schema`


cdef object _make_schema(tuple parts):
    """Return the schema of name, encodings, data, and the marks of a full schema."""
    schema = _known_schemas.get(parts)
    if schema is None:
        from msgq.common.schema import Schema, split_encoding  # imported late: few sockets need it
        name, encodings, data, *marks = parts
        encoding, definition = split_encoding(encodings)
        schema = Schema(name, encoding, data, *marks, schema_encoding=definition)
        if len(_known_schemas) >= KNOWN_SCHEMAS_MAX:
            _known_schemas.clear()
        _known_schemas[parts] = schema
    return schema


cdef tuple _read_schema_parts(const mq_schema_parts *at):
    """Return name, encoding and data of the schema. Return None if there is none, or its text is invalid."""
    cdef char name[MQ_SCHEMA_NAME + 1]
    cdef char encoding[MQ_SCHEMA_ENCODING + 1]
    cdef uint64_t size = 0
    cdef char *data = <char *> malloc(at.room)
    if data == NULL:
        raise MemoryError()
    try:
        name[MQ_SCHEMA_NAME] = encoding[MQ_SCHEMA_ENCODING] = 0
        if not mq_schema_read(at, name, encoding, data, &size) or not name[0]:
            return None
        return (<bytes> name).decode(), (<bytes> encoding).decode(), data[:size]
    except ValueError:
        return None  # the name or encoding is not UTF-8
    finally:
        free(data)


cdef enum:
    SCHEMA_FINGERPRINT = 64  # bytes of the longest fingerprint of a `Schema`


# Marks before the data of a full schema.
cdef packed struct SchemaMarks:
    uint64_t version
    char identity[SCHEMA_FINGERPRINT]
    char layout[SCHEMA_FINGERPRINT]
    uint8_t identity_size, layout_size
    uint8_t unused[6]


cdef int write_full_schema(const mq_schema_parts *at, object schema) except -1:
    """As write_schema, with marks."""
    name, encodings, data = encode_full_schema(schema)
    mq_schema_write(at, name, encodings, data, len(data))
    return 0


cdef tuple encode_full_schema(object schema):
    """Return name, encodings, and marks with data, as mq_schema_write needs them."""
    cdef SchemaMarks marks
    cdef bytes identity = schema.identity, layout = schema.layout
    memset(&marks, 0, sizeof(marks))
    marks.version, marks.identity_size, marks.layout_size = schema.version, len(identity), len(layout)
    memcpy(marks.identity, <const char *> identity, marks.identity_size)
    memcpy(marks.layout, <const char *> layout, marks.layout_size)
    return schema.name.encode(), schema.encodings.encode(), (<char *> &marks)[:sizeof(marks)] + schema.data


cdef object read_full_schema(const mq_schema_parts *at):
    """Return the schema that `write_full_schema` wrote. Return None if there is none, or its bytes are invalid."""
    cdef SchemaMarks marks
    there = _read_schema_parts(at)
    if there is None or len(there[2]) < <Py_ssize_t> sizeof(marks):
        return None
    name, encodings, data = there
    memcpy(&marks, <const char *> <bytes> data, sizeof(marks))
    identity = marks.identity[:min(marks.identity_size, SCHEMA_FINGERPRINT)]
    layout = marks.layout[:min(marks.layout_size, SCHEMA_FINGERPRINT)]
    try:
        return _make_schema((name, encodings, data[sizeof(marks):], identity, layout, marks.version))
    except ValueError:
        return None
