cdef extern from "recorder/file_watcher.h" nogil:
    enum:
        MQ_ARRIVALS_MASK
        MQ_ARRIVAL_PLACES
        MQ_ARRIVAL_START
    ctypedef struct mq_arrival_place:
        int watch
        const char *directory
        char start[16]
    ctypedef struct mq_arrival:
        unsigned place
        int fd
        int error
        char name[256]
    ctypedef struct mq_arrivals:
        int fd
        unsigned places, count, open
        bint overflown, changed
        mq_arrival_place place[8]
        mq_arrival arrived[256]
    bint mq_arrivals_gather(mq_arrivals *a)
    void mq_arrivals_taken(mq_arrivals *a)


cdef class Arrivals:
    cdef mq_arrivals c
    cdef readonly bint overflown
    cdef list _places       # directories, by place ...
    cdef list _paths        # ... and as C has them
    cdef int _watch(self, str directory, const char *path) except -2
    cdef bint _cover(self) except -1
