from posix.stat cimport struct_stat

from msgq.impl.core cimport mq_roll, mq_whole, uint8_t, uint32_t, uint64_t


cdef class Segment:
    """A mapped file; unmapped when the last reference (a socket, a view) goes."""
    cdef readonly str path
    cdef readonly size_t size
    cdef readonly uint64_t inode
    cdef readonly bytes file    # the path, for system calls
    cdef uint8_t *address
    cdef mq_roll roll           # where the locks of those who live in it are (life.h)
    cdef void *guard            # see guard_mapping


cdef class Topic:
    """An endpoint's two files. Locked from open_topic until unlock, so that comers and goers are one at a time."""
    cdef readonly str endpoint
    cdef readonly Segment ring
    cdef readonly Segment side      # None: passive, and there is none
    cdef uint32_t data_bytes
    cdef mq_whole whole             # tells whether the ring is still all there
    cdef int lock_fd
    cdef void unlock(self)


cdef Topic open_topic(str endpoint, str in_prefix, object segment_size, object mode)
cdef Topic watch_topic(str endpoint, str in_prefix)
cdef int await_side(Topic topic, str in_prefix) except -1
cdef Segment find_side(str endpoint, str in_prefix, Segment ring)

# When the ring turns out to be another one than was mapped.
cdef Topic grown_topic(str endpoint, Segment former, bint writable)
cdef object resized(str endpoint, Segment ring)

# A mapping whose file may be made smaller by others.
cdef void *guard_mapping(void *address, size_t size, int protection) except? NULL
cdef void unguard_mapping(void *guard) noexcept
cdef bint guard_lost(const void *guard) noexcept

# One file, for those who make segments of their own.
cdef object failure(str what, str endpoint, str path, int error, str advice=*)
cdef int open_file(str endpoint, str path, int flags) except -2
cdef bint remove_file(str endpoint, str path) except -1
cdef int create_file(str endpoint, str path, size_t size, int mode) except -1
cdef bint name_file(int fd, str endpoint, str path) except -1
cdef int check_file(int fd, struct_stat *found, str endpoint, str path) except -1
cdef Segment map_file(int fd, const struct_stat *found, bint writable, str endpoint, str path)
cdef int lock_file(int fd, str endpoint, str path) except -1
cdef void unlock_file(int fd) noexcept
