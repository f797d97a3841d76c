"""A publisher's pool: made by its owner, mapped by others. See pool.h."""


@no_gc_clear  # what has rows or slots in it needs it mapped to the last
cdef class PoolFile:
    """A publisher's pool, mapped."""

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:  # it never got its name
            close(self.fd)

    cdef int check_truncation(self, str name) except -1:
        if mq_mapping_was_truncated(self.not_truncated):
            raise truncated_error(name, self.segment)
        return 0


cdef PoolFile _read_pool(Segment segment, ChannelFile file, uint64_t uid):
    cdef PoolFile pool = PoolFile.__new__(PoolFile)
    cdef mq_pool_header *head = <mq_pool_header *> segment.address
    cdef const char *wrong = mq_pool_header_check(head, segment.size, file.segment.inode, uid, &pool.slots)
    if wrong != NULL:
        raise CorruptSegmentError((<bytes> wrong).decode(), file.name, segment.path)
    pool.node = _text(head.node, MQ_NODE_NAME_BYTES)
    pool.pid = mq_load_relaxed_u64(&head.pid)
    pool.segment = segment
    pool.not_truncated = not_truncated_word(segment.guard) if segment.guard != NULL else NULL
    return pool


cdef PoolFile open_pool(ChannelFile file, uint64_t uid, bint writable):
    """Map the pool of a publisher, its pins writable or not; None: there is no such file."""
    cdef struct_stat info
    cdef Segment segment
    cdef size_t head = 0
    cdef PoolFile pool
    cdef int fd
    path = shm_paths.pool_path(file.name, file.prefix, uid)
    with settings.overrides(trust=file.trust):
        fd = open_file(file.name, path, O_RDWR if writable else O_RDONLY)
        if fd < 0:
            return None
        try:
            check_file(fd, &info, file.name, path)
            if <size_t> info.st_size < sizeof(mq_pool_header):
                raise CorruptSegmentError(f"has {info.st_size} bytes, too few for a pool", file.name, path)
            if writable:
                head = int.from_bytes(os.pread(fd, 8, 40), "little")  # data_offset
                segment = map_parts(fd, &info, head, file.name, path)
            else:
                segment = map_file(fd, &info, False, file.name, path)
        finally:
            close(fd)
    pool = _read_pool(segment, file, uid)
    if writable and pool.slots.slots_base != segment.address + head:  # else pins may lie where nothing can be written
        raise CorruptSegmentError("changes while it is opened", file.name, path)
    return pool


cdef PoolFile make_pool(ChannelFile file, uint64_t slots, uint64_t slot_bytes, uint64_t pid, str node):
    """Make a pool, complete, and without a name so far: name_pool gives it one. Under the lock."""
    cdef struct_stat info
    cdef Segment segment
    cdef PoolFile pool
    cdef uint64_t page = os.sysconf("SC_PAGESIZE")
    cdef uint64_t size = mq_pool_header_bytes(slots, page) + slots * mq_pool_slot_stride_bytes(slot_bytes)
    cdef uint64_t uid = new_uid()
    cdef bytes node_bytes = node.encode()
    path = shm_paths.pool_path(file.name, file.prefix, uid)
    if file.prefix:
        file_permissions.make_directories(file.name, shm_paths.channel_directories(file.prefix), file.mode)
    cdef int fd = create_file(file.name, path, size, file.mode)
    try:
        check_file(fd, &info, file.name, path)
        segment = map_file(fd, &info, True, file.name, path)
        mq_pool_header_init(<mq_pool_header *> segment.address, size, slots, slot_bytes, page, file.segment.inode, uid,
                            pid, node_bytes)
        pool = _read_pool(segment, file, uid)
        pool.fd = fd
        return pool
    except BaseException:
        close(fd)
        raise


cdef int name_pool(ChannelFile file, PoolFile pool) except -1:
    """Give a new pool its name, so that subscribers find it."""
    cdef int fd = pool.fd
    pool.fd = -1
    try:
        if not name_file(fd, file.name, pool.segment.path):
            raise segment_error("there is such a pool already", file.name, pool.segment.path, EEXIST)
    finally:
        close(fd)
    return 0
