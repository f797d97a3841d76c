from msgq.impl.base.endpointfile cimport EndpointFile
from msgq.impl.records.core cimport mq_record_parts, mq_record_config


cdef class RecordFile(EndpointFile):
    """The file of a vector or board; its lock. Without a name: private memory, which has neither."""
    cdef object wanted  # options.Opening or BoardOpening: what it shall be; None for who looks on
    cdef mq_record_parts parts
    cdef mq_record_config _shape(self) except *
    cdef bint is_board(self) noexcept

cdef RecordFile record_file(str name, str in_prefix, object trust, object wanted)
cdef RecordFile private_file(object wanted)
