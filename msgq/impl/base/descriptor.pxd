from msgq.impl.base.core cimport mq_schema_parts

cdef int write_schema(const mq_schema_parts *at, object schema) except -1
cdef object read_schema(const mq_schema_parts *at)

# The whole of a schema, with what topics have no room for: version, identity, layout.
cdef int describe(const mq_schema_parts *at, object schema) except -1
cdef object described(const mq_schema_parts *at)
