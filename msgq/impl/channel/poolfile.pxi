"""A publisher's pool: the owner creates it, and subscribers map it. See pool.h."""


@no_gc_clear  # as its base
cdef class PoolFile(EndpointFile):
    """See core.pxd."""

    cdef str _kind_name(self):
        return "pool"

    cdef size_t _min_file_bytes(self) noexcept:
        return sizeof(mq_pool_header)

    cdef tuple _prefix_directories(self):
        return shm_paths.channel_directories(self.prefix)

    cdef size_t _new_file_bytes(self) except 0:
        cdef uint64_t header_bytes = mq_pool_header_bytes(self.slot_count, sysconf(_SC_PAGESIZE))
        return header_bytes + self.slot_count * mq_pool_slot_stride_bytes(self.slot_bytes)

    cdef size_t _allocated_bytes(self) noexcept:
        """Other processes write only the header."""
        return mq_pool_header_bytes(self.slot_count, sysconf(_SC_PAGESIZE)) if self.has_holes else 0

    cdef int _init_header(self) except -1:
        cdef bytes node = self.node.encode()
        mq_pool_header_init(<mq_pool_header *> self.segment.address, self.segment.size, self.slot_count,
                            self.slot_bytes, sysconf(_SC_PAGESIZE), self.channel_inode, self.uid, self.pid, node)
        return 0

    cdef SegmentMemory _map_file(self, int fd, const struct_stat *info, bint writable):
        if not writable:
            return EndpointFile._map_file(self, fd, info, False)
        self.maps_header_writable = True
        self.writable_bytes = int.from_bytes(os.pread(fd, 8, 40), "little")  # offset 40: the field data_offset
        return use_memory(map_file(fd, info, self.writable_bytes, self.name, self.path))

    cdef int _check_header(self) except -1:
        cdef mq_pool_header *head = <mq_pool_header *> self.segment.address
        cdef const char *wrong = mq_pool_header_check(head, self.segment.size, self.channel_inode, self.uid,
                                                      &self.slots)
        if wrong != NULL:
            raise CorruptSegmentError((<bytes> wrong).decode(), self.name, self.path)
        # In other files, pins may be outside the writable pages.
        if self.maps_header_writable and self.slots.slots_base != self.segment.address + self.writable_bytes:
            raise CorruptSegmentError("changed during opening; another program writes it", self.name, self.path)
        self.node, self.pid = _text(head.node, MQ_NODE_NAME_BYTES), mq_load_relaxed_u64(&head.pid)
        return 0


cdef PoolFile _pool_file(ChannelFile file, uint64_t uid):
    """Return the file of a pool, not opened."""
    cdef PoolFile pool = PoolFile.__new__(PoolFile)
    pool.name, pool.prefix, pool.trust, pool.uid = file.name, file.prefix, file.trust, uid
    pool.path, pool.channel_inode = shm_paths.pool_path(file.name, file.prefix, uid), file.segment.inode
    return pool


cdef PoolFile open_pool(ChannelFile file, uint64_t uid, bint writable):
    """Map the pool of a publisher. `writable`: map its pins writable. Return None if the file does not exist."""
    cdef PoolFile pool = _pool_file(file, uid)
    with settings.overrides(trust=file.trust):
        if not pool.open(writable):
            return None
    pool._close_fd()
    return pool


cdef PoolFile make_pool(ChannelFile file, uint64_t slots, uint64_t slot_bytes, uint64_t pid, str node):
    """Create a complete pool without a name, under the lock. Then call name_pool."""
    cdef PoolFile pool = _pool_file(file, new_uid())
    pool.slot_count, pool.slot_bytes, pool.pid, pool.node = slots, slot_bytes, pid, node
    pool.has_holes = mq_can_populate() and not is_preallocation_enabled()
    pool.create_unnamed(file.mode & 0o666 | 0o600)  # chmod may have changed the mode of the channel's file
    return pool


cdef int name_pool(PoolFile pool) except -1:
    """Give a new pool its name, so that subscribers find it."""
    try:
        if not name_file(pool.fd, pool.name, pool.path):
            raise segment_error("pool exists; remove it (msgq clean)", pool.name, pool.path, EEXIST)
    finally:
        pool._close_fd()
    return 0
