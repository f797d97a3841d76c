"""The file of an endpoint: open or create, check, map, lock. The base of the files of all types."""


cdef extern from "base/file_lock.h" nogil:
    bint mq_file_lock_open(mq_file_lock *lock, const mq_liveness_file *file)
    int mq_file_lock_try(const mq_file_lock *lock)
    void mq_file_lock_close(mq_file_lock *lock)


cdef enum:
    OPEN_TRIES = 5  # maximum number of attempts while other processes remove the file or its directory


@no_gc_clear  # the garbage collector must not clear the mapping, because its rows are needed until the end
cdef class EndpointFile:
    """See core.pxd."""

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    # ---- methods of subclasses ----

    cdef str _kind_name(self):
        return "segment"

    cdef size_t _min_file_bytes(self) noexcept:
        return 0

    cdef int _check_header(self) except -1:
        return 0

    cdef tuple _prefix_directories(self):
        return ()

    cdef size_t _new_file_bytes(self) except 0:
        return 1

    cdef size_t _allocated_bytes(self) noexcept:
        """Return the bytes of a new file that get memory at its creation; 0: all."""
        return 0

    cdef int _init_header(self) except -1:
        return 0

    cdef SegmentMemory _map_file(self, int fd, const struct_stat *found, bint writable):
        return map_shared_file(fd, found, writable, self.name, self.path)

    cdef int _check_requested_options(self) except -1:
        return 0

    cdef int _mark_open(self) except -1:
        return 0

    # ---- open and create ----

    cdef int open_or_create(self, object create, object mode, bint writable=True) except -1:
        """Open or create the file. `create` True: only create, False: only open; otherwise raise EEXIST or ENOENT."""
        cdef int tries = OPEN_TRIES
        file_permissions.trusted_users(self.name)  # raise for an unknown user before the file is opened
        while not self._try_open_or_create(create, mode, writable, &tries):
            pass
        return 0

    cdef bint _try_open_or_create(self, object create, object mode, bint writable, int *tries) except -1:
        """Return False if other processes created or removed the file during this; then try again."""
        try:
            if not create and self.open(writable):
                self._check_requested_options()
            elif create is False:
                raise self.missing_error()
            elif not self.create(mode):
                if create:
                    raise segment_error(f"{self._kind_name()} exists; to open it, omit "
                                        "create=True", self.name, self.path, EEXIST)
                return False
            self._mark_open()
            return True
        except SegmentError as error:
            tries[0] -= 1
            if create is False or error.errno != ENOENT or not tries[0]:
                raise
            return False

    cdef bint open(self, bint writable) except -1:
        """Map an existing file. Return False if there is none. Observers map it read-only."""
        cdef struct_stat found
        cdef int fd = open_file(self.name, self.path, O_RDWR if writable else O_RDONLY)
        if fd < 0:
            return False
        try:
            check_file(fd, &found, self.name, self.path)
            if <size_t> found.st_size < self._min_file_bytes():
                message = f"has {found.st_size} bytes, too few for a {self._kind_name()}; remove it"
                raise CorruptSegmentError(message, self.name, self.path)
            self._use_memory(self._map_file(fd, &found, writable))
            self.mode = found.st_mode & 0o777
            self._adopt_descriptor(fd)
            fd = -1
            return True
        finally:
            if fd >= 0:
                close(fd)

    cdef bint create(self, object mode) except -1:
        """Create the file. Return False if another process was faster."""
        self.create_unnamed(mode)
        return name_file(self.fd, self.name, self.path)

    cdef int create_unnamed(self, object mode) except -1:
        """Create the file without a name. Then call `name_file`."""
        cdef struct_stat found
        cdef int permissions = settings.resolve_file_mode(mode, self.name)
        if self.prefix:
            make_directories(self.name, self._prefix_directories(), permissions)
        cdef int fd = create_file(self.name, self.path, self._new_file_bytes(), permissions, &found,
                                  self._allocated_bytes())
        try:
            self._use_memory(map_shared_file(fd, &found, True, self.name, self.path))
            self.mode = permissions
            self._init_header()
            self._adopt_descriptor(fd)
            fd = -1
            return 0
        finally:
            if fd >= 0:
                close(fd)

    cdef void _use_memory(self, SegmentMemory memory) noexcept:
        self.memory, self.segment = memory, memory.segment
        self.segment.kept_bytes = self._min_file_bytes()  # a closed handle still describes the endpoint

    cdef int _adopt_descriptor(self, int fd) except -1:
        self._check_header()
        self._close_fd()  # close the descriptor of a file that was removed during the open
        self.not_truncated = not_truncated_word(self.segment.guard) if self.segment.guard != NULL else NULL
        self.opened_file = self.segment.liveness_file
        self.opened_file.fd = self.fd = fd  # from now on, this class closes the descriptor
        return 0

    cdef void _close_fd(self) noexcept:
        if self.fd >= 0:
            close(self.fd)
        self.opened_file.fd = self.fd = -1

    cdef void release(self) noexcept:
        self._close_fd()
        self.memory = None

    # ---- while it is open ----

    cdef const mq_liveness_file *liveness_file(self) noexcept:
        return &self.opened_file

    cdef bint lock(self, mq_file_lock *lock, bint patient=True) except -1:
        """Take the lock, so that no other process or thread joins. Works for an unlinked file, too.

        If another process or thread has the lock, wait if `patient`, and otherwise return False. After success, the
        caller calls `unlock`.
        """
        cdef int64_t deadline = mq_monotonic_ns() + LOCK_WAIT_NS
        cdef bint locked = False
        lock.fd = -1
        try:
            while not locked:
                while not self._try_lock(lock):
                    if not patient:
                        return False
                    wait_for_file_lock(deadline, self.name, self.path)
                self._check_locked_file(lock)
                locked = lock.fd >= 0  # false in a child that a signal handler forked during the check
        finally:
            if not locked:
                self.unlock(lock)
        return True

    cdef bint _try_lock(self, mq_file_lock *lock) except -1:
        """Open the file if it is not open, and try to lock it. In a child that a signal handler forked during the wait,
        the file is not open.
        """
        if lock.fd < 0 and not mq_file_lock_open(lock, self.liveness_file()):
            raise self._reopen_error(errno)
        if mq_file_lock_try(lock) == 0:
            return True
        if errno != EAGAIN and errno != EINTR:
            raise segment_error("cannot lock", self.name, self.path, errno)
        return False

    cdef int _check_locked_file(self, const mq_file_lock *lock) except -1:
        return 0

    cdef int require_lock(self, const mq_file_lock *lock) except -1:
        """Call this under the lock, after Python code and before a change."""
        if lock.fd < 0:
            raise ForkedSocketError("a signal handler forked this process during the call, and only the parent "
                                    "completes the call; repeat the call in this process", self.name)
        return 0

    cdef object _reopen_error(self, int error):
        return segment_error(f"cannot reopen the file of the {self._kind_name()}", self.name, self.path, error)

    cdef void unlock(self, mq_file_lock *lock) noexcept:
        mq_file_lock_close(lock)

    cdef bint is_removed(self, int fd) noexcept:
        """True if the open file has no name."""
        cdef struct_stat status
        return fstat(fd, &status) != 0 or status.st_nlink == 0

    cdef int check_truncation(self) except -1:
        if mq_mapping_was_truncated(self.not_truncated):
            raise truncated_error(self.name, self.segment)
        return 0

    cdef bint is_linked(self) noexcept:
        """True if the path still leads to this file."""
        cdef struct_stat here, named
        cdef bytes path = self.segment.file
        return (fstat(self.fd, &here) == 0 and lstat(path, &named) == 0 and here.st_ino == named.st_ino
                and here.st_dev == named.st_dev)

    cdef bint remove_if(self, object condition) except -1:
        """Remove the file's name if `condition()` is true under the lock. Return True if it was removed."""
        cdef mq_file_lock lock
        self.lock(&lock)
        try:
            if not self.is_linked():
                raise self.missing_error()
            if not condition():
                return False
            if not remove_file(self.name, self.path):
                raise self.missing_error()
            return True
        finally:
            self.unlock(&lock)

    cdef object missing_error(self):
        """Return the exception for a missing file. Subclasses may add details."""
        return segment_error(f"{self._kind_name()} not found", self.name, self.path, ENOENT)


cdef object read_participant(const mq_participant *participant, mq_liveness life):
    from msgq.common.stats import Participant  # imported late: dataclasses take longer than this module
    return Participant(mq_load_relaxed_u64(&participant.pid), mq_load_relaxed_u64(&participant.thread_id),
                       mq_load_relaxed_u64(&participant.start_time), text(participant.name, MQ_NAME), is_alive(life))
