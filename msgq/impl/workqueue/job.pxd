from msgq.impl.workqueue.handle cimport Handle
from msgq.impl.workqueue.core cimport mq_queue_delivery

cdef object new_job(Handle queue, const mq_queue_delivery *delivery)
