"""Bytes and disk space of a file that grows. See core.pyi."""


cdef extern from "<fcntl.h>" nogil:
    enum:
        FALLOC_FL_KEEP_SIZE
    int fallocate(int fd, int mode, int64_t offset, int64_t length)

cdef extern from "<sys/vfs.h>" nogil:
    ctypedef struct file_system "struct statfs":
        long f_type
    int fstatfs(int fd, file_system *found)

cdef extern from "<sys/uio.h>" nogil:
    ctypedef struct io_vector "struct iovec":
        void *iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const io_vector *vectors, int count, int64_t offset)

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


cdef enum:
    VECTORS_PER_CALL = 1024  # IOV_MAX of Linux


cdef int _write_vectors(int fd, int64_t offset, io_vector *vectors, Py_ssize_t count) noexcept nogil:
    """Write all vectors, also after a signal or a partial write. Return 0, or the errno of the failure."""
    cdef ssize_t written
    cdef size_t size
    while count:
        if vectors.iov_len == 0:
            vectors, count = vectors + 1, count - 1
            continue
        written = pwritev(fd, vectors, <int> min(count, <Py_ssize_t> VECTORS_PER_CALL), offset)
        if written < 0 and errno != EINTR:
            return errno
        if written == 0:
            return EIO
        offset += max(written, <ssize_t> 0)
        while written > 0:
            size = min(<size_t> written, vectors.iov_len)
            vectors.iov_base = <char *> vectors.iov_base + size
            vectors.iov_len -= size
            written -= size
            if vectors.iov_len == 0:
                vectors, count = vectors + 1, count - 1
    return 0


def write_and_commit(int fd, int64_t offset, parts not None, steps not None):
    cdef Py_ssize_t count = len(parts), viewed = 0, i
    cdef io_vector *vectors = <io_vector *> calloc(count + 1, sizeof(io_vector))
    cdef Py_buffer *views = <Py_buffer *> calloc(count + 1, sizeof(Py_buffer))
    cdef int failure = ENOMEM
    try:
        if vectors != NULL and views != NULL:
            for i in range(count):
                PyObject_GetBuffer(parts[i], &views[i], PyBUF_SIMPLE)
                viewed += 1
                vectors[i].iov_base, vectors[i].iov_len = views[i].buf, views[i].len
            with nogil:
                failure = _write_vectors(fd, offset, vectors, count)
        if failure:
            raise OSError(failure, os.strerror(failure))
        for step in steps:
            step()
    finally:
        for i in range(viewed):
            PyBuffer_Release(&views[i])
        free(vectors)
        free(views)
