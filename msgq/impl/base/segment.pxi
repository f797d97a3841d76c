"""Segments: create, open, check, map and lock files in shared memory.

A file gets its name only when it is complete (O_TMPFILE, then link). A process that dies during the creation therefore
leaves nothing. All data of a file is checked before use.
"""


cdef extern from "fcntl.h" nogil:
    enum:
        F_DUPFD_CLOEXEC


cdef extern from "sys/mman.h" nogil:
    enum:
        MAP_POPULATE


cdef extern from "pthread.h" nogil:
    int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)())


cdef extern from "base/error.h" nogil:
    int mq_fail_system(mq_error *error, int number, const char *path, const char *format, ...)


cdef extern from "base/mapping.h" nogil:
    void mq_mapping_table_reset_in_child(mq_mapping_table *table)
    void mq_mapping_end_use(mq_mapping *mapping, bint keeps)
    void mq_mapping_drop(mq_mapping *mapping)
    void mq_mapping_release(mq_mapping *mapping)


cdef extern from "base/file.h" nogil:
    int mq_lock_file(int fd)
    void mq_unlock_file(int fd)
    int mq_open_file(const mq_file_policy *policy, const char *path, int flags, mq_error *error)
    int mq_remove_file(const mq_file_policy *policy, const char *path, mq_error *error)
    int mq_create_file(const mq_file_policy *policy, const char *path, uint64_t bytes, uint64_t allocated,
                       unsigned int mode, struct_stat *made, mq_error *error)
    int mq_name_file(const mq_file_policy *policy, int fd, const char *path, mq_error *error)
    int mq_check_file(const mq_file_policy *policy, int fd, struct_stat *found, const char *path, mq_error *error)
    int mq_map_file(const mq_file_policy *policy, int fd, const struct_stat *found, uint64_t writable_bytes,
                    const char *path, mq_mapping **mapping, mq_error *error)


cdef extern from "base/mapguard.h" nogil:
    ctypedef struct mq_sigbus_guard:
        mq_u64 not_truncated
    bint mq_sigbus_guard_install_handler()
    mq_sigbus_guard *mq_sigbus_guard_add_mapping(void *address, uint64_t size, int protection)
    void mq_sigbus_guard_remove(mq_sigbus_guard *guard)
    bint mq_sigbus_guard_set_partner(mq_sigbus_guard *guard, mq_sigbus_guard *partner)


cdef mq_mapping_table _mappings  # the mappings that the handles of this process share


cdef void _reset_mappings_in_child() noexcept nogil:
    mq_mapping_table_reset_in_child(&_mappings)


pthread_atfork(NULL, NULL, _reset_mappings_in_child)


@no_gc  # no segment is in a cycle, and __dealloc__ needs all fields
cdef class Segment:
    def __dealloc__(self):
        if self.is_user:
            mq_mapping_release(self.mapping)
        else:
            mq_mapping_drop(self.mapping)


@no_gc  # like the segment
cdef class SegmentMemory:
    """See core.pxd."""

    def __dealloc__(self):
        # A wrong answer, possible only while another thread drops the segment, lets the file stay mapped until then.
        cdef bint keeps = self.segment is not None and Py_REFCNT(<PyObject *> self.segment) > 1
        if self.segment is not None:
            mq_mapping_end_use(self.segment.mapping, keeps)


cdef SegmentMemory use_memory(Segment segment, size_t kept_bytes=0):
    cdef SegmentMemory memory = SegmentMemory.__new__(SegmentMemory)
    memory.segment, segment.is_user = segment, False
    segment.mapping.kept_bytes = max(segment.mapping.kept_bytes, kept_bytes)
    return memory


# ---- errors and settings ----

cdef tuple _ERROR_CLASSES = (
    SegmentError, CorruptSegmentError, LayoutVersionError, SegmentSizeError, ChannelMismatchError,
    TooManyPublishersError, TooManySubscribersError, MessageTooLargeError, TooManyHandlesError, TooManyWritersError,
    MultipleWritersError, KeyTakenError, BoardFullError, MultiplePublishersError, IpcError,
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


cdef mq_guard_functions _guard_functions = mq_guard_functions(_add_guard, _remove_guard, _pair_guards)


cdef void *_add_guard(void *address, size_t size, int protection, const mq_u64 **not_truncated) noexcept nogil:
    cdef mq_sigbus_guard *guard = NULL
    if mq_sigbus_guard_install_handler():
        guard = mq_sigbus_guard_add_mapping(address, size, protection)
    if guard != NULL:
        not_truncated[0] = &guard.not_truncated
    return guard


cdef void _remove_guard(void *guard) noexcept nogil:
    mq_sigbus_guard_remove(<mq_sigbus_guard *> guard)


cdef c_bool _pair_guards(void *guard, void *partner) noexcept nogil:
    return mq_sigbus_guard_set_partner(<mq_sigbus_guard *> guard, <mq_sigbus_guard *> partner)


cdef object _thread_overrides = settings.thread_overrides


# The texts that _parsed_policy holds: `trust=` of the thread, or None, then MSGQ_TRUST and MSGQ_GROUP.
cdef tuple _policy_texts = None
cdef mq_file_policy _parsed_policy


cdef int load_file_policy(mq_file_policy *policy, str endpoint) except -1:
    """Load the settings by which this thread shares files. The parsed texts of the last call serve again."""
    global _policy_texts, _parsed_policy
    trust = _thread_overrides.trust
    with cython.critical_section(_thread_overrides):
        is_parsed = (_policy_texts is not None and trust == _policy_texts[0]
                     and _is_text(trusted_users(), _policy_texts[1]) and _is_text(file_group(), _policy_texts[2]))
        policy[0] = _parsed_policy
    if not is_parsed:
        texts = (trust, _copy_text(trusted_users()), _copy_text(file_group()))
        _parse_policy(policy, endpoint)
        with cython.critical_section(_thread_overrides):
            _policy_texts, _parsed_policy = texts, policy[0]
    policy.preallocate = is_preallocation_enabled()
    policy.guards = &_guard_functions if is_sigbus_handled() else NULL
    policy.mappings, policy.private_files = &_mappings, &_private_files
    return 0


cdef bytes _copy_text(const char *text):
    return b"" if text == NULL else <bytes> text


cdef bint _is_text(const char *text, bytes known) noexcept:
    return not known if text == NULL else strcmp(text, <const char *> known) == 0


cdef int _parse_policy(mq_file_policy *policy, str endpoint) except -1:
    if settings.get_trust() == "" and settings.get_file_group() == "":
        policy.trusted_count, policy.group = 0, <gid_t> -1
        return 0
    from msgq.common import file_permissions  # imported late: few programs share files with other users
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

class _OpenFileOverrides(_local):
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


cdef int create_file(str endpoint, str path, size_t size, int mode) except -1:
    """Return a new file of zeros without a name, with the group of MSGQ_GROUP."""
    cdef mq_file_policy policy
    cdef mq_error error
    cdef struct_stat made
    load_file_policy(&policy, endpoint)
    cdef int fd = mq_create_file(&policy, path.encode(), size, size, mode, &made, &error)
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
    cdef mq_mapping *mapping
    cdef bytes encoded = path.encode()
    load_file_policy(&policy, endpoint)
    if mq_map_file(&policy, fd, found, writable_bytes, encoded, &mapping, &error):
        raise_error(&error, endpoint)
    return adopt_mapping(mapping, path)


cdef Segment adopt_mapping(mq_mapping *mapping, str path):
    cdef Segment segment = Segment.__new__(Segment)
    segment.mapping, segment.is_user = mapping, True
    segment.path, segment.file = path, path.encode()
    segment.address, segment.size, segment.not_truncated = mapping.address, mapping.size, mapping.not_truncated
    segment.inode = mapping.inode
    segment.liveness_file = mq_liveness_file_of(<const char *> segment.file, mapping.device, mapping.inode)
    return segment


cdef void *guard_mapping(void *address, size_t size, int protection, const mq_u64 **not_truncated) except? NULL:
    """Guard the mapping, so that a truncation gives zeros instead of SIGBUS.

    Return NULL if MSGQ_SIGBUS disables this.
    """
    if not is_sigbus_handled():
        return NULL
    cdef void *guard = _add_guard(address, size, protection, not_truncated)
    if guard == NULL:
        raise IpcError(f"cannot handle SIGBUS: {os.strerror(errno)} (MSGQ_SIGBUS=0 avoids the handler)", errno=errno)
    return guard


cdef void unguard_mapping(void *guard) noexcept:
    if guard != NULL:
        _remove_guard(guard)


cdef object truncated_error(str endpoint, Segment segment):
    text = f"had {segment.size} bytes, but another program truncated it; open it again"
    return SegmentSizeError(text, endpoint, segment.path)


cdef int lock_file(int fd, str endpoint, str path) except -1:
    """Lock the file. unlock_file releases the lock."""
    cdef int64_t deadline = mq_monotonic_ns() + LOCK_WAIT_NS
    while mq_lock_file(fd) != 0:
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
    mq_unlock_file(fd)
