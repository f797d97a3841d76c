from msgq.impl.base.segment cimport Segment

cdef object channel_stats(Segment segment, str name, str in_prefix, trust, schema)

cdef object channel_counts(Segment segment)
