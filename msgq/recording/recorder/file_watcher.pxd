cdef extern from "recorder/file_watcher.h" nogil:
    enum:
        MQ_FILE_ARRIVALS_MASK
        MQ_WATCHED_DIRECTORIES
        MQ_NAME_START_MAX
    ctypedef struct mq_watched_directory:
        int watch
        const char *directory
        char start[16]
    ctypedef struct mq_file_arrival:
        unsigned place
        int fd
        int error
        char name[256]
    ctypedef struct mq_file_watcher:
        int fd
        unsigned places, count, open
        bint overflowed, changed
        mq_watched_directory place[8]
        mq_file_arrival arrived[256]
    bint mq_file_watcher_poll(mq_file_watcher *a)
    void mq_file_watcher_clear(mq_file_watcher *a)


cdef class FileWatcher:
    cdef mq_file_watcher c
    cdef readonly bint overflowed
    cdef list _places       # directories, by place ...
    cdef list _paths        # ... and as C has them
    cdef int _watch(self, str directory, const char *path) except -2
    cdef bint _cover(self) except -1
