"""A channel's file: open, create, lock, configure, and clean up after dead processes.

All changes except messages happen under the lock, by the steps of join.h. All values that are read are checked.
"""


# (device, inode): weak references to the marks of the channels that are open in this process. A WeakValueDictionary
# would run Python code when a mark ends, and exceptions of signal handlers in that code are lost.
cdef dict _open_marks = {}
cdef object _open_marks_lock = object()  # its critical section, because a dictionary's own ends with each call


# (name, prefix): path of a channel, and of a pool without its uid. A few, because each opening needs them.
cdef dict _known_paths = {}


cdef enum:
    KNOWN_PATHS_MAX = 64


cdef extern from "base/file.h" nogil:
    int mq_check_file(const mq_file_policy *policy, int fd, struct_stat *found, const char *path, mq_error *error)


@no_gc  # no mark is in a cycle, and __dealloc__ needs the key
cdef class OpenMark:
    """Lock that shows that this process has a channel open (MQ_CHANNEL_OPEN_BYTE). Channel objects share the lock."""

    def __dealloc__(self):
        if self.key is not None:
            with cython.critical_section(_open_marks_lock):
                if _open_marks.get(self.key) is self.reference:  # otherwise a newer mark has replaced it
                    del _open_marks[self.key]
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
    mark.key, mark.reference = key, PyWeakref_NewRef(mark, None)
    with cython.critical_section(_open_marks_lock):
        _open_marks[key] = mark.reference
    return 0


@no_gc_clear  # rows and slots in the mapping are needed until the end
cdef class ChannelFile(EndpointFile):
    """See core.pyi."""

    cdef str _kind_name(self):
        return "channel"

    cdef size_t _min_file_bytes(self) noexcept:
        return sizeof(mq_channel_header)

    cdef int _check_header(self) except -1:
        cdef mq_error error
        self.header = <mq_channel_header *> self.segment.address
        if mq_channel_check_file(self.header, self.segment.size, self.segment.file, &error):
            raise_error(&error, self.name)
        return 0

    cdef size_t _new_file_bytes(self) except 0:
        return sizeof(mq_channel_header)

    cdef int _init_header(self) except -1:
        cdef bytes creator = self.creator_name.encode()[:MQ_CHANNEL_CREATOR_BYTES - 1]
        mq_channel_header_init(<mq_channel_header *> self.segment.address, mq_channel_kind_of_name(self.name.encode()),
                               bus_time_ns(self.bus), this_process().pid, creator)
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
        cdef SegmentMemory memory
        with cython.critical_section(self):  # another thread may close the channel object
            memory = self.memory
        if memory is None:
            raise StateError("channel is closed; open it again", self.name)
        return memory

    cdef tuple identity(self):
        return self.segment.liveness_file.device, self.segment.inode

    @property
    def inode(self):
        return self.segment.inode

    cdef int _check_locked_file(self, const mq_file_lock *lock) except -1:
        """Raise an error if the channel was removed, or another user owns it now."""
        cdef struct_stat status
        cdef mq_error error
        if self.bus is not None and self.open_mark is not None and self.open_mark.generation != fork_generation:
            raise ForkedSocketError("was opened before a fork, on the bus of the parent process; open it again",
                                    self.name)
        if mq_check_file(&self.policy, lock.fd, &status, self.segment.file, &error):
            raise_error(&error, self.name)
        if not status.st_nlink:
            raise self._removed_error()
        return 0

    cdef object _reopen_error(self, int error):
        return self._removed_error() if error in (ENOENT, ESTALE) else EndpointFile._reopen_error(self, error)

    cdef mq_channel_files describe_files(self) noexcept:
        """Return the channel's files for the steps of join.h."""
        cdef mq_channel_files files
        files.policy, files.header, files.mode = &self.policy, self.header, self.mode
        files.pool_prefix, files.liveness_file = self.pool_prefix, self.liveness_file()
        return files

    # ---- configuration ----

    @property
    def config(self):
        cdef mq_channel_config g = mq_channel_config_unpack(mq_load_acquire_u64(&self.header.config))
        subscribers = None if g.subscribers == MQ_CHANNEL_ANY_SUBSCRIBERS else g.subscribers
        stamps = g.stamps == MQ_CHANNEL_STAMPED if g.stamps else None
        return g.capacity or None, g.publishers or None, subscribers or None, stamps

    def apply_config(self, capacity=None, publishers=None, subscribers=None, stamps=None, bint publishes=False):
        """Complete the configuration under the lock. A publisher sets all missing fields to their defaults."""
        cdef mq_channel_config requested, defaults, merged
        cdef mq_file_lock lock
        cdef mq_error error
        cdef const char *path = self.segment.file
        if capacity is None and publishers is None and subscribers is None and stamps is None and not publishes:
            return
        stamped = None if stamps is None else MQ_CHANNEL_STAMPED if stamps else MQ_CHANNEL_UNSTAMPED
        requested = mq_channel_config(capacity or 0, publishers or 0, subscribers or 0, stamped or 0)
        memset(&defaults, 0, sizeof(defaults))
        if publishes:
            defaults = mq_channel_default_config(MQ_CHANNEL_CAPACITY_DEFAULT)
        failed = mq_channel_merge_config(self.header, path, &requested, &defaults, &merged, &error)
        if not failed and mq_channel_is_configured(self.header, &merged):
            return
        if not failed:
            if not self.writable:
                raise StateError("has no complete configuration yet, and a passive handle cannot set it; open it "
                                 "without passive=True", self.name)
            self.lock(&lock)
            failed = mq_channel_configure(self.header, path, &requested, &defaults, &error)
            self.unlock(&lock)
        if failed:
            raise_error(&error, self.name)

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
            if replace or not mq_schema_is_set(&at):
                write_full_schema(&at, schema)
            return read_full_schema(&at)
        finally:
            self.unlock(&lock)

    def stats(self):
        """See `msgq.stats.channel`. Maps pools read-only, without a trace."""
        _memory = self.require_memory()  # during the call, another thread may close the channel
        stats = read_channel_stats(self)
        self.check_truncation()
        return stats

    def counts(self):
        _memory = self.require_memory()
        counts = read_channel_counts(self)
        self.check_truncation()
        return counts

    # ---- participants, for errors ----

    def describe_viewer(self, int row):
        cdef const mq_participant *owner = &self.header.viewers[row].participant
        return f"{_text(owner.name, MQ_NAME)} {mq_load_relaxed_u64(&owner.pid)}"

    def unlink(self, wanted=None):
        """Remove the channel's files if `wanted(stats)` is true. Return True if they were removed."""
        cdef mq_file_lock lock
        cdef mq_channel_files files = self.describe_files()
        cdef mq_error error
        if self.memory is None:
            return self._open_again().unlink(wanted)
        self.lock(&lock)
        try:
            if wanted is not None and not wanted(self.stats()):
                return False
            self.require_lock(&lock)
            failed = mq_channel_unlink(&files, &error)
        finally:
            self.unlock(&lock)
        if failed:
            raise_error(&error, self.name)
        return True

    cdef ChannelFile _open_again(self):
        """Return the file of the closed channel object, or raise an error if the channel was removed."""
        cdef ChannelFile file = open_channel_file(self.name, self.prefix, False, None, self.trust)
        if file.identity() != self.identity():
            raise self._removed_error()
        return file

    def remove_unreachable_pools(self):
        """Remove orphaned pools (`find_orphaned_pools`). Return the channel's stats before that."""
        cdef mq_file_lock lock
        cdef mq_channel_files files = self.describe_files()
        cdef mq_error error
        self.lock(&lock)
        try:
            stats = self.stats()
            self.require_lock(&lock)
            if mq_channel_sweep(&files, &lock, &error) < 0:
                raise_error(&error, self.name)
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
    file.bus = find_bus(in_prefix)
    file.path, file.pool_prefix = _find_paths(name, in_prefix)
    if trust is None:
        file.open_or_create(create, mode, writable)
    else:
        with settings.overrides(trust=trust):
            file.open_or_create(create, mode, writable)
    return file


cdef tuple _find_paths(str name, str in_prefix):
    """Return the path of the channel, and that of a pool without its uid."""
    paths = _known_paths.get((name, in_prefix))
    if paths is None:
        if len(_known_paths) >= KNOWN_PATHS_MAX:
            _known_paths.clear()
        pool_prefix = shm_paths.pool_path(name, in_prefix, 0).removesuffix("0" * 16).encode()
        paths = _known_paths[name, in_prefix] = shm_paths.channel_path(name, in_prefix), pool_prefix
    return paths


def remove_pool_without_channel(str name, str in_prefix, uint64_t uid):
    """Remove a pool of a channel that has no file. Return False if the file exists, or the pool is gone.

    A later file has other pools, because their uids are random.
    """
    if read_file_status(shm_paths.channel_path(name, in_prefix)) is not None:
        return False
    return remove_file(name, shm_paths.pool_path(name, in_prefix, uid))
