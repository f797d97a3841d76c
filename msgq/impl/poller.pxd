cdef class Poller:
    cdef list _sockets
    cdef bint _pass_gates(self) except -1
