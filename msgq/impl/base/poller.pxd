cdef class Poller:
    cdef list _sockets           # Waitable, of any kind
    cdef readonly bint _stepped  # the last poll was a step of an event-gated run, which is one look and no wait
    cdef bint _pass_gates(self) except -1
