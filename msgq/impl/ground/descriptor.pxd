from msgq.impl.ground.core cimport mq_schema_parts

cdef int write_schema(const mq_schema_parts *at, object schema) except -1
cdef object read_schema(const mq_schema_parts *at)
cdef object read_parts(const mq_schema_parts *at)
