"""Both sides of a stream's lease table. See leases.h for the order of the steps.

The listener's thread admits clients while another thread publishes. Each method has the lock of its object, and C code
of other objects takes this lock.
"""


cdef enum:
    # A liveness test of a client that blocks a buffer takes about 5 us, or 70 us with cold caches.
    HOLDER_PROBE_INTERVAL_NS = 10000000  # interval of tests of a client that holds a needed buffer
    LAGGARD_PROBE_INTERVAL_NS = 1000000000  # interval of tests of a client that only keeps buffers rotating

LEASE_BUFFERS_MAX = MQ_FRAME_BUFFERS_MAX
LEASE_CLIENTS_MAX = MQ_FRAME_CLIENT_ROWS
LEASE_TABLE_BYTES = sizeof(mq_frame_lease_table)
VERSION = MQ_FRAME_LEASE_VERSION


cdef mq_liveness_file _make_liveness_file(int fd, str endpoint) except *:
    cdef struct_stat found
    if fstat(fd, &found) != 0:
        raise SegmentError(f"cannot examine the table of leases: {os.strerror(errno)}", endpoint, errno=errno)
    return mq_liveness_file_make(NULL, fd, &found)


# True if another process may share the state of this process's servers.
cdef bint _has_forked = False


cdef void _note_fork() noexcept nogil:
    global _has_forked
    _has_forked = True


pthread_atfork(_note_fork, NULL, NULL)


@final
cdef class ServerLeases:
    """See core.pyi."""

    def __cinit__(self):
        self._claimed_buffer = -1

    def __init__(self, DescriptorMapping region not None, int fd, uint32_t buffers, str endpoint):
        if region.size < sizeof(mq_frame_lease_table) or not 0 < buffers <= MQ_FRAME_BUFFERS_MAX:
            raise SegmentError(f"no table of leases for {buffers} buffers in {region.size} bytes", endpoint)
        if self._state != NULL:
            raise SegmentError("table of leases exists already", endpoint)
        self._liveness_file = _make_liveness_file(fd, endpoint)
        self._region = region
        self._table = <mq_frame_lease_table *> region.address
        self._endpoint = endpoint
        self._state = mq_frame_stream_state_create()
        if self._state == NULL:
            raise SegmentError(f"cannot allocate memory: {os.strerror(errno)}", endpoint, errno=errno)
        mq_frame_buffer_mru_init(&self._state.mru, buffers)
        self._pid_namespace = this_process().pid_namespace
        self.become_sender()

    def __dealloc__(self):
        if self._state != NULL:
            mq_frame_stream_state_unmap(self._state)

    cdef bint _lock(self) noexcept:
        """Exclude the other processes of the server; the lock of this object excludes other threads.

        Code under the lock must not call Python, because Python may run another thread of this process, which would
        wait for the lock and keep the GIL.
        """
        cdef bint locked = _has_forked
        if locked:
            mq_frame_stream_state_lock(self._state)
        return locked

    cdef void _unlock(self, bint locked) noexcept:
        if locked:
            mq_frame_stream_state_unlock(self._state)

    cdef int become_sender(self) except -1:
        """Make this process the sender of the stream. The next frame of the previous sender raises an error."""
        cdef const mq_process_identity *us = this_process()
        cdef bint locked = self._lock()
        self._sender = new_uid()
        mq_frame_stream_state_set_sender(self._state, self._sender, us)
        self._claimed_buffer = -1
        self._state.round_end = self._state.published + self._state.mru.buffers
        self._unlock(locked)
        return 0

    @property
    def newest(self):
        return self._state.mru.newest

    @property
    def buffers(self):
        return self._state.mru.buffers

    @property
    def published(self):
        return self._state.published

    @property
    def dropped(self):
        return self._state.dropped

    @property
    def taken_back(self):
        return self._state.taken_back

    def mark_replaced(self):
        self._state.is_replaced = True

    def grow(self):
        cdef bint locked = self._lock()
        cdef bint is_full = self._state.mru.buffers >= MQ_FRAME_BUFFERS_MAX
        if not is_full:  # one frame more in the round for the new buffer
            mq_frame_buffer_mru_add(&self._state.mru)
            self._state.round_end = max(self._state.round_end, self._state.published + self._state.mru.buffers)
        self._unlock(locked)
        if is_full:
            raise SegmentError(f"the table of leases has {MQ_FRAME_BUFFERS_MAX} buffers already", self._endpoint)

    def admit(self, uint64_t pid):
        cdef char state
        cdef long threads
        cdef uint64_t start_time = 0
        cdef uint32_t row
        cdef bint locked
        if pid:
            mq_read_process_stat(pid, &state, &threads, &start_time)
        locked = self._lock()
        row = self._admit(pid, start_time)
        self._unlock(locked)
        if row == MQ_FRAME_CLIENT_ROWS:
            raise IpcError(f"{MQ_FRAME_CLIENT_ROWS} clients use the stream, its limit; close one",
                           self._endpoint)
        return row

    cdef uint32_t _admit(self, uint64_t pid, uint64_t start_time) noexcept:
        """Give a row to a client. Return MQ_FRAME_CLIENT_ROWS if no row is free."""
        cdef uint32_t row
        for row in range(<uint32_t> MQ_FRAME_CLIENT_ROWS):
            if not self._state.clients[row].taken or self._is_row_released(row) or self._is_client_dead(row):
                self._state.clients[row] = mq_frame_client(pid, start_time, 0, self._state.published, True)
                mq_frame_row_reset(self._table, row, MQ_FRAME_ROW_TAKEN)
                self._state.used_row_count = max(self._state.used_row_count, row + 1)
                self._state.round_end = self._state.published + self._state.mru.buffers
                return row
        return MQ_FRAME_CLIENT_ROWS

    def admit_stock_client(self):
        self._state.has_stock_client = True

    def drop_client(self, uint32_t row, uint64_t pid):
        cdef bint locked = self._lock()
        if row < MQ_FRAME_CLIENT_ROWS and self._state.clients[row].taken and self._state.clients[row].pid == pid:
            self._drop_client(row, pid)
        self._unlock(locked)

    cdef void _drop_client(self, uint32_t row, uint64_t pid) noexcept:
        mq_frame_row_reset(self._table, row, MQ_FRAME_ROW_FREE)
        self._state.clients[row].taken = False
        # End this client's rotation, because a client may ask repeatedly.
        self._state.round_end = self._state.mru.buffers
        for row in range(self._state.used_row_count):
            if self._state.clients[row].taken:
                self._state.round_end = max(self._state.round_end,
                                            self._state.clients[row].joined_at_frame + self._state.mru.buffers)

    def clients(self):
        cdef uint32_t row
        return [self._state.clients[row].pid for row in range(self._state.used_row_count)
                if self._state.clients[row].taken and not self._is_row_released(row) and not self._is_client_dead(row)]

    def count_held_buffers(self):
        cdef uint32_t buffer
        return sum(mq_frame_lease_find_holder(self._table, self._state.used_row_count, buffer,
                                              self._state.mru.generation[buffer]) >= 0
                   for buffer in range(self._state.mru.buffers))

    cdef bint _is_row_released(self, uint32_t row) noexcept:
        return mq_frame_row_is_released(self._table, row, self._state.mru.generation)

    cdef bint _is_client_dead(self, uint32_t row) noexcept:
        cdef mq_frame_client *client = &self._state.clients[row]
        cdef uint64_t pid_namespace = self._pid_namespace
        cdef mq_liveness_probe probe
        cdef mq_liveness life
        if not mq_frame_row_is_locked(self._table, row):  # pid 0: a client in an invisible PID namespace
            return client.pid != 0 and mq_process_liveness(client.pid, client.start_time, pid_namespace) == MQ_DEAD
        probe = mq_liveness_probe_begin(&self._liveness_file)
        if client.pid:
            life = mq_owner_liveness(&probe, row, client.pid, pid_namespace)
        else:
            life = mq_liveness_is_locked(&probe, row)
        mq_liveness_probe_end(&probe)
        return life == MQ_DEAD

    cdef bint _reclaim_dead_client(self, uint32_t row, int64_t now_ns, int64_t pause_ns) noexcept:
        """If the client is dead, free its row and leases. The test is repeated after a pause."""
        cdef mq_frame_client *client = &self._state.clients[row]
        if client.taken:
            if now_ns - client.probed_ns < pause_ns:
                return False
            client.probed_ns = now_ns
            if not self._is_client_dead(row):
                return False
        self._state.taken_back += mq_frame_row_has_leases(self._table, row, self._state.mru.generation)
        mq_frame_row_reset(self._table, row, MQ_FRAME_ROW_FREE)
        client.taken = False
        return True

    cdef int take(self, bint stock_reader, bint may_grow, int64_t now_ns) noexcept:
        """Return the buffer to write next, or ALL_HELD or NOT_SENDER. leases.h describes the choice.

        `may_grow`: also return ALL_HELD if clients hold, or have not received, the frames of all buffers, because the
        caller can add a buffer. `now_ns` is the current CLOCK_BOOTTIME: a server reads this clock for each frame
        anyway.
        """
        cdef bint locked = self._lock()
        cdef int buffer = NOT_SENDER
        if self._claimed_buffer >= 0:  # an exception discarded the previous frame
            self._state.mru.writer[self._claimed_buffer] = 0
            self._claimed_buffer = -1
        if self._state.mru.sender == self._sender:
            buffer = self._choose_buffer(stock_reader, may_grow, now_ns)
        if buffer >= 0:
            self._state.mru.generation[buffer] = 0
            self._state.mru.writer[buffer] = self._sender
            self._claimed_buffer = buffer
        self._unlock(locked)
        return buffer

    cdef int _choose_buffer(self, bint stock_reader, bint may_grow, int64_t now_ns) noexcept:
        cdef int buffer = -1
        if not self._state.has_stock_client and not stock_reader and self._state.published >= self._state.round_end:
            buffer = self._take_mru_buffer(now_ns)
        if buffer < 0:
            buffer = self._take_oldest_buffer(self._count_waiting_frames(now_ns) if may_grow else 0, now_ns)
        return buffer

    cdef int _take_mru_buffer(self, int64_t now_ns) noexcept:
        cdef uint32_t rows = self._state.used_row_count
        cdef int buffer = -1, slowest
        cdef uint32_t _
        for _ in range(rows + 1):  # bound: each round reclaims a row of a dead client
            awaited = mq_frame_count_awaited_frames(self._table, rows, self._state.mru.newest, &slowest)
            buffer = mq_frame_buffer_claim_mru(&self._state.mru, self._table, rows, awaited)
            if buffer >= 0 or slowest < 0 or not self._reclaim_dead_client(slowest, now_ns, LAGGARD_PROBE_INTERVAL_NS):
                break
        return buffer

    cdef uint32_t _count_waiting_frames(self, int64_t now_ns) noexcept:
        """Return the number of newest frames that a living client has not received."""
        cdef uint32_t waiting = 0, _
        cdef int slowest
        for _ in range(self._state.used_row_count + 1):  # bound: each round reclaims a row of a dead client
            waiting = mq_frame_count_waiting_frames(self._state, self._table, &slowest)
            if waiting < self._state.mru.buffers:
                break
            if not self._reclaim_dead_client(slowest, now_ns, LAGGARD_PROBE_INTERVAL_NS):
                break
        return waiting

    cdef int _take_oldest_buffer(self, uint32_t waiting, int64_t now_ns) noexcept:
        """Take the oldest buffer that no client holds. Return -1 if clients wait for its frame, or hold all buffers."""
        cdef mq_frame_buffer_mru *mru = &self._state.mru
        cdef uint32_t rows = self._state.used_row_count
        cdef uint32_t place, buffer, _
        cdef int holder
        for place in range(mru.buffers, 0, -1):
            buffer = mru.order[place - 1]
            if not mq_frame_buffer_is_ours(mru, buffer):
                continue
            if mq_frame_buffer_mru_age(mru, buffer) < waiting:  # all further frames are newer
                return -1
            for _ in range(rows + 1):  # bound: each round reclaims a row of a dead client
                holder = mq_frame_buffer_claim(self._table, rows, buffer, mru.generation[buffer])
                if holder < 0:
                    return buffer
                if not self._reclaim_dead_client(holder, now_ns, HOLDER_PROBE_INTERVAL_NS):
                    break
        return -1

    cdef uint32_t publish(self, uint32_t buffer) noexcept:
        """Publish the frame in a claimed buffer. Return the generation for the packet; 0: another process sends now."""
        cdef bint locked = self._lock()
        cdef uint32_t generation = 0
        if self._state.mru.sender == self._sender:
            self._state.published += 1
            generation = mq_frame_buffer_mru_publish(&self._state.mru, self._table, buffer)
        self._state.mru.writer[buffer] = 0
        self._claimed_buffer = -1
        self._unlock(locked)
        return generation

    cdef void count_dropped_frame(self) noexcept:
        self._state.dropped += 1
        mq_frame_store_dropped_count(self._table, self._state.dropped)


@no_gc_clear  # views return their leases in the region, and the client releases its row there
cdef class ClientLeases(PinOwner):
    """See core.pyi."""

    def __init__(self, DescriptorMapping region not None, int fd, uint32_t row, uint32_t since, str endpoint):
        cdef mq_liveness_file liveness_file
        if region.size < sizeof(mq_frame_lease_table) or row >= MQ_FRAME_CLIENT_ROWS:
            raise SegmentError(f"the server's table has {region.size} bytes, our row is {row}: not a table of leases",
                               endpoint)
        memset(self._held_buffers, 0, sizeof(self._held_buffers))
        self._region = region
        self._row = row
        self.since = since
        self._fork_generation = fork_generation
        self._table = <mq_frame_lease_table *> region.address
        self._dropped_before = mq_frame_load_dropped_count(self._table)
        liveness_file = _make_liveness_file(fd, endpoint)
        self._liveness_token = mq_liveness_lock(&liveness_file, row, True)
        if self._liveness_token != NULL:
            mq_frame_row_set_locked(self._table, row)

    def __dealloc__(self):
        if self._table != NULL and self._fork_generation == fork_generation:
            mq_frame_row_set_left(self._table, self._row)
            mq_liveness_unlock(self._liveness_token)

    @property
    def dropped(self):
        return mq_frame_load_dropped_count(self._table) - self._dropped_before

    def end(self):
        if self._liveness_token != NULL and self._fork_generation == fork_generation:  # without a lock, the row stays
            mq_frame_row_set_leaving(self._table, self._row)

    cdef void _unpin_part(self, uint64_t buffer) noexcept:
        self._held_buffers[buffer] = 0
        mq_frame_lease_return(self._table, self._row, buffer)
