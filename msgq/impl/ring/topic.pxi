"""A topic's two files: open them by the steps of topic_open.h, wait for their lock, map them for observers.

Opening and registering run under flock of the ring's file, which the kernel releases when its holder dies.
"""


cdef class TopicFiles:
    def __cinit__(self):
        self.files.lock = -1

    cdef void unlock(self):
        if self.generation == fork_generation:
            mq_topic_unlock(&self.files)
        else:  # a signal handler forked this child, and the lock is the parent's
            mq_close_file(self.files.lock)
            self.files.lock = -1

    def __dealloc__(self):
        self.unlock()


cdef TopicFiles _make_topic(str endpoint, str ring_path, str side_path, bint asked, size_t wanted):
    """Return the files of a topic, not opened. `asked`: the caller requested the size `wanted`."""
    cdef TopicFiles topic = TopicFiles.__new__(TopicFiles)
    topic.generation = fork_generation
    topic.endpoint, topic.ring_path, topic.side_path = endpoint, ring_path, side_path
    topic.ring_file, topic.side_file = ring_path.encode(), side_path.encode()
    load_file_policy(&topic.policy, endpoint)
    topic.request.policy = &topic.policy
    topic.request.ring_path, topic.request.side_path = topic.ring_file, topic.side_file
    topic.request.data_bytes, topic.request.is_size_asked = wanted, asked
    return topic


cdef int _adopt_ring(TopicFiles topic) except -1:
    """Take over the mapping of the ring."""
    topic.ring = adopt_mapping(topic.files.ring, topic.ring_path)
    topic.ring_memory, topic.data_bytes = use_memory(topic.ring), topic.ring.size - MQ_RING_HEADER
    return 0


cdef int _adopt_side(TopicFiles topic) except -1:
    topic.side = adopt_mapping(topic.files.side, topic.side_path)
    topic.side_memory = use_memory(topic.side)
    return 0


cdef int _load_canary(TopicFiles topic) except -1:
    """Select the words that detect a truncation. Raise if one of both files is already truncated."""
    cdef mq_error error
    topic.files.ring = topic.ring.mapping
    topic.files.side = topic.side.mapping if topic.side is not None else NULL
    if mq_topic_load_canary(&topic.files, topic.ring_file, topic.side_file, &error):
        raise_error(&error, topic.endpoint)
    return 0


cdef size_t _parse_segment_size(object segment_size, ForkAwareHandle handle) except 0:
    """Return the requested data size in bytes; 0 selects the default."""
    cdef str endpoint = handle._endpoint
    if segment_size == 0 and (handle._bus is None or not handle._bus.segment_size):
        return MQ_DEFAULT_DATA_BYTES
    if segment_size == 0:
        segment_size = handle._bus.segment_size
    if not MQ_RING_DATA_BYTES_MIN <= segment_size < 2**32:
        text = f"segment_size is {segment_size} bytes; give {MQ_RING_DATA_BYTES_MIN} to {2**32 - 1}, or 0 for 1 MiB"
        raise InvalidValueError(text, endpoint)
    return segment_size


cdef int _open_side(TopicFiles topic) except -1:
    """Map the ring's side segment read-only, if it has one."""
    cdef struct_stat found
    cdef SegmentMemory memory
    cdef Segment side
    cdef mq_error error
    cdef int status, fd = open_file(topic.endpoint, topic.side_path, O_RDONLY)
    if fd < 0:
        return 0
    try:
        if mq_topic_check_side_file(&topic.request, fd, &found, &error):
            raise_error(&error, topic.endpoint)
        side = map_file(fd, &found, 0, topic.endpoint, topic.side_path)
    finally:
        mq_close_file(fd)
    memory = use_memory(side)
    status = mq_topic_check_side(&topic.request, <mq_ring_header *> topic.ring.address, topic.ring.inode,
                                 topic.data_bytes, <mq_ring_side *> side.address, &error)
    if status < 0:
        raise_error(&error, topic.endpoint)
    if status:
        topic.side, topic.side_memory = side, memory
    return 0


cdef TopicFiles open_topic(ForkAwareHandle handle, str in_prefix, object segment_size, object mode, object create=None):
    """Open or create both files for a participant. The topic is locked. Unlock it after registering.

    `create`: True only creates, False only opens, None does either.
    """
    cdef str endpoint = handle._endpoint
    cdef size_t wanted = _parse_segment_size(segment_size, handle)
    cdef TopicFiles topic = _make_topic(endpoint, shm_paths.ring_path(endpoint, in_prefix),
                                        shm_paths.side_segment_path(endpoint, in_prefix), segment_size != 0, wanted)
    cdef mq_process_identity us
    cdef int64_t deadline = mq_monotonic_ns() + LOCK_WAIT_NS
    cdef int status = MQ_FILE_LOCKED
    topic.request.mode = settings.resolve_file_mode(mode, endpoint)
    topic.request.create = MQ_ONLY_CREATE if create else MQ_OPEN_OR_CREATE if create is None else MQ_ONLY_OPEN
    topic.request.now_ns = bus_time_ns(handle._bus)
    topic.request.self = &us
    while status == MQ_FILE_LOCKED:
        read_own_identity(&us, NULL)  # a signal handler may have forked this process during the wait
        topic.generation = fork_generation
        status = _open_topic_once(topic)
        if status == MQ_FILE_LOCKED:
            wait_for_file_lock(deadline, endpoint, topic.ring_path)
    if status == MQ_FILE_MISSING:
        raise segment_error("topic not found", endpoint, topic.ring_path, ENOENT)
    if status == MQ_FILE_EXISTS:
        raise segment_error("topic exists; to open it, omit create=True", endpoint, topic.ring_path, EEXIST)
    _adopt_ring(topic)
    _adopt_side(topic)
    return topic


cdef int _open_topic_once(TopicFiles topic) except? -1:
    """Return 0, or a result such as MQ_FILE_LOCKED."""
    cdef mq_error error
    cdef int status
    if mq_makes_holes(&topic.policy):
        status = mq_topic_open(&topic.request, &topic.files, &error)
    else:
        with nogil:  # the allocation of a large ring takes milliseconds
            status = mq_topic_open(&topic.request, &topic.files, &error)
    return status if status >= 0 else raise_error(&error, topic.endpoint)


cdef TopicFiles map_topic(str endpoint, str in_prefix):
    """Map both files read-only, without the lock or a trace. The ring must exist."""
    cdef struct_stat found
    cdef mq_error error
    cdef TopicFiles topic = _make_topic(endpoint, shm_paths.ring_path(endpoint, in_prefix),
                                        shm_paths.side_segment_path(endpoint, in_prefix), False, 0)
    topic.files.lock = open_file(endpoint, topic.ring_path, O_RDONLY)
    if topic.files.lock < 0:
        advice = "; start its publisher first, or correct the name (`msgq list`)"
        raise segment_error("topic not found", endpoint, topic.ring_path, ENOENT, advice)
    check_file(topic.files.lock, &found, endpoint, topic.ring_path)
    if (mq_ring_check_size(&found, topic.ring_file, &error)
            or mq_ring_map(&topic.policy, topic.files.lock, &found, False, topic.ring_file, &topic.files.ring, &error)):
        raise_error(&error, endpoint)
    _adopt_ring(topic)
    _open_side(topic)
    _load_canary(topic)
    return topic


cdef TopicFiles remap_grown_topic(str endpoint, Segment former, SegmentMemory side, bint writable):
    """Map a ring again whose file is larger than the mapping. Return None if the file has not grown."""
    cdef TopicFiles topic
    cdef mq_error error
    cdef int fd, grew
    if not mq_file_grew(former.file, former.inode, former.size - MQ_RING_HEADER):
        return None
    fd = open_file(endpoint, former.path, O_RDWR if writable else O_RDONLY)
    if fd < 0:
        return None
    topic = _make_topic(endpoint, former.path, "" if side is None else side.segment.path, False, 0)
    topic.side_memory, topic.side = side, None if side is None else side.segment
    topic.files.side = NULL if side is None else side.segment.mapping
    grew = mq_topic_remap_ring(&topic.request, fd, former.mapping, writable, &topic.files, &error)
    mq_close_file(fd)
    if grew < 0:
        raise_error(&error, endpoint)
    if not grew:
        return None
    _adopt_ring(topic)
    return topic


cdef object size_changed_error(str endpoint, Segment ring, Segment side):
    """Return the exception for a truncated ring or side segment."""
    cdef mq_error error
    if side is None:
        mq_topic_fail_truncated(ring.mapping, ring.file, NULL, NULL, &error)
    else:
        mq_topic_fail_truncated(ring.mapping, ring.file, side.mapping, side.file, &error)
    return exception_of(&error, endpoint)


cdef int raise_start_error(TopicFiles topic) except -1:
    """Raise the error of a publisher or subscriber that cannot start."""
    cdef mq_error error
    mq_topic_fail_start(&topic.files.canary, topic.files.ring, topic.ring_file, topic.files.side, topic.side_file,
                        &error)
    return raise_error(&error, topic.endpoint)


cdef int wait_for_side(TopicFiles topic) except -1:
    """Find a side segment that is being created: its creator holds the lock."""
    lock_file(topic.files.lock, topic.endpoint, topic.ring.path)
    _open_side(topic)
    topic.unlock()
    _load_canary(topic)
    return 0


cdef TopicFiles find_late_side(str endpoint, str in_prefix, Segment ring):
    """Map the side segment, if there is one, of a ring that is mapped already."""
    cdef TopicFiles topic = _make_topic(endpoint, ring.path, shm_paths.side_segment_path(endpoint, in_prefix), False, 0)
    topic.ring, topic.data_bytes = ring, ring.size - MQ_RING_HEADER
    attach_late_side(topic)
    return topic


cdef int attach_late_side(TopicFiles topic) except -1:
    _open_side(topic)
    return 0 if topic.side is None else _load_canary(topic)


cdef int check_topic_truncation(TopicFiles topic) except -1:
    """Raise if one of the files was truncated: bytes that were read may be zeros."""
    if (mq_mapping_was_truncated(topic.ring.not_truncated)
            or (topic.side is not None and mq_mapping_was_truncated(topic.side.not_truncated))):
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
        mq_close_file(self._fd)
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
