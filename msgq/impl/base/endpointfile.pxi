"""The file of an endpoint: open or create, check, map, lock. The base of the files of all types."""


cdef extern from "base/file_lock.h" nogil:
    bint mq_file_lock_open(mq_file_lock *lock, const mq_liveness_file *file)
    int mq_file_lock_try(const mq_file_lock *lock)
    void mq_file_lock_close(mq_file_lock *lock)


cdef extern from "base/endpoint_file.h" nogil:
    enum:
        MQ_OPEN_TRIES
    ctypedef struct mq_endpoint_file:
        mq_mapping *mapping
        int fd
        unsigned int mode
        bint is_new
    int mq_endpoint_file_open(const mq_endpoint_file_request *request, mq_endpoint_file *file, mq_error *error)
    int mq_endpoint_file_map(const mq_endpoint_file_request *request, mq_endpoint_file *file, mq_error *error)
    int mq_endpoint_file_name(const mq_endpoint_file_request *request, mq_endpoint_file *file, mq_error *error)


@no_gc_clear  # the garbage collector must not clear the mapping, because its rows are needed until the end
cdef class EndpointFile:
    """See core.pxd."""

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        mq_close_file(self.fd)

    # ---- methods of subclasses ----

    cdef str _kind_name(self):
        return "segment"

    cdef size_t _min_file_bytes(self) noexcept:
        return 0

    cdef int _check_header(self) except -1:
        return 0

    cdef size_t _new_file_bytes(self) except 0:
        return 1

    cdef int _init_header(self) except -1:
        return 0

    cdef int _check_requested_options(self) except -1:
        return 0

    cdef int _mark_open(self) except -1:
        return 0

    # ---- open and create ----

    cdef int open_or_create(self, object create, object mode, bint writable=True) except -1:
        """Open or create the file. `create` True: only create, False: only open; otherwise raise EEXIST or ENOENT."""
        cdef int tries = MQ_OPEN_TRIES
        cdef mq_endpoint_file_request request
        request.create = MQ_ONLY_CREATE if create else MQ_OPEN_OR_CREATE if create is None else MQ_ONLY_OPEN
        request.writable, request.new_bytes = writable, 0
        while True:
            try:
                if create or not self._open_file(&request):
                    self._create_file(&request, mode)
                self._check_requested_options()
                self._mark_open()
                return 0
            except SegmentError as error:  # ENOENT: another process removed the file, or the directory of its prefix
                tries -= 1
                if request.create == MQ_ONLY_OPEN or error.errno != ENOENT or not tries:
                    raise

    cdef int open_existing(self) except -1:
        """Map an existing file read-only, for an observer."""
        cdef mq_endpoint_file_request request
        request.create, request.writable, request.new_bytes = MQ_ONLY_OPEN, False, 0
        if not self._open_file(&request):
            raise self.missing_error()
        return 0

    cdef int _create_file(self, mq_endpoint_file_request *request, object mode) except -1:
        """Create the missing file, or open it if another process was faster. The size of a new file needs options that
        an existing one does not need.
        """
        if request.create == MQ_ONLY_OPEN:
            raise self.missing_error()
        request.mode, request.new_bytes = settings.resolve_file_mode(mode, self.name), self._new_file_bytes()
        self._open_file(request)
        return 0

    cdef bint _open_file(self, mq_endpoint_file_request *request) except -1:
        """Open the file, or create it if the request has a size. Return False if it is missing."""
        cdef bytes path = self.path.encode(), kind_name = self._kind_name().encode()
        cdef int status = MQ_FILE_CHANGED
        load_file_policy(&self.policy, self.name)
        request.policy, request.path, request.kind_name = &self.policy, path, kind_name
        request.least_bytes = self._min_file_bytes()
        while status == MQ_FILE_CHANGED:
            status = self._open_file_once(request)
        if status == MQ_FILE_EXISTS:
            raise segment_error(f"{self._kind_name()} exists; to open it, omit create=True", self.name, self.path,
                                EEXIST)
        return status == 0

    cdef int _open_file_once(self, const mq_endpoint_file_request *request) except? -1:
        cdef mq_endpoint_file file
        cdef mq_error error
        cdef int status, given_fd = _open_overridden_file(self.name, self.path)
        file.fd, file.is_new, file.mapping = given_fd, False, NULL
        if given_fd >= 0:
            status = mq_endpoint_file_map(request, &file, &error)
        elif not request.new_bytes:
            status = mq_endpoint_file_open(request, &file, &error)
        else:
            with nogil:  # the allocation of a large file takes milliseconds
                status = mq_endpoint_file_open(request, &file, &error)
        if status < 0:
            if given_fd >= 0:
                close(given_fd)
            raise_error(&error, self.name)
        if status:
            return status
        try:
            self._use_segment(adopt_mapping(file.mapping, self.path))
            self.mode = file.mode
            if file.is_new:
                self._init_header()
            self._adopt_descriptor(file.fd)
        except BaseException:
            if self.fd != file.fd:
                mq_close_file(file.fd)
            raise
        status = mq_endpoint_file_name(request, &file, &error)
        return status if status >= 0 else raise_error(&error, self.name)

    cdef void _use_segment(self, Segment segment) noexcept:
        # a closed handle still describes the endpoint
        self.segment, self.memory = segment, use_memory(segment, self._min_file_bytes())

    cdef int _adopt_descriptor(self, int fd) except -1:
        self._check_header()
        self._close_fd()  # close the descriptor of a file that was removed during the open
        self.not_truncated = self.segment.not_truncated
        self.opened_file = self.segment.liveness_file
        self.opened_file.fd = self.fd = fd  # from now on, this class closes the descriptor
        return 0

    cdef void _close_fd(self) noexcept:
        mq_close_file(self.fd)
        self.opened_file.fd = self.fd = -1

    cdef void release(self) noexcept:
        self._close_fd()
        self.memory = None

    # ---- while it is open ----

    cdef const mq_liveness_file *liveness_file(self) noexcept:
        return &self.opened_file

    cdef uint64_t make_uid(self) noexcept:
        return new_uid() if self.bus is None else self.bus.next_number()

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
                locked = True
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
        return not mq_file_status(&self.policy, fd, &status) or status.st_nlink == 0

    cdef int check_truncation(self) except -1:
        if mq_mapping_was_truncated(self.not_truncated):
            raise truncated_error(self.name, self.segment)
        return 0

    cdef bint is_linked(self) noexcept:
        """True if the path still leads to this file."""
        return mq_file_is_linked(&self.policy, self.fd, self.segment.file)

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
