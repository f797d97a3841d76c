"""Segments: create, open, check, map and lock files in shared memory.

A file gets its name only when it is complete (O_TMPFILE, then link). A process that dies during the creation therefore
leaves nothing. All data of a file is checked before use.
"""


cdef extern from "fcntl.h" nogil:
    enum:
        F_DUPFD_CLOEXEC


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


# ---- errors and settings ----

cdef tuple _ERROR_CLASSES = (
    SegmentError, CorruptSegmentError, LayoutVersionError, SegmentSizeError, ChannelMismatchError,
    TooManyPublishersError, TooManySubscribersError, MessageTooLargeError, TooManyHandlesError, TooManyWritersError,
    MultipleWritersError, KeyTakenError, BoardFullError, MultiplePublishersError, InvalidValueError, StateError,
    IpcError,
)


if len(_ERROR_CLASSES) != MQ_ERROR_KINDS:
    raise ImportError("mq_error_kind of base/error.h and _ERROR_CLASSES differ; compile this module again")


cdef object exception_of(const mq_error *error, str endpoint):
    cdef object kind = _ERROR_CLASSES[error.kind]
    text = error.text.decode(errors="replace")
    number = error.number if error.kind in (MQ_ERROR_FILE, MQ_ERROR_PROCESS) else None
    if issubclass(kind, SegmentError):
        return kind(text, endpoint, os.fsdecode(<bytes> error.path), number)
    return kind(text, endpoint, errno=number)


cdef int raise_error(const mq_error *error, str endpoint) except -1:
    raise exception_of(error, endpoint)


cdef object segment_error(str what, str endpoint, str path, int number, str advice=""):
    """Return the exception for a failed system call, with advice."""
    cdef mq_error error
    cdef bytes encoded = what.encode()
    mq_fail_system(&error, number, path.encode(), "%s", <const char *> encoded)
    return SegmentError(error.text.decode(errors="replace") + advice, endpoint, path, number)


cdef mq_guard_functions _guard_functions = mq_guard_functions(_add_guard, _remove_guard)


cdef void *_add_guard(void *address, size_t size, int protection) noexcept nogil:
    return mq_sigbus_guard_add_mapping(address, size, protection) if mq_sigbus_guard_install_handler() else NULL


cdef void _remove_guard(void *guard) noexcept nogil:
    mq_sigbus_guard_remove(<mq_sigbus_guard *> guard)


# The texts that _parsed_policy holds: `trust=` of the thread, or None, then MSGQ_TRUST and MSGQ_GROUP.
cdef tuple _policy_texts = None
cdef mq_file_policy _parsed_policy


cdef int load_file_policy(mq_file_policy *policy, str endpoint) except -1:
    """Load the settings by which this thread shares files. The parsed texts of the last call serve again."""
    global _policy_texts
    trust = settings.get_trust_override()
    if (_policy_texts is None or trust != _policy_texts[0] or not _is_text(trusted_users(), _policy_texts[1])
            or not _is_text(file_group(), _policy_texts[2])):
        _parse_policy(&_parsed_policy, endpoint)
        _policy_texts = (trust, _copy_text(trusted_users()), _copy_text(file_group()))
    policy[0] = _parsed_policy
    policy.preallocate = is_preallocation_enabled()
    policy.guards = &_guard_functions if is_sigbus_handled() else NULL
    return 0


cdef bytes _copy_text(const char *text):
    return b"" if text == NULL else <bytes> text


cdef bint _is_text(const char *text, bytes known) noexcept:
    return not known if text == NULL else strcmp(text, <const char *> known) == 0


cdef int _parse_policy(mq_file_policy *policy, str endpoint) except -1:
    cdef mq_file_policy parsed
    users = file_permissions.trusted_users(endpoint)
    if len(users) > MQ_TRUSTED_MAX:
        raise InvalidValueError(f"MSGQ_TRUST (trust=) has {len(users)} users; give at most {MQ_TRUSTED_MAX}", endpoint)
    for parsed.trusted_count, user in enumerate(users, 1):
        parsed.trusted[parsed.trusted_count - 1] = user
    parsed.trusted_count = len(users)
    group = file_permissions.resolve_new_file_group(endpoint)
    parsed.group = <gid_t> -1 if group is None else group
    policy[0] = parsed
    return 0


# ---- files ----

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
    cdef mq_file_policy policy
    cdef mq_error error
    load_file_policy(&policy, endpoint)
    cdef int fd = mq_open_file(&policy, path.encode(), flags, &error)
    if fd < 0 and fd != -ENOENT:
        raise_error(&error, endpoint)
    return fd if fd >= 0 else -1


cdef bint remove_file(str endpoint, str path) except -1:
    """Remove a file's name. Return False if it has none."""
    cdef mq_file_policy policy
    cdef mq_error error
    load_file_policy(&policy, endpoint)
    cdef int removed = mq_remove_file(&policy, path.encode(), &error)
    return removed if removed >= 0 else raise_error(&error, endpoint)


def make_directories(str endpoint, tuple paths, int permissions):
    """See core.pyi."""
    cdef mq_file_policy policy
    cdef mq_error error
    load_file_policy(&policy, endpoint)
    for path in paths:
        if mq_make_directory(&policy, path.encode(), permissions, &error):
            raise_error(&error, endpoint)


cdef int create_file(str endpoint, str path, size_t size, int mode, struct_stat *made=NULL,
                     size_t allocated=0) except -1:
    """Return a new file of zeros without a name, with the group of MSGQ_GROUP. Its status is stored in *made.

    `allocated`: bytes at the beginning that get memory; 0: all. A process populates the other bytes before it uses
    them.
    """
    cdef mq_file_policy policy
    cdef mq_error error
    cdef struct_stat status
    cdef bytes encoded = path.encode()
    cdef const char *name = encoded
    load_file_policy(&policy, endpoint)
    with nogil:
        fd = mq_create_file(&policy, name, size, allocated or size, mode, made if made != NULL else &status, &error)
    return fd if fd >= 0 else raise_error(&error, endpoint)


cdef bint name_file(int fd, str endpoint, str path) except -1:
    """Give the new file its name. Return False if another process was faster."""
    cdef mq_file_policy policy
    cdef mq_error error
    load_file_policy(&policy, endpoint)
    cdef int named = mq_name_file(&policy, fd, path.encode(), &error)
    return named if named >= 0 else raise_error(&error, endpoint)


cdef int check_file(int fd, struct_stat *found, str endpoint, str path) except -1:
    cdef mq_file_policy policy
    cdef mq_error error
    load_file_policy(&policy, endpoint)
    return raise_error(&error, endpoint) if mq_check_file(&policy, fd, found, path.encode(), &error) else 0


cdef Segment map_file(int fd, const struct_stat *found, size_t writable_bytes, str endpoint, str path):
    cdef mq_file_policy policy
    cdef mq_error error
    cdef mq_mapping mapping
    cdef bytes encoded = path.encode()
    load_file_policy(&policy, endpoint)
    if mq_map_file(&policy, fd, found, writable_bytes, encoded, &mapping, &error):
        raise_error(&error, endpoint)
    return adopt_mapping(&mapping, found, path)


cdef Segment adopt_mapping(const mq_mapping *mapping, const struct_stat *found, str path):
    cdef Segment segment = Segment.__new__(Segment)
    segment.path, segment.file = path, path.encode()
    segment.address, segment.size, segment.guard = mapping.address, mapping.size, mapping.guard
    segment.inode = found.st_ino
    segment.liveness_file = mq_liveness_file_make(<const char *> segment.file, -1, found)
    return segment


cdef SegmentMemory map_shared_file(int fd, const struct_stat *found, bint writable, str endpoint, str path):
    """Return the mapping of this file that other handles of this process use, or map the file.

    The caller has opened and checked the file.
    """
    cdef SegmentMemory memory = find_shared_memory(found, writable, path)
    if memory is None:
        memory = share_memory(map_file(fd, found, found.st_size if writable else 0, endpoint, path), writable)
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


cdef void *guard_mapping(void *address, size_t size, int protection) except? NULL:
    """Guard the mapping, so that a truncation gives zeros instead of SIGBUS.

    Return NULL if MSGQ_SIGBUS disables this.
    """
    if not is_sigbus_handled():
        return NULL
    cdef void *guard = _add_guard(address, size, protection)
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
