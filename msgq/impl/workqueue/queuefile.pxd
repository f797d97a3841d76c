from msgq.impl.base.endpointfile cimport EndpointFile
from msgq.impl.workqueue.core cimport mq_queue_parts


cdef class QueueFile(EndpointFile):
    """A queue's file, mapped and open; its lock. Several handles of one process do not share it."""
    cdef object wanted          # options.OpenRequest: the sizes of a new one
    cdef mq_queue_parts parts

cdef QueueFile queue_file(str name, str in_prefix, object trust, object wanted)
