"""A channel's file: open, create, lock, configure, and clean up after dead processes.

All changes except messages happen under the lock (file.h). All values that are read are checked.
"""


cdef enum:
    DEFAULT_CAPACITY = 64
    KEPT_DEAD_POOLS = 8  # maximum pools kept for subscribers that have not read the pools' messages yet
    KEPT_DEAD_BYTES = 268435456  # maximum total bytes of the kept pools


# (device, inode): weak references to the marks of the channels that are open in this process. A WeakValueDictionary
# would run Python code when a mark ends, and exceptions of signal handlers in that code are lost.
cdef dict _open_marks = {}


@no_gc  # no mark is in a cycle, and __dealloc__ needs the key
cdef class OpenMark:
    """Lock that shows that this process has a channel open (MQ_CHANNEL_OPEN_BYTE). Channel objects share the lock."""

    def __dealloc__(self):
        if self.key is not None:
            _open_marks.pop(self.key, None)
        if self.generation == fork_generation:
            mq_liveness_unlock(self.liveness_token)


cdef OpenMark _obtain_open_mark(ChannelFile file):
    """Return the mark of the channel, or take the lock. Raise an error if the channel was removed."""
    cdef mq_file_lock lock
    cdef OpenMark mark = _find_open_mark(file.identity())
    if mark is not None and mark.generation == fork_generation:
        if file.is_removed(file.fd):
            raise file._removed_error()
        return mark
    mark = OpenMark.__new__(OpenMark)
    file.lock(&lock)
    try:
        # NULL: the file system has no locks of open file descriptions
        mark.liveness_token = mq_liveness_lock(&lock.file, MQ_CHANNEL_OPEN_BYTE, True)
        mark.generation = fork_generation
    finally:
        file.unlock(&lock)
    _share_open_mark(mark, file.identity())
    return mark


cdef OpenMark _find_open_mark(tuple key):
    reference = _open_marks.get(key)
    return None if reference is None else reference()


cdef int _share_open_mark(OpenMark mark, tuple key) except -1:
    cdef OpenMark former = _find_open_mark(key)
    if former is not None:
        former.key = None  # its end must not remove the new entry
    mark.key = key
    _open_marks[key] = weakref.ref(mark)
    return 0


@no_gc_clear  # rows and slots in the mapping are needed until the end
cdef class ChannelFile(EndpointFile):
    """See core.pyi."""

    cdef str _kind_name(self):
        return "channel"

    cdef size_t _min_file_bytes(self) noexcept:
        return sizeof(mq_channel_header)

    cdef int _check_header(self) except -1:
        self.header = <mq_channel_header *> self.segment.address
        status = mq_channel_header_check(self.header, self.segment.size)
        if status == MQ_FILE_OTHER_VERSION:
            text = f"has a layout other than version {MQ_CHANNEL_MAJOR} of this library; use one version of msgq"
            raise LayoutVersionError(text, self.name, self.path)
        if status != MQ_FILE_VALID:
            raise CorruptSegmentError("is not a channel of msgq; remove it", self.name, self.path)
        return 0

    cdef tuple _prefix_directories(self):
        return shm_paths.channel_directories(self.prefix)

    cdef size_t _new_file_bytes(self) except 0:
        return sizeof(mq_channel_header)

    cdef int _init_header(self) except -1:
        cdef bytes creator = self.creator_name.encode()[:MQ_CHANNEL_CREATOR_BYTES - 1]
        cdef int kind = 1 if self.name.endswith(":broadcast") else 2 if ":mbx:" in self.name else 0
        mq_channel_header_init(<mq_channel_header *> self.segment.address, kind, host_time_ns(), this_process().pid,
                               creator)
        return 0

    cdef int _mark_open(self) except -1:
        """Mark the channel as open, so that other processes do not remove the channel while this process has no row."""
        if self.writable:
            self.open_mark = _obtain_open_mark(self)
        self._close_fd()  # the handle does not open a removed channel again
        return 0

    def close(self):
        """Close the file for new publishers and subscribers. Existing ones mark the channel as open themselves."""
        self.open_mark = None
        self.release()

    cdef SegmentMemory require_memory(self):
        if self.memory is None:
            raise StateError("channel is closed; open it again", self.name)
        return self.memory

    cdef tuple identity(self):
        return self.segment.liveness_file.device, self.segment.inode

    @property
    def inode(self):
        return self.segment.inode

    cdef int _check_locked_file(self, const mq_file_lock *lock) except -1:
        """Raise an error if the channel was removed, or another user owns it now."""
        cdef struct_stat status
        if self.trust is None:
            check_file(lock.fd, &status, self.name, self.segment.path)
        else:
            with settings.overrides(trust=self.trust):
                if lock.fd < 0:  # a signal handler has just forked this child, which locks the file again
                    return 0
                check_file(lock.fd, &status, self.name, self.segment.path)
        if not status.st_nlink:
            raise self._removed_error()
        return 0

    cdef object _reopen_error(self, int error):
        return self._removed_error() if error in (ENOENT, ESTALE) else EndpointFile._reopen_error(self, error)

    # ---- configuration ----

    @property
    def config(self):
        cdef mq_channel_config g = mq_channel_config_unpack(mq_load_acquire_u64(&self.header.config))
        subscribers = None if g.subscribers == MQ_CHANNEL_ANY_SUBSCRIBERS else g.subscribers
        stamps = g.stamps == MQ_CHANNEL_STAMPED if g.stamps else None
        return g.capacity or None, g.publishers or None, subscribers or None, stamps

    def apply_config(self, capacity=None, publishers=None, subscribers=None, stamps=None, bint publishes=False):
        """Complete the configuration under the lock. A publisher sets all missing fields to their defaults."""
        cdef mq_file_lock lock
        cdef uint64_t before = mq_load_acquire_u64(&self.header.config)
        cdef mq_channel_config wanted = self._merge_config(mq_channel_config_unpack(before), capacity, publishers,
                                                           subscribers, stamps, publishes)
        if mq_channel_config_pack(wanted) == before and (not wanted.capacity or mq_load_acquire_u64(&self.header.tail)):
            return  # nothing to do: the configuration is complete and never changes
        if not self.writable:
            raise StateError("has no complete configuration yet, and a passive handle cannot set it; open it without "
                             "passive=True", self.name)
        self.lock(&lock)
        try:
            self._apply_config_locked(capacity, publishers, subscribers, stamps, publishes)
        finally:
            self.unlock(&lock)

    cdef int _apply_config_locked(self, capacity, publishers, subscribers, stamps, bint publishes) except -1:
        cdef mq_channel_config before = mq_channel_config_unpack(mq_load_acquire_u64(&self.header.config))
        cdef mq_channel_config merged = self._merge_config(before, capacity, publishers, subscribers, stamps, publishes)
        if not mq_channel_store_config(self.header, merged):
            text = (f"has the invalid capacity {before.capacity}: another program wrote into the file; remove it "
                    "(msgq clean)")
            raise CorruptSegmentError(text, self.name, self.segment.path)
        return 0

    cdef mq_channel_config _merge_config(self, mq_channel_config before, capacity, publishers, subscribers, stamps,
                                         bint publishes) except *:
        """Return the existing configuration, completed by the requested values."""
        cdef mq_channel_config g
        stamped = None if stamps is None else MQ_CHANNEL_STAMPED if stamps else MQ_CHANNEL_UNSTAMPED
        g.capacity = self._merge_config_value("capacity", before.capacity, capacity,
                                              DEFAULT_CAPACITY if publishes else 0)
        g.publishers = self._merge_config_value("publishers", before.publishers, publishers,
                                                MQ_CHANNEL_PUBLISHERS if publishes else 0)
        g.subscribers = self._merge_config_value("subscribers", before.subscribers, subscribers,
                                                 MQ_CHANNEL_ANY_SUBSCRIBERS if publishes else 0)
        g.stamps = self._merge_config_value("stamps", before.stamps, stamped, MQ_CHANNEL_STAMPED if publishes else 0)
        return g

    cdef uint64_t _merge_config_value(self, str setting, uint64_t current, asked, uint64_t default) except? 0:
        if asked is None:
            return current or default
        if current and current != asked:
            shown = {MQ_CHANNEL_ANY_SUBSCRIBERS: "any number"} if setting == "subscribers" else {}
            if setting == "stamps":
                shown = {MQ_CHANNEL_STAMPED: True, MQ_CHANNEL_UNSTAMPED: False}
            text = (f"has {setting}={shown.get(current, current)}, but {setting}={shown.get(asked, asked)} was "
                    "requested"
                    "; omit the option to use the existing value, or remove the channel (msgq clean)")
            raise ChannelMismatchError(text, self.name, self.segment.path)
        return asked

    @property
    def messages(self):
        """Number of messages published by all publishers."""
        cdef mq_index_ring order
        if not mq_channel_load_index_ring(self.header, &order):
            return 0
        return mq_index_ring_load_tail(&order) - order.capacity

    @property
    def creator(self):
        return _text(self.header.creator, MQ_CHANNEL_CREATOR_BYTES), mq_load_relaxed_u64(&self.header.creator_pid)

    @property
    def created_ns(self):
        return mq_load_relaxed_u64(&self.header.created_ns)

    @property
    def schema(self):
        cdef mq_schema_parts at = mq_schema_parts_from_block(&self.header.schema, self.header.schema_data,
                                                             MQ_CHANNEL_SCHEMA_BYTES)
        return read_full_schema(&at)

    def set_schema(self, schema, bint replace):
        """Set the schema, unless there is one and `replace` is false. Return the schema that is set afterwards."""
        cdef mq_schema_parts at = mq_schema_parts_from_block(&self.header.schema, self.header.schema_data,
                                                             MQ_CHANNEL_SCHEMA_BYTES)
        cdef mq_file_lock lock
        if not self.writable:
            raise StateError("was opened passive, and cannot set a schema; open it without passive=True", self.name)
        self.lock(&lock)
        try:
            current = read_full_schema(&at)
            if current is None or replace:
                write_full_schema(&at, schema)
                current = schema
            return current
        finally:
            self.unlock(&lock)

    def stats(self):
        """See `msgq.stats.channel`. Maps pools read-only, without a trace."""
        stats = read_channel_stats(self.segment, self.name, self.prefix, self.trust, self.schema)
        self.check_truncation()
        return stats

    def counts(self):
        counts = read_channel_counts(self.segment)
        self.check_truncation()
        return counts

    # ---- participants, for errors ----

    def describe_viewer(self, int row):
        cdef const mq_participant *owner = &self.header.viewers[row].participant
        return f"{_text(owner.name, MQ_NAME)} {mq_load_relaxed_u64(&owner.pid)}"

    def describe_subscribers(self):
        """Return descriptions of the living subscribers that have rows."""
        cdef mq_liveness_probe probe = mq_liveness_probe_begin(self.liveness_file())
        cdef mq_channel_subscriber_row *row
        cdef list names = []
        for i in range(MQ_CHANNEL_SUBSCRIBERS):
            row = &self.header.subscribers[i]
            if mq_participant_liveness(&probe, &row.participant, MQ_CHANNEL_SUBSCRIBER_BYTE + i) != MQ_DEAD:
                names.append(f"{_text(row.node, MQ_NODE_NAME_BYTES)} {mq_load_relaxed_u64(&row.participant.pid)}")
        mq_liveness_probe_end(&probe)
        return names

    def unlink(self, wanted=None):
        """Remove the channel's files if `wanted(stats)` is true. Return True if they were removed."""
        cdef mq_file_lock lock
        if self.memory is None:
            return self._open_again().unlink(wanted)
        self.lock(&lock)
        try:
            if wanted is not None and not wanted(self.stats()):
                return False
            self.require_lock(&lock)
            for i in range(MQ_CHANNEL_PUBLISHERS):
                uid = mq_load_acquire_u64(&self.header.publishers[i].pool_uid)
                if uid:
                    remove_pool(self, uid)
            remove_file(self.name, self.segment.path)
            return True
        finally:
            self.unlock(&lock)

    cdef ChannelFile _open_again(self):
        """Return the file of the closed channel object, or raise an error if the channel was removed."""
        cdef ChannelFile file = open_channel_file(self.name, self.prefix, False, None, self.trust)
        if file.identity() != self.identity():
            raise self._removed_error()
        return file

    def remove_unreachable_pools(self):
        """Remove orphaned pools (`find_orphaned_pools`). Return the channel's stats before that."""
        cdef mq_file_lock lock
        self.lock(&lock)
        try:
            stats = self.stats()
            self.require_lock(&lock)
            remove_dead_pools(self)
            for path in stats.orphans:
                remove_file(self.name, path)
            return stats
        finally:
            self.unlock(&lock)

    def _removed_error(self):
        text = ("channel was removed, and perhaps created again; open handles continue, but cannot join "
                "the channel: open it again")
        return SegmentError(text, self.name, self.segment.path, ENOENT)


# ---- the file ----

def open_channel_file(str name, str in_prefix, create=False, mode=None, trust=None, bint writable=False,
                      str creator=""):
    """Open the channel, by default as an observer. `create`: True only creates, False only opens, None does either."""
    cdef ChannelFile file = ChannelFile.__new__(ChannelFile)
    file.name, file.prefix, file.trust, file.writable, file.creator_name = name, in_prefix, trust, writable, creator
    file.path = shm_paths.channel_path(name, in_prefix)
    file.open_or_create(create, mode, writable)
    return file


# ---- pools of dead publishers ----

def remove_pool_without_channel(str name, str in_prefix, uint64_t uid):
    """Remove a pool of a channel that has no file. Return False if the file exists, or the pool is gone.

    A later file has other pools, because their uids are random.
    """
    if os.path.lexists(shm_paths.channel_path(name, in_prefix)):
        return False
    return remove_file(name, shm_paths.pool_path(name, in_prefix, uid))


cdef int remove_dead_pools(ChannelFile file, int max_kept=KEPT_DEAD_POOLS) except -1:
    """Remove pools of dead publishers, under the lock: unreachable pools, and the oldest ones beyond `max_kept`.

    Return the number of pools left.
    """
    cdef mq_index_ring order
    cdef mq_channel_publisher_row *row
    cdef mq_liveness_probe probe
    cdef uint64_t newest
    cdef int i
    cdef bint has_order = mq_channel_load_index_ring(file.header, &order)
    cdef list dead = []
    probe = mq_liveness_probe_begin(file.liveness_file())
    for i in range(MQ_CHANNEL_PUBLISHERS):
        row = &file.header.publishers[i]
        if mq_load_acquire_u64(&row.pool_uid) and mq_channel_publisher_liveness(file.header, &probe, i) == MQ_DEAD:
            count = mq_channel_count_row_entries(&order, i, &newest) if has_order else 0
            dead.append((newest if count else 0, i, mq_load_relaxed_u64(&row.pool_bytes)))
    mq_liveness_probe_end(&probe)
    if not dead:
        return 0
    dead.sort()
    remaining, size = len(dead), sum(each[2] for each in dead)
    for newest, i, pool_bytes in dead:
        if newest and remaining <= max_kept and size <= KEPT_DEAD_BYTES:
            break
        _remove_publisher_pool(file, &order if has_order else NULL, i)
        remaining, size = remaining - 1, size - pool_bytes
    return remaining


cdef int remove_pool(ChannelFile file, uint64_t uid) except -1:
    with settings.overrides(trust=file.trust):
        remove_file(file.name, shm_paths.pool_path(file.name, file.prefix, uid))
    return 0


cdef int _remove_publisher_pool(ChannelFile file, const mq_index_ring *order, int i) except -1:
    """Retract a dead publisher's messages, and remove its pool."""
    cdef mq_channel_publisher_row *row = &file.header.publishers[i]
    if order != NULL:
        mq_channel_retract_row_entries(order, i)
    remove_pool(file, mq_load_relaxed_u64(&row.pool_uid))
    mq_channel_release_row(row)
    return 0
