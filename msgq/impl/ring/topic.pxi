"""A topic's two files: create, open, check, map.

Opening and registering run under flock of the ring's file, which the kernel releases when its holder dies.
"""


cdef enum:
    DATA_BYTES_MIN = 128  # a smaller ring has no room for three messages, even if they are empty
    PREFIX_TRIES = 100  # attempts to create a topic while other processes remove its prefix


cdef class TopicFiles:
    def __cinit__(self):
        self.lock_fd = -1

    cdef void unlock(self):
        if self.lock_fd >= 0:
            unlock_file(self.lock_fd)
            self.lock_fd = -1

    def __dealloc__(self):
        self.unlock()


cdef bint _populates_at_open() except -1:
    """True if files get all of their memory at creation, instead of before the writes."""
    return not mq_can_populate() or is_preallocation_enabled()


cdef int _grow_ring_file(TopicFiles topic, int fd, size_t size, str path) except -1:
    """Grow the ring's file to its size, and allocate its last page. Never truncates the file."""
    cdef size_t start = 0
    if not _populates_at_open():
        if mq_file_system_free_bytes(fd) < size + MQ_SIDE_BYTES:
            raise segment_error(f"cannot allocate {size} bytes", topic.endpoint, path, ENOSPC)
        start = size - 8
    return allocate_file(fd, size, topic.endpoint, path, start)


cdef int _map_ring(TopicFiles topic, int fd, const struct_stat *found, bint writable, str path) except -1:
    """Map the ring, and populate its first and last page, which all processes write.

    Other processes may truncate the file.
    """
    cdef bint populated = not writable or found.st_blocks * 512 >= found.st_size
    cdef struct_stat now
    if not populated and _populates_at_open():
        populated = allocate_file(fd, found.st_size, topic.endpoint, path) == 0
    topic.ring = map_file(fd, found, found.st_size if writable else 0, topic.endpoint, path)
    topic.data_bytes = topic.ring.size - MQ_RING_HEADER
    cdef uint8_t *end = topic.ring.address + topic.ring.size
    if not populated and not (mq_populate(topic.ring.address, MQ_RING_HEADER, 0) and mq_populate(end - 8, 8, 0)):
        if fstat(fd, &now) == 0 and now.st_size < found.st_size:
            raise size_changed_error(topic.endpoint, topic.ring, None)
        raise segment_error("cannot allocate memory for the ends of the ring", topic.endpoint, path, ENOSPC)
    return 0


cdef int _share_ring(TopicFiles topic, int fd, const struct_stat *found, str path) except -1:
    """Use the mapping of the ring that other sockets of this process use, or map the ring.

    If the file has fewer blocks than at the last call, the ends of the ring may have lost their memory. A new mapping
    populates the ends again.
    """
    cdef SegmentMemory memory = find_shared_memory(found, True, path)
    if memory is not None and found.st_blocks >= memory.segment.block_count:
        topic.ring = memory.segment
        topic.data_bytes = topic.ring.size - MQ_RING_HEADER
    else:
        _map_ring(topic, fd, found, True, path)
        memory = share_memory(topic.ring, True)
    topic.ring_memory = memory
    topic.ring.block_count = found.st_blocks
    return 0


cdef void _write_canary(TopicFiles topic) noexcept:
    cdef mq_ring_header *ring = <mq_ring_header *> topic.ring.address
    if mq_ring_canary_is_unset(ring, topic.data_bytes):
        mq_ring_canary_write(ring, topic.data_bytes, random_u32() | 1)


cdef int _load_canary(TopicFiles topic) except -1:
    """Select the words that detect a truncation of the ring. Raise if one of both files is already truncated.

    The ring has its canary by now, or never gets one. If the side segment is truncated, the ring reads as zeros, too,
    so it is enough to check the ring.
    """
    cdef bint paired = topic.side is None or pair_guards(topic.side, topic.ring)
    if topic.ring.guard == NULL:  # a load of the canary could raise SIGBUS
        topic.canary = mq_canary_always_intact()
    else:
        topic.canary = mq_canary_of_ring(<mq_ring_header *> topic.ring.address, topic.data_bytes,
                                         not_truncated_word(topic.ring.guard))
        # The file was truncated after its size was read: the canary was written into zeros of this process.
        if not paired or was_truncated(topic.ring.guard):
            raise size_changed_error(topic.endpoint, topic.ring, topic.side)
    return 0


cdef size_t _parse_segment_size(object segment_size, str endpoint) except 0:
    """Return the requested data size in bytes; 0 selects the default."""
    if segment_size == 0:
        return MQ_DEFAULT_DATA_BYTES
    if not DATA_BYTES_MIN <= segment_size < 2**32:
        text = f"segment_size is {segment_size} bytes; give {DATA_BYTES_MIN} to {2**32 - 1}, or 0 for 1 MiB"
        raise InvalidValueError(text, endpoint)
    return segment_size


cdef int _check_ring_size(const struct_stat *found, str endpoint, str path) except -1:
    cdef int64_t data_bytes = <int64_t> found.st_size - MQ_RING_HEADER
    if data_bytes < DATA_BYTES_MIN or data_bytes >= <int64_t> 2**32:
        text = (f"has {found.st_size} bytes, and is not a ring (truncated, or of another program); remove it when it "
                "is not in use")
        raise CorruptSegmentError(text, endpoint, path)
    return 0


cdef bint _resize_ring(TopicFiles topic, int fd, const struct_stat *found, size_t wanted, str path) except -1:
    """Give the requested size to an empty ring, unless a process has requested its size. Otherwise raise.

    A larger size: the file grows, and subscribers map it again. A smaller size: an unused ring is removed, because a
    truncated file would kill processes without the SIGBUS handler. Return False if the ring was removed.
    """
    cdef Segment ring = map_file(fd, found, 0, topic.endpoint, path)
    cdef SegmentMemory memory = _open_side(topic.endpoint, topic.side_path, ring, False, NULL)
    cdef Segment side = None if memory is None else memory.segment
    cdef mq_ring_side *rows = NULL if side is None else <mq_ring_side *> side.address
    cdef bint grows = <size_t> found.st_size < MQ_RING_HEADER + wanted
    if (rows == NULL
            or not mq_ring_may_be_resized(<const mq_ring_header *> ring.address, rows, &side.liveness_file)
            or not grows and mq_ring_has_subscribers(rows, &side.liveness_file)):
        raise _size_mismatch_error(topic.endpoint, ring, rows, wanted)
    if grows:
        _grow_ring_file(topic, fd, MQ_RING_HEADER + wanted, path)
    else:
        remove_file(topic.endpoint, path)
    return grows


cdef object _size_mismatch_error(str endpoint, Segment ring, const mq_ring_side *side, size_t wanted):
    """Return the exception for a ring of another size. Name the process that chose the size, if it is known."""
    cdef uint64_t pid = 0 if side == NULL else mq_load_relaxed_u64(&side.size_pid)
    cdef bint unasked = pid and mq_ring_size_is_unasked(side)
    what = f"exists with segment_size {ring.size - MQ_RING_HEADER}"
    if pid:
        origin = "default of" if unasked else "requested by"
        what = f"{what} ({origin} process {pid}, {text(side.size_by, MQ_NAME)})"
    what = (f"{what}, but {wanted} was requested; give 0 to use the existing size, or remove it when it is not in use "
            "(msgq clean)")
    if unasked:
        what = (f"{what}. A default size changes only before the first message, and without a publisher or stock "
                "process. It decreases only without subscribers")
    return SegmentSizeError(what, endpoint, ring.path)


cdef SegmentMemory _create_side(str endpoint, str path, Segment ring, int mode, bint tracked,
                                const mq_process_identity *sizer, bint asked):
    """Create the side segment, complete before it has a name. Return None if a process without the lock was faster.

    `sizer`: process that chose the ring's size; NULL: unknown.
    """
    cdef struct_stat found
    cdef SegmentMemory side
    cdef size_t allocated = 0 if _populates_at_open() else mq_ring_side_allocated_bytes()
    cdef int fd = create_file(endpoint, path, MQ_SIDE_BYTES, mode, &found, allocated)
    try:
        side = map_shared_file(fd, &found, True, endpoint, path)
        mq_ring_side_init(<mq_ring_side *> side.segment.address, <mq_ring_header *> ring.address, ring.inode,
                          ring.size - MQ_RING_HEADER, host_time_ns(), tracked)
        if sizer != NULL:
            mq_ring_side_record_size(<mq_ring_side *> side.segment.address, sizer, asked)
        return side if name_file(fd, endpoint, path) else None
    finally:
        close(fd)


cdef SegmentMemory _open_side(str endpoint, str path, Segment ring, bint writable, bint *was_tracked):
    """Return the ring's side segment, or None. Remove a stale one.

    *was_tracked: set if a stale one says that the ring's messages are tracked.
    """
    cdef struct_stat found
    cdef uint32_t data_bytes = ring.size - MQ_RING_HEADER
    cdef SegmentMemory memory
    cdef Segment side
    cdef int fd = open_file(endpoint, path, O_RDWR if writable else O_RDONLY)
    if fd < 0:
        return None
    try:
        check_file(fd, &found, endpoint, path)
        if found.st_size != MQ_SIDE_BYTES:
            raise CorruptSegmentError(f"has {found.st_size} bytes, not {MQ_SIDE_BYTES}; remove it", endpoint, path)
        if writable:
            memory = map_shared_file(fd, &found, True, endpoint, path)
        else:
            memory = use_memory(map_file(fd, &found, 0, endpoint, path))
    finally:
        close(fd)
    side = memory.segment
    check = mq_ring_side_check(<mq_ring_side *> side.address, ring.inode, data_bytes)
    if check == MQ_FILE_VALID:
        if not mq_ring_canary_is_missing(<mq_ring_header *> ring.address, <mq_ring_side *> side.address, data_bytes):
            return memory
        check = MQ_FILE_STALE
    if check == MQ_FILE_STALE:
        if writable:
            was_tracked[0] |= mq_ring_side_was_tracked(<mq_ring_side *> side.address, ring.inode)
            mq_ring_move_to_next_lap(<mq_ring_header *> ring.address, <mq_ring_side *> side.address, ring.inode,
                                     data_bytes)
            remove_file(endpoint, path)
        return None
    if check == MQ_FILE_OTHER_VERSION:
        version = mq_ring_side_version(<mq_ring_side *> side.address)
        text = (f"has layout version {version}, but this library has {MQ_SIDE_VERSION}; "
                "use one version of msgq, or remove the file when it is not in use (msgq clean)")
        raise LayoutVersionError(text, endpoint, path)
    raise CorruptSegmentError("is not a side segment of msgq; remove it", endpoint, path)


cdef bint _lock_existing_ring(TopicFiles topic, str path, bint asked, size_t wanted) except -1:
    """Lock and map an existing ring. Return False if there is none. `asked`: the caller requested the size `wanted`."""
    cdef struct_stat found
    cdef int fd
    while (fd := open_file(topic.endpoint, path, O_RDWR)) >= 0:
        topic.lock_fd = fd
        lock_file(fd, topic.endpoint, path)
        check_file(fd, &found, topic.endpoint, path)
        if not found.st_nlink:  # another process removed the file between open and lock
            topic.unlock()
            continue
        if found.st_size == 0:
            # A stock process creates an empty file and sizes the file later: size the file now.
            _grow_ring_file(topic, fd, MQ_RING_HEADER + wanted, path)
            check_file(fd, &found, topic.endpoint, path)
        _check_ring_size(&found, topic.endpoint, path)
        if asked and <size_t> found.st_size != MQ_RING_HEADER + wanted:
            if not _resize_ring(topic, fd, &found, wanted, path):
                topic.unlock()
                continue
            check_file(fd, &found, topic.endpoint, path)
        _share_ring(topic, fd, &found, path)
        return True
    return False


cdef bint _create_ring(TopicFiles topic, str path, size_t data_bytes, int mode) except -1:
    """Create the ring, locked and mapped before it has a name. Return False if another process was faster."""
    cdef struct_stat found
    topic.lock_fd = create_file(topic.endpoint, path, 0, mode, &found)
    lock_file(topic.lock_fd, topic.endpoint, path)
    _grow_ring_file(topic, topic.lock_fd, MQ_RING_HEADER + data_bytes, path)
    found.st_size = MQ_RING_HEADER + data_bytes
    _share_ring(topic, topic.lock_fd, &found, path)
    if name_file(topic.lock_fd, topic.endpoint, path):
        return True
    topic.ring = topic.ring_memory = None
    topic.unlock()
    return False


cdef int _remove_unused_ring(TopicFiles topic) except -1:
    """Remove a locked ring that we created and cannot use, if its header shows that no stock process joined."""
    cdef char zeros[MQ_RING_HEADER]
    memset(zeros, 0, MQ_RING_HEADER)
    if was_truncated(topic.ring.guard):  # a stock process has joined, and this mapping no longer shows the file
        return 0
    if memcmp(topic.ring.address, zeros, MQ_RING_HEADER) == 0:
        with contextlib.suppress(SegmentError):
            remove_file(topic.endpoint, topic.ring.path)
    return 0


cdef TopicFiles _open_topic(str endpoint, str in_prefix, bint asked, size_t wanted, int permissions, object create):
    cdef TopicFiles topic = TopicFiles.__new__(TopicFiles)
    cdef mq_process_identity us
    cdef bint made = False, tracked = False
    if in_prefix and create is not False:
        make_directories(endpoint, shm_paths.topic_directories(in_prefix), permissions)
    path = shm_paths.ring_path(endpoint, in_prefix)
    side_path = shm_paths.side_segment_path(endpoint, in_prefix)
    topic.endpoint, topic.side_path = endpoint, side_path
    while not made and (create is True or not _lock_existing_ring(topic, path, asked, wanted)):
        if create is False:
            raise segment_error("topic not found", endpoint, path, ENOENT)
        made = _create_ring(topic, path, wanted, permissions)
        if create is True and not made:
            raise segment_error("topic exists; to open it, omit create=True", endpoint, path, EEXIST)
    try:
        # The first call of each opens a file. Without a free descriptor, fail before the side segment is created.
        read_own_identity(&us, NULL)
        host_offset_ns()
        while topic.side_memory is None:
            topic.side_memory = _open_side(endpoint, side_path, topic.ring, True, &tracked)
            _write_canary(topic)  # after the open: a missing canary shows that the ring was truncated
            if topic.side_memory is None:
                topic.side_memory = _create_side(endpoint, side_path, topic.ring, permissions, tracked,
                                                 &us if made else NULL, asked)
        topic.side = topic.side_memory.segment
        mq_ring_side_record_ring(<mq_ring_side *> topic.side.address, <mq_ring_header *> topic.ring.address,
                                 topic.data_bytes)
        if asked and mq_ring_size_is_unasked(<mq_ring_side *> topic.side.address):
            mq_ring_side_record_size(<mq_ring_side *> topic.side.address, &us, True)
        _load_canary(topic)
    except BaseException:
        if made:
            _remove_unused_ring(topic)
        raise
    return topic


cdef TopicFiles open_topic(str endpoint, str in_prefix, object segment_size, object mode, object create=None):
    """Open or create both files for a participant. The topic is locked. Unlock it after registering.

    `create`: True only creates, False only opens, None does either.
    """
    cdef size_t wanted = _parse_segment_size(segment_size, endpoint)
    cdef int permissions = settings.resolve_file_mode(mode, endpoint)
    cdef int tries = PREFIX_TRIES if in_prefix else 1
    file_permissions.trusted_users(endpoint)  # raises for an unknown user now, before another user's first file
    while True:
        tries -= 1
        try:
            return _open_topic(endpoint, in_prefix, segment_size != 0, wanted, permissions, create)
        except SegmentError as error:
            # ENOENT: another process removed the directories of the prefix. If the topic had to exist, raise the error.
            if error.errno != ENOENT or create is False or not tries:
                raise


cdef TopicFiles map_topic(str endpoint, str in_prefix):
    """Map both files read-only, without the lock or a trace. The ring must exist."""
    cdef struct_stat found
    cdef TopicFiles topic = TopicFiles.__new__(TopicFiles)
    path = shm_paths.ring_path(endpoint, in_prefix)
    cdef int fd = open_file(endpoint, path, O_RDONLY)
    if fd < 0:
        advice = "; start its publisher first, or correct the name (`msgq list`)"
        raise segment_error("topic not found", endpoint, path, ENOENT, advice)
    topic.lock_fd = fd
    topic.endpoint = endpoint
    check_file(fd, &found, endpoint, path)
    _check_ring_size(&found, endpoint, path)
    _map_ring(topic, fd, &found, False, path)
    topic.ring_memory = use_memory(topic.ring)
    attach_found_side(topic, in_prefix)
    _load_canary(topic)
    return topic


cdef TopicFiles remap_grown_topic(str endpoint, Segment former, SegmentMemory side, bint writable):
    """Map a ring again whose file is larger than the mapping. Return None if the file has not grown."""
    cdef TopicFiles topic = TopicFiles.__new__(TopicFiles)
    cdef struct_stat found
    cdef int fd
    if not mq_file_grew(former.file, former.inode, former.size - MQ_RING_HEADER):
        return None
    fd = open_file(endpoint, former.path, O_RDWR if writable else O_RDONLY)
    if fd < 0:
        return None
    try:
        check_file(fd, &found, endpoint, former.path)
        if found.st_ino != former.inode or <size_t> found.st_size <= former.size:
            return None
        _check_ring_size(&found, endpoint, former.path)
        topic.endpoint, topic.side_memory = endpoint, side
        topic.side = None if side is None else side.segment
        if writable:
            _share_ring(topic, fd, &found, former.path)
        else:
            _map_ring(topic, fd, &found, False, former.path)
            topic.ring_memory = use_memory(topic.ring)
    finally:
        close(fd)
    if writable:
        _write_canary(topic)
    _load_canary(topic)
    return topic


cdef object size_changed_error(str endpoint, Segment ring, Segment side):
    """Return the exception for a truncated ring or side segment."""
    if side is not None and (was_truncated(side.guard) or mq_file_shrank(side.file, side.inode, side.size)):
        text = (f"has a side segment of {side.size} bytes that another program truncated. Close this socket, "
                "remove the topic when it is not in use (msgq clean), and connect again")
        return SegmentSizeError(text, endpoint, side.path)
    had = ring.size - MQ_RING_HEADER
    change = "removed"
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(ring.path)
        now = max(0, status.st_size - MQ_RING_HEADER)
        if status.st_ino == ring.inode:
            change = f"set to {now}" + (" again" if now == had else "")
    text = (f"was connected with segment_size {had}, which another process has since {change}: a stock process sets "
            "the file to its own size when it opens the topic. Give all processes the same segment_size; close this "
            "socket and connect again")
    return SegmentSizeError(text, endpoint, ring.path)


cdef int wait_for_side(TopicFiles topic, str in_prefix) except -1:
    """Find a side segment that is being created: its creator holds the lock."""
    lock_file(topic.lock_fd, topic.endpoint, topic.ring.path)
    attach_found_side(topic, in_prefix)
    topic.unlock()
    _load_canary(topic)
    return 0


cdef int attach_found_side(TopicFiles topic, str in_prefix) except -1:
    topic.side_memory = find_side(topic.endpoint, in_prefix, topic.ring)
    topic.side = None if topic.side_memory is None else topic.side_memory.segment
    return 0


cdef SegmentMemory find_side(str endpoint, str in_prefix, Segment ring):
    """Return the ring's side segment, mapped read-only, or None."""
    cdef str path = shm_paths.side_segment_path(endpoint, in_prefix)
    cdef SegmentMemory side = _open_side(endpoint, path, ring, False, NULL)
    if side is not None and not pair_guards(side.segment, ring):
        raise size_changed_error(endpoint, ring, side.segment)
    return side


cdef int check_topic_truncation(TopicFiles topic) except -1:
    """Raise if one of the files was truncated: bytes that were read may be zeros."""
    if was_truncated(topic.ring.guard) or (topic.side is not None and was_truncated(topic.side.guard)):
        raise size_changed_error(topic.endpoint, topic.ring, topic.side)
    return 0


cdef class TopicLock:
    """Locks a topic against connecting and removing processes. See the type stub for the contract."""

    cdef str _endpoint, _path
    cdef int _fd

    def __init__(self, endpoint, in_prefix=None):
        self._endpoint = naming.validate_endpoint_name(endpoint)
        self._path = shm_paths.ring_path(self._endpoint, settings.resolve_prefix(in_prefix))
        self._fd = -1

    def __enter__(self):
        cdef struct_stat found
        while True:
            self._fd = open_file(self._endpoint, self._path, O_RDONLY)
            if self._fd < 0:
                return False
            try:
                lock_file(self._fd, self._endpoint, self._path)
                check_file(self._fd, &found, self._endpoint, self._path)
            except BaseException:
                self.__exit__()
                raise
            if found.st_nlink:
                return True
            self.__exit__()  # another process removed the file between open and lock, and perhaps created it again

    def __exit__(self, *_):
        if self._fd >= 0:
            close(self._fd)
            self._fd = -1


def unlink_topic(endpoint, in_prefix=None):
    name = naming.validate_endpoint_name(endpoint)
    where = settings.resolve_prefix(in_prefix)
    side = remove_file(name, shm_paths.side_segment_path(name, where))
    return remove_file(name, shm_paths.ring_path(name, where)) or side


def unlink_orphan(endpoint, in_prefix=None):
    name = naming.validate_endpoint_name(endpoint)
    where = settings.resolve_prefix(in_prefix)
    ring = shm_paths.ring_path(name, where)
    cdef int fd = create_file(name, ring, 0, settings.resolve_file_mode(None, name))
    try:
        # A process that connects now waits for the lock of this empty ring, and then creates the topic again. Until
        # then, no side segment appears.
        lock_file(fd, name, ring)
        if not name_file(fd, name, ring):
            return False
        try:
            return remove_file(name, shm_paths.side_segment_path(name, where))
        finally:
            _remove_if_empty(fd, name, ring)
    finally:
        unlock_file(fd)


cdef int _remove_if_empty(int fd, str endpoint, str path) except -1:
    """Remove the empty ring, unless a stock process, which takes no lock, has started to use it."""
    cdef struct_stat found
    check_file(fd, &found, endpoint, path)
    if found.st_size == 0:
        remove_file(endpoint, path)
    return 0
