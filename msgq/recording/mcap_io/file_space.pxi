"""Disk space of a file that grows. See core.pyi."""


cdef extern from "<fcntl.h>" nogil:
    enum:
        FALLOC_FL_KEEP_SIZE
    int fallocate(int fd, int mode, int64_t offset, int64_t length)

cdef extern from "<sys/vfs.h>" nogil:
    ctypedef struct file_system "struct statfs":
        long f_type
    int fstatfs(int fd, file_system *found)

cdef extern from "<linux/magic.h>" nogil:
    enum:
        TMPFS_MAGIC


def preallocate_space(int fd, int64_t offset, int64_t size):
    cdef file_system found
    cdef int result = fstatfs(fd, &found)
    if result != 0 or found.f_type == TMPFS_MAGIC:  # in memory, the allocation takes longer than the writes save
        return False
    with nogil:
        result = fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, size)
    return result == 0
