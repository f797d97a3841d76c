from libc.stdint cimport uint64_t

from msgq.impl.base.segment cimport Segment

cdef tuple FIFO_SUFFIX
cdef Segment open_gate(str endpoint, str path)
cdef Segment make_gate(str endpoint, str path, bint enable, void **liveness_token)
cdef Segment remove_gate(str endpoint, str path, uint64_t inode)
