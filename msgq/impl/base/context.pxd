cdef class Context:
    cdef readonly bint closed


cdef enum UseState:
    # A socket's ticket is the fork generation while it may be used, else one of these.
    CLOSED = -1
    BUSY = -2       # another thread is using it (or a signal handler interrupted a call on it)
    RESERVED = -3   # a reservation is open

cdef enum:
    # From this size on a copy takes long enough (some 30 us) that other threads should run meanwhile.
    LARGE_BYTES = 262144

# Refuse what is not of a simulation to the simulation's nodes.
cdef int refuse_in_simulation(str endpoint) except -1
cdef int check_open(Context context, str endpoint) except -1
cdef void close_at_exit(socket)
cdef object usage_error(int ticket, str endpoint)
