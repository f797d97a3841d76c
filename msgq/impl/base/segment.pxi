"""Segments: create, open, check, map and lock files in shared memory.

A file gets its name only when it is complete (O_TMPFILE, then link). A process that dies during the creation therefore
leaves nothing. All data of a file is checked before use.
"""


cdef extern from "fcntl.h" nogil:
    enum:
        F_DUPFD_CLOEXEC
        O_NOFOLLOW
        O_PATH
        O_TMPFILE
        AT_FDCWD
    int openat(int directory, const char *path, int flags, ...)


cdef extern from "base/file_naming.h" nogil:
    int mq_name_open_file(int fd, int directory, const char *name)


cdef extern from "unistd.h" nogil:
    int unlinkat(int directory, const char *path, int flags)


cdef extern from "sys/file.h" nogil:
    enum:
        LOCK_EX
        LOCK_NB
        LOCK_UN
    int flock(int fd, int operation)


cdef extern from "sys/mman.h" nogil:
    enum:
        MAP_NORESERVE
        MAP_POPULATE
        MREMAP_FIXED
        MREMAP_MAYMOVE
    void *mremap(void *address, size_t size, size_t new_size, int flags, ...)


cdef extern from "base/mapguard.h" nogil:
    ctypedef struct mq_sigbus_guard:
        mq_u64 not_truncated
    bint mq_sigbus_guard_install_handler()
    mq_sigbus_guard *mq_sigbus_guard_add_mapping(void *address, uint64_t size, int protection)
    void mq_sigbus_guard_remove(mq_sigbus_guard *guard)
    bint mq_sigbus_guard_is_intact(const mq_sigbus_guard *guard)
    bint mq_sigbus_guard_set_partner(mq_sigbus_guard *guard, mq_sigbus_guard *partner)


cdef enum:
    # Most processes hold the lock for microseconds. A publisher holds the lock for up to 1 s if it waits for the end of
    # another publisher's send.
    LOCK_WAIT_NS = 5000000000
    PAGE_BYTES = 4096  # step of a copy that leaves out zeros


# (path, whether it is writable): weak reference to the memory that the handles of this process share.
cdef dict _shared_memories = {}


@no_gc  # no segment is in a cycle, and __dealloc__ needs all fields
cdef class Segment:
    def __dealloc__(self):
        if self.address != NULL:
            unguard_mapping(self.guard)
            munmap(self.address, self.size)

    cdef void detach(self) noexcept:
        """Replace the file by private memory. If the kernel has none, the file stays mapped.

        The addresses stay valid, because a finalizer can close a handle in the middle of a call. One system call
        replaces all pages, so no thread sees half of the header.
        """
        cdef size_t size, page = 0
        cdef int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (0 if self.kept_bytes else MAP_FIXED)
        cdef void *private = mmap(NULL if self.kept_bytes else self.address, self.size, PROT_READ | PROT_WRITE, flags,
                                  -1, 0)
        if private == MAP_FAILED or private == self.address:
            return
        while page < self.kept_bytes and not was_truncated(self.guard):
            size = min(self.kept_bytes - page, <size_t> PAGE_BYTES)
            _copy_used_page(<uint8_t *> private + page, self.address + page, size)
            page += PAGE_BYTES
        if mremap(private, self.size, self.size, MREMAP_MAYMOVE | MREMAP_FIXED, self.address) == MAP_FAILED:
            munmap(private, self.size)


cdef void _copy_used_page(uint8_t *to, const uint8_t *page, size_t size) noexcept:
    """Copy a page, unless it has only zeros: such a page needs no memory."""
    if page[0] or memcmp(page, page + 1, size - 1):
        mq_copy_from_shared(to, page, size)


@no_gc  # like the segment
cdef class SegmentMemory:
    """See core.pxd."""

    def __dealloc__(self):
        if self.shared_key is not None:
            _shared_memories.pop(self.shared_key, None)
        if self.segment is not None and (<PyObject *> self.segment).ob_refcnt > 1:  # else the segment ends, too
            self.segment.detach()


cdef SegmentMemory use_memory(Segment segment):
    cdef SegmentMemory memory = SegmentMemory.__new__(SegmentMemory)
    memory.segment = segment
    return memory


cdef object segment_error(str what, str endpoint, str path, int error, str advice=""):
    """Return the exception for a failed system call, with advice."""
    advice = {
        EMFILE: "; this process has no file descriptors left (ulimit -n)",
        ENFILE: "; the machine has no file descriptors left (fs.file-max)",
        ELOOP: "; a symbolic link is never followed",
        EISDIR: "; the path is a directory",
    }.get(error, advice)
    if error == ENOSPC:
        space = os.statvfs(shm_paths.SHARED_MEMORY)
        free = space.f_bavail * space.f_frsize
        advice = (f"; {shm_paths.SHARED_MEMORY} has {free} bytes free; remove unused endpoints (`msgq clean`), or "
                  f"enlarge {shm_paths.SHARED_MEMORY} (in a container: --shm-size)")
    return SegmentError(f"{what}: {os.strerror(error)}{advice}", endpoint, path, error)


cdef int _open_directory(str endpoint, str path) except -2:
    """Open and check the directory of a prefix's file, so that no process can replace it.

    Return -1 if it does not exist.

    Return AT_FDCWD for files in /dev/shm itself; `_name_in_directory` then returns the whole path.
    """
    directory = path[:path.rfind("/")]
    if directory == shm_paths.SHARED_MEMORY:
        return AT_FDCWD
    cdef bytes encoded = directory.encode()
    cdef int fd = c_open(encoded, O_PATH | O_NOFOLLOW | O_CLOEXEC)
    if fd < 0:
        if errno == ENOENT:
            return -1
        raise segment_error("cannot open the directory of the prefix", endpoint, directory, errno)
    try:
        in_prefix = os.path.basename(directory).partition("_")[2]
        file_permissions.check_directory(os.fstat(fd), in_prefix, endpoint, directory)
    except BaseException:
        close(fd)
        raise
    return fd


cdef int _open_existing_directory(str endpoint, str path) except -1:
    """Open the directory of a new file. Another process may just have removed it."""
    cdef int directory = _open_directory(endpoint, path)
    if directory == -1:
        raise segment_error("directory of the prefix was removed", endpoint, path, ENOENT)
    return directory


cdef void _close_directory(int directory) noexcept:
    if directory >= 0:
        close(directory)


cdef bytes _name_in_directory(int directory, str path):
    return (path if directory == AT_FDCWD else path[path.rfind("/") + 1:]).encode()


class _OpenFileOverrides(threading.local):
    files = None


_open_file_overrides = _OpenFileOverrides()


cdef object override_open_files(object files):
    former = _open_file_overrides.files
    _open_file_overrides.files = files
    return former


cdef int _open_overridden_file(str endpoint, str path) except -2:
    files = _open_file_overrides.files
    if not files or path not in files:
        return -1
    cdef int fd = fcntl(files[path], F_DUPFD_CLOEXEC, 0)
    if fd < 0:
        raise segment_error("cannot open", endpoint, path, errno)
    return fd


cdef int open_file(str endpoint, str path, int flags) except -2:
    """Open an existing file. Return -1 if it does not exist."""
    cdef int given_fd = _open_overridden_file(endpoint, path)
    if given_fd >= 0:
        return given_fd
    cdef int directory = _open_directory(endpoint, path)
    if directory == -1:
        return -1
    cdef bytes name = _name_in_directory(directory, path)
    cdef int fd = openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
    cdef int error = errno
    _close_directory(directory)
    if fd < 0 and error != ENOENT:
        hint = file_permissions.access_hint(path) if error == EACCES else ""
        raise segment_error("cannot open", endpoint, path, error, hint)
    return fd


cdef bint remove_file(str endpoint, str path) except -1:
    """Remove a file's name. Return False if it has none."""
    cdef int directory = _open_directory(endpoint, path)
    if directory == -1:
        return False
    cdef bytes name = _name_in_directory(directory, path)
    cdef int error = errno if unlinkat(directory, name, 0) != 0 else 0
    _close_directory(directory)
    if error and error != ENOENT:
        raise segment_error("cannot remove", endpoint, path, error, file_permissions.owner_hint(path))
    return not error


cdef int allocate_file(int fd, size_t size, str endpoint, str path, size_t start=0) except -1:
    """Grow the file to `size` bytes, and allocate every page from `start` on.

    A full file system is an error here, but SIGBUS at a later write.
    """
    cdef int error
    with nogil:
        error = mq_allocate_file(fd, start, size)
    if error:
        raise segment_error(f"cannot allocate {size} bytes", endpoint, path, error)
    return 0


cdef int _grow_new_file(int fd, size_t size, size_t allocated, str endpoint, str path) except -1:
    cdef int error
    with nogil:
        error = mq_grow_new_file(fd, size, allocated)
    if error:
        raise segment_error(f"cannot allocate {size} bytes", endpoint, path, error)
    return 0


cdef int create_file(str endpoint, str path, size_t size, int mode, struct_stat *made=NULL,
                     size_t allocated=0) except -1:
    """Return a new file of zeros without a name, with the group of MSGQ_GROUP. Its status is stored in *made.

    `allocated`: bytes at the beginning that get memory; 0: all. A process populates the other bytes before it uses
    them.
    """
    cdef struct_stat status
    cdef int directory = _open_existing_directory(endpoint, path)
    cdef bytes place = path[:path.rfind("/")].encode() if directory == AT_FDCWD else b"."
    cdef int fd = openat(directory, place, O_TMPFILE | O_RDWR | O_CLOEXEC, mode)
    cdef int error = errno
    _close_directory(directory)
    if fd < 0:
        advice = file_permissions.access_hint(os.path.dirname(path)) if error == EACCES else ""
        raise segment_error("cannot create a file in its directory", endpoint, path, error, advice)
    try:
        if fstat(fd, &status) != 0:
            raise segment_error("cannot examine", endpoint, path, errno)
        if settings.get_file_group() or status.st_mode & 0o7777 != <unsigned int> mode:  # the umask changed the mode
            file_permissions.share_file(fd, mode, endpoint, path)
        if size:
            _grow_new_file(fd, size, allocated or size, endpoint, path)
        if made != NULL:
            status.st_size = size
            made[0] = status
    except BaseException:
        close(fd)
        raise
    return fd


cdef bint name_file(int fd, str endpoint, str path) except -1:
    """Give the new file its name. Return False if another process was faster."""
    cdef int directory = _open_existing_directory(endpoint, path)
    cdef bytes name = _name_in_directory(directory, path)
    cdef int error = errno if mq_name_open_file(fd, directory, name) != 0 else 0
    _close_directory(directory)
    if error and error != EEXIST:
        raise segment_error("cannot name the new file", endpoint, path, error)
    return not error


cdef int check_file(int fd, struct_stat *found, str endpoint, str path) except -1:
    """Reject a file that is not regular, has a second name, or belongs to a user other than this one, root, or a
    trusted user.
    """
    if fstat(fd, found) != 0:
        raise segment_error("cannot examine", endpoint, path, errno)
    if not S_ISREG(found.st_mode):
        raise SegmentError("is not a regular file; remove it", endpoint, path)
    if found.st_uid != 0 and found.st_uid != geteuid():
        file_permissions.check_owner(found.st_uid, endpoint, path)
    if found.st_nlink > 1:  # a user with write permission may link the file to another topic's name
        raise SegmentError(f"has {found.st_nlink} names (hard links), and may be another topic's; remove it",
                           endpoint, path)
    return 0


cdef Segment map_file(int fd, const struct_stat *found, bint writable, str endpoint, str path):
    """Map a file and guard it: after a truncation the whole mapping reads as zeros."""
    cdef Segment segment = _map_unguarded(fd, found, writable, endpoint, path)
    segment.guard = guard_mapping(segment.address, segment.size, PROT_READ | (PROT_WRITE if writable else 0))
    return segment


cdef SegmentMemory map_shared_file(int fd, const struct_stat *found, bint writable, str endpoint, str path):
    """Return the mapping of this file that other handles of this process use, or map the file.

    The caller has opened and checked the file.
    """
    cdef SegmentMemory memory = find_shared_memory(found, writable, path)
    if memory is None:
        memory = share_memory(map_file(fd, found, writable, endpoint, path), writable)
    return memory


cdef SegmentMemory find_shared_memory(const struct_stat *found, bint writable, str path):
    cdef SegmentMemory memory = _look_up_memory((path, writable))
    return memory if memory is not None and _shows_whole_file(memory.segment, found) else None


cdef SegmentMemory _look_up_memory(tuple key):
    reference = _shared_memories.get(key)
    return None if reference is None else reference()


cdef SegmentMemory share_memory(Segment segment, bint writable):
    cdef tuple key = (segment.path, writable)
    cdef SegmentMemory memory = use_memory(segment)
    cdef SegmentMemory former = _look_up_memory(key)
    if former is not None:
        former.shared_key = None  # its end must not remove the new entry
    memory.shared_key = key
    _shared_memories[key] = weakref.ref(memory)
    return memory


cdef bint _shows_whole_file(Segment segment, const struct_stat *found) except -1:
    """True if the segment shows this whole file, with the guard and the memory of a new mapping."""
    return (segment.inode == found.st_ino and segment.liveness_file.device == found.st_dev
            and segment.size == <size_t> found.st_size and not was_truncated(segment.guard)
            and is_sigbus_handled() == (segment.guard != NULL) and not is_preallocation_enabled())


cdef Segment _map_unguarded(int fd, const struct_stat *found, bint writable, str endpoint, str path):
    cdef Segment segment = Segment.__new__(Segment)
    cdef int flags = MAP_SHARED | (MAP_POPULATE if is_preallocation_enabled() else 0)
    cdef int protection = PROT_READ | (PROT_WRITE if writable else 0)
    cdef void *address = mmap(NULL, found.st_size, protection, flags, fd, 0)
    if address == MAP_FAILED:
        raise segment_error(f"cannot map {found.st_size} bytes", endpoint, path, errno)
    segment.path, segment.file = path, path.encode()
    segment.size = found.st_size
    segment.inode = found.st_ino
    segment.address = <uint8_t *> address
    segment.liveness_file = mq_liveness_file_make(<const char *> segment.file, -1, found)
    return segment


cdef Segment map_writable_head(int fd, const struct_stat *found, size_t writable_bytes, str endpoint, str path):
    """Map a file: the first `writable_bytes` bytes (whole pages) writable, the rest read-only.

    The mapping is guarded as in map_file. After a truncation, the zeros are writable.
    """
    cdef Segment segment
    if writable_bytes % os.sysconf("SC_PAGESIZE") or writable_bytes > <size_t> found.st_size:
        raise SegmentError(f"has {found.st_size} bytes; {writable_bytes} of them cannot be a writable head", endpoint,
                           path)
    segment = _map_unguarded(fd, found, False, endpoint, path)
    if writable_bytes and mprotect(segment.address, writable_bytes, PROT_READ | PROT_WRITE) != 0:
        raise segment_error(f"cannot map {writable_bytes} bytes for writing", endpoint, path, errno)
    segment.guard = guard_mapping(segment.address, segment.size, PROT_READ | PROT_WRITE)
    return segment


cdef void *guard_mapping(void *address, size_t size, int protection) except? NULL:
    """Guard the mapping, so that a truncation gives zeros instead of SIGBUS.

    Return NULL if MSGQ_SIGBUS disables this.
    """
    cdef mq_sigbus_guard *guard
    if not is_sigbus_handled():
        return NULL
    guard = mq_sigbus_guard_add_mapping(address, size, protection) if mq_sigbus_guard_install_handler() else NULL
    if guard == NULL:
        raise IpcError(f"cannot handle SIGBUS: {os.strerror(errno)} (MSGQ_SIGBUS=0 avoids the handler)", errno=errno)
    return guard


cdef void unguard_mapping(void *guard) noexcept:
    if guard != NULL:
        mq_sigbus_guard_remove(<mq_sigbus_guard *> guard)


cdef bint was_truncated(const void *guard) noexcept:
    """True if the mapping was truncated, and now reads as zeros."""
    return guard != NULL and not mq_sigbus_guard_is_intact(<const mq_sigbus_guard *> guard)


cdef const mq_u64 *not_truncated_word(const void *guard) noexcept:
    """Return the word that is 1 until the mapping is truncated."""
    return &(<const mq_sigbus_guard *> guard).not_truncated


cdef bint pair_guards(Segment segment, Segment partner) noexcept:
    cdef mq_sigbus_guard *guard = <mq_sigbus_guard *> segment.guard
    if _has_partner(segment, partner):
        return not was_truncated(segment.guard)
    if segment.partner is not None:  # other handles may use the previous partner
        pair_guards(partner, segment.partner)
    segment.partner = partner
    return guard == NULL or mq_sigbus_guard_set_partner(guard, <mq_sigbus_guard *> partner.guard)


cdef bint _has_partner(Segment segment, Segment partner) noexcept:
    """True if the chain of partners that begins at `segment.partner` contains `partner`."""
    cdef Segment current = segment.partner
    while current is not None and current is not partner:
        current = current.partner
    return current is partner


cdef object truncated_error(str endpoint, Segment segment):
    text = f"had {segment.size} bytes, but another program truncated it; open it again"
    return SegmentSizeError(text, endpoint, segment.path)


cdef int lock_file(int fd, str endpoint, str path) except -1:
    """Lock the file. unlock_file releases the lock."""
    cdef int64_t deadline = mq_monotonic_ns() + LOCK_WAIT_NS
    while flock(fd, LOCK_EX | LOCK_NB) != 0:
        if errno != EAGAIN and errno != EINTR:
            raise segment_error("cannot lock", endpoint, path, errno)
        wait_for_file_lock(deadline, endpoint, path)
    return 0


cdef int wait_for_file_lock(int64_t deadline, str endpoint, str path) except -1:
    """Sleep before the next attempt to lock a file. Raise an error after the deadline."""
    if mq_monotonic_ns() > deadline:
        raise SegmentError("locked by another process for over 5 s; look for a process that was stopped during "
                           "connect",
                           endpoint, path, EAGAIN)
    with nogil:
        usleep(200)
    return PyErr_CheckSignals()


cdef void unlock_file(int fd) noexcept:
    flock(fd, LOCK_UN)  # close alone does not release the lock, because the mapping keeps the open file alive
    close(fd)
