"""Times of one thread, from /proc. C code, because an observer reads thousands of these files per second."""

from libc.errno cimport EINTR, ENAMETOOLONG, errno
from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtoull
from libc.string cimport memcmp, memcpy, strrchr
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, open
from posix.unistd cimport close, pread

import os


cdef enum:
    PATH_BYTES = 256
    TIMES_BYTES = 80  # three numbers of 64 bits with separators
    STAT_BYTES = 1024
    PROCESSOR_FIELD = 36  # number of spaces between state and processor, proc_pid_stat(5)


cdef ssize_t read_start(int descriptor, char *text, size_t room) noexcept:
    """Read the first bytes of a file of /proc, and append a NUL byte. Return the length, or -1 with errno."""
    cdef ssize_t length = pread(descriptor, text, room - 1, 0)
    while length < 0 and errno == EINTR:
        length = pread(descriptor, text, room - 1, 0)
    text[length if length > 0 else 0] = 0
    return length


cdef class ThreadFile:
    """See thread_file.pyi."""

    cdef readonly int descriptor
    cdef readonly uint64_t ran_ns, waited_ns
    cdef char _path[PATH_BYTES]
    cdef char _text[TIMES_BYTES]
    cdef ssize_t _length

    def __cinit__(self):
        self.descriptor = -1

    def __init__(self, str directory not None):
        cdef char path[PATH_BYTES]
        cdef bytes where = os.fsencode(directory)
        self.close()
        if len(where) + 16 > PATH_BYTES:
            raise OSError(ENAMETOOLONG, os.strerror(ENAMETOOLONG), directory)
        snprintf(self._path, PATH_BYTES, b"%s/stat", <const char *> where)
        snprintf(path, PATH_BYTES, b"%s/schedstat", <const char *> where)
        self.descriptor = open(path, O_RDONLY | O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(errno, os.strerror(errno), directory)
        self.read_times()

    def __dealloc__(self):
        self.close()

    def close(self):
        if self.descriptor >= 0:
            close(self.descriptor)
        self.descriptor = -1

    def read_times(self):
        cdef char text[TIMES_BYTES]
        cdef char *rest = NULL
        cdef ssize_t length = read_start(self.descriptor, text, TIMES_BYTES)
        if length <= 0:
            raise OSError(errno, os.strerror(errno))
        if length == self._length and memcmp(text, self._text, length) == 0:
            return False
        memcpy(self._text, text, length)
        self._length = length
        self.ran_ns = strtoull(text, &rest, 10)
        self.waited_ns = strtoull(rest, NULL, 10)
        return True

    def read_state(self):
        cdef char text[STAT_BYTES]
        cdef int descriptor = open(self._path, O_RDONLY | O_CLOEXEC)
        cdef ssize_t length = -1
        cdef char *field
        cdef int spaces = 0
        if descriptor >= 0:
            length = read_start(descriptor, text, STAT_BYTES)
            close(descriptor)
        field = strrchr(text, b")") if length > 0 else NULL  # the name before may contain any byte
        if field == NULL or field[1] == 0 or field[2] == 0:
            return "", -1
        field += 2
        state = chr(field[0])
        while spaces < PROCESSOR_FIELD and field[0] != 0:
            spaces += field[0] == b" "
            field += 1
        return state, (<int> strtoull(field, NULL, 10) if field[0] != 0 else -1)
