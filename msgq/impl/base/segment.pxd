from libc.stdint cimport uint8_t, uint64_t
from posix.stat cimport struct_stat

from msgq.impl.base.core cimport mq_liveness_file, mq_u64


cdef class Segment:
    """A mapped file; unmapped when the last reference (a socket, a view) goes."""
    cdef readonly str path
    cdef readonly size_t size
    cdef readonly uint64_t inode
    cdef readonly bytes file    # the path, for system calls
    cdef uint8_t *address
    cdef mq_liveness_file liveness_file           # where the locks of those who live in it are (liveness_lock.h)
    cdef void *guard            # see guard_mapping
    cdef Segment partner        # see pair


# A mapping whose file may be made smaller by others.
cdef void *guard_mapping(void *address, size_t size, int protection) except? NULL
cdef void unguard_mapping(void *guard) noexcept
cdef bint was_truncated(const void *guard) noexcept
cdef const mq_u64 *not_truncated_word(const void *guard) noexcept

# Have both segments read as zeros once the first was made smaller; False: it was. The partner stays mapped as long.
cdef bint pair(Segment segment, Segment partner) noexcept

# Return the exception for a file that others made smaller while it was mapped.
cdef object truncated_error(str endpoint, Segment segment)

# Let this thread find these open files, descriptors by path, where it opens files for reading, whatever is there now;
# None: none. Returns what was given before.
cdef object override_open_files(object files)

cdef object segment_error(str what, str endpoint, str path, int error, str advice=*)
cdef int open_file(str endpoint, str path, int flags) except -2
cdef bint remove_file(str endpoint, str path) except -1
cdef int allocate(int fd, size_t size, str endpoint, str path, size_t start=*) except -1
cdef int create_file(str endpoint, str path, size_t size, int mode, struct_stat *made=*) except -1
cdef bint name_file(int fd, str endpoint, str path) except -1
cdef int check_file(int fd, struct_stat *found, str endpoint, str path) except -1
cdef Segment map_file(int fd, const struct_stat *found, bint writable, str endpoint, str path)
cdef Segment map_parts(int fd, const struct_stat *found, size_t writable_bytes, str endpoint, str path)
cdef int lock_file(int fd, str endpoint, str path) except -1
cdef void unlock_file(int fd) noexcept
