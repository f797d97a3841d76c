"""A topic's two files: create, open, check, map.

Opening and registering run under flock of the ring's file, which the kernel releases when its holder dies.
"""


cdef enum:
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


cdef TopicFiles _make_topic(str endpoint, str ring_path, str side_path, bint asked, size_t wanted):
    """Return the files of a topic, not opened. `asked`: the caller requested the size `wanted`."""
    cdef TopicFiles topic = TopicFiles.__new__(TopicFiles)
    topic.endpoint, topic.ring_path, topic.side_path = endpoint, ring_path, side_path
    topic.ring_file, topic.side_file = ring_path.encode(), side_path.encode()
    load_file_policy(&topic.policy, endpoint)
    topic.request.policy = &topic.policy
    topic.request.ring_path, topic.request.side_path = topic.ring_file, topic.side_file
    topic.request.data_bytes, topic.request.is_size_asked = wanted, asked
    return topic


cdef int _map_ring(TopicFiles topic, int fd, const struct_stat *found, bint writable) except -1:
    cdef mq_mapping mapping
    cdef mq_error error
    if mq_ring_map(&topic.policy, fd, found, writable, topic.ring_file, &mapping, &error):
        raise_error(&error, topic.endpoint)
    topic.ring = adopt_mapping(&mapping, found, topic.ring_path)
    topic.data_bytes = topic.ring.size - MQ_RING_HEADER
    return 0


cdef int _share_ring(TopicFiles topic, int fd, const struct_stat *found) except -1:
    """Use the mapping of the ring that other sockets of this process use, or map the ring.

    If the file has fewer blocks than at the last call, the ends of the ring may have lost their memory. A new mapping
    populates the ends again.
    """
    cdef SegmentMemory memory = find_shared_memory(found, True, topic.ring_path)
    if memory is not None and found.st_blocks >= memory.segment.block_count:
        topic.ring = memory.segment
        topic.data_bytes = topic.ring.size - MQ_RING_HEADER
    else:
        _map_ring(topic, fd, found, True)
        memory = share_memory(topic.ring, True)
    topic.ring_memory = memory
    topic.ring.block_count = found.st_blocks
    return 0


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
    if not MQ_RING_DATA_BYTES_MIN <= segment_size < 2**32:
        text = f"segment_size is {segment_size} bytes; give {MQ_RING_DATA_BYTES_MIN} to {2**32 - 1}, or 0 for 1 MiB"
        raise InvalidValueError(text, endpoint)
    return segment_size


cdef SegmentMemory _create_side(TopicFiles topic, int mode, bint tracked, const mq_process_identity *sizer):
    """Create the side segment, complete before it has a name. Return None if a process without the lock was faster.

    `sizer`: process that created the ring; NULL: unknown.
    """
    cdef struct_stat found
    cdef SegmentMemory side
    cdef mq_error error
    cdef int named, fd = mq_topic_create_side(&topic.request, mode, &found, &error)
    if fd < 0:
        raise_error(&error, topic.endpoint)
    try:
        side = map_shared_file(fd, &found, True, topic.endpoint, topic.side_path)
        named = mq_topic_name_side(&topic.request, fd, <mq_ring_header *> topic.ring.address, topic.ring.inode,
                                   topic.data_bytes, <mq_ring_side *> side.segment.address, tracked, sizer,
                                   host_time_ns(), &error)
    finally:
        close(fd)
    if named < 0:
        raise_error(&error, topic.endpoint)
    return side if named else None


cdef SegmentMemory _open_side(TopicFiles topic, bint writable, c_bool *tracked):
    """Return the ring's side segment, or None. If `writable`, remove a stale one.

    *tracked: set if a stale one says that the ring's messages are tracked.
    """
    cdef struct_stat found
    cdef SegmentMemory memory
    cdef mq_error error
    cdef int status, fd = open_file(topic.endpoint, topic.side_path, O_RDWR if writable else O_RDONLY)
    cdef mq_ring_header *ring = <mq_ring_header *> topic.ring.address
    cdef mq_ring_side *side
    if fd < 0:
        return None
    try:
        if mq_topic_check_side_file(&topic.request, fd, &found, &error):
            raise_error(&error, topic.endpoint)
        if writable:
            memory = map_shared_file(fd, &found, True, topic.endpoint, topic.side_path)
        else:
            memory = use_memory(map_file(fd, &found, 0, topic.endpoint, topic.side_path))
    finally:
        close(fd)
    side = <mq_ring_side *> memory.segment.address
    if writable:
        status = mq_topic_take_side(&topic.request, ring, topic.ring.inode, topic.data_bytes, side, tracked, &error)
    else:
        status = mq_topic_check_side(&topic.request, ring, topic.ring.inode, topic.data_bytes, side, &error)
    if status < 0:
        raise_error(&error, topic.endpoint)
    return memory if status else None


cdef bint _lock_existing_ring(TopicFiles topic) except -1:
    """Lock and map an existing ring. Return False if there is none."""
    cdef struct_stat found
    cdef mq_error error
    cdef int status = 0
    while not status:
        topic.unlock()
        topic.lock_fd = open_file(topic.endpoint, topic.ring_path, O_RDWR)
        if topic.lock_fd < 0:
            return False
        lock_file(topic.lock_fd, topic.endpoint, topic.ring_path)
        status = mq_topic_prepare_ring(&topic.request, topic.lock_fd, &found, &error)
    if status < 0:
        raise_error(&error, topic.endpoint)
    _share_ring(topic, topic.lock_fd, &found)
    return True


cdef bint _create_ring(TopicFiles topic, int mode) except -1:
    """Create the ring, locked and mapped before it has a name. Return False if another process was faster."""
    cdef struct_stat found
    cdef mq_error error
    topic.lock_fd = create_file(topic.endpoint, topic.ring_path, 0, mode, &found)
    lock_file(topic.lock_fd, topic.endpoint, topic.ring_path)
    if mq_topic_prepare_new_ring(&topic.request, topic.lock_fd, &found, &error):
        raise_error(&error, topic.endpoint)
    _share_ring(topic, topic.lock_fd, &found)
    if name_file(topic.lock_fd, topic.endpoint, topic.ring_path):
        return True
    topic.ring = topic.ring_memory = None
    topic.unlock()
    return False


cdef TopicFiles _open_topic(str endpoint, str in_prefix, bint asked, size_t wanted, int permissions, object create):
    cdef TopicFiles topic
    cdef mq_process_identity us
    cdef bint made = False
    cdef c_bool tracked = False
    if in_prefix and create is not False:
        make_directories(endpoint, shm_paths.topic_directories(in_prefix), permissions)
    topic = _make_topic(endpoint, shm_paths.ring_path(endpoint, in_prefix),
                        shm_paths.side_segment_path(endpoint, in_prefix), asked, wanted)
    while not made and (create is True or not _lock_existing_ring(topic)):
        if create is False:
            raise segment_error("topic not found", endpoint, topic.ring_path, ENOENT)
        made = _create_ring(topic, permissions)
        if create is True and not made:
            raise segment_error("topic exists; to open it, omit create=True", endpoint, topic.ring_path, EEXIST)
    try:
        # The first call of each opens a file. Without a free descriptor, fail before the side segment is created.
        read_own_identity(&us, NULL)
        host_offset_ns()
        while topic.side_memory is None:
            topic.side_memory = _open_side(topic, True, &tracked)
            _write_canary(topic)  # after the open: a missing canary shows that the ring was truncated
            if topic.side_memory is None:
                topic.side_memory = _create_side(topic, permissions, tracked, &us if made else NULL)
        topic.side = topic.side_memory.segment
        mq_topic_record_ring(&topic.request, <mq_ring_header *> topic.ring.address, topic.data_bytes,
                             <mq_ring_side *> topic.side.address, &us)
        _load_canary(topic)
    except BaseException:
        if made and not was_truncated(topic.ring.guard):  # else a stock process has joined
            mq_topic_remove_unused_ring(&topic.request, topic.ring.address)
        raise
    return topic


cdef void _write_canary(TopicFiles topic) noexcept:
    mq_topic_write_canary(<mq_ring_header *> topic.ring.address, topic.data_bytes, random_u32())


cdef TopicFiles open_topic(str endpoint, str in_prefix, object segment_size, object mode, object create=None):
    """Open or create both files for a participant. The topic is locked. Unlock it after registering.

    `create`: True only creates, False only opens, None does either.
    """
    cdef size_t wanted = _parse_segment_size(segment_size, endpoint)
    cdef int permissions = settings.resolve_file_mode(mode, endpoint)
    cdef int tries = PREFIX_TRIES if in_prefix else 1
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
    cdef TopicFiles topic = _make_topic(endpoint, shm_paths.ring_path(endpoint, in_prefix),
                                        shm_paths.side_segment_path(endpoint, in_prefix), False, 0)
    topic.lock_fd = open_file(endpoint, topic.ring_path, O_RDONLY)
    if topic.lock_fd < 0:
        advice = "; start its publisher first, or correct the name (`msgq list`)"
        raise segment_error("topic not found", endpoint, topic.ring_path, ENOENT, advice)
    check_file(topic.lock_fd, &found, endpoint, topic.ring_path)
    _check_ring_size(&found, endpoint, topic.ring_file)
    _map_ring(topic, topic.lock_fd, &found, False)
    topic.ring_memory = use_memory(topic.ring)
    attach_found_side(topic)
    _load_canary(topic)
    return topic


cdef TopicFiles remap_grown_topic(str endpoint, Segment former, SegmentMemory side, bint writable):
    """Map a ring again whose file is larger than the mapping. Return None if the file has not grown."""
    cdef TopicFiles topic
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
        _check_ring_size(&found, endpoint, former.file)
        topic = _make_topic(endpoint, former.path, "" if side is None else side.segment.path, False, 0)
        topic.side_memory, topic.side = side, None if side is None else side.segment
        if writable:
            _share_ring(topic, fd, &found)
        else:
            _map_ring(topic, fd, &found, False)
            topic.ring_memory = use_memory(topic.ring)
    finally:
        close(fd)
    if writable:
        _write_canary(topic)
    _load_canary(topic)
    return topic


cdef int _check_ring_size(const struct_stat *found, str endpoint, bytes path) except -1:
    cdef mq_error error
    return raise_error(&error, endpoint) if mq_ring_check_size(found, path, &error) else 0


cdef object size_changed_error(str endpoint, Segment ring, Segment side):
    """Return the exception for a truncated ring or side segment."""
    cdef mq_error error
    if side is not None and (was_truncated(side.guard) or mq_file_shrank(side.file, side.inode, side.size)):
        mq_topic_fail_side_size(side.file, &error)
    else:
        mq_topic_fail_ring_size(ring.file, ring.inode, ring.size - MQ_RING_HEADER, &error)
    return exception_of(&error, endpoint)


cdef int raise_start_error(TopicFiles topic) except -1:
    """Raise the error of a publisher or subscriber that cannot start."""
    cdef mq_error error
    if topic.side is not None and mq_file_shrank(topic.side.file, topic.side.inode, topic.side.size):
        raise size_changed_error(topic.endpoint, topic.ring, topic.side)
    mq_topic_fail_start(&topic.canary, topic.ring.file, topic.ring.inode, topic.data_bytes, &error)
    return raise_error(&error, topic.endpoint)


cdef int wait_for_side(TopicFiles topic) except -1:
    """Find a side segment that is being created: its creator holds the lock."""
    lock_file(topic.lock_fd, topic.endpoint, topic.ring.path)
    attach_found_side(topic)
    topic.unlock()
    _load_canary(topic)
    return 0


cdef int attach_found_side(TopicFiles topic) except -1:
    topic.side_memory = find_side(topic)
    topic.side = None if topic.side_memory is None else topic.side_memory.segment
    return 0


cdef SegmentMemory find_side(TopicFiles topic):
    """Return the ring's side segment, mapped read-only, or None."""
    cdef SegmentMemory side = _open_side(topic, False, NULL)
    if side is not None and not pair_guards(side.segment, topic.ring):
        raise size_changed_error(topic.endpoint, topic.ring, side.segment)
    return side


cdef SegmentMemory find_late_side(str endpoint, str in_prefix, Segment ring):
    """As find_side, for a ring that is mapped already."""
    cdef TopicFiles topic = _make_topic(endpoint, ring.path, shm_paths.side_segment_path(endpoint, in_prefix), False, 0)
    topic.ring, topic.data_bytes = ring, ring.size - MQ_RING_HEADER
    return find_side(topic)


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
