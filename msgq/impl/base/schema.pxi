"""The schema descriptor of a segment as a msgq.Schema. See schema.h for the order of the steps."""


cdef int write_schema(const mq_schema_parts *at, object schema) except -1:
    """Write the schema. The caller holds the component's lock, and has checked that the schema fits."""
    mq_schema_write(at, schema.name.encode(), schema.encodings.encode(), schema.data, len(schema.data))
    return 0


cdef object read_schema(const mq_schema_parts *at):
    """Return the schema without marks. Return None if there is none, or its text is invalid."""
    parts = _read_schema_parts(at)
    try:
        return None if parts is None else _make_schema(*parts)
    except ValueError:
        return None  # a schema that another program wrote is too long


@functools.lru_cache(maxsize=64)  # most programs open several endpoints with few schemas
def _make_schema(name, encodings, data, *marks):
    from msgq.common.schema import Schema, split_encoding  # imported late: few sockets need it
    encoding, definition = split_encoding(encodings)
    return Schema(name, encoding, data, *marks, schema_encoding=definition)


cdef object _read_schema_parts(const mq_schema_parts *at):
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


# Marks before the data of a full schema: version, identity, layout.
_SCHEMA_MARKS = struct.Struct("<Q64s64sBB6x")


cdef int write_full_schema(const mq_schema_parts *at, object schema) except -1:
    """As write_schema, with marks."""
    name, encodings, data = encode_full_schema(schema)
    mq_schema_write(at, name, encodings, data, len(data))
    return 0


cdef tuple encode_full_schema(object schema):
    """Return name, encodings, and marks with data, as mq_schema_write needs them."""
    marks = _SCHEMA_MARKS.pack(schema.version, schema.identity, schema.layout, len(schema.identity), len(schema.layout))
    return schema.name.encode(), schema.encodings.encode(), marks + schema.data


cdef object read_full_schema(const mq_schema_parts *at):
    """Return the schema that `write_full_schema` wrote. Return None if there is none, or its bytes are invalid."""
    there = _read_schema_parts(at)
    if there is None or len(there[2]) < _SCHEMA_MARKS.size:
        return None
    name, encoding, data = there
    version, identity, layout, identity_size, layout_size = _SCHEMA_MARKS.unpack_from(data)
    try:
        return _make_schema(name, encoding, data[_SCHEMA_MARKS.size:], identity[:identity_size], layout[:layout_size],
                            version)
    except ValueError:
        return None
